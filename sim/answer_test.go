package sim_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/steps"
)

// curious is an agent that asks all its peers, who look at the API server before they answer. One
// that isn't discreet looks once more for each time that it was asked.
type curious struct {
	d        controllers.Deps
	discreet bool
	asked    int
}

func (c *curious) Step(ctx context.Context) (time.Duration, error) {
	peers := map[string][]string{"a": nil, "b": nil, "c": nil}
	delete(peers, c.d.Host.Node)
	c.d.Peers.Ask(ctx, peers, []byte("are you there?"), time.Second)
	return time.Second, nil
}

func (c *curious) Answer(ctx context.Context, _ string, _ []byte) ([]byte, error) {
	if !c.discreet {
		c.asked = (c.asked + 1) % 3
	}
	for range c.asked + 1 {
		if err := c.d.Client.List(ctx, &corev1.NodeList{}); err != nil {
			return nil, err
		}
	}
	return []byte("yes"), nil
}

// TestAnswersLeaveAgentsAlone: an agent that remembers who has asked it is found when two questions
// are swapped, and the error says what it must not do. One that doesn't passes all along the story.
func TestAnswersLeaveAgentsAlone(t *testing.T) {
	for _, discreet := range []bool{true, false} {
		set, err := controllers.NewSet(controllers.Module{Controllers: []controllers.Registration{{
			Name: "curious", Place: controllers.EveryHost, Workers: 1, AsksPeers: true,
			NewAgent: func(d controllers.Deps) (controllers.Agent, error) { return &curious{d: d, discreet: discreet}, nil },
		}}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := sim.With(set)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := scenarios.Compile(&scenarios.Scenario{Spec: scenarios.Spec{
			Topology:    scenarios.Topology{Hosts: []scenarios.Host{{Name: "a"}, {Name: "b"}, {Name: "c"}}, Lease: scenarios.Duration(10 * time.Second)},
			Controllers: []scenarios.Controller{{Name: "curious"}},
			Steps:       []scenarios.Step{{After: scenarios.Span{Min: 20 * time.Second, Max: 20 * time.Second}, Do: &scenarios.Op{StopKubelet: &scenarios.HostOp{Host: "a"}}}},
		}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		asks := func(s steps.Step) bool { return s.Class == steps.ClassPeer && s.Object.Name != "" }
		pairs := 0
		for n := 0; err == nil && n < 400; n += 5 {
			var audited bool
			if audited, err = s.Audit(plan, n, func(one, other steps.Step) bool { return asks(one) && asks(other) && one.Independent(other) }); !audited {
				break
			}
			pairs++
		}
		switch {
		case discreet && (err != nil || pairs < 20):
			t.Errorf("%d pairs of questions were swapped: %v", pairs, err)
		case !discreet && (err == nil || !strings.Contains(err.Error(), "the agent's Answer changes")):
			t.Errorf("an agent that counts questions was not found in %d pairs: %v", pairs, err)
		}
	}
}
