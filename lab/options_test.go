package lab

import (
	"testing"

	"github.com/fencelab/fencelab/scenarios"
)

// TestEveryPartHasACost: no part is free because its cost was forgotten.
func TestEveryPartHasACost(t *testing.T) {
	for _, part := range Parts {
		for _, value := range part.Of {
			if _, ok := costs[value]; !ok {
				t.Errorf("nothing says what --%s %s costs", part.Flag, value)
			}
		}
	}
}

func TestCost(t *testing.T) {
	plan := &scenarios.Plan{}
	plan.Spec.Topology.Hosts = make([]scenarios.Host, 3)
	for name, c := range map[string]struct {
		options Options
		want    int
	}{
		"by default":     {Options{}, 5},
		"models":         {Options{Hosts: Model}, 2},
		"real nodes":     {Options{Hosts: Node}, 9},
		"models in kind": {Options{Hosts: Model, Cluster: Kind}, 4},
		"an Ironic":      {Options{Hosts: Model, Power: Ironic}, 3},
	} {
		if got := c.options.cost(plan); got != c.want {
			t.Errorf("%s: a lab costs %d, want %d", name, got, c.want)
		}
	}
	plan.Spec.Controllers = []scenarios.Controller{{Name: "reboot"}, {Name: "fencer", Program: new(scenarios.Program)}}
	if got := (Options{Hosts: Model}).cost(plan); got != 3 {
		t.Errorf("with a program a lab costs %d, want 3", got)
	}
}
