package backendtest

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/play"
)

// The hosts of the plan that is played: guarded has a watchdog, and plain is alone in its
// failure domain.
const (
	plain   = "worker-1"
	guarded = "worker-2"
	domain  = "rack"
)

// compile returns the plan that is played by hand: it has no steps.
func compile(t testing.TB) *scenarios.Plan {
	t.Helper()
	s := &scenarios.Scenario{
		APIVersion: scenarios.APIVersion, Kind: scenarios.KindScenario,
		Metadata: scenarios.Metadata{Name: "by-hand", Description: "A run that is played by hand."},
		Spec: scenarios.Spec{
			Topology: scenarios.Topology{
				Hosts: []scenarios.Host{{Name: plain, Domain: domain}, {Name: guarded, Watchdog: scenarios.Duration(10 * time.Second)}},
				Lease: scenarios.Duration(time.Second),
			},
			Controllers: []scenarios.Controller{
				{Name: "reboot", Settings: json.RawMessage(`{"pollInterval": "1s", "softTimeout": "5s", "steadyInterval": "5m", "maxBackoff": "5s"}`)},
			},
		},
	}
	plan, err := scenarios.Compile(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// walk is a run that is played by hand, with all of its events. Every result of Advance is checked
// against the contract.
type walk struct {
	*testing.T
	b      play.Backend
	driven *sync.Map // the names of the operations that walks have done
	now    time.Duration
	seen   []history.Event
}

// start brings the topology up.
func start(t *testing.T, b play.Backend, driven *sync.Map, with func(*scenarios.Topology)) *walk {
	t.Helper()
	t.Cleanup(func() {
		for range 2 {
			if _, err := b.Stop(); err != nil {
				t.Errorf("stop: %v", err)
			}
		}
	})
	plan := compile(t)
	with(&plan.Spec.Topology)
	_, err := b.Start(context.Background(), plan)
	if missing := new(play.Missing); plan.Spec.Topology.Ironic != nil && errors.As(err, &missing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{T: t, b: b, driven: driven}
	w.until(5*time.Minute, func(e history.Event) bool { return e.Kind == history.RunStarted })
	if w.count(history.RunStarted) != 1 {
		t.Fatalf("the topology was not up after %s", w.now)
	}
	for _, host := range plan.Spec.Topology.Hosts {
		for _, kind := range [...]history.Kind{history.BootStarted, history.BootComplete, history.NodeCreated, history.NodeReady, history.NodeLabels} {
			if !w.has(event{kind: kind, host: host.Name}) {
				t.Errorf("the story began without a %s of %s", kind, host.Name)
			}
		}
	}
	return w
}

// until advances by at most so much and checks what comes of it.
func (w *walk) until(atMost time.Duration, stop func(history.Event) bool) {
	w.Helper()
	until := w.now + atMost
	var last *history.Event
	halted := false
	at, err := w.b.Advance(until, func(e history.Event) bool {
		if halted {
			w.Errorf("%s was handed over after the callback had stopped the world", e)
		}
		if len(w.seen) > 0 && e.At < w.seen[len(w.seen)-1].At {
			w.Errorf("%s comes after an event of %s", e, w.seen[len(w.seen)-1].At)
		}
		if e.At > until {
			w.Errorf("%s was handed over by an advance until %s", e, until)
		}
		if e.Kind.Layer() == "" {
			w.Errorf("%s is of no known kind", e)
		}
		if field := e.Lacks(); field != "" {
			w.Errorf("%s has no %s", e, field)
		}
		w.seen = append(w.seen, e)
		last, halted = &e, stop(e)
		return halted
	})
	if err != nil {
		w.Fatalf("advance until %s: %v", until, err)
	}
	switch {
	case halted && at != last.At:
		w.Errorf("stopped at %s by an event of %s", at, last.At)
	case !halted && at != until:
		w.Errorf("advanced to %s instead of %s, though nobody stopped it", at, until)
	case at < w.now:
		w.Errorf("advanced backwards, from %s to %s", w.now, at)
	}
	w.now = at
}

// event describes an expected event. Empty fields match anything.
type event struct {
	kind                            history.Kind
	host, actor, object, key, value string
}

func (want event) is(e history.Event) bool {
	same := func(want, got string) bool { return want == "" || want == got }
	return want.kind == e.Kind && same(want.host, e.Host) && same(want.actor, e.Actor) && same(want.object, e.Object) &&
		same(want.key, e.Key) && same(want.value, e.Value)
}

func (w *walk) has(want event) bool {
	for _, e := range w.seen {
		if want.is(e) {
			return true
		}
	}
	return false
}

func (w *walk) count(kind history.Kind) (n int) {
	for _, e := range w.seen {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// comes waits for an event and returns it.
func (w *walk) comes(want event) history.Event {
	w.Helper()
	found := false
	w.until(2*time.Minute, func(e history.Event) bool {
		found = want.is(e)
		return found
	})
	if !found {
		w.Fatalf("by %s there was no %+v; the last events are %v", w.now, want, w.seen[max(0, len(w.seen)-5):])
	}
	return w.seen[len(w.seen)-1]
}

// next waits for the next event of a kind and a host, which must be this one.
func (w *walk) next(want event) {
	w.Helper()
	if e := w.comes(event{kind: want.kind, host: want.host}); !want.is(e) {
		w.Errorf("%s came, want %+v", e, want)
	}
}

// never lets time pass in which there must be no such event.
func (w *walk) never(want event, within time.Duration) {
	w.Helper()
	w.until(within, func(e history.Event) bool {
		if want.is(e) {
			w.Errorf("%s came, which should not", e)
		}
		return false
	})
}

// do performs an operation.
func (w *walk) do(op scenarios.Op) {
	w.Helper()
	w.driven.Store(op.Name(), true)
	if err := w.b.Apply(op); err != nil {
		w.Fatalf("%s: %v", op, err)
	}
}

// ineffective performs an operation for which there is nothing to do it to.
func (w *walk) ineffective(op scenarios.Op) play.Ineffective {
	w.Helper()
	var ineffective *play.Ineffective
	if err := w.b.Apply(op); !errors.As(err, &ineffective) {
		w.Errorf("%s: %v, want an Ineffective error", op, err)
		return play.Ineffective{}
	}
	return *ineffective
}
