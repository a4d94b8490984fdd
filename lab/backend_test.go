package lab

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/play"
)

// TestStopOfALabThatNeverWas: a lab whose start fails before it has made anything is stopped all
// the same, and says why.
func TestStopOfALabThatNeverWas(t *testing.T) {
	NeedControlPlane(t)
	b := New(Options{Hosts: Model})
	plan := &scenarios.Plan{}
	plan.Spec.Topology.Hosts = []scenarios.Host{{Name: "worker-1"}}
	plan.Spec.Controllers = []scenarios.Controller{{Name: "fencer", Plays: "remediation", Program: &scenarios.Program{
		Image: scenarios.Image(filepath.Join(t.TempDir(), "nothing.tar")),
	}}}
	_, err := b.Start(t.Context(), plan)
	var missing *play.Missing
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "nothing.tar") {
		t.Errorf("it starts with %v", err)
	}
	if _, err := b.Stop(); err != nil {
		t.Errorf("it stops with %v", err)
	}
}
