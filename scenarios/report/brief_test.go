package report

import (
	"testing"

	"github.com/fencelab/fencelab/scenarios/history"
)

// TestEveryKindHasAWeight: who adds a kind of event decides how much it says.
func TestEveryKindHasAWeight(t *testing.T) {
	for _, layer := range []history.Layer{history.World, history.API, history.BMC, history.Controller, history.Engine} {
		for _, kind := range history.Kinds(layer) {
			if _, weighed := weights[kind]; !weighed {
				t.Errorf("%s has no weight in brief.go", kind)
			}
		}
	}
}
