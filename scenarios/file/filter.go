package file

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/guarantee"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Filter says which scenarios are meant: those that fit each of its terms. It is the
// value of a flag that may be given several times.
type Filter struct{ terms []criterion }

// criterion is KEY=VALUE, or a VALUE alone, which is a name's.
type criterion struct{ key, value string }

// keys maps each key of a filter to its match.
var keys = map[string]func(s *scenarios.Scenario, value string) bool{
	"name": func(s *scenarios.Scenario, pattern string) bool {
		fits, err := path.Match(pattern, s.Metadata.Name)
		return err == nil && fits
	},
	"seed":  func(s *scenarios.Scenario, number string) bool { return slices.Contains(s.Metadata.Seeds, number) },
	"label": func(s *scenarios.Scenario, word string) bool { return slices.Contains(s.Metadata.Labels, word) },
	"guarantee": func(s *scenarios.Scenario, id string) bool {
		return len(s.Spec.Invariants) == 0 || slices.Contains(s.Spec.Invariants, id) || s.Spec.Expect.Violated == id
	},
}

// FilterUsage explains a Filter to people.
const FilterUsage = "only scenarios that match name=PATTERN, seed=NUMBER, label=WORD or guarantee=ID; if repeated, all of them must match"

// Set adds a term.
func (f *Filter) Set(text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok || strings.ContainsAny(key, "-.*?[0123456789") { // as in the name of a cell
		key, value = "name", text
	}
	if keys[key] == nil {
		return fmt.Errorf("%q: filter by name, seed, label or guarantee, such as seed=002", key)
	}
	if _, err := path.Match(value, ""); key == "name" && err != nil {
		return fmt.Errorf("%q is not a pattern: * stands for any number of characters, ? for one", value)
	}
	if key == "guarantee" {
		if _, err := guarantee.Lookup(value); err != nil {
			var ids []string
			for _, inv := range guarantee.All() {
				ids = append(ids, inv.ID)
			}
			if meant := phrase.Nearest(value, ids); meant != "" {
				return fmt.Errorf("there is no guarantee %q; did you mean %s?", value, meant)
			}
			return fmt.Errorf("there is no guarantee %q; see fencelab list --invariants", value)
		}
	}
	f.terms = append(f.terms, criterion{key, value})
	return nil
}

// String is the filter as it was given.
func (f *Filter) String() string {
	var terms []string
	for _, t := range f.terms {
		terms = append(terms, t.key+"="+t.value)
	}
	return strings.Join(terms, " ")
}

// Type names the value in a help text.
func (f *Filter) Type() string { return "KEY=VALUE" }

// Of returns those of the scenarios that fit, at least one.
func (f *Filter) Of(all []*scenarios.Scenario) ([]*scenarios.Scenario, error) {
	fits := slices.DeleteFunc(slices.Clone(all), func(s *scenarios.Scenario) bool {
		return slices.ContainsFunc(f.terms, func(t criterion) bool { return !keys[t.key](s, t.value) })
	})
	if len(fits) == 0 {
		return nil, fmt.Errorf("--filter %s: none of %s matches", f, phrase.Count(len(all), "scenario"))
	}
	return fits, nil
}
