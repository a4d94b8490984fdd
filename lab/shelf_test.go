package lab_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/ci/fidelity"
	"github.com/fencelab/fencelab/lab"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
)

// TestHandedOn plays six stories on control planes of their own, and on one that goes from each to
// the next. Neither the verdicts nor the order of events, which must be that of the simulator, may
// show a difference.
func TestHandedOn(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" || os.Getenv("FENCELAB_E2E") == "quick" {
		t.Skip("it runs with make e2e")
	}
	o := lab.Options{Hosts: lab.Model, Log: t.Output()}
	if err := lab.Check(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	stories := []string{
		"reboot-annotation/plain-power-cycle.yaml", "reboot-annotation/stuck-soft-shutdown.yaml",
		"machine-remediation/cut-off-host.yaml", "machine-remediation/crash-after-each-effect.yaml",
		"machine-remediation/wrong-deletes-node-before-power-off.yaml", "machine-remediation/wrong-powers-on-before-node-deleted.yaml",
	}
	fresh := make([]*play.Outcome, len(stories))
	t.Run("new", func(t *testing.T) {
		for i, file := range stories {
			t.Run(filepath.Base(file), func(t *testing.T) {
				t.Parallel()
				fresh[i] = hear(t, file, o)
			})
		}
	})
	own := cluster.Shelf{Spare: cluster.NoSpare}
	defer func() {
		if err := own.Close(); err != nil {
			t.Error(err)
		}
	}()
	o.Shelf = &own
	t.Run("the first life", func(t *testing.T) { hear(t, stories[len(stories)-1], o) })
	first, _ := own.Holds()
	for i, file := range stories {
		t.Run(filepath.Base(file), func(t *testing.T) {
			compare(t, fresh[i], hear(t, file, o))
			if processes, _ := own.Holds(); len(processes) == 0 || !slices.Equal(processes, first) {
				t.Errorf("the processes of the control plane are %v, those of the one before %v", processes, first)
			}
		})
	}
}

// hear plays a story in a lab and returns its outcome.
func hear(t *testing.T, file string, o lab.Options) *play.Outcome {
	t.Helper()
	o.Log = t.Output()
	outcome, err := play.Run(t.Context(), compile(t, file), lab.New(o), nil)
	if err != nil {
		t.Fatal(err)
	}
	save(t, outcome)
	if mismatch := outcome.Meets(); mismatch != "" {
		t.Errorf("%s\n\n%s", mismatch, report.Brief(outcome, "", ""))
	}
	return outcome
}

// compare holds two tellings of a story against each other.
func compare(t *testing.T, fresh, handedOn *play.Outcome) {
	t.Helper()
	if fresh == nil {
		t.Fatal("it could not be told on a new control plane")
	}
	was, _ := fresh.Verdict()
	is, _ := handedOn.Verdict()
	tellings := [2]fidelity.Telling{{Where: "on a new control plane"}, {Where: "on one that was handed on"}}
	for i, o := range []*play.Outcome{fresh, handedOn} {
		events := o.History.Events()
		if o.Broken != nil {
			events = fidelity.UpTo(events, o.Broken.Second.Seq)
		}
		tellings[i].Orders = fidelity.Orders(events)
	}
	if differ := fidelity.Differences(tellings[0], tellings[1], fresh.Broken != nil); was != is || len(differ) > 0 || len(tellings[0].Orders) == 0 {
		t.Errorf("it is %s, and on a control plane that was handed on %s:\n  %s", was, is, strings.Join(differ, "\n  "))
	}
}
