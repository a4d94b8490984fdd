package sim

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// gossip is an agent that asks its peer and passes on what it hears.
type gossip struct {
	d    controllers.Deps
	peer string
	log  *[]string
}

func (g *gossip) say(format string, args ...any) {
	*g.log = append(*g.log, g.d.Host.Name+" "+fmt.Sprintf(format, args...))
}

func (g *gossip) Step(ctx context.Context) (time.Duration, error) {
	var node corev1.Node
	if err := g.d.Client.Get(ctx, client.ObjectKey{Name: g.d.Host.Node}, &node); err != nil {
		g.say("read no Node")
	}
	if answer, ok := g.d.Peers.Ask(ctx, map[string][]string{g.peer: nil}, []byte("hello"), 5*time.Second)[g.peer]; !ok {
		g.say("heard nothing")
	} else {
		g.say("%s", answer)
	}
	return time.Second, nil
}

func (g *gossip) Answer(_ context.Context, from string, request []byte) ([]byte, error) {
	return []byte(string(request) + " " + from), nil
}

// TestAgents: a process on a host starts with a boot and dies with it, stands still with
// it, and reaches its peers over its host's links, each way by itself.
func TestAgents(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := scenarios.Compile(&scenarios.Scenario{Spec: scenarios.Spec{Topology: scenarios.Topology{
		Hosts: []scenarios.Host{{Name: "a"}, {Name: "b"}}, Lease: scenarios.Duration(time.Second),
	}}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	b := s.Backend()
	if _, err := b.Start(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	var log []string
	peers := map[string]string{"a": "b", "b": "a"}
	lives := 0
	b.addAgents(controllers.Selection{Registration: controllers.Registration{
		Name: "gossip", Place: controllers.EveryHost, Workers: 1,
		NewAgent: func(d controllers.Deps) (controllers.Agent, error) {
			lives++
			return &gossip{d, peers[d.Host.Name], &log}, nil
		},
	}})
	for _, p := range b.processes {
		if p.resident != nil {
			p.restart(startLatency)
		}
	}
	now := time.Duration(0)
	// heard returns the messages heard within a time, each once, sorted.
	heard := func(within time.Duration) []string {
		t.Helper()
		log = nil
		if now, err = b.Advance(now+within, func(history.Event) bool { return false }); err != nil {
			t.Fatal(err)
		}
		slices.Sort(log)
		return slices.Compact(log)
	}
	do := func(op scenarios.Op) {
		t.Helper()
		if err := b.Apply(op); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	const silent = "heard nothing"
	link := &scenarios.LinkOp{From: "host/a", To: "host/b"}
	hostB := &scenarios.HostOp{Host: "b"}
	expect("both run", heard(10*time.Second), "a hello a", "b hello b")
	do(scenarios.Op{Cut: link})
	heard(10 * time.Second)
	expect("a is not heard, nor are its answers", heard(20*time.Second), "a "+silent, "b "+silent)
	do(scenarios.Op{Restore: link})
	heard(10 * time.Second)
	do(scenarios.Op{Cut: &scenarios.LinkOp{Host: "a"}})
	heard(40 * time.Second)
	expect("a is cut off", heard(60*time.Second), "a "+silent, "a read no Node", "b "+silent)
	do(scenarios.Op{Restore: &scenarios.LinkOp{Host: "a"}})
	heard(40 * time.Second)
	do(scenarios.Op{Pause: hostB})
	heard(10 * time.Second)
	expect("b stands still", heard(20*time.Second), "a "+silent)
	do(scenarios.Op{Resume: hostB})
	heard(10 * time.Second)
	expect("b goes on", heard(10*time.Second), "a hello a", "b hello b")
	before := lives
	do(scenarios.Op{PowerLoss: hostB})
	heard(10 * time.Second)
	expect("b is off", heard(20*time.Second), "a "+silent)
	do(scenarios.Op{PowerUp: hostB})
	heard(20 * time.Second)
	if expect("b has booted", heard(10*time.Second), "a hello a", "b hello b"); lives != before+1 {
		t.Errorf("a boot made %d agents", lives-before)
	}
	do(scenarios.Op{Crash: &scenarios.CrashOp{Controller: "gossip", Host: "b", RestartAfter: scenarios.Duration(20 * time.Second)}})
	heard(time.Second)
	expect("b runs without its agent", heard(10*time.Second), "a "+silent)
	do(scenarios.Op{PowerLoss: hostB})
	do(scenarios.Op{PowerUp: hostB})
	heard(time.Minute)
	if lives != before+2 {
		t.Errorf("a crash and a boot made %d agents, want one for the boot", lives-before-1)
	}
}
