package search

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/simtest"
	"github.com/fencelab/fencelab/sim/steps"
)

// TestEdges: two steps that touch the same may come in the other order, unless one of them is there
// because of the other, or they are of one actor, far apart, or in both orders by default.
func TestEdges(t *testing.T) {
	at := func(actor string, n, seconds, cause int, kind string, effect bool) told {
		verb := "get"
		if effect {
			verb = "patch"
		}
		s := steps.Step{Actor: actor, Class: steps.ClassAPI, N: n, Verb: verb, Effect: effect, Object: steps.Object{Kind: kind, Name: "x"}, Place: steps.PlaceProcess + actor}
		return told{Step: s, at: time.Duration(seconds) * time.Second, cause: cause, words: wordsOf(s)}
	}
	for _, tc := range []struct {
		what  string
		story []told
		want  []string
	}{
		{"a write and a read of it", []told{at("a", 1, 0, -1, "Node", true), at("b", 1, 1, -1, "Node", false)}, []string{"b's read of Node/x came before a's patch of Node/x"}},
		{"two writes before what only reads", []told{at("a", 1, 0, -1, "Node", true), at("c", 1, 1, -1, "Node", false), at("b", 1, 2, -1, "Node", true)},
			[]string{"b's patch of Node/x came before a's patch of Node/x", "b's patch of Node/x came before c's read of Node/x", "c's read of Node/x came before a's patch of Node/x"}},
		{"two reads", []told{at("a", 1, 0, -1, "Node", false), at("b", 1, 1, -1, "Node", false)}, nil},
		{"other objects", []told{at("a", 1, 0, -1, "Node", true), at("b", 1, 1, -1, "Machine", true)}, nil},
		{"because of it", []told{at("a", 1, 0, -1, "Node", true), at("b", 1, 1, 0, "Node", false)}, nil},
		{"one actor", []told{at("a", 1, 0, -1, "Node", true), at("a", 2, 1, -1, "Node", false)}, nil},
		{"far apart", []told{at("a", 1, 0, -1, "Node", true), at("b", 1, 100, -1, "Node", false)}, nil},
		{"both by default", []told{at("b", 1, 0, -1, "Node", false), at("a", 1, 1, -1, "Node", true), at("b", 2, 2, -1, "Node", false)}, nil},
	} {
		for i := range tc.story {
			tc.story[i].taken, tc.story[i].since = i, i
		}
		e := &edges{kinds: make(map[kind]int), orders: make(map[[2]int]campaign.Point)}
		e.order(arrange(tc.story, apart))
		var got []string
		for _, one := range e.list() {
			got = append(got, one.Words)
		}
		slices.Sort(got)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.what, diff)
		}
	}
}

// TestReach: a search that is bounded too narrowly says what never came about; looking for it finds
// a schedule, in which it is true.
func TestReach(t *testing.T) {
	simulator, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	plan := simtest.Plan(t, "../../scenarios/catalog/machine-remediation/cut-off-host.yaml")
	searched := func(o Options) (*campaign.Search, campaign.Tally) {
		s, _, err := New(t.Context(), simulator, new(scenarios.Scenario), plan, o)
		if err != nil {
			t.Fatal(err)
		}
		alone := NewAlone(simulator, s.Story)
		tally := s.Run(alone, nil)
		if alone.Close() != nil {
			t.Fatal(alone.Close())
		}
		return s, tally
	}
	narrow, tally := searched(Options{Strategy: "portfolio", Seed: 1, Within: 10 * time.Millisecond, Schedules: 100})
	gaps := narrow.Gaps(tally)
	const planted = "reboot's command On worker-1 came before worker-1.kubelet's renewal of the Lease of Node/worker-1"
	if !slices.Contains(gaps, planted) || len(gaps) == len(narrow.Edges) {
		t.Fatalf("of %d edges there never came about within 10 ms: %q", len(narrow.Edges), gaps)
	}
	closed := 0
	for _, words := range gaps {
		s, tally := searched(Options{Strategy: "portfolio", Reach: words, Seed: 1, Schedules: 100})
		r := s.Strategy.(*reach)
		if came := !slices.Contains(s.Gaps(tally), words); came != (r.by != nil) {
			t.Errorf("%s: came about: %t, and the search ended with %v", words, came, r.by)
		}
		if r.by == nil {
			if t.Logf("%s: not in %d schedules", words, tally.Tried); words == planted {
				t.Error("what was planted was not reached")
			}
			continue
		}
		closed++
		t.Logf("%s: schedule %d of %d: %v", words, r.by.Number+1, tally.Tried, r.by.Deviations)
		found, _, err := tell(t.Context(), simulator, s.Story.PlanOf(*r.by))
		if err != nil {
			t.Fatal(err)
		}
		first, second, order := strings.Cut(words, " came before ")
		is := func(a told) bool {
			return a.words == first && a.taken >= 0 && slices.ContainsFunc(found, func(b told) bool { return b.words == second && b.taken > a.taken })
		}
		if order && !slices.ContainsFunc(found, is) {
			t.Errorf("%s: it is not so in %v", words, r.by.Deviations)
		}
	}
	if closed < 3 {
		t.Errorf("%d of %d gaps were closed by looking for them", closed, len(gaps))
	}
}
