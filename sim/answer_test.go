package sim_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/steps"
)

// curious is an agent that asks all its peers, who look at the API server before they answer: once,
// and once more for every other one of their Steps so far, of which they publish the number.
type curious struct {
	d controllers.Deps
	// counts says that it also looks once more for each question so far, and hides that it doesn't
	// publish its Steps.
	counts, hides bool
	asked, steps  int
}

func (c *curious) Step(ctx context.Context) (time.Duration, error) {
	c.steps = (c.steps + 1) % 6
	peers := map[string][]string{"a": nil, "b": nil, "c": nil}
	delete(peers, c.d.Host.Node)
	c.d.Peers.Ask(ctx, peers, []byte("are you there?"), time.Second)
	return time.Second + 100*time.Millisecond*time.Duration(c.d.Host.Node[0]-'a'), nil
}

func (c *curious) Answer(ctx context.Context, _ string, _ []byte) ([]byte, error) {
	if c.counts {
		c.asked = (c.asked + 1) % 3
	}
	for range c.asked + c.steps/2 + 1 {
		if err := c.d.Client.List(ctx, &corev1.NodeList{}); err != nil {
			return nil, err
		}
	}
	return []byte("yes"), nil
}

func (c *curious) Published() any {
	if c.hides {
		return 0
	}
	return c.steps / 2
}

// TestAnswers: an agent that remembers who has asked it is found when two questions are swapped,
// and one that answers by more than it publishes when a question and its Step are. The error says
// what it must not do. One that does neither passes all along the story.
func TestAnswers(t *testing.T) {
	asks := func(s steps.Step) bool { return s.Class == steps.ClassPeer && s.Object.Name != "" }
	questions := func(one, other steps.Step) bool { return asks(one) && asks(other) && one.Independent(other) }
	published := func(one, other steps.Step) bool {
		return asks(one) && other.Class == steps.ClassTimer && one.MayBeIndependent(other) && !one.Independent(other)
	}
	for name, tc := range map[string]struct {
		agent  curious
		swaps  func(one, other steps.Step) bool
		accuse string
	}{
		"two questions":                      {curious{}, questions, ""},
		"who asks is remembered":             {curious{counts: true}, questions, "the agent's Answer changes"},
		"a question and a Step":              {curious{}, published, ""},
		"answers go by what isn't published": {curious{hides: true}, published, "or goes by more than it has published"},
	} {
		s := of(t, controllers.Registration{
			Name: "curious", Place: controllers.EveryHost, Workers: 1, AsksPeers: true,
			NewAgent: func(d controllers.Deps) (controllers.Agent, error) {
				agent := tc.agent
				agent.d = d
				return &agent, nil
			},
		})
		pairs, err := audit(t, s, "curious", tc.swaps)
		switch {
		case tc.accuse == "" && (err != nil || pairs < 20):
			t.Errorf("%s: %d pairs were swapped: %v", name, pairs, err)
		case tc.accuse != "" && (err == nil || !strings.Contains(err.Error(), tc.accuse)):
			t.Errorf("%s: it was not found in %d pairs: %v", name, pairs, err)
		}
	}
}

// busybody looks at a Node 4 to 6 times, in turn, by what its reconciles of the Node so far have
// done, or those of any Node.
type busybody struct {
	d    controllers.Deps
	any  bool
	seen map[string]int
}

func (b *busybody) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	key := r.Name
	if b.any {
		key = ""
	}
	var err error
	for looks := 6; looks > 0; looks-- { // so that several are under way
		err = errors.Join(err, b.d.Live.Get(ctx, r.NamespacedName, &corev1.Node{}))
		if looks == 4 {
			b.seen[key] = (b.seen[key] + 1) % 3
			looks -= b.seen[key]
		}
	}
	return reconcile.Result{RequeueAfter: time.Second}, err
}

// TestApart: a controller that says that its reconciles of different requests share no memory, and
// whose reconciles do, is found when two of them are swapped.
func TestApart(t *testing.T) {
	for _, shares := range []bool{false, true} {
		s := of(t, controllers.Registration{
			Name: "busybody", For: &corev1.Node{}, Workers: 3, Apart: true,
			New: func(d controllers.Deps) (reconcile.Reconciler, error) {
				return &busybody{d: d, any: shares, seen: make(map[string]int)}, nil
			},
		})
		pairs, err := audit(t, s, "busybody", func(one, other steps.Step) bool {
			return one.Actor == "busybody" && other.Actor == "busybody" && one.Class == steps.ClassAPI && other.Class == steps.ClassAPI && one.MayBeIndependent(other)
		})
		switch {
		case !shares && (err != nil || pairs < 5):
			t.Errorf("%d pairs of calls were swapped: %v", pairs, err)
		case shares && (err == nil || !strings.Contains(err.Error(), "the reconciles of different requests share more than the cache")):
			t.Errorf("a controller that shares its memory was not found in %d pairs: %v", pairs, err)
		}
	}
}

// audit swaps steps all along a story in which one controller runs beside three hosts.
func audit(t *testing.T, s *sim.Simulator, controller string, swaps func(one, other steps.Step) bool) (pairs int, err error) {
	t.Helper()
	plan, err := scenarios.Compile(&scenarios.Scenario{Spec: scenarios.Spec{
		Topology:    scenarios.Topology{Hosts: []scenarios.Host{{Name: "a"}, {Name: "b"}, {Name: "c"}}, Lease: scenarios.Duration(10 * time.Second)},
		Controllers: []scenarios.Controller{{Name: controller}},
		Steps:       []scenarios.Step{{After: scenarios.Span{Min: 20 * time.Second, Max: 20 * time.Second}, Do: &scenarios.Op{StopKubelet: &scenarios.HostOp{Host: "a"}}}},
	}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; err == nil && n < 400; n += 5 {
		var audited bool
		if audited, err = s.Audit(plan, n, swaps); audited {
			pairs++
		}
	}
	return pairs, err
}

// of returns a simulator that has one controller.
func of(t *testing.T, one controllers.Registration) *sim.Simulator {
	t.Helper()
	set, err := controllers.NewSet(controllers.Module{Controllers: []controllers.Registration{one}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.With(set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
