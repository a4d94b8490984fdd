package corpus

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/corpus/source"
	"github.com/fencelab/fencelab/vms/keeper"
)

func TestMain(m *testing.M) {
	keeper.Main()
	os.Exit(m.Run())
}

var update = flag.Bool("update", false, "write docs/track-record.md anew")

const (
	root   = "../.."
	record = root + "/docs/track-record.md"
)

func vocabulary() file.Vocabulary {
	v := objects.Vocabulary()
	v.Worlds = []scenarios.Capabilities{sim.Capabilities}
	return v
}

// TestTrackRecord tries every pair, and checks that the document reports the results.
func TestTrackRecord(t *testing.T) {
	pairs, err := Load([]string{root + "/scenarios/catalog/regression"}, objects.Vocabulary())
	if err != nil {
		t.Fatal(err)
	}
	findings, err := tryAll(t.Context(), root, pairs, func(f Finding) {
		if f.Problem != "" {
			t.Errorf("%s: %s", f.File, f.Problem)
		}
	})
	if err != nil || t.Failed() {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(record, Record(findings), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(timeless(page)), string(timeless(Record(findings)))); diff != "" {
		t.Errorf("docs/track-record.md is not up to date: go test ./sim/corpus -update\n%s", diff)
	}
}

// story returns one of the pairs that can be tried without building anything.
func story(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(root + "/scenarios/catalog/regression/capbm-157-off-for-ever.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func loadStory(t *testing.T, text, mistake string) ([]Pair, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "story.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if mistake != "" {
		if err := os.WriteFile(filepath.Join(dir, "story"+Extension), []byte(mistake), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Load([]string{dir}, vocabulary())
}

// TestPairsThatAreNone: a pair is no track record if the wrong half breaks nothing or something
// else, or if the right half doesn't hold.
func TestPairsThatAreNone(t *testing.T) {
	const (
		wrong = "- {when: {needsRemediation: false}, then: Nothing}"
		// harmless is a change of the source that changes nothing.
		harmless = "breaks: power-restored\nchanges: [{file: controllers/remediation/decide.go, find: 'return s.StatusOn || !s.AnswersRequest', replace: 'return !s.AnswersRequest || s.StatusOn'}]"
	)
	overlay := "      overlay:\n        " + wrong + "\n"
	expect := "  expect: {violated: power-restored}\n"
	if text := story(t); strings.Count(text, overlay) != 1 || strings.Count(text, expect) != 1 {
		t.Fatal("the story is another one now")
	}
	replace := func(old, new string) func(string) string {
		return func(text string) string { return strings.Replace(text, old, new, 1) }
	}
	for name, c := range map[string]struct {
		change        func(string) string
		mistake, want string
	}{
		"a wrong controller that is right": {replace(wrong, "- {when: {needsRemediation: true, rebootAnnotation: true, poweredOffMark: true}, then: Nothing}"), "",
			"the wrong half broke power-restored in none of 1 schedule"},
		"a wrong controller that breaks something else": {func(text string) string {
			return strings.Replace(text, expect, "  invariants: [power-restored, own-annotations-only]\n  expect: {violated: own-annotations-only}\n", 1)
		}, "", "the wrong half breaks power-restored, not own-annotations-only"},
		"a right controller that doesn't hold": {replace(expect, "  invariants: [power-restored, deprovision-clears]\n"+expect), "",
			"the right half: deprovision-clears: never put to the test"},
		"a mistake that is none": {func(text string) string {
			return strings.Replace(strings.Replace(text, overlay, "", 1), expect, "", 1)
		}, harmless, "the wrong half broke power-restored in none of "},
	} {
		t.Run(name, func(t *testing.T) {
			pairs, err := loadStory(t, c.change(story(t)), c.mistake)
			if err != nil {
				t.Fatal(err)
			}
			findings, err := tryAll(t.Context(), root, pairs, func(Finding) {})
			if err != nil {
				t.Fatal(err)
			}
			if got := findings[0].Problem; !strings.HasPrefix(got, c.want) {
				t.Errorf("problem %q, want %q", got, c.want)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	right := strings.Split(story(t), "      overlay:")[0] + "  steps: [{name: nothing, after: 1s}]\n"
	for name, c := range map[string]struct{ story, mistake, want string }{
		"no pair":              {right, "", "there is no pair"},
		"no such guarantee":    {right, "breaks: peace\nchanges: [{file: a, find: b, replace: c}]", "breaks does not name a guarantee"},
		"no changes":           {right, "breaks: at-most-one", "it has no changes"},
		"an unknown field":     {right, "brakes: at-most-one", "unknown field"},
		"a violation expected": {story(t), "breaks: at-most-one\nchanges: [{file: a, find: b, replace: c}]", "must not expect a violation"},
		"no thread": {strings.Replace(right, "  upstream: openshift/cluster-api-provider-baremetal#157\n", "", 1),
			"breaks: at-most-one\nchanges: [{file: a, find: b, replace: c}]", "has to name the upstream thread"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := loadStory(t, c.story, c.mistake); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	t.Run("no story", func(t *testing.T) {
		dir := t.TempDir()
		for _, file := range []string{"a.yaml", "b" + Extension} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(story(t)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Load([]string{dir}, vocabulary()); err == nil || !strings.Contains(err.Error(), "its story b.yaml is missing") {
			t.Errorf("error %v", err)
		}
	})
}

// TestMistakesFitTheirSource reports every mistake whose text is no longer in the source.
func TestMistakesFitTheirSource(t *testing.T) {
	pairs, err := Load([]string{root + "/scenarios/catalog/regression"}, objects.Vocabulary())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pairs {
		if _, err := source.Apply(root, p.Changes...); err != nil {
			t.Errorf("%s: %v", p.File, err)
		}
	}
}

// secondsCell matches the column of a record that differs in each run.
var secondsCell = regexp.MustCompile(`\| [0-9]+\.[0-9] \|`)

func timeless(record []byte) []byte { return secondsCell.ReplaceAll(record, []byte("| |")) }

func TestTimeless(t *testing.T) {
	got := timeless([]byte("| 3 | 12.5 | the default schedule |\n"))
	if !bytes.Equal(got, []byte("| 3 | | the default schedule |\n")) {
		t.Errorf("%s", got)
	}
}
