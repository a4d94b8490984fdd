package search

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/steps"
)

// TestWaited: a step that waited for another one was as late as it came or, if it never came, as it
// may have come; one that waited for nothing was not late.
func TestWaited(t *testing.T) {
	step := steps.Step{Actor: "a", Class: steps.ClassTimer, N: 4, At: 10 * time.Second, Verb: "wait", Place: steps.PlaceProcess + "a"}
	for _, tc := range []struct {
		what  string
		of    string
		taken time.Duration
		want  []string
	}{
		{"two seconds", step.Name(), 12 * time.Second, []string{"10ms", "100ms", "300ms", "1s"}},
		{"it never came", step.Name(), 0, []string{"10ms", "100ms", "300ms", "1s", "15s"}},
		{"in time", step.Name(), 10 * time.Second, nil},
		{"another step", "a/timer/5", 12 * time.Second, nil},
	} {
		f := newFacts(newTerms(), []scenarios.Deviation{{Step: tc.of, After: "b/api/1", Delay: scenarios.Duration(20 * time.Second)}})
		if f.scheduled(step); tc.taken > 0 {
			f.took(steps.Name{Actor: "a", Class: steps.ClassTimer, N: 4}, tc.taken)
		}
		var got []string
		for _, fact := range f.before(new(play.Outcome)) {
			if _, late, ok := strings.Cut(f.say(fact.about), " came "); ok && fact.nth[0] == 0 {
				got = append(got, strings.TrimSuffix(late, " late or more"))
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: late by %v, want %v", tc.what, got, tc.want)
		}
	}
}

// TestRests: what a process does rests on what it read. That has an age, and somebody may have
// written it since; or the process itself may have died.
func TestRests(t *testing.T) {
	host, node := steps.Object{Kind: "BareMetalHost", Name: "h"}, steps.Object{Kind: "Node", Name: "n"}
	read := steps.Step{Actor: "p", Class: steps.ClassAPI, N: 1, Verb: "get", Object: host, Place: steps.PlaceProcess + "p"}
	write := steps.Step{Actor: "user", Class: steps.ClassAPI, N: 1, Verb: "patch", Object: host, Effect: true, Place: steps.PlaceProcess + "user"}
	start := steps.Step{Actor: "p", Class: steps.ClassStart, N: 1, Verb: "start", Place: steps.PlaceProcess + "p"}
	deletes := steps.Step{Actor: "p", Class: steps.ClassAPI, N: 2, Verb: "delete", Object: node, Effect: true, Place: steps.PlaceProcess + "p"}
	f := newFacts(newTerms(), nil)
	f.decided["p"] = sim.Decision{Process: "p", Action: "DeleteNode"}
	for i, s := range []steps.Step{read, write, start, deletes} {
		f.scheduled(s)
		f.took(steps.Name{Actor: s.Actor, Class: s.Class, N: s.N}, time.Duration(i)*4*time.Second)
	}
	said := make(map[string]bool)
	for _, fact := range f.before(new(play.Outcome)) {
		said[f.say(fact.about)] = true
	}
	const deed = "p's deletion of Node/n (DeleteNode)"
	for words, want := range map[string]bool{
		deed + " came 10s or more after p's read of BareMetalHost/h":                           true,
		deed + " came 15s or more after p's read of BareMetalHost/h":                           false,
		"user's patch of BareMetalHost/h came between p's read of BareMetalHost/h and " + deed: true,
		"p's start came between p's read of BareMetalHost/h and " + deed:                       true,
		"p's read of BareMetalHost/h came before user's patch of BareMetalHost/h":              true,
		"user's patch of BareMetalHost/h came before p's read of BareMetalHost/h":              false,
	} {
		if said[words] != want {
			t.Errorf("%s: %t, want %t", words, said[words], want)
		}
	}
}
