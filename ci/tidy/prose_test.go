package tidy

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// prose is the ratchet of turns that are right now and then, and make riddles where they are a
// habit: how often each folder's comments have them. A count may only fall: -update lowers it.
const prose = "ci/tidy/prose.txt"

var habits = []struct {
	name    string
	phrase  *regexp.Regexp
	instead string
}{
	{"relative", regexp.MustCompile(`\b(is|are|was|were) (what|those|whom)\b`), "say what the thing does or holds, subject first"},
	{"nobody", regexp.MustCompile(`\b[Nn]obody\b`), "name who does it, or say that nothing does"},
	{"told", regexp.MustCompile(`\b(told|tells?|telling)\b`), "reports, records, knows, is given, distinguishes or plays: one of them is meant"},
	{"so many", regexp.MustCompile(`\bso many\b`), "give the number its name"},
	{"to be", regexp.MustCompile(`\bit is to be\b`), "say who does it"},
}

// proseOf counts the habits in each folder's comments: "FOLDER HABIT".
func proseOf(t *tree) map[string]int {
	counts := map[string]int{}
	for _, s := range t.sources {
		for _, group := range s.file.Comments {
			text := strings.Join(strings.Fields(group.Text()), " ")
			for _, habit := range habits {
				if n := len(habit.phrase.FindAllString(text, -1)); n > 0 {
					counts[s.dir()+" "+habit.name] += n
				}
			}
		}
	}
	return counts
}

// habitual lists folders whose comments have a habit more often than the ratchet allows.
func habitual(t *tree) (problems []string, err error) {
	allowed, place := map[string]int{}, filepath.Join(t.root, prose)
	data, err := os.ReadFile(place)
	if err != nil {
		return nil, err
	}
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var count int
		of, number, ok := strings.Cut(line, ": ")
		if _, err := fmt.Sscan(number, &count); err != nil || !ok {
			return nil, fmt.Errorf("%s:%d: FOLDER HABIT: COUNT is expected, not %q", prose, i+1, line)
		}
		allowed[of] = count
	}
	counts := proseOf(t)
	for _, of := range slices.Sorted(maps.Keys(counts)) {
		if counts[of] <= allowed[of] {
			continue
		}
		folder, name, _ := strings.Cut(of, " ")
		for _, habit := range habits {
			if habit.name == name {
				problems = append(problems, fmt.Sprintf("%s: comments match %q %d times, and at most %d are allowed: %s", folder, habit.phrase, counts[of], allowed[of], habit.instead))
			}
		}
	}
	if *update && t.root == "../.." && len(problems) == 0 {
		var text strings.Builder
		for _, of := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(&text, "%s: %d\n", of, counts[of])
		}
		return nil, os.WriteFile(place, []byte(text.String()), 0o644)
	}
	return problems, nil
}
