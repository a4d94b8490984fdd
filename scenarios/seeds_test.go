package scenarios_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios/guarantee"
)

var quoted = regexp.MustCompile("`([a-z0-9-]+)`")

// seeds lists the seeds whose sentences docs/seeds.md maps one by one. Each has a part of the page
// that begins and ends with these lines.
var seeds = []struct {
	number, from, to, catalog, code string
	rows                            int
	// guarantees are the seed's own.
	guarantees []string
}{
	{
		number: "003", from: "\n## Seed 003\n", to: "\n## The poison pill\n", catalog: "catalog/deletion-hooks", code: "../controllers/deletion", rows: 20,
		guarantees: []string{"hooks-pause-drain", "hooks-pause-terminate", "drained-before-interrupted", "infrastructure-before-node", "deletion-ends"},
	},
	{
		number: "004", from: "\n## The poison pill\n", to: "\x00", catalog: "catalog/poison-pill", code: "../controllers/poisonpill", rows: 29,
		guarantees: []string{"safe-time-kept", "fenced-before-release", "no-false-fence", "workload-recovers"},
	},
}

// TestSeedsAreCovered keeps the tables of the seeds complete: every sentence has code, a
// guarantee and a story that exist, every story has its place, and every guarantee of the seed
// has two stories with a controller that breaks it.
func TestSeedsAreCovered(t *testing.T) {
	page, err := os.ReadFile("../docs/seeds.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, seed := range seeds {
		t.Run(seed.number, func(t *testing.T) {
			_, section, ok := strings.Cut(string(page), seed.from)
			if !ok {
				t.Fatalf("docs/seeds.md has no section about seed %s", seed.number)
			}
			section, _, _ = strings.Cut(section, seed.to)
			stories := readAll(t, seed.catalog, ".yaml")
			code := strings.Join(values(readAll(t, seed.code, ".go")), "\n") + strings.Join(values(readAll(t, "../onhost", ".go")), "\n")
			rows := 0
			for line := range strings.SplitSeq(section, "\n") {
				cells := strings.Split(strings.Trim(line, "| "), " | ")
				if !strings.HasPrefix(line, "| ") || len(cells) < 2 {
					continue
				}
				if len(cells) == 4 && isGuarantees(cells[2]) {
					rows++
					checkRow(t, cells, stories, code)
					continue
				}
				for _, name := range quoted.FindAllStringSubmatch(strings.Join(cells[1:], " "), -1) {
					if strings.Contains(name[1], "-") && stories[name[1]] == "" && !known(name[1]) {
						t.Errorf("%q names the story %s, which is not there", cells[0], name[1])
					}
				}
			}
			if rows != seed.rows {
				t.Errorf("the table has %d sentences, and should have %d", rows, seed.rows)
			}
			for name := range stories {
				if !strings.Contains(section, "`"+name+"`") {
					t.Errorf("%s/%s.yaml has no place on the page: name it in a row", seed.catalog, name)
				}
			}
			for _, id := range seed.guarantees {
				broken := 0
				for _, story := range stories {
					if strings.Contains(story, "expect: {violated: "+id+"}") {
						broken++
					}
				}
				if broken < 2 {
					t.Errorf("%d stories with a wrong controller break %s", broken, id)
				}
			}
		})
	}
}

// checkRow checks one sentence: the code, the guarantee and the stories that it names.
func checkRow(t *testing.T, cells []string, stories map[string]string, code string) {
	t.Helper()
	for _, name := range identifier.FindAllStringSubmatch(cells[1], -1) {
		if _, method, _ := strings.Cut("."+name[1], "."); !strings.Contains(code, method[strings.LastIndex(method, ".")+1:]) {
			t.Errorf("%q names %s, which is not in the code", cells[0], name[1])
		}
	}
	names := quoted.FindAllStringSubmatch(cells[3], -1)
	if len(names) == 0 {
		t.Errorf("%q has no story", cells[0])
	}
	for _, name := range names {
		if stories[name[1]] == "" {
			t.Errorf("%q names the story %s, which is not there", cells[0], name[1])
		}
	}
}

var identifier = regexp.MustCompile("`([A-Za-z][A-Za-z.]*)`")

// isGuarantees reports whether a cell has nothing but guarantees, or nothing at all.
func isGuarantees(cell string) bool {
	names := quoted.FindAllStringSubmatch(cell, -1)
	return len(names) > 0 && !slices.ContainsFunc(names, func(name []string) bool { _, err := guarantee.Lookup(name[1]); return err != nil })
}

// known reports whether a name in backquotes is something else than a story of the seed's own.
func known(name string) bool {
	_, err := guarantee.Lookup(name)
	return err == nil || slices.Contains([]string{"watchdogs-fire", "agents-run", "controllers-run"}, name)
}

// readAll reads the files of a directory, by their names without the ending.
func readAll(t *testing.T, dir, ending string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+ending))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no files that end in %s: %v", dir, ending, err)
	}
	all := map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ending)] = string(data)
	}
	return all
}

func values(m map[string]string) []string {
	var all []string
	for _, v := range m { // order does not matter: searched as a whole
		all = append(all, v)
	}
	return all
}
