package scenarios_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios/invariant"
)

var quoted = regexp.MustCompile("`([a-z0-9-]+)`")

// TestSeed003IsCovered keeps the table of seed 003 complete: every row has a guarantee and
// a story that exist, and every guarantee two stories with a controller that breaks it.
func TestSeed003IsCovered(t *testing.T) {
	data, err := os.ReadFile("../docs/seeds.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(data), "\n## Seed 003\n")
	if !ok {
		t.Fatal("docs/seeds.md has no section about seed 003")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	stories := map[string]bool{}
	files, _ := filepath.Glob("catalog/deletion-hooks/*.yaml")
	for _, file := range files {
		stories[strings.TrimSuffix(filepath.Base(file), ".yaml")] = true
	}
	rows := 0
	for _, line := range strings.Split(section, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 4 || cells[0] == "sentence" {
			continue
		}
		rows++
		for what, cell := range map[string]string{"guarantee": cells[2], "story": cells[3]} {
			names := quoted.FindAllStringSubmatch(cell, -1)
			if len(names) == 0 {
				t.Errorf("%q has no %s", cells[0], what)
			}
			for _, name := range names {
				if _, err := invariant.Lookup(name[1]); what == "guarantee" && err != nil {
					t.Errorf("%q: %v", cells[0], err)
				}
				if what == "story" && !stories[name[1]] {
					t.Errorf("%q names the story %s, which is not there", cells[0], name[1])
				}
			}
		}
	}
	if rows < 14 {
		t.Errorf("the table has %d rows", rows)
	}
	for _, id := range []string{"hooks-pause-drain", "hooks-pause-terminate", "infrastructure-before-node", "deletion-ends"} {
		broken := 0
		for _, file := range files {
			story, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(story), "expect: {violated: "+id+"}") {
				broken++
			}
		}
		if broken < 2 {
			t.Errorf("%d stories with a wrong controller break %s", broken, id)
		}
	}
}
