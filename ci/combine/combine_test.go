package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// TestEveryOperation: each operation of the language is in some story, or has a reason not to be.
func TestEveryOperation(t *testing.T) {
	var text strings.Builder
	for _, s := range stories() {
		text.WriteString(s.text())
	}
	for _, name := range scenarios.Operations() {
		switch told := strings.Contains(text.String(), "do: {"+name+": "); {
		case told && untold[name] != "":
			t.Errorf("%s is in a story: remove it from untold", name)
		case !told && untold[name] == "":
			t.Errorf("%s is in no story: add it to operations, or to untold with the reason", name)
		}
	}
}

// TestSample plays a part of the stories, each with its default schedule: every set and phase is
// among them.
func TestSample(t *testing.T) {
	single, twice, names := stories(), pairs(), map[string]bool{}
	for _, s := range slices.Concat(single, twice) {
		if names[s.name] {
			t.Errorf("two stories are called %s", s.name)
		}
		names[s.name] = true
	}
	sample := sampled(single, 100)
	if len(names) < 2000 || len(sample) < 50 {
		t.Fatalf("%d stories, of which %d are played, are too few to say much", len(names), len(sample))
	}
	two, refused := playable(sampled(twice, 2000))
	if len(two) < 50 || refused > len(two)/10 {
		t.Fatalf("%d pairs of operations are played, and the language refuses %d", len(two), refused)
	}
	causes, err := readKnown("known.yaml")
	if err != nil {
		t.Fatal(err)
	}
	results, err := playAll(slices.Concat(sample, two), 0, func([]result) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if text, ok := causes.judge(results, false); !ok {
		t.Errorf("%s%+v", text, causes.unexplained(results))
	}
}

// TestWorlds: in each world a story is another, and the language takes it.
// TestWalks: walks are the same each time, and right controllers are accused in none of some.
func TestWalks(t *testing.T) {
	some, again := walks(60, 1), walks(60, 1)
	for i := range some {
		if some[i].name != again[i].name || some[i].text() != again[i].text() {
			t.Fatalf("%s and %s are of the same seed", some[i].name, again[i].name)
		}
	}
	told, refused := playable(some)
	if refused > len(some)/5 {
		t.Errorf("%d of %d walks are refused", refused, len(some))
	}
	results, err := playAll(told, 0, func([]result) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	known, err := readKnown("known.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if text, ok := known.judge(results, false); !ok {
		t.Errorf("%s%+v", text, known.unexplained(results))
	}
}

func TestWorlds(t *testing.T) {
	sample := sampled(stories(), 300)
	for world := range worlds { // order does not matter: each by itself
		for _, s := range sample {
			if s.in(world).text() == s.text() {
				t.Errorf("%s is the same in the world %s", s.name, world)
			}
			if _, refused := playable([]story{s.in(world)}); refused > 0 {
				t.Errorf("the language refuses %s in the world %s", s.name, world)
			}
		}
	}
}

// TestJudge: a cause excuses the reasons and the stories that it names and no others, and one that
// nothing has any more is stale.
func TestJudge(t *testing.T) {
	violated := result{Story: "a.idle.cut", Verdict: invariant.Violated, Reason: "node-restored: the Node has not come back"}
	for name, c := range map[string]struct {
		stories, reason string
		of              result
		all, ok         bool
	}{
		"explained":      {`a\..*`, "node-restored: ", violated, true, true},
		"another story":  {`b\..*`, "node-restored: ", violated, false, false},
		"another reason": {`a\..*`, "at-most-one: ", violated, false, false},
		"half a name":    {`a`, "node-restored: ", violated, false, false},
		"not judged":     {`a\..*`, ".*", result{Story: "a.idle.cut", Verdict: invariant.Unknown, Reason: "no reason"}, false, false},
		"stale":          {`a\..*`, ".*", result{Story: "a.idle.cut", Verdict: invariant.Held}, true, false},
		"not in sight":   {`a\..*`, ".*", result{Story: "a.idle.cut", Verdict: invariant.Held}, false, true},
	} {
		causes, err := parseKnown([]byte("- {id: x, why: y, stories: '" + c.stories + "', reason: '" + c.reason + "'}"))
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := causes.judge([]result{c.of}, c.all); ok != c.ok {
			t.Errorf("%s: %t, want %t\n%s", name, ok, c.ok, text)
		}
	}
	if _, err := parseKnown([]byte("- {id: x, stories: a, reason: b}")); err == nil {
		t.Error("a cause without an argument is read")
	}
}
