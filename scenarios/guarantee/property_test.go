package guarantee

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// arbitrary returns a history of n events that no world would make: every kind, of
// two hosts, with few enough names that events are about each other.
func arbitrary(next func(n int) int, n int) []history.Event {
	var kinds []history.Kind
	for _, layer := range []history.Layer{history.World, history.API, history.BMC, history.Engine} {
		kinds = append(kinds, history.Kinds(layer)...)
	}
	pick := func(values ...string) string { return values[next(len(values))] }
	at := time.Duration(0)
	events := make([]history.Event, 0, n+1)
	for range n {
		at += time.Duration(next(4)) * 10 * time.Millisecond
		e := history.Event{At: at, Kind: kinds[next(len(kinds))], Host: pick("h1", "h2"), UID: pick("u1", "u2")}
		switch e.Kind.Layer() {
		case history.World:
			e.Boot, e.Object, e.Actor = pick("b1", "b2", "b3"), pick("db-0", "db-1"), pick("", "reboot", "reboot", "scenario")
			if next(8) == 0 {
				e.Boot = ""
			}
		case history.API:
			e.Object = pick("Machine/m1", "BareMetalHost/"+e.Host, "BareMetalHost/"+e.Host)
			e.Key = pick(invariant.RebootAnnotation, invariant.RemediationAnnotation, invariant.ExternalAnnotation, invariant.RebootAnnotation+"/a", invariant.RebootAnnotation+"/")
			e.Value, e.Actor = pick("true", "false", "provisioned", "deprovisioning", "a=b,c=d", ""), pick("", "user", "reboot", "remediation", "remediation-2", "healthcheck")
			if e.Kind == history.AnnotationSet && next(2) == 0 {
				e.Value = `{"mode":"hard"}`
			}
		case history.BMC:
			e.Actor, e.Value = pick("reboot", "bmc"), pick("On", "ForceOff")
		case history.Engine:
			e.Key, e.Value = pick("powerUp", "powerUp", "addFault", "removeFault"), "words"
		}
		if next(64) == 0 {
			e.Host = ""
		}
		events = append(events, e)
	}
	return append(events, history.Event{At: at, Kind: history.Done})
}

// impatient are parameters whose times fit into such a history.
func impatient(hosts ...string) invariant.Params {
	p := usual()
	p.Hosts, p.HealthCheck = hosts, &invariant.HealthCheck{UnhealthyAfter: 1100 * time.Millisecond, Startup: 1500 * time.Millisecond, MaxUnhealthy: 1}
	p.Timings = invariant.Timings{Poll: 20 * time.Millisecond, Steady: 100 * time.Millisecond, Slack: 50 * time.Millisecond}
	return p
}

// checkProperties checks what must be true of the verdicts on any history.
func checkProperties(t *testing.T, events []history.Event, params invariant.Params) (violated int) {
	t.Helper()
	all := All()
	told := map[string]int{} // how many events it took
	panel := invariant.NewPanel(all, nil, params)
	checkers := make([]invariant.Checker, len(all))
	params.Hindrances = invariant.NewHindrances(params)
	for i, inv := range all {
		checkers[i] = inv.New(params)
	}
	for n, e := range record(events).Events() {
		params.Hindrances.Observe(&e)
		panel.Observe(&e)
		panel.Pending()
		for i, c := range checkers {
			if v := c.Observe(&e); v != nil {
				if before, again := told[all[i].ID]; again {
					t.Fatalf("%s told a violation at event %d and again at %d", all[i].ID, before, n)
				}
				told[all[i].ID] = n
			}
		}
		if settled := len(panel.Pending()) == 0; settled != panel.Settled() {
			t.Fatal("Settled contradicts Pending")
		}
		for _, r := range panel.Results(false) {
			_, isTold := told[r.Invariant]
			if (r.Verdict == invariant.Violated) != isTold {
				t.Fatalf("%s after event %d: %s, told %t: what is seen stays seen, and nothing else is certain of a prefix", r.Invariant, n, describe(r), isTold)
			}
			if r.Verdict == invariant.Held {
				t.Fatalf("%s is held of a history that was cut short", r.Invariant)
			}
		}
	}
	results := panel.Results(true)
	for i, r := range results {
		if again := panel.Results(true)[i]; describe(again) != describe(r) {
			t.Fatalf("%s: Finish says %s, then %s", r.Invariant, describe(r), describe(again))
		}
		if r.Verdict == invariant.Unknown && r.Reason == "" || r.Verdict == invariant.Held && r.Judged == 0 {
			t.Fatalf("%s: %+v", r.Invariant, r)
		}
		if v := r.Violation; r.Verdict == invariant.Violated {
			violated++
			if v.First.At > v.Second.At || v.Sentence == "" || strings.Contains(v.Sentence, "{") || v.Invariant != r.Invariant {
				t.Fatalf("%s: %+v", r.Invariant, *v)
			}
		}
	}
	return violated
}

func TestProperties(t *testing.T) {
	seen := map[invariant.Verdict]int{}
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		params := impatient("h1", "h2")
		params.Timings.Skew = time.Duration(seed%3) * 15 * time.Millisecond
		events := arbitrary(rng.IntN, 10+rng.IntN(60))
		seen[invariant.Violated] += checkProperties(t, events, params)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if seen[invariant.Violated] < 1000 {
		t.Errorf("only %d violations: the histories test nothing", seen[invariant.Violated])
	}
}

// TestSkewOnlyDoubts: observers that agree less well make verdicts less certain
// and never turn one into its opposite.
func TestSkewOnlyDoubts(t *testing.T) {
	softened := 0
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		h := record(arbitrary(rng.IntN, 10+rng.IntN(60)))
		params := impatient("h1", "h2")
		exact := invariant.Judge(h, All(), params)
		params.Timings.Skew = 15 * time.Millisecond
		for i, r := range invariant.Judge(h, All(), params) {
			switch {
			case r.Verdict == exact[i].Verdict:
			case r.Verdict == invariant.Unknown:
				softened++
			default:
				t.Errorf("seed %d, %s: %s becomes %s", seed, r.Invariant, describe(exact[i]), describe(r))
			}
		}
	}
	if softened == 0 {
		t.Error("the skew changed no verdict")
	}
}

// restsOnAPI are the guarantees that need no observer of the hosts.
var restsOnAPI = map[string]bool{
	"annotations-cleared": true, "nothing-is-left": true, "own-annotations-only": true, "content-preserved": true,
	"deprovision-clears": true, "bystanders-spared": true, "no-remediation-storm": true,
	"hooks-pause-drain": true, "hooks-pause-terminate": true, "deletion-ends": true,
}

// TestLostEvidenceIsNeverHeld hides each host and the API for the whole of each
// history that holds.
func TestLostEvidenceIsNeverHeld(t *testing.T) {
	paths, err := filepath.Glob("testdata/*/held*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, path := range paths {
		tr, err := parseTranscript(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{"", "worker-1", "worker-2"} {
			var events []history.Event
			for i, e := range tr.events {
				if i == 1 {
					events = append(events, history.Event{Kind: history.EvidenceLost, Host: host})
				}
				if e.Host == host && (e.Kind.Layer() == history.World) {
					continue
				}
				events = append(events, e)
			}
			r := invariant.Judge(record(events), []invariant.Invariant{tr.invariant}, tr.params)[0]
			onlyAPI := restsOnAPI[tr.invariant.ID] && host != ""
			other := host != "" && !hosts(tr.starred, tr.events)[host]
			if r.Verdict == invariant.Held && !onlyAPI && !other {
				t.Errorf("%s is held without the evidence of %q", path, host)
			}
		}
	}
}

// TestStalledLabExcusesOnlyLateness stalls the lab for the whole of each history: no process is
// accused that wasn't before, and what must never happen is judged as ever.
func TestStalledLabExcusesOnlyLateness(t *testing.T) {
	never := map[string]bool{"fenced-before-release": true, "node-deleted-before-boot": true, "at-most-one": true,
		"hold-respected": true, "safe-time-kept": true, "infrastructure-before-node": true}
	paths, _ := filepath.Glob("testdata/*/*.txt")
	excused := 0
	for _, path := range paths {
		tr, err := parseTranscript(path)
		if err != nil {
			t.Fatal(err)
		}
		judged := func(events []history.Event) invariant.Verdict {
			return invariant.Judge(record(events), []invariant.Invariant{tr.invariant}, tr.params)[0].Verdict
		}
		before, after := judged(tr.events), judged(slices.Insert(slices.Clone(tr.events), 1, history.Event{Kind: history.LabStalled}))
		switch {
		case before == after:
		case after == invariant.Violated, never[tr.invariant.ID]:
			t.Errorf("%s is %s, and %s in a lab that stalls", path, before, after)
		case before == invariant.Violated:
			excused++
		}
	}
	if excused == 0 {
		t.Error("it excuses nobody")
	}
}

func hosts(indices []int, events []history.Event) map[string]bool {
	set := map[string]bool{}
	for _, i := range indices {
		set[events[i].Host] = true
	}
	return set
}

func FuzzCheckers(f *testing.F) {
	f.Add([]byte("a history that nobody would write"), uint8(0))
	f.Fuzz(func(t *testing.T, choices []byte, skew uint8) {
		i := 0
		next := func(n int) int {
			if len(choices) == 0 {
				return 0
			}
			i++
			return int(choices[i%len(choices)]) % n
		}
		params := impatient("h1")
		params.Timings.Skew = time.Duration(skew) * time.Millisecond
		checkProperties(t, arbitrary(next, min(200, len(choices))), params)
	})
}
