package fakebmc

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
)

// Preset is a misbehaviour of real BMCs under a name: a row of the project's
// catalogue, with where it was seen. A Rule refers to it by that name.
type Preset struct {
	Name    string `json:"name"`
	Row     int    `json:"row"`    // of the catalogue, 1 to 54
	Vendor  string `json:"vendor"` // whose BMCs, or clients, do it
	Source  string `json:"source"` // issues, commits and bugs that describe it
	Summary string `json:"summary"`
	// Threatens are the properties of fencing that it puts at risk: SAFE, ORDER,
	// HOLD, FRESH, LIVE, RIGHT or ONCE.
	Threatens []string `json:"threatens"`
	Rules     []Rule   `json:"rules"` // without names
}

//go:embed presets.json
var presetData []byte

var presets = sync.OnceValue(func() []Preset {
	var all []Preset
	dec := json.NewDecoder(bytes.NewReader(presetData))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&all); err != nil {
		panic("reading the embedded presets: " + err.Error()) // a test has read them
	}
	return all
})

// Presets returns every preset, by row.
func Presets() []Preset { return slices.Clone(presets()) }

// WritePresets writes a table of every preset.
func WritePresets(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ROW\tPRESET\tTHREATENS\tWHAT HAPPENS\tSEEN IN")
	for _, p := range presets() {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s: %s\n", p.Row, p.Name, strings.Join(p.Threatens, " "), p.Summary, p.Vendor, p.Source)
	}
	return t.Flush()
}

func presetNamed(name string) (Preset, bool) {
	all := presets()
	i := slices.IndexFunc(all, func(p Preset) bool { return p.Name == name })
	if i < 0 {
		return Preset{}, false
	}
	return all[i], true
}

// nearestPresets returns the presets that share the most words with a name that isn't one.
func nearestPresets(name string) string {
	words := strings.Split(name, "-")
	most := 0
	var near []string
	for _, p := range presets() {
		shared := 0
		for w := range strings.SplitSeq(p.Name, "-") {
			if slices.Contains(words, w) {
				shared++
			}
		}
		if shared > most {
			most, near = shared, nil
		}
		if shared == most && shared > 0 {
			near = append(near, p.Name)
		}
	}
	if near == nil {
		return "fencelab bmc faults lists them"
	}
	return "do you mean " + strings.Join(near, " or ") + "?"
}
