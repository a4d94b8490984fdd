package leads

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// side is a run of lines: SECONDS KIND [HOST] [by=ACTOR] [key=KEY] [value=VALUE]. With
// an underscore for a space.
func side(t *testing.T, lines ...string) Side {
	t.Helper()
	h := new(history.History)
	h.Append(history.Event{Kind: history.RunStarted})
	for _, line := range lines {
		fields := strings.Fields(line)
		var seconds float64
		if _, err := fmt.Sscan(fields[0], &seconds); err != nil {
			t.Fatal(err)
		}
		e := history.Event{At: time.Duration(seconds * float64(time.Second)), Kind: history.Kind(fields[1])}
		if e.Kind.Layer() == "" {
			t.Fatalf("%q is no kind of event", e.Kind)
		}
		for _, field := range fields[2:] {
			switch name, value, _ := strings.Cut(field, "="); name {
			case "by":
				e.Actor = value
			case "key":
				e.Key = value
			case "value":
				e.Value = strings.ReplaceAll(value, "_", " ")
			case "on":
				e.Object = value
			default:
				e.Host = name
			}
		}
		h.Append(e)
	}
	return Side{Events: h.Events(), Tested: func(actor string) bool { return actor == "team" || actor == "own" }}
}

// TestCompare: each way to differ, and beside it what is no difference.
func TestCompare(t *testing.T) {
	times := func(n int, line string) (lines []string) {
		for i := range n {
			lines = append(lines, fmt.Sprintf("%d %s", 10+i, line))
		}
		return lines
	}
	lines := func(all ...string) []string { return all }
	for name, c := range map[string]struct {
		mine, reference []string
		want            string
	}{
		"the same":                   {lines("1 node-deleted a by=team"), lines("1 node-deleted a by=own"), ""},
		"a deed of somebody else":    {lines("1 node-deleted a by=user", "1 node-created a"), nil, ""},
		"only":                       {lines("1 bmc-command a", "1 controller-effect by=team value=bmc_ForceOff_a"), nil, "only bmc ForceOff: once, never"},
		"another verb":               {lines("1 controller-effect by=team value=delete_Pod/x"), lines("1 controller-effect by=own value=evict_Pod/y"), "only delete Pod: once, never; never evict Pod: never, once"},
		"another host":               {lines("1 machine-deleted b by=team"), lines("1 machine-deleted a by=own"), "never machine-deleted: never, once; only machine-deleted: once, never"},
		"softly":                     {lines("1 annotation-set a on=BareMetalHost/a key=reboot.metal3.io/x by=team", "2 annotation-removed a on=BareMetalHost/a key=reboot.metal3.io/x by=team"), lines(`1 annotation-set a on=BareMetalHost/a key=reboot.metal3.io/x by=own value={"mode":"hard"}`, "2 annotation-removed a on=BareMetalHost/a key=reboot.metal3.io/x by=own"), "never annotation-set reboot.metal3.io/x: never, once; only annotation-set reboot.metal3.io/x (soft): once, never"},
		"more":                       {times(4, "power-reported a by=team value=true"), times(2, "power-reported a by=own value=true"), "more power-reported true: 4 times, 2 times"},
		"once more is nothing":       {times(2, "power-reported a by=team value=true"), times(1, "power-reported a by=own value=true"), ""},
		"fewer":                      {times(1, "node-labels a by=team"), times(3, "node-labels a by=own"), "fewer node-labels: once, 3 times"},
		"writes":                     {times(4, "controller-effect by=team value=patch_Node/a"), times(2, "controller-effect by=own value=update_Node/a"), ""},
		"writes over and over":       {times(9, "controller-effect by=team value=patch_Node/a"), times(3, "controller-effect by=own value=update_Node/a"), "more change Node: 9 times, 3 times"},
		"errors":                     {times(7, "controller-error by=team"), times(1, "controller-error by=own"), "more controller-error: 7 times, once"},
		"stays":                      {lines("1 node-cordoned a by=team"), lines("1 node-cordoned a by=own", "2 node-uncordoned a by=user"), "stays Node cordoned: until the end, for 1.0 s"},
		"ends":                       {lines("1 power-off a by=team", "2 power-on a by=user"), lines("1 power-off a by=own"), "ends host off: for 1.0 s, until the end"},
		"longer":                     {lines("1 power-off a by=team", "31 power-on a by=user"), lines("1 power-off a by=own", "11 power-on a by=user"), "longer host off: for 30.0 s, for 10.0 s"},
		"shorter":                    {lines("1 fence-requested a by=team", "5 fence-ended a by=user"), lines("1 fence-requested a by=own", "40 fence-ended a by=user"), "shorter boot to be fenced: for 4.0 s, for 39.0 s"},
		"a little longer":            {lines("1 power-off a by=team", "5 power-on a by=user"), lines("1 power-off a by=own", "2 power-on a by=user"), ""},
		"later":                      {lines("1 op-applied", "21 node-deleted a by=team"), lines("1 op-applied", "2 node-deleted a by=own"), "later node-deleted: after 20.0 s, after 1.0 s"},
		"earlier":                    {lines("1 op-applied", "2 node-deleted a by=team"), lines("1 op-applied", "30 node-deleted a by=own"), "earlier node-deleted: after 1.0 s, after 29.0 s"},
		"after the next operation":   {lines("1 op-applied", "20 op-applied", "21 node-deleted a by=team"), lines("1 op-applied", "4 node-deleted a by=own", "20 op-applied"), "later node-deleted: after 1.0 s, after 3.0 s"},
		"about the next operation":   {lines("1 op-applied", "4 op-applied", "5 node-deleted a by=team"), lines("1 op-applied", "3 node-deleted a by=own", "4 op-applied"), ""},
		"what follows a later one":   {lines("1 op-applied", "21 node-cordoned a by=team", "22 node-deleted a by=team", "24 node-created a by=team"), lines("1 op-applied", "2 node-cordoned a by=own", "3 node-deleted a by=own", "4 node-created a by=own"), "later node-cordoned: after 20.0 s, after 1.0 s"},
		"and another delay":          {lines("1 op-applied", "21 node-cordoned a by=team", "62 node-deleted a by=team"), lines("1 op-applied", "2 node-cordoned a by=own", "3 node-deleted a by=own"), "longer Node cordoned: for 41.0 s, for 1.0 s; later node-cordoned: after 20.0 s, after 1.0 s; later node-deleted: after 61.0 s, after 2.0 s"},
		"deeds before the beginning": {lines("1 op-applied"), lines("1 op-applied"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, l := range Compare(side(t, c.mine...), side(t, c.reference...)) {
				if strings.HasPrefix(l.Deed, "Node away") {
					continue // beside a deletion
				}
				got = append(got, fmt.Sprintf("%s: %s, %s", l.Name(), l.Mine, l.Reference))
			}
			if text := strings.Join(got, "; "); text != c.want {
				t.Errorf("got  %s\nwant %s", text, c.want)
			}
		})
	}
}

// TestGroups: leads of one name are one, the strangest come first, and those that are accepted by
// their whole name are left out.
func TestGroups(t *testing.T) {
	var all All
	if fresh := all.Add("one", []Lead{{How: Later, Deed: "node-deleted", Host: "a"}, {How: Later, Deed: "node-deleted", Host: "b"}, {How: Only, Deed: "change Node"}}); len(fresh) != 2 {
		t.Errorf("%d groups have begun, want 2", len(fresh))
	}
	if fresh := all.Add("two", []Lead{{How: Later, Deed: "node-deleted", Host: "a"}}); len(fresh) > 0 {
		t.Errorf("%s was seen before", fresh[0].Name)
	}
	all.Add("two", []Lead{{How: Only, Deed: "evict Pod"}, {How: More, Deed: "evict Pod"}})
	fresh, known := all.Groups([]Accepted{{Lead: "more evict Pod"}, {Lead: "only evict"}})
	var got []string
	for _, g := range fresh {
		got = append(got, fmt.Sprintf("%s %d %d", g.Name, g.Runs, len(g.Stories)))
	}
	if want := []string{"only evict Pod 1 1", "later node-deleted 2 2", "only change Node 1 1"}; known != 1 || all.Compared != 3 || !slices.Equal(got, want) {
		t.Errorf("%d known of %d runs, %q, want %q", known, all.Compared, got, want)
	}
}
