// Package corpus reproduces known bugs of real controllers. Each is a pair in one story:
// our controllers with the mistake break a guarantee in it, and without the mistake they
// keep it. Begin with [Load], which says how a pair is written down.
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

// Extension is that of the file with a mistake in the source, beside its story.
const Extension = ".mistake"

// Mistake is a mistake in the source of the controllers.
type Mistake struct {
	// Breaks is the guarantee that it breaks.
	Breaks string `json:"breaks"`
	// Changes are the mistake.
	Changes []source.Change `json:"changes"`
}

// Pair is one known bug.
type Pair struct {
	// File is that of the story, and Breaks the guarantee that the bug breaks.
	File, Breaks string
	// Right is the story with the right controllers.
	Right *scenarios.Scenario
	// Overlaid is the story with the wrong ones, unless the mistake is in the source.
	Overlaid *scenarios.Scenario
	Changes  []source.Change
}

// Load reads the pairs among the stories of files and directories. One half of a pair
// is a story that names an upstream thread, and the other is made of it:
//
//   - of a story whose controllers have overlays, and that expects a guarantee to be
//     violated, the right half has neither;
//   - of a story with a [Mistake] beside it, in a file of the same name, the wrong half
//     is played by controllers that are built with the mistake.
//
// Other stories are passed over.
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

// orphans complains of mistakes without a story.
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
