package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fencelab/fencelab/ci/mutants/finding"
	"github.com/fencelab/fencelab/ci/mutants/source"
)

// Mutant is one mistake in one file.
type Mutant struct {
	// ID is unique and says which controller.
	ID string `json:"id"`
	// Mistake says what the engineer did, in a phrase.
	Mistake string `json:"mistake"`
	// Protection is the protection that this takes out, if it does: a live read, a
	// lock, a precondition, a recorded time, a check.
	Protection string `json:"protection,omitempty"`
	// Change is where it stands in the source.
	source.Change
	// Story is the scenario that was made for it, if one was: its single deviations
	// are tried first.
	Story string `json:"story,omitempty"`
	// Equivalent says why no history can tell the difference, if none can; or what
	// world would be needed that there is not.
	Equivalent string `json:"equivalent,omitempty"`
}

// Load reads every mutant of a directory.
func Load(dir string) ([]Mutant, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var all []Mutant
	known := map[string]bool{}
	var problems []error
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var mutants []Mutant
		if err := yaml.UnmarshalStrict(data, &mutants); err != nil {
			return nil, fmt.Errorf("read the mutants of %s: %w", file, err)
		}
		for _, m := range mutants {
			if m.ID == "" || m.Mistake == "" || known[m.ID] {
				problems = append(problems, fmt.Errorf("%s: the mutant %q has no mistake, no ID, or that of another", file, m.ID))
			}
			known[m.ID] = true
			if _, err := source.Apply(".", m.Change); err != nil {
				problems = append(problems, fmt.Errorf("%s: mutant %s: %w", file, m.ID, err))
			}
		}
		all = append(all, mutants...)
	}
	return all, errors.Join(problems...)
}

// cell is a text as it stands in a table.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", "\\|")
}

// row is the line of a table about one mutant.
func (r result) row() string {
	first, by, breaks := r.mutant.ID, "nothing", "**nothing**"
	if r.mutant.Protection != "" {
		first = r.mutant.Protection
	}
	switch f := r.finding; {
	case f.Broken != "":
		by = fmt.Sprintf("`%s`, %s", f.Scenario, f.Strategy)
		if f.Strategy == finding.Sweep {
			by += ": `" + strings.Join(f.Deviations, "; ") + "`"
		}
		breaks = f.Broken
	case r.mutant.Equivalent != "":
		breaks = cell(r.mutant.Equivalent)
	}
	return fmt.Sprintf("| %s | %s | %s | %s |", cell(first), cell(r.mutant.Mistake), by, breaks)
}

// otherMistakes is the heading of the second table.
const otherMistakes = "## Other mistakes"

// Update replaces the lines of a page that are about the given mutants; those of new ones
// come to the end of their table.
func Update(page []byte, results []result) ([]byte, error) {
	lines := strings.Split(string(page), "\n")
	for _, r := range results {
		i := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "| "+cell(r.mutant.Mistake)+" |") })
		if i >= 0 {
			lines[i] = r.row()
			continue
		}
		end := slices.Index(lines, otherMistakes)
		if end < 0 {
			return nil, fmt.Errorf("update the page: it has no line %q; measure all mutants", otherMistakes)
		}
		if r.mutant.Protection == "" {
			end = len(lines)
		}
		for end > 0 && strings.TrimSpace(lines[end-1]) == "" {
			end--
		}
		lines = slices.Insert(lines, end, r.row())
	}
	all, missed := 0, 0
	for _, line := range lines {
		if strings.HasPrefix(line, "| ") && !strings.Contains(line, "| found by |") {
			all++
			if strings.Contains(line, " | nothing | ") {
				missed++
			}
		}
	}
	for i, line := range lines {
		if strings.HasPrefix(line, "broke a guarantee: ") {
			_, rest, _ := strings.Cut(line, ",")
			lines[i] = fmt.Sprintf("broke a guarantee: %d of %d,%s", all-missed, all, rest)
		}
	}
	return []byte(strings.Join(lines, "\n")), nil
}

// Tables are the document about the mutants: first the protections, then the rest.
func Tables(results []result, limit time.Duration) []byte {
	var b bytes.Buffer
	caught := 0
	for _, r := range results {
		if r.finding.Broken != "" {
			caught++
		}
	}
	fmt.Fprintf(&b, `# What finds which mistake

For those who change the controllers, the scenarios or the searches. Each line is a
mistake that was put into the source of a controller, and the first schedule that
broke a guarantee: %d of %d, within %s each. `+"`make mutants`"+` writes this page. It
plays every story of the catalogue first, then goes round with single deviations
(sweep) and random schedules. Unit tests don't count.

## Protections taken out

| protection | taken out | found by | breaks |
|---|---|---|---|
`, caught, len(results), limit)
	for _, r := range results {
		if r.mutant.Protection != "" {
			fmt.Fprintln(&b, r.row())
		}
	}
	b.WriteString("\n" + otherMistakes + "\n\n| mutant | mistake | found by | breaks |\n|---|---|---|---|\n")
	for _, r := range results {
		if r.mutant.Protection == "" {
			fmt.Fprintln(&b, r.row())
		}
	}
	return b.Bytes()
}
