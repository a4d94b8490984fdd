package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fencelab/fencelab/ci/mutants/finding"
	"github.com/fencelab/fencelab/scenarios/guarantee"
	"github.com/fencelab/fencelab/sim/corpus/source"
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
	// Kind is the kind of mistake that it is an example of, if it is one: one of kindsOfMistake.
	Kind string `json:"kind,omitempty"`
	// Change is where it stands in the source.
	source.Change
	// Story is the scenario that was made for it, if one was: its single deviations
	// are tried first.
	Story string `json:"story,omitempty"`
	// Equivalent says why no history can show the difference, if none can, or which missing world
	// could.
	Equivalent string `json:"equivalent,omitempty"`
}

// kindsOfMistake lists mistakes that engineers make in fencing controllers of any design.
var kindsOfMistake = []struct{ name, what string }{
	{"identity", "something is looked up by the name of something else, by a name where a UID is meant, or in the absence of an ID"},
	{"time", "a time is counted from the wrong instant, never reset, or believed though it is still to come"},
	{"restart", "a process forgets what it must still know when it has started again"},
	{"no-answer", "a conflict, a time-out or an error is taken for success, for absence, or for an answer"},
	{"order", "two writes are made in the wrong order, and something comes between them"},
	{"cache", "a cache is believed where a live read is needed"},
	{"two-at-once", "two hosts, clients or conditions are taken for one"},
	{"votes", "peers are counted wrongly, or their silence is"},
	{"person", "what a person said is overlooked: a pause, a hook, a mode"},
	{"next-life", "what an earlier boot, Machine or deployment has left is taken for the present one's"},
	{"drain", "the wrong Pods and volumes are waited for, or evicted"},
	{"never-better", "nothing gets worse, and it never gets better"},
}

func isKind(name string) bool {
	return slices.ContainsFunc(kindsOfMistake, func(k struct{ name, what string }) bool { return k.name == name })
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
			if m.Kind != "" && !isKind(m.Kind) {
				problems = append(problems, fmt.Errorf("%s: mutant %s: there is no kind %q", file, m.ID, m.Kind))
			}
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

// The headings of the page.
const (
	byKind        = "## By kind"
	protections   = "## Protections taken out"
	otherMistakes = "## Other mistakes"
)

// WithKinds is the page with the table of kinds, counted from its other lines.
func WithKinds(page []byte, all []Mutant) ([]byte, error) {
	before, rest, found := strings.Cut(string(page), protections)
	if !found {
		return nil, fmt.Errorf("count the kinds of mistakes: the page has no line %q; measure all mutants", protections)
	}
	before, _, _ = strings.Cut(before, byKind)
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s\n\n| kind | what goes wrong | examples here | caught by a guarantee | by |\n|---|---|---|---|---|\n", before, byKind)
	for _, k := range kindsOfMistake {
		examples, caught, by := ofKind(k.name, rest, all)
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %s |\n", k.name, k.what, examples, caught, strings.Join(by, ", "))
	}
	return []byte(b.String() + "\n" + protections + rest), nil
}

// ofKind counts the examples of a kind, and those that a guarantee caught by a page's lines, and
// names those guarantees.
func ofKind(kind, page string, all []Mutant) (examples, caught int, by []string) {
	first := map[string]bool{}
	for _, m := range all {
		if m.Kind != kind {
			continue
		}
		examples++
		if broke := guarantees(page, m); len(broke) > 0 {
			caught++
			first[broke[0]] = true
		}
	}
	return examples, caught, slices.Sorted(maps.Keys(first))
}

// guarantees lists the guarantees that a mutant broke by the page's line about it.
func guarantees(page string, m Mutant) []string {
	_, line, found := strings.Cut(page, "| "+cell(m.Mistake)+" | ")
	line, _, _ = strings.Cut(line, "\n")
	cells := strings.Split(strings.TrimSuffix(line, " |"), " | ")
	if !found || len(cells) != 2 {
		return nil
	}
	var broke []string
	for _, id := range strings.Split(cells[1], ", ") {
		if _, err := guarantee.Lookup(id); err == nil {
			broke = append(broke, id)
		}
	}
	return broke
}

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
	for _, line := range lines[max(0, slices.Index(lines, protections)):] {
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

`+protections+`

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
