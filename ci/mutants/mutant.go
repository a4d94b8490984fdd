package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fencelab/fencelab/ci/mutants/finding"
)

// Mutant is one mistake in one file.
type Mutant struct {
	// ID is unique and says which controller.
	ID string `json:"id"`
	// File is the path from the project's root.
	File string `json:"file"`
	// Mistake says what the engineer did, in a phrase.
	Mistake string `json:"mistake"`
	// Protection is the protection that this takes out, if it does: a live read, a
	// lock, a precondition, a recorded time, a check.
	Protection string `json:"protection,omitempty"`
	// Find is the text in the file, which must be there once, and Replace what
	// stands there instead.
	Find    string `json:"find"`
	Replace string `json:"replace"`
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
			if _, err := m.source("."); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", file, err))
			}
		}
		all = append(all, mutants...)
	}
	return all, errors.Join(problems...)
}

// source returns the file with the mistake in it.
func (m Mutant) source(root string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return nil, fmt.Errorf("mutant %s: %w", m.ID, err)
	}
	find, replace := strings.TrimSuffix(m.Find, "\n"), strings.TrimSuffix(m.Replace, "\n")
	if n := bytes.Count(data, []byte(find)); n != 1 || find == "" {
		return nil, fmt.Errorf("mutant %s: what it changes stands %d times in %s, not once: %q", m.ID, n, m.File, find)
	}
	return bytes.Replace(data, []byte(find), []byte(replace), 1), nil
}

// Overlay writes what go build -overlay needs below dir and returns its path.
func (m Mutant) Overlay(dir string) (string, error) {
	source, err := m.source(".")
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(dir, m.ID+".go.txt"), filepath.Join(dir, m.ID+".json")
	original, err := filepath.Abs(m.File)
	if err != nil {
		return "", err
	}
	content, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(os.WriteFile(changed, source, 0o644), os.WriteFile(overlay, content, 0o644))
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

// Update replaces the lines of a page that are about the given mutants.
func Update(page []byte, results []result) ([]byte, error) {
	lines := strings.Split(string(page), "\n")
	for _, r := range results {
		i := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "| "+cell(r.mutant.Mistake)+" |") })
		if i < 0 {
			return nil, fmt.Errorf("update the page: it has no line about %s; measure all mutants", r.mutant.ID)
		}
		lines[i] = r.row()
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
	b.WriteString("\n## Other mistakes\n\n| mutant | mistake | found by | breaks |\n|---|---|---|---|\n")
	for _, r := range results {
		if r.mutant.Protection == "" {
			fmt.Fprintln(&b, r.row())
		}
	}
	return b.Bytes()
}
