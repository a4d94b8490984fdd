package play

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// told is a world that only plays these events.
type told []history.Event

func (t *told) Start(context.Context, *scenarios.Plan) (invariant.Timings, error) {
	return invariant.Timings{}, nil
}
func (t *told) Apply(scenarios.Op) error  { return nil }
func (t *told) Stop() ([]Artifact, error) { return nil, nil }

func (t *told) Advance(until time.Duration, each func(history.Event) bool) (time.Duration, error) {
	for len(*t) > 0 && (*t)[0].At <= until {
		e := (*t)[0]
		*t = (*t)[1:]
		if each(e) {
			return e.At, nil
		}
	}
	return until, nil
}

// A topology has as long to come up as something comes of it: a slow machine takes longer, and a
// broken one says nothing more.
func TestBringUp(t *testing.T) {
	every := func(step time.Duration, steps int, hosts ...string) told {
		var events told
		for i := 1; i <= steps; i++ {
			events = append(events, history.Event{At: time.Duration(i) * step, Kind: history.PowerOn, Host: hosts[i%len(hosts)]})
		}
		return events
	}
	rack := make([]string, 100)
	for i := range rack {
		rack[i] = fmt.Sprint("worker-", i)
	}
	slow := append(every(4*time.Minute, 5, "worker-1"), history.Event{At: 21 * time.Minute, Kind: history.RunStarted})
	for _, test := range []struct {
		name  string
		world told
		stuck string
	}{
		{"slow, and up", slow, ""},
		{"nothing more comes", every(time.Minute, 3, "worker-1"), "not up and healthy 8m0s after the run began"},
		{"the same for ever", every(time.Minute, 200, "worker-1"), "not up and healthy 10m0s after the run began"},
		{"something else for ever", every(time.Minute, 200, rack...), "not up and healthy 50m0s after the run began"},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan := &scenarios.Plan{Spec: scenarios.Spec{Invariants: []string{"hold-respected"}}}
			outcome, err := Run(t.Context(), plan, &test.world, nil)
			if err != nil || outcome.Err != nil {
				t.Fatal(err, outcome)
			}
			if got := outcome.Stuck; (got == "") != (test.stuck == "") || !strings.Contains(got, test.stuck) {
				t.Errorf("stuck: %q; want %q", got, test.stuck)
			}
		})
	}
}

// TestRolesOfNumberedNames: a further controller of a kind is judged as the first one, in any order
// of the two. A program that ends in a number is named so, and is a further one of nothing.
func TestRolesOfNumberedNames(t *testing.T) {
	program := &scenarios.Program{Command: []string{"sbr"}}
	for _, c := range []struct {
		name        string
		controllers []scenarios.Controller
		want        invariant.Roles
	}{
		{"a program on hosts", []scenarios.Controller{{Name: "sbr-2", Plays: "fencer", Program: program}}, invariant.Roles{Fencers: []string{"sbr-2"}}},
		{"a program", []scenarios.Controller{{Name: "sbr-2", Plays: "remediation", Program: program}}, invariant.Roles{Remediation: "sbr-2"}},
		{"one of a module", []scenarios.Controller{{Name: "sbr-2", Plays: "remediation"}}, invariant.Roles{Remediation: "sbr-2"}},
		{"one without a part", []scenarios.Controller{{Name: "sbr-2", Program: program}}, invariant.Roles{Others: []string{"sbr-2"}}},
		{"two of a kind", []scenarios.Controller{{Name: "remediation"}, {Name: "remediation-2"}}, invariant.Roles{Remediation: "remediation"}},
		{"the second one first", []scenarios.Controller{{Name: "remediation-2"}, {Name: "remediation"}}, invariant.Roles{Remediation: "remediation"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := &scenarios.Plan{Spec: scenarios.Spec{Controllers: c.controllers}}
			if diff := cmp.Diff(c.want, params(plan, invariant.Timings{}).Roles); diff != "" {
				t.Error(diff)
			}
		})
	}
}
