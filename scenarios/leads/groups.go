package leads

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Accepted is a lead that whoever runs the stories knows of, by its name, and why it is none.
type Accepted struct {
	// Lead is its name as it is printed: "only evict Pod".
	Lead string `json:"lead"`
	// Why says why it is right.
	Why string `json:"why"`
}

// All collects the leads of many runs. The zero value is empty and ready.
type All struct {
	// Compared is how many runs were compared, and Apart how many could not be: the reference came
	// to another verdict, or to other deeds of the schedule.
	Compared, Apart int
	groups          map[string]*Group
}

// Group is the leads of one name. Lead is the first of them, Where the report of its run, and Runs
// are how many runs of which stories show one.
type Group struct {
	Name, Where string
	Lead        Lead
	Runs        int
	Stories     []string
}

// Add adds the leads of a run of a story. It returns the groups that have begun with it.
func (a *All) Add(story string, found []Lead) (fresh []*Group) {
	a.Compared++
	if a.groups == nil {
		a.groups = make(map[string]*Group)
	}
	var seen []*Group
	for _, l := range found {
		g := a.groups[l.Name()]
		if g == nil {
			g = &Group{Name: l.Name(), Lead: l}
			a.groups[g.Name], fresh = g, append(fresh, g)
		}
		if slices.Contains(seen, g) {
			continue
		}
		seen = append(seen, g)
		g.Runs++
		if !slices.Contains(g.Stories, story) {
			g.Stories = append(g.Stories, story)
		}
	}
	return fresh
}

// Groups returns the groups that are not accepted, the strangest first, and how many are.
func (a *All) Groups(accepted []Accepted) (fresh []*Group, known int) {
	for name, g := range a.groups { // order does not matter: sorted below
		if slices.ContainsFunc(accepted, func(k Accepted) bool { return k.Lead == name }) {
			known++
		} else {
			fresh = append(fresh, g)
		}
	}
	recurs := func(g *Group) int { // how often something is written says least
		if g.Lead.Recurs() {
			return 1
		}
		return 0
	}
	slices.SortFunc(fresh, func(x, y *Group) int {
		return cmp.Or(cmp.Compare(recurs(x), recurs(y)), cmp.Compare(slices.Index(strangest, x.Lead.How), slices.Index(strangest, y.Lead.How)),
			cmp.Compare(y.Runs, x.Runs), cmp.Compare(x.Name, y.Name))
	})
	return fresh, known
}

// String is a group in a line: its name, what it was in the first run, and in how many it shows.
func (g *Group) String() string {
	about := ""
	if g.Lead.Host != "" {
		about = " (" + g.Lead.Host + ")"
	}
	return fmt.Sprintf("%s: %s%s, the reference %s; in %s, the first of %s", g.Name, g.Lead.Mine, about, g.Lead.Reference,
		phrase.Count(g.Runs, "run"), g.Stories[0])
}
