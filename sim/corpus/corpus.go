// Package corpus reproduces known bugs of real controllers. Each is a pair in one story: with the
// mistake, our controllers break a guarantee in it; without the mistake, they keep it. Begin with
// [Load], which documents how a pair is written.
package corpus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/guarantee"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/sim/corpus/source"
)

// Extension is the extension of a file that describes a mistake in the source, beside its story.
const Extension = ".mistake"

// Mistake describes a mistake in the source of the controllers.
type Mistake struct {
	// Breaks is the guarantee broken by the mistake.
	Breaks string `json:"breaks"`
	// Changes introduce the mistake.
	Changes []source.Change `json:"changes"`
}

// Pair is one known bug.
type Pair struct {
	// File is the story's file, and Breaks the guarantee broken by the bug.
	File, Breaks string
	// Right is the story with the right controllers.
	Right *scenarios.Scenario
	// Overlaid is the story with the wrong controllers; nil if the mistake is in the source.
	Overlaid *scenarios.Scenario
	Changes  []source.Change
}

// Load reads the pairs among the stories of files and directories. One half of a pair is a story
// that names an upstream thread. The other half is derived from it:
//
//   - If the story's controllers have overlays and it expects a violated guarantee, the
//     right half omits both.
//   - If a [Mistake] lies beside the story, in a file of the same name, the wrong half
//     is played by controllers built with the mistake.
//
// Other stories are skipped.
func Load(paths []string, vocabulary file.Vocabulary) ([]Pair, error) {
	var pairs []Pair
	var files []string
	err := file.EachFile(paths, func(path string, data []byte) error {
		files = append(files, path)
		story, err := file.Load(path, data, vocabulary)
		if err != nil {
			return err
		}
		pair := Pair{File: path, Breaks: story.Spec.Expect.Violated, Right: story}
		mistake, err := readMistake(path)
		switch {
		case err != nil:
			return err
		case mistake != nil && (story.Metadata.Upstream == "" || pair.Breaks != ""):
			return fmt.Errorf("%s: beside a mistake in the source it has to name the upstream thread, and must not expect a violation", path)
		case mistake != nil:
			pair.Breaks, pair.Changes = mistake.Breaks, mistake.Changes
		case story.Metadata.Upstream == "" || pair.Breaks == "" || !overlaid(story):
			return nil
		default:
			pair.Right, pair.Overlaid = rightOf(story), story
		}
		pairs = append(pairs, pair)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("%s: there is no pair: a story that names an upstream thread and has a wrong controller", strings.Join(paths, ", "))
	}
	return pairs, orphans(files)
}

// readMistake reads the file beside a story, if there is one.
func readMistake(story string) (*Mistake, error) {
	file := strings.TrimSuffix(story, filepath.Ext(story)) + Extension
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := new(Mistake)
	if err := yaml.UnmarshalStrict(data, m); err != nil {
		return nil, fmt.Errorf("read the mistake of %s: %w", file, err)
	}
	if !slices.ContainsFunc(guarantee.All(), func(i invariant.Invariant) bool { return i.ID == m.Breaks }) {
		return nil, fmt.Errorf("%s: breaks does not name a guarantee: %q; see fencelab list --invariants", file, m.Breaks)
	}
	if len(m.Changes) == 0 {
		return nil, fmt.Errorf("%s: it has no changes", file)
	}
	return m, nil
}

// orphans reports mistakes without a story.
func orphans(stories []string) error {
	var problems []error
	seen := map[string]bool{}
	for _, story := range stories {
		dir := filepath.Dir(story)
		if seen[dir] {
			continue
		}
		seen[dir] = true
		mistakes, err := filepath.Glob(filepath.Join(dir, "*"+Extension))
		problems = append(problems, err)
		for _, file := range mistakes {
			name := strings.TrimSuffix(file, Extension)
			if _, err := os.Stat(name + ".yaml"); err != nil {
				problems = append(problems, fmt.Errorf("%s: its story %s.yaml is missing", file, filepath.Base(name)))
			}
		}
	}
	return errors.Join(problems...)
}

func overlaid(story *scenarios.Scenario) bool {
	return slices.ContainsFunc(story.Spec.Controllers, func(c scenarios.Controller) bool { return len(c.Overlay) > 0 })
}

// rightOf returns a story without its wrong controllers.
func rightOf(story *scenarios.Scenario) *scenarios.Scenario {
	right := *story
	right.Spec.Expect = scenarios.Expectation{}
	right.Spec.Controllers = slices.Clone(story.Spec.Controllers)
	for i := range right.Spec.Controllers {
		right.Spec.Controllers[i].Overlay = nil
	}
	return &right
}
