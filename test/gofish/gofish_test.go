package gofish_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/fencetest"
	"github.com/fencelab/fencelab/test/gofish"
)

const (
	cutOff   = "../../scenarios/catalog/machine-remediation/cut-off-host.yaml"
	powering = "../../scenarios/conformance/bmc-says-powering-off.yaml"
)

// TestRight: gofish's requests are steps of a schedule as any other, which come late, fail, or find
// the BMC silent, and a controller that uses it rightly holds in all of them.
func TestRight(t *testing.T) {
	for name, schedules := range map[string]int{"direct": 80, "searching": 30} {
		for _, story := range []string{cutOff, powering} {
			fencetest.Sweep(t, story, fencetest.With(gofish.Module(false)), fencetest.Instead("reboot", name), fencetest.Strategy("sweep", schedules))
		}
	}
}

// TestHasty: what isn't on isn't off.
func TestHasty(t *testing.T) {
	for _, name := range []string{"direct", "searching"} {
		broken := fencetest.Broken(t, powering, fencetest.With(gofish.Module(true)), fencetest.Instead("reboot", name), fencetest.Strategy("sweep", 5))
		if !slices.Contains(broken, "fenced-before-release") {
			t.Errorf("%s takes PoweringOff for off, and breaks %q", name, broken)
		}
	}
}

// TestStray: a request from a goroutine that a reconcile of New has started ends the run, with what
// to do about it.
func TestStray(t *testing.T) {
	for _, o := range fencetest.Play(t, cutOff, fencetest.With(gofish.Module(false)), fencetest.Instead("reboot", "stray")) {
		if o.Err == nil || !strings.Contains(o.Err.Error(), "make it by Setup instead of New") {
			t.Errorf("the run ended with %v", o.Err)
		}
	}
}
