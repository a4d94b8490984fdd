package guarantee

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

func TestAllAreDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, inv := range All() {
		if seen[inv.ID] || !strings.HasSuffix(inv.Claim, ".") || inv.Seed == "" {
			t.Errorf("%+v", inv)
		}
		seen[inv.ID] = true
		if r := invariant.NewPanel([]invariant.Invariant{inv}, nil, invariant.Params{}).Results(true)[0]; r.Invariant != inv.ID || r.Verdict != invariant.Unknown {
			t.Errorf("%s of an empty history: %+v", inv.ID, r)
		}
		if _, promises := inv.New(invariant.Params{}).(invariant.Promising); promises != inv.Liveness {
			t.Errorf("%s: its checker says what is still missing: %v, and that it is about liveness: %v", inv.ID, promises, inv.Liveness)
		}
		if got, err := Lookup(inv.ID); err != nil || got.ID != inv.ID {
			t.Errorf("Lookup(%q) = %q, %v", inv.ID, got.ID, err)
		}
	}
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.0 s", 3587 * time.Millisecond: "3.587 s", 41200 * time.Millisecond: "41.2 s", 20 * time.Millisecond: "0.02 s",
		time.Hour: "3600.0 s", 1999600 * time.Microsecond: "2.0 s",
	} {
		if got := invariant.Seconds(d); got != want {
			t.Errorf("seconds(%s) = %q, want %q", d, got, want)
		}
	}
}

// TestHard reads what seed 000 and Kubernetes users write.
func TestHard(t *testing.T) {
	for value, want := range map[string]bool{
		"": false, "m1": false, `{"mode":"hard"}`: true, `{'mode':'hard'}`: true, `{"mode": "hard", "machine":"x"}`: true,
		`{"mode":"soft"}`: false, `{"model":"hard"}`: false, "{'machine': 'x', 'mode': 'hard'}": true,
	} {
		if invariant.Hard(value) != want {
			t.Errorf("hard(%q) = %t", value, !want)
		}
	}
}

// TestRoles: an instance of a process plays its part, and no other actor does.
func TestRoles(t *testing.T) {
	roles := usual().Roles
	for actor, want := range map[string]bool{
		"reboot": true, "reboot-2": true, "remediation-10": true, "": false, "user": false, "scenario": false, "bmc": false,
		"rebooter": false, "reboot-": false, "reboot-x": false, "worker-1.kubelet": false, "worker-1.poisonpill": true, "poisonpill": false, "workload": false,
	} {
		if roles.Tested(actor) != want {
			t.Errorf("tested(%q) = %t", actor, !want)
		}
		if e := (history.Event{Actor: actor}); roles.Blameless(&e) == (want || actor == "") {
			t.Errorf("blameless(%q) = %t", actor, roles.Blameless(&e))
		}
	}
	if (&invariant.Roles{}).Tested("") {
		t.Error("nobody plays a part that there is not")
	}
}

func TestLookupNamesTheNearest(t *testing.T) {
	for id, want := range map[string]string{
		"at-most-once": "at-most-one", "node-restore": "node-restored", "fenced-befor-release": "fenced-before-release",
		"powerrestored": "power-restored",
		"quorum":        "the invariants are fenced-before-release, safe-time-kept",
	} {
		if _, err := Lookup(id); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Lookup(%q): %v, want %s", id, err, want)
		}
	}
}

// TestFlawedHistory: an event that doesn't say what it is about is no evidence
// for anything, but what was seen before it stays seen.
func TestFlawedHistory(t *testing.T) {
	tr, err := parseTranscript("testdata/fenced-before-release/violated-node-first.txt")
	if err != nil {
		t.Fatal(err)
	}
	events := append([]history.Event(nil), tr.events...)
	events = append(events, history.Event{At: time.Hour, Kind: history.NodeDeleted, Object: "Node/x", UID: "u"}, history.Event{At: time.Hour, Kind: history.Done})
	for _, r := range invariant.Judge(record(events), All(), tr.params) {
		switch {
		case r.Invariant == "fenced-before-release" && r.Verdict == invariant.Violated:
		case r.Verdict == invariant.Unknown && strings.HasSuffix(r.Reason, "node-deleted, has no host"):
		default:
			t.Errorf("%s is %s", r.Invariant, describe(r))
		}
	}
}

// TestPanelTellsAtTheEvent: the run loop stops at the event that made the
// violation certain, and the sentence is completed when it goes on.
func TestPanelTellsAtTheEvent(t *testing.T) {
	tr, err := parseTranscript("testdata/node-deleted-before-boot/violated-power-on-first.txt")
	if err != nil {
		t.Fatal(err)
	}
	p := invariant.NewPanel([]invariant.Invariant{tr.invariant}, All(), tr.params)
	var v *invariant.Violation
	for _, e := range record(tr.events).Events() {
		if got := p.Observe(&e); got != nil {
			if e.Kind != history.BootComplete || !got.Open || got.Margin != 0 || got.First.Kind != history.NodeCreated {
				t.Errorf("at %s: %+v", e.Kind, got)
			}
			v = got
		}
	}
	if v == nil || v.Open || v.Margin != 1800*time.Millisecond || v.First.Kind != history.BootComplete || v.Second.Kind != history.NodeDeleted {
		t.Errorf("in the end: %+v", v)
	}
}

func TestPending(t *testing.T) {
	tr, err := parseTranscript("testdata/power-restored/held-remediation.txt")
	if err != nil {
		t.Fatal(err)
	}
	p := invariant.NewPanel([]invariant.Invariant{powerRestored, nodeRestored, annotationsCleared}, All(), tr.params)
	was := map[string]bool{}
	for _, e := range record(tr.events).Events() {
		p.Observe(&e)
		for _, s := range p.Pending() {
			was[s] = true
		}
	}
	for _, want := range []string{
		"worker-1 should be on and has been off since 14.0 s",
		"host.metal3.io/external-remediation is still on Machine/m1, where it was set at 10.0 s",
		"the Node of worker-1 has not been created again",
		"the Node of worker-1 is not Ready",
		"the Node of worker-1 lacks labels that it had: role=db,zone=a",
	} {
		if !was[want] {
			t.Errorf("never pending: %s", want)
		}
	}
	if !p.Settled() {
		t.Errorf("still pending: %v", p.Pending())
	}
}

// BenchmarkPanel judges a whole remediation with all invariants, as every run of
// the simulator does, and reports the cost of one event.
func BenchmarkPanel(b *testing.B) {
	tr, err := parseTranscript("testdata/fenced-before-release/held-remediation.txt")
	if err != nil {
		b.Fatal(err)
	}
	events, all := record(tr.events).Events(), All()
	b.ReportAllocs()
	for b.Loop() {
		p := invariant.NewPanel(all, nil, tr.params)
		for _, e := range events {
			if v := p.Observe(&e); v != nil {
				b.Fatal(v.Sentence)
			}
		}
		p.Results(true)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
}

// BenchmarkObserve is the cost of one event in a panel that exists already, for
// the mix of events of a remediation.
func BenchmarkObserve(b *testing.B) {
	tr, err := parseTranscript("testdata/fenced-before-release/held-remediation.txt")
	if err != nil {
		b.Fatal(err)
	}
	events := record(tr.events).Events()
	p := invariant.NewPanel(All(), nil, tr.params)
	b.ReportAllocs()
	for i := 0; b.Loop(); i = (i + 1) % len(events) {
		p.Observe(&events[i])
	}
}

// TestClosestCall: where the verdict of held hangs on the order of two events, these are the
// closest call, of the claims that report one.
func TestClosestCall(t *testing.T) {
	told := map[string]int{}
	for _, id := range []string{"node-deleted-before-boot", "fenced-before-release", "at-most-one", "hold-respected"} {
		files, err := filepath.Glob(filepath.Join("testdata", id, "held-*.txt"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			tr, err := parseTranscript(file)
			if err != nil {
				t.Fatal(err)
			}
			result := invariant.Judge(record(tr.events), []invariant.Invariant{tr.invariant}, tr.params)[0]
			c := result.Closest
			if c == nil || len(tr.starred) != 2 {
				continue
			}
			told[id]++
			if c.Margin != c.Second.At-c.First.At || c.Margin < 0 {
				t.Errorf("%s: the closest call is %s, then %s, %s apart", file, c.First, c.Second, c.Margin)
			}
			if first, second := tr.events[tr.starred[0]], tr.events[tr.starred[1]]; c.Margin > second.At-first.At {
				t.Errorf("%s: the closest call is %s, then %s; the verdict hangs on %s, then %s", file, c.First, c.Second, first, second)
			}
		}
		if told[id] == 0 {
			t.Errorf("%s tells no closest call", id)
		}
	}
}
