package sim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim/steps"
)

// TestEveryStepIsTold: whichever step of the catalogue's stories deviates, and however, it can be
// described.
func TestEveryStepIsTold(t *testing.T) {
	paths, err := filepath.Glob("../scenarios/catalog/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	simulator, err := New()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, path := range paths {
		if i%7 != 0 && !strings.Contains(path, "/agents/") { // they have their steps in common
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		cells, err := file.LoadCells(path, data, objects.Vocabulary(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if worlds := cells[0].Spec.Worlds; len(worlds) > 0 && worlds[0] != "sim" {
			continue
		}
		plan, err := scenarios.Compile(cells[0], 1)
		if err != nil {
			t.Fatal(err)
		}
		backend := simulator.Backend()
		backend.Watch = func(step steps.Step) (scenarios.Deviation, bool) {
			if kind := string(step.Class) + " " + step.Verb; !seen[kind] {
				seen[kind] = true
				actor, does := steps.Told(step)
				for _, fault := range append(step.Faults(), "") {
					d := scenarios.Deviation{Step: step.Name(), Fault: fault, Delay: scenarios.Duration(time.Second)}
					text := d.Tell(actor, does, "")
					d.After = "reboot/api/1"
					if order := d.Tell(actor, does, "OTHER'S DEED"); !strings.Contains(order, "fter OTHER'S DEED") || !strings.Contains(order, actor) {
						t.Errorf("%s, which %q: %q", d, does, order)
					}
					if strings.Contains(text, " of  ") || strings.ContainsAny(text, "\n") || strings.Contains(text, "OBJECT") || !strings.Contains(text, actor) {
						t.Errorf("%s, which %q: %q", d, does, text)
					}
				}
			}
			return scenarios.Deviation{}, false
		}
		if _, err := play.Run(t.Context(), plan, backend, nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) < 20 {
		t.Errorf("only %d kinds of steps were seen", len(seen))
	}
}
