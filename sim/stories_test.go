package sim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/guarantee"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim"
)

// TestEveryRowHasAStory looks for a story through each row of seed 002's truth table: its history
// must change when the remediation controller does something else in that row. "Powered on?" is
// the status, as in the seed.
func TestEveryRowHasAStory(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	var stories []*scenarios.Scenario
	for _, story := range catalog(t) {
		remediates := func(c scenarios.Controller) bool { return c.Name == "remediation" }
		if story.Spec.Expect.Violated == "" && slices.ContainsFunc(story.Spec.Controllers, remediates) && !lab(story) {
			stories = append(stories, story)
		}
	}
	columns := []string{"nodeExists", "needsRemediation", "statusOn", "rebootAnnotation"}
	plays := map[string]*history.History{}
	for row := range 1 << len(columns) {
		when := map[string]any{}
		for i, column := range columns {
			when[column] = row>>i&1 == 1
		}
		t.Run(fmt.Sprint(when), func(t *testing.T) {
			for _, story := range stories {
				name := story.Metadata.Name
				if plays[name] == nil {
					plays[name] = tell(t, s, story, nil)
				}
				bent := tell(t, s, story, &scenarios.Rule{When: when, Then: "AddPoweredOffMark"})
				if history.Diff(plays[name], bent) >= 0 {
					t.Logf("%s", name)
					return
				}
			}
			t.Error("no story of the catalogue leads through this row")
		})
	}
}

func lab(story *scenarios.Scenario) bool {
	return len(story.Spec.Worlds) > 0 && !slices.Contains(story.Spec.Worlds, "sim")
}

// tell plays a story, with one more rule before what its remediation controller decides.
func tell(t *testing.T, s *sim.Simulator, story *scenarios.Scenario, rule *scenarios.Rule) *history.History {
	t.Helper()
	text, err := json.Marshal(story)
	if err != nil {
		t.Fatal(err)
	}
	var bent scenarios.Scenario
	if err := json.Unmarshal(text, &bent); err != nil {
		t.Fatal(err)
	}
	for i := range bent.Spec.Controllers {
		if c := &bent.Spec.Controllers[i]; rule != nil && c.Name == "remediation" {
			c.Overlay = append([]scenarios.Rule{*rule}, c.Overlay...)
		}
	}
	plan, err := scenarios.Compile(&bent, 1)
	if err != nil {
		t.Fatal(err)
	}
	return playOn(t, s, plan).History
}

// TestEveryGuaranteeIsBroken counts the wrong controllers that break each guarantee, according to
// their scenarios; TestCatalog shows that they do.
func TestEveryGuaranteeIsBroken(t *testing.T) {
	broken := map[string][]string{}
	for _, story := range catalog(t) {
		if id := story.Spec.Expect.Violated; id != "" {
			broken[id] = append(broken[id], story.Metadata.Name)
		}
	}
	for _, guarantee := range guarantee.All() {
		if names := broken[guarantee.ID]; len(names) < 2 {
			t.Errorf("%s is broken by the stories %q, and should be by two: give the catalogue one with a wrong controller that expects its violation", guarantee.ID, names)
		}
	}
}

// TestEveryStoryShowsSomething: a right story that could cease to happen without a word guards
// nothing. So it waits for an event, claims one, or does what its run would miss: a crash, or a
// fault that has to bend a request.
func TestEveryStoryShowsSomething(t *testing.T) {
	for _, story := range catalog(t) {
		if !shows(&story.Spec) {
			t.Errorf("%s waits for no event, claims none, and does nothing that its run would miss: say in expect.events what it is about; with within, if only the story as it stands shows it", story.Metadata.Name)
		}
	}
	idle := &scenarios.Spec{Steps: []scenarios.Step{{Do: &scenarios.Op{Cut: &scenarios.LinkOp{Host: "a"}}}}}
	if shows(idle) {
		t.Error("a story that cuts a host off and waits for nothing shows something")
	}
}

func shows(spec *scenarios.Spec) bool {
	return len(spec.Steps) == 0 || spec.Expect.Violated != "" || len(spec.Expect.Events) > 0 ||
		slices.ContainsFunc(spec.Steps, func(step scenarios.Step) bool {
			if step.Do != nil {
				if _, missed := step.Do.Shows(1); missed {
					return true
				}
			}
			return !step.When.IsZero()
		})
}

// TestStoriesAreShort keeps each file of the catalogue to a page: it is read as it is
// written, and a step that is repeated is read once.
func TestStoriesAreShort(t *testing.T) {
	files, err := filepath.Glob("../scenarios/catalog/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("find the catalog: %v, %d files", err, len(files))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(text, []byte("\n")); n >= 40 {
			t.Errorf("%s has %d lines: tell two stories", file, n)
		}
	}
}
