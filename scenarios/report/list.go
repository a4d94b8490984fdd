package report

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/guarantee"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// Guarantees lists what can be judged.
func Guarantees(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, inv := range guarantee.All() {
		kind := "safety"
		if inv.Liveness {
			kind = "liveness"
		}
		fmt.Fprintf(table, "%s\t%s\tseed %s\t%s\n", inv.ID, kind, inv.Seed, inv.Claim)
	}
	return table.Flush()
}

// Scenarios lists scenarios: name, seeds, worlds, and what is expected. Where they are in several
// directories, each has its name above.
func Scenarios(w io.Writer, listed []*scenarios.Scenario) error {
	several := slices.ContainsFunc(listed, func(s *scenarios.Scenario) bool { return path.Dir(s.File) != path.Dir(listed[0].File) })
	table, heading := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0), ""
	for _, s := range listed {
		if dir := path.Dir(s.File); several && dir != heading {
			heading = dir
			fmt.Fprintf(table, "\n%s\n", dir)
		}
		expected := string(invariant.Held)
		if v := s.Spec.Expect.Violated; v != "" {
			expected = "violated: " + v
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", s.Metadata.Name, strings.Join(s.Metadata.Seeds, " "),
			cmp.Or(strings.Join(s.Spec.Worlds, " "), "sim lab"), expected)
	}
	return table.Flush()
}
