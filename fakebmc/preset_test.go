package fakebmc_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
)

// TestPresetsAreDocumented holds the table of the page about the presets against
// them: a row for each, in the same order, and none of another one.
func TestPresetsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/bmc-faults.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| (\\d+) \\| `([^`]+)` \\| [^|]+ \\| [^|]+ \\|$")
	var told, want []string
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		told = append(told, m[1]+" "+m[2])
	}
	for _, p := range fakebmc.Presets() {
		want = append(want, fmt.Sprint(p.Row, " ", p.Name))
	}
	if d := cmp.Diff(want, told); d != "" {
		t.Errorf("docs/bmc-faults.md has other rows (+) than there are presets (-):\n%s", d)
	}
}

func TestPresetRules(t *testing.T) {
	w := newWorld(t)
	// What when sets replaces what the preset says; the rest stays.
	rule := systemtest.Rules(t, `{"name": "late", "when": {"from": "10s", "count": 1}, "preset": "dell-redundant-off-409"}`)[0]
	if err := w.bmc.AddRule(rule); err != nil {
		t.Fatal(err)
	}
	w.ask("ForceOff")
	w.clk.Advance(5 * s)
	for _, c := range []struct {
		wait time.Duration
		want string
	}{{0, "204"}, {5 * s, "409 PSU502"}, {0, "204"}} {
		w.clk.Advance(c.wait)
		if got := *w.ask("ForceOff"); got != c.want {
			t.Errorf("at %v: %s, want %s", w.clk.Now(), got, c.want)
		}
	}
	if got := w.bmc.Rules(); len(got) != 1 || got[0].Preset != "dell-redundant-off-409" {
		t.Errorf("rules in force: %+v", got)
	}
	// One of several rules goes as it came.
	if err := w.bmc.AddRule(fakebmc.Rule{Name: "stuck", Preset: "openbmc-stuck-shutdown"}); err != nil {
		t.Fatal(err)
	}
	if got := w.bmc.Rules(); len(got) != 2 {
		t.Errorf("rules in force: %+v", got)
	}
	if !w.bmc.RemoveRule("stuck") || !w.bmc.RemoveRule("late") || len(w.bmc.Rules()) != 0 {
		t.Errorf("rules left: %+v", w.bmc.Rules())
	}
	for _, c := range []struct{ rule, want string }{
		{`[{"name": "a", "preset": "dell-off-409"}]`, "dell-redundant-off-409"},
		{`[{"name": "a", "preset": "x"}]`, "fencelab bmc faults"},
		{`[{"name": "a", "preset": "lost-answer", "effect": {"hang": true}}]`, "exclude each other"},
		{`[{"name": "a", "preset": "lost-answer", "when": {"method": "GET", "reset": ["On"]}}]`, "a reset is a POST"},
	} {
		if _, err := fakebmc.ParseRules([]byte(c.rule)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.rule, err, c.want)
		}
	}
}
