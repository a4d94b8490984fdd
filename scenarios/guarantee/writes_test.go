package guarantee

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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

// usually is how each history of testdata/rows.txt begins.
var usually = []string{
	"0 machine-created rack-a on=Machine/m1 by=scenario",
	"0 host-consumer rack-a on=BareMetalHost/rack-a by=scenario value=Machine/m1",
	"0 online-wanted rack-a on=BareMetalHost/rack-a value=true by=scenario",
	"0 last-powered-on rack-a on=BareMetalHost/rack-a value=2026-01-01T00:00:00Z by=reboot",
	"0 power-reported rack-a on=BareMetalHost/rack-a value=true by=reboot",
	"0 healthy rack-a", "0 healthy rack-b",
}

// TestEveryRowCatchesAProgram: of each row with a guarantee, and of each harm, there is a history
// in which somebody of its part does that without any right, and the guarantee objects to it, and
// to nothing else.
func TestEveryRowCatchesAProgram(t *testing.T) {
	data, err := os.ReadFile("testdata/rows.txt")
	if err != nil {
		t.Fatal(err)
	}
	histories := map[string][]string{}
	for _, part := range strings.Split(string(data), "\n\n")[1:] {
		name, lines, _ := strings.Cut(strings.TrimSpace(part), "\n")
		histories[name] = strings.Split(lines, "\n")
	}
	harmed, tested := map[string]bool{}, usual().Roles // by what a guarantee has objected to
	note := func(r invariant.Result) {
		for _, h := range invariant.HarmKinds {
			shows := func(e *history.Event) bool { return tested.Tested(e.Actor) && h.Shows(e) }
			harmed[h.What] = harmed[h.What] || r.Violation != nil && h.Judge == r.Invariant && (shows(&r.Violation.First) || shows(&r.Violation.Second))
		}
	}
	objects := func(lines []string, id string) (sentence string, broken bool) {
		tr := &transcript{params: usual()}
		tr.params.Hosts = []string{"rack-a", "rack-b"}
		tr.params.Timings.Watchdog, tr.params.Timings.Silence, tr.params.Timings.Hearing = 10*time.Second, 12*time.Second, 20*time.Second
		begun := false
		for _, line := range slices.Concat(usually, lines, []string{"200 done"}) {
			if !begun && !strings.HasPrefix(line, "0 ") {
				begun = true
				tr.events = append(tr.events, history.Event{Kind: history.RunStarted})
			}
			if strings.HasSuffix(line, " done") && !strings.HasPrefix(line, "200") {
				continue
			}
			if err := tr.line(line); err != nil {
				t.Fatal(err)
			}
		}
		inv, err := Lookup(id)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range invariant.Judge(record(tr.events), []invariant.Invariant{inv}, tr.params) {
			note(r)
			return r.Reason, r.Verdict == invariant.Violated
		}
		return "", false
	}
	catches := func(name, id string) {
		lines := histories[name]
		delete(histories, name)
		var all, without []string
		for _, line := range lines {
			bare, wrong := strings.CutPrefix(line, "!")
			if all = append(all, bare); !wrong {
				without = append(without, line)
			}
		}
		if len(all) == len(without) {
			t.Errorf("%s: testdata/rows.txt has no program that does that without any right", name)
			return
		}
		if why, broken := objects(all, id); !broken {
			t.Errorf("%s: %s does not object: %s", name, id, why)
		}
		if why, broken := objects(without, id); broken {
			t.Errorf("%s: %s objects to something else: %s", name, id, why)
		}
	}
	for _, r := range invariant.Requests {
		if r.Judge != "" {
			catches(cmp.Or(r.Part, "any")+": "+r.Does, r.Judge)
		}
	}
	wrong, _ := filepath.Glob("testdata/*/violated-*.txt")
	for _, path := range wrong {
		tr, err := parseTranscript(path)
		if err != nil {
			t.Fatal(err)
		}
		note(invariant.Judge(record(tr.events), []invariant.Invariant{tr.invariant}, tr.params)[0])
	}
	for _, h := range invariant.HarmKinds {
		if name := "harm: " + h.What; histories[name] != nil || !harmed[h.What] {
			catches(name, h.Judge)
		}
		if !harmed[h.What] {
			t.Errorf("%s: no history has %s object to that", h.What, h.Judge)
		}
	}
	for name := range histories { // order does not matter: each by itself
		t.Errorf("testdata/rows.txt: there is no row %s", name)
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
