package guarantee

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// TestEveryRowHasAJudge: each guarantee that a row names exists and objects to some transcript, and
// each part and kind of event is one.
func TestEveryRowHasAJudge(t *testing.T) {
	judge := func(row, id string) {
		if _, err := Lookup(id); err != nil {
			t.Errorf("%s: %v", row, err)
		}
		if wrong, _ := filepath.Glob("testdata/" + id + "/violated-*.txt"); len(wrong) == 0 {
			t.Errorf("%s: %s objects to no transcript", row, id)
		}
	}
	seen := map[string]bool{}
	for _, r := range invariant.Requests {
		row := r.Part + " " + r.Does
		if r.Judge != "" {
			judge(row, r.Judge)
		}
		if r.Right == "" || seen[row] || r.Part != "" && !slices.Contains(invariant.Parts(), r.Part) {
			t.Errorf("%+v", r)
		}
		seen[row] = true
	}
	for _, h := range invariant.HarmKinds {
		judge(h.What, h.Judge)
	}
	for _, h := range invariant.HarmlessKinds {
		if h.Kind.Layer() == "" || h.Why == "" || seen[string(h.Kind)] {
			t.Errorf("%+v", h)
		}
		seen[string(h.Kind)] = true
	}
}

// TestWritesWithoutARow: what no row has makes a run unjudged, and only if a process under test has
// done it, in a part that it may not do it in.
func TestWritesWithoutARow(t *testing.T) {
	effect := func(actor, value string) history.Event {
		return history.Event{Kind: history.ControllerEffect, Actor: actor, Value: value}
	}
	limit := history.Event{Kind: history.DrainTimeout, Host: "worker-1", Object: "Machine/m1", Value: "1s"}
	by := func(e history.Event, actor string) history.Event { e.Actor = actor; return e }
	for _, tc := range []struct {
		event    history.Event
		unlisted bool
	}{
		{effect("worker-1.poisonpill", "patch NodeFence/worker-2"), false},
		{effect("worker-1.poisonpill", "create Pod/a"), true},
		{effect("worker-1.poisonpill", "create NodeFence/worker-2"), false},
		{effect("remediation", "create NodeFence/worker-2"), true},
		{effect("remediation-2", "delete Node/worker-2"), false},
		{effect("healthcheck", "delete Node/worker-2"), true},
		{effect("user", "delete Node/worker-2"), false},
		{effect("remediation", "apply Machine/m1"), false},
		{effect("remediation", "create Machine/m1"), true},
		{effect("healthcheck", "delete Machine/m1"), false}, // which is ruled on, and forbidden
		{effect("reboot", "bmc ForceOff worker-1"), false},
		{effect("reboot", "bmc Nmi worker-1"), true},
		{effect("deletion", "bmc ForceOff worker-1"), true},
		{effect("remediation", "create Ticket/a"), false}, // a kind of its own
		{by(limit, "deletion"), true},
		{by(limit, "user"), false},
		{history.Event{Kind: history.MachineNode, Host: "worker-1", Object: "Machine/m1", Actor: "deletion"}, false},
	} {
		params := usual()
		params.Timings.Kinds = []string{"Node", "Pod", "BareMetalHost", "Machine", "NodeFence"}
		p := invariant.NewPanel([]invariant.Invariant{powerRestored}, All(), params)
		for _, e := range record([]history.Event{tc.event}).Events() {
			p.Observe(&e)
		}
		got := p.Unjudged()
		if unlisted := len(got) == 1 && got[0].Unlisted; unlisted != tc.unlisted {
			t.Errorf("%s: %+v", tc.event, got)
		}
	}
}

// TestWritesAreDescribed compares the table in docs/guarantees.md with the rows.
func TestWritesAreDescribed(t *testing.T) {
	const path, begin, end = "../../docs/guarantees.md", "-update -->\n", "<!-- end of writes -->"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table", path)
	}
	var b strings.Builder
	code := func(id string) string {
		if id == "" {
			return "none"
		}
		return "`" + id + "`"
	}
	b.WriteString("\n| part | sends | ruled on by | by what right, or why none need rule |\n|---|---|---|---|\n")
	for _, r := range invariant.Requests {
		part := r.Part
		if part == "" {
			part = "any"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", part, r.Does, code(r.Judge), r.Right)
	}
	b.WriteString("\n| what happens | ruled on by |\n|---|---|\n")
	for _, h := range invariant.HarmKinds {
		fmt.Fprintf(&b, "| %s | `%s` |\n", h.What, h.Judge)
	}
	b.WriteString("\n| event | why none need rule on it |\n|---|---|\n")
	for _, h := range invariant.HarmlessKinds {
		fmt.Fprintf(&b, "| `%s` | %s |\n", h.Kind, h.Why)
	}
	b.WriteString("\n")
	want := before + begin + b.String() + end + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(data) {
		t.Errorf("%s has other rows than scenarios/invariant/writes.go: run go test ./scenarios/guarantee -run TestWritesAreDescribed -update", path)
	}
}
