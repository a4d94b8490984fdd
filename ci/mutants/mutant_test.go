package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/ci/mutants/finding"
	"github.com/fencelab/fencelab/sim/corpus/source"
)

// TestMutantsFitTheirSource: a mutant whose place has changed, or what it uses, would not be built
// any more, and a protection that is new has none.
func TestMutantsFitTheirSource(t *testing.T) {
	t.Chdir("../..")
	all, err := Load("ci/mutants")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 {
		t.Errorf("%d mutants are too few to say much", len(all))
	}
	if _, err := source.Together(t.Context(), ".", judgeOf, t.TempDir(), mistakes(all)); err != nil {
		t.Error(err)
	}
	page, err := os.ReadFile("docs/measured/mutants.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if !strings.Contains(string(page), "| "+cell(m.Mistake)+" |") {
			t.Errorf("docs/measured/mutants.md doesn't tell of %s (%s): make mutants", m.ID, m.Mistake)
		}
	}
}

// TestTwofoldFit: so do the mistakes that take two deviations, each with a story of theirs.
func TestTwofoldFit(t *testing.T) {
	t.Chdir("../..")
	all, err := Load("ci/mutants/twofold")
	if err != nil || len(all) == 0 {
		t.Errorf("%d mistakes: %v", len(all), err)
	}
	if _, err := source.Together(t.Context(), ".", judgeOf, t.TempDir(), mistakes(all)); err != nil {
		t.Error(err)
	}
	page, err := os.ReadFile("docs/measured/twofold.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if !strings.Contains(string(page), "| "+cell(m.Mistake)+" | `"+m.Story+"` |") {
			t.Errorf("docs/measured/twofold.md doesn't tell of %s (%s)", m.ID, m.Mistake)
		}
		if _, err := os.Stat("ci/mutants/twofold/stories/" + m.Story + ".yaml"); err != nil {
			t.Errorf("mutant %s: %v", m.ID, err)
		}
	}
}

// TestKinds: for each kind of mistake there are at least two that a guarantee catches; that only a
// story of its own came out differently is not enough.
func TestKinds(t *testing.T) {
	t.Chdir("../..")
	all, err := Load("ci/mutants")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/measured/mutants.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kindsOfMistake {
		if _, caught, _ := ofKind(k.name, string(page), all); caught < 2 {
			t.Errorf("%s: %d mistakes are caught by a guarantee, two are to be", k.name, caught)
		}
	}
	counted, err := WithKinds(page, all)
	if err != nil {
		t.Fatal(err)
	}
	if string(counted) != string(page) {
		t.Error("docs/measured/mutants.md counts the kinds of mistakes wrongly: make mutants")
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, content := range map[string]string{
		"stands 0 times": "- {id: a, mistake: b, file: go.mod, find: nowhere, replace: x}",
		"stands 2 times": "- {id: a, mistake: b, file: go.mod, find: require, replace: x}",
		"or that of another": "- {id: a, mistake: b, file: go.mod, find: module, replace: x}\n" +
			"- {id: a, mistake: b, file: go.mod, find: module, replace: x}",
		"there is no kind": "- {id: a, mistake: b, kind: odd, file: go.mod, find: module, replace: x}",
		"unknown field":    "- {id: a, mistke: b}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for file, text := range map[string]string{"go.mod": "module x\nrequire a\nrequire b\n", "m.yaml": content} {
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := Load("."); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestTables(t *testing.T) {
	text := string(Tables([]result{
		{mutant: Mutant{ID: "a", Mistake: "reads | the cache", Protection: "live read"},
			finding: &finding.Finding{Scenario: "s", Strategy: finding.Sweep, Broken: "at-most-one", Deviations: []string{"x/api/1 late"}}},
		{mutant: Mutant{ID: "b", Mistake: "sleeps"}, finding: &finding.Finding{}},
		{mutant: Mutant{ID: "c", Mistake: "nothing", Equivalent: "it is the same"}, finding: &finding.Finding{}},
	}, 30*time.Second))
	for _, want := range []string{
		"1 of 3, within 30s each", "| live read | reads \\| the cache | `s`, sweep: `x/api/1 late` | at-most-one |",
		"| b | sleeps | nothing | **nothing** |", "| c | nothing | nothing | it is the same |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	updated, err := Update([]byte(text), []result{
		{mutant: Mutant{ID: "d", Mistake: "forgets", Protection: "memory"}, finding: &finding.Finding{Scenario: "s", Strategy: finding.Story, Broken: "at-most-one"}},
		{mutant: Mutant{ID: "b", Mistake: "sleeps"}, finding: &finding.Finding{Scenario: "s", Strategy: finding.Story, Broken: "at-most-one"}},
		{mutant: Mutant{ID: "e", Mistake: "dreams"}, finding: &finding.Finding{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"3 of 5, within 30s each", "| at-most-one |\n| memory | forgets | `s`, story | at-most-one |\n\n## Other",
		"| b | sleeps | `s`, story | at-most-one |", "| c | nothing | nothing | it is the same |\n| e | dreams | nothing | **nothing** |\n",
	} {
		if !strings.Contains(string(updated), want) {
			t.Errorf("no %q in\n%s", want, updated)
		}
	}
}
