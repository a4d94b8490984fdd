package sim

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim/simtest"
	"github.com/fencelab/fencelab/sim/steps"
)

// TestEveryStepSaysWhatItDoes plays every story of the catalogue: no step lacks a verb,
// an object or a place, or writes nothing.
func TestEveryStepSaysWhatItDoes(t *testing.T) {
	files, err := filepath.Glob("../scenarios/catalog/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	classes, lacking := map[steps.Class]int{}, map[string]bool{}
	for _, file := range files {
		for _, plan := range simtest.Plans(t, file) {
			if worlds := plan.Spec.Worlds; len(worlds) > 0 && worlds[0] != "sim" {
				continue
			}
			b := s.Backend()
			b.Watch = func(step steps.Step) (scenarios.Deviation, bool) {
				classes[step.Class]++
				if step.Verb == "" || step.Object.Kind == "" || step.Place == "" {
					lacking[fmt.Sprintf("%s in %s: %+v", step.Class, plan.Metadata.Name, step)] = true
				}
				for _, r := range append(step.Footprint().Reads, step.Footprint().Writes...) {
					if r == "" || strings.HasSuffix(r, "/") {
						lacking[fmt.Sprintf("%s in %s has the footprint %v", step.Class, plan.Metadata.Name, step.Footprint())] = true
					}
				}
				return scenarios.Deviation{}, false
			}
			if _, err := play.Run(context.Background(), plan, b, nil); err != nil {
				t.Fatalf("%s: %v", plan.Metadata.Name, err)
			}
		}
	}
	for what := range lacking {
		t.Error(what)
	}
	if len(classes) < 14 {
		t.Errorf("only the classes %v were met", classes)
	}
}

// audit is a world that is stopped before one of its steps.
type audit struct {
	*Backend
	// steps are the waiting steps, by their order.
	steps map[uint64]steps.Step
}

// errFar ends a run that has gone far enough for a test.
var errFar = fmt.Errorf("far enough")

// stopAt plays a story up to the n-th step of it that is taken.
func stopAt(t *testing.T, s *Simulator, plan *scenarios.Plan, n int) *audit {
	t.Helper()
	a := &audit{Backend: s.Backend(), steps: map[uint64]steps.Step{}}
	a.Watch = func(step steps.Step) (scenarios.Deviation, bool) {
		a.steps[a.w.order+1] = step
		return scenarios.Deviation{}, false
	}
	stopped := &stopper{audit: a, left: n}
	outcome, err := play.Run(context.Background(), plan, stopped, nil)
	if err != nil {
		t.Fatal(err)
	}
	if outcome.Err == nil {
		return nil // the story is over
	}
	return a
}

// stopper advances a world step by step until the n-th step of the story.
type stopper struct {
	*audit
	left int
}

// Advance implements play.Backend.
func (s *stopper) Advance(until time.Duration, each func(history.Event) bool) (time.Duration, error) {
	for {
		next := s.w.queue.first()
		if next == nil || next.at > until {
			return s.Backend.Advance(until, each)
		}
		if s.w.story {
			if s.left == 0 {
				return s.w.now, errFar
			}
			s.left--
		}
		stop := false
		now, err := s.Backend.Advance(next.at-1, func(e history.Event) bool { stop = each(e); return stop })
		if stop || err != nil {
			return now, err
		}
		s.w.queue.remove(0)
		s.w.now = next.at
		next.run(next.trouble)
	}
}

// Stop implements play.Backend: the world is still needed.
func (s *stopper) Stop() ([]play.Artifact, error) { return nil, nil }

// take takes the first two steps at the time of the later one, in their order or
// swapped, and returns the identity of the world then; and whether the second one was
// still there.
func (a *audit) take(swapped bool) (identity uint64, both bool) {
	first := a.w.queue.first()
	a.w.queue.remove(0)
	second := a.w.queue.first()
	a.w.queue.remove(0)
	a.w.now = second.at
	if swapped {
		first, second = second, first
	}
	second.index = 0 // as if it waited still: so it can be cancelled
	a.w.queue.steps = append([]*step{second}, a.w.queue.steps...)
	for i, s := range a.w.queue.steps {
		s.index = i
	}
	first.run(first.trouble)
	if second.index < 0 {
		return 0, false
	}
	a.w.queue.remove(second.index)
	second.run(second.trouble)
	return a.Identity(), true
}

// TestIndependence swaps two consecutive steps, all along some stories. Two steps that are said to
// be independent must lead to the same world in either order. Some of the
// others must not.
func TestIndependence(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	independent, different, classes := 0, 0, map[string]int{}
	for _, file := range []string{"machine-remediation/three-hosts.yaml", "health-check/all-at-once.yaml"} {
		plan := simtest.Plan(t, "../scenarios/catalog/"+file)
		for n := 0; ; n++ {
			a := stopAt(t, s, plan, n)
			if a == nil {
				break
			}
			if len(a.w.queue.steps) < 2 {
				continue
			}
			first := a.w.queue.steps[0]
			one := a.steps[first.order]
			a.w.queue.remove(0)
			other := a.steps[a.w.queue.first().order]
			a.w.queue.push(first)
			if one.Class == "" || other.Class == "" {
				continue // they come from before the story
			}
			identity, both := a.take(false)
			swapped, still := stopAt(t, s, plan, n).take(true)
			same := both == still && identity == swapped
			if one.Independent(other) {
				independent++
				if !same {
					t.Errorf("%s, step %d: %s (%v) and %s (%v) are no longer the same when they are swapped", file, n+1,
						one.Name(), one.Footprint(), other.Name(), other.Footprint())
				}
			} else if !same {
				different++
				classes[fmt.Sprintf("%s and %s", one.Class, other.Class)]++
			}
		}
	}
	if independent < 100 || different < 10 {
		t.Errorf("%d pairs were independent, and %d came out differently: %v", independent, different, classes)
	}
}

// TestFootprints checks which steps depend on each other.
func TestFootprints(t *testing.T) {
	process := func(name string, class steps.Class, effect bool, verb string, on steps.Object) steps.Step {
		return steps.Step{Class: class, Effect: effect, Verb: verb, Object: on, Place: steps.PlaceProcess + name}
	}
	host := func(name string) steps.Step {
		return steps.Step{Class: steps.ClassWorkload, Verb: "start", Object: steps.Object{Kind: "Pod", Name: name}, Place: steps.PlaceHost + name}
	}
	read := process("a", steps.ClassAPI, false, "get", steps.Object{Kind: "BareMetalHost", Name: "worker-1"})
	list := process("a", steps.ClassAPI, false, "list", steps.Object{Kind: "BareMetalHost", Name: ""})
	for _, tc := range []struct {
		what        string
		one, other  steps.Step
		independent bool
	}{
		{"two reads", read, process("b", steps.ClassAPI, false, "get", steps.Object{Kind: "BareMetalHost", Name: "worker-1"}), true},
		{"a read and a write of the same object", read, process("b", steps.ClassAPI, true, "patch", steps.Object{Kind: "BareMetalHost", Name: "worker-1"}), false},
		{"a read and a write of another object", read, process("b", steps.ClassAPI, true, "patch", steps.Object{Kind: "BareMetalHost", Name: "worker-10"}), true},
		{"a list and a write of one of them", list, process("b", steps.ClassAPI, true, "patch", steps.Object{Kind: "BareMetalHost", Name: "worker-2"}), false},
		{"writes of two objects of a kind, whose watchers learn of one first",
			process("a", steps.ClassAPI, true, "patch", steps.Object{Kind: "Machine", Name: "worker-1"}), process("b", steps.ClassAPI, true, "patch", steps.Object{Kind: "Machine", Name: "worker-2"}), false},
		{"writes of two kinds", process("a", steps.ClassAPI, true, "patch", steps.Object{Kind: "Machine", Name: "worker-1"}), process("b", steps.ClassAPI, true, "patch", steps.Object{Kind: "BareMetalHost", Name: "worker-1"}), true},
		{"two steps of a process", read, process("a", steps.ClassWork, false, "take", steps.Object{Kind: "Queue", Name: "a"}), false},
		{"deliveries to two processes", process("a", steps.ClassDeliver, false, "deliver", steps.Object{Kind: "Node", Name: ""}), process("b", steps.ClassDeliver, false, "deliver", steps.Object{Kind: "Node", Name: ""}), true},
		{"a command and what runs on a host", process("a", steps.ClassBMC, true, "ForceOff", steps.Object{Kind: "BMC", Name: "worker-1"}), host("worker-1"), false},
		{"a start, which lists everything, and a write", process("a", steps.ClassStart, false, "start", steps.Object{Kind: "Process", Name: "a"}), process("b", steps.ClassAPI, true, "patch", steps.Object{Kind: "Machine", Name: "x"}), false},
	} {
		if got := tc.one.Independent(tc.other); got != tc.independent || tc.other.Independent(tc.one) != got {
			t.Errorf("%s: independent %t, want %t: %v, %v", tc.what, got, tc.independent, tc.one.Footprint(), tc.other.Footprint())
		}
	}
}
