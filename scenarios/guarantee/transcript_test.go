package guarantee

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// Rewriting is honest only if you can say why each changed verdict is right.
var update = flag.Bool("update", false, "rewrite the expected verdicts in testdata")

// usual are the parameters of a transcript that says nothing else.
func usual() invariant.Params {
	return invariant.Params{
		Roles: invariant.Roles{Power: "reboot", Remediation: "remediation", HealthCheck: "healthcheck", Deletion: "deletion", Tenancy: "tenancy", Fencers: []string{"poisonpill"}},
		Timings: invariant.Timings{
			HardOff: 300 * time.Millisecond, SoftOff: 3 * time.Second, SoftTimeout: 20 * time.Second, Command: 10 * time.Second,
			Poll: 2 * time.Second, Steady: 20 * time.Second, Backoff: 5 * time.Second, Slack: 2 * time.Second, Safe: 30 * time.Second,
			Epoch: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		},
	}
}

// transcript is a hand-written history with the verdict it must get, as in
// testdata: a story in comments, the parameters, one event a line, and after a
// line of dashes what the invariant says.
//
//	12.5 annotation-set worker-1 on=Machine/m1 key=host.metal3.io/... by=healthcheck
//
// is time, kind, host, and then the other fields by name. "healthy" stands for
// what a host's observers record when the run starts: boot b1 is complete and the
// Node n1 is Ready. Lines with a star are the two events on which a verdict of
// held hangs: swapping them must break the claim.
type transcript struct {
	path, text string
	invariant  invariant.Invariant
	params     invariant.Params
	events     []history.Event
	starred    []int
}

func parseTranscript(path string) (*transcript, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	tr := &transcript{path: path, params: usual()}
	tr.text, _, _ = strings.Cut(string(data), "----\n")
	for n, line := range strings.Split(tr.text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if err := tr.line(line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n+1, err)
		}
	}
	return tr, nil
}

func (tr *transcript) line(line string) (err error) {
	if name, value, ok := strings.Cut(line, ": "); ok {
		switch name {
		case "invariant":
			tr.invariant, err = Lookup(value)
		case "hosts":
			tr.params.Hosts = strings.Fields(value)
		case "members":
			tr.params.Members = strings.Fields(value)
		case "healthcheck":
			var after, startup string
			tr.params.HealthCheck = &invariant.HealthCheck{}
			var many string
			if _, err = fmt.Sscan(value, &after, &startup, &many); err == nil {
				least, most, isRange := strings.Cut(many, "-")
				if !isRange {
					least, most = "0", many
				}
				most, tr.params.HealthCheck.Share = strings.CutSuffix(most, "%")
				tr.params.HealthCheck.MinUnhealthy, _ = strconv.Atoi(least)
				tr.params.HealthCheck.MaxUnhealthy, _ = strconv.Atoi(most)
				tr.params.HealthCheck.UnhealthyAfter, err = time.ParseDuration(after)
				tr.params.HealthCheck.Startup, _ = time.ParseDuration(startup)
			}
		case "cooldown":
			tr.params.Timings.CoolDown, err = time.ParseDuration(value)
		case "claim": // HOST OBJECT KEY VALUE WITHIN, with "-" for the key of a field that power-reported tells of
			var c invariant.Claim
			var within string
			if _, err = fmt.Sscan(value, &c.Host, &c.Object, &c.Key, &c.Value, &within); err == nil {
				c.Key = strings.TrimPrefix(c.Key, "-")
				c.Within, err = time.ParseDuration(within)
				tr.params.Claims = append(tr.params.Claims, c)
			}
		case "freed":
			tr.params.Timings.Freed, err = time.ParseDuration(value)
		case "orphaned":
			tr.params.Timings.Orphaned, err = time.ParseDuration(value)
		case "missing":
			tr.params.Timings.Missing, err = time.ParseDuration(value)
		case "agents": // WATCHDOG SILENCE HEARING
			var dog, silence, hearing string
			if _, err = fmt.Sscan(value, &dog, &silence, &hearing); err == nil {
				t := &tr.params.Timings
				t.Watchdog, err = time.ParseDuration(dog)
				t.Brief = t.Watchdog / 3
				t.Silence, _ = time.ParseDuration(silence)
				t.Hearing, _ = time.ParseDuration(hearing)
			}
		case "slack": // of what waits for boots, and of what waits for none
			var slack, act string
			if _, err = fmt.Sscan(value, &slack, &act); err == nil {
				tr.params.Timings.Slack, err = time.ParseDuration(slack)
				tr.params.Timings.Act, _ = time.ParseDuration(act)
			}
		case "without": // power, or power and agents
			tr.params.Roles.Power = ""
			if strings.Contains(value, "agents") {
				tr.params.Roles.Fencers = nil
			}
		case "clocks": // differ
			tr.params.Timings.Epoch = time.Time{}
		case "answer":
			tr.params.Timings.Answer, err = time.ParseDuration(value)
		case "skew":
			tr.params.Timings.Skew, err = time.ParseDuration(value)
		default:
			err = fmt.Errorf("unknown parameter %q", name)
		}
		return err
	}
	rest, starred := strings.CutPrefix(line, "*")
	fields := strings.Fields(rest)
	at, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return err
	}
	e := history.Event{At: time.Duration(at*1000+0.5) * time.Millisecond, Kind: history.Kind(fields[1])}
	for _, field := range fields[2:] {
		name, value, ok := strings.Cut(field, "=")
		if !ok {
			e.Host = field
			continue
		}
		switch name {
		case "hinders": // PARTY, PARTY:NAME, PARTY:NAME+TIME beyond that, or PARTY~TIME; with a ! if that had been decided, a ? if other events tell of each time, a ^ if requests hang, a - if they fail
			party, decided := strings.CutSuffix(value, "!")
			party, hangs := strings.CutSuffix(party, "^")
			party, told := strings.CutSuffix(party, "?")
			party, fails := strings.CutSuffix(party, "-")
			e.Hinders = &history.Hindrance{Decided: decided, Told: told, Fails: told || hangs || fails, Hangs: hangs}
			if party, long, ok := strings.Cut(party, "~"); ok {
				e.Hinders.Party = party
				if e.Hinders.For, err = time.ParseDuration(long); err != nil {
					return err
				}
				continue
			}
			party, beyond, held := strings.Cut(party, "+")
			e.Hinders.Party, e.Hinders.Name, _ = strings.Cut(strings.ReplaceAll(party, "_", " "), ":")
			if held {
				if e.Hinders.For, err = time.ParseDuration(beyond); err != nil {
					return err
				}
			}
			continue
		case "frees":
			e.Frees = append(e.Frees, strings.ReplaceAll(value, "_", " "))
			continue
		}
		into := map[string]*string{"boot": &e.Boot, "on": &e.Object, "of": &e.Object, "uid": &e.UID, "key": &e.Key, "from": &e.From, "to": &e.To, "note": &e.Note, "by": &e.Actor, "value": &e.Value}[name]
		if into == nil {
			return fmt.Errorf("unknown field %q", name)
		}
		*into = value
	}
	if e.Kind == history.ControllerEffect || e.Kind == history.OpApplied {
		e.Value = strings.ReplaceAll(e.Value, "+", " ")
	}
	if starred {
		tr.starred = append(tr.starred, len(tr.events))
	}
	if e.Kind == "healthy" {
		node := "Node/" + e.Host
		tr.events = append(tr.events,
			history.Event{At: e.At, Kind: history.BootStarted, Host: e.Host, Boot: "b1"},
			history.Event{At: e.At, Kind: history.BootComplete, Host: e.Host, Boot: "b1"},
			history.Event{At: e.At, Kind: history.NodeCreated, Host: e.Host, Object: node, UID: "n1"},
			history.Event{At: e.At, Kind: history.NodeReady, Host: e.Host, Object: node, UID: "n1"})
		return nil
	}
	if strings.HasPrefix(string(e.Kind), "node-") && e.Object == "" {
		e.Object = "Node/" + e.Host
	}
	if e.Kind.Layer() == "" {
		return fmt.Errorf("unknown kind %q", e.Kind)
	}
	tr.events = append(tr.events, e)
	return nil
}

// swapped returns the events with the two starred ones exchanged; the times stay.
func (tr *transcript) swapped() []history.Event {
	events := append([]history.Event(nil), tr.events...)
	i, j := tr.starred[0], tr.starred[1]
	events[i], events[j] = events[j], events[i]
	events[i].At, events[j].At = events[j].At, events[i].At
	return events
}

func record(events []history.Event) *history.History {
	h := new(history.History)
	for _, e := range events {
		h.Append(e)
	}
	return h
}

func describe(r invariant.Result) string {
	if r.Reason == "" {
		return string(r.Verdict)
	}
	return string(r.Verdict) + ": " + r.Reason
}

func nearest(c *invariant.Closest) string {
	if c.Limit > 0 {
		return fmt.Sprintf("%s, %s after %s, which may take %s", invariant.Clause(&c.Second), invariant.Seconds(c.Second.At-c.First.At), invariant.Clause(&c.First), invariant.Seconds(c.Limit))
	}
	return fmt.Sprintf("%s, %s before %s", invariant.Clause(&c.First), invariant.Seconds(c.Margin), invariant.Clause(&c.Second))
}

// TestTranscripts judges every history of testdata with its invariant, and those
// that hold with all others too, which must not be violated by a sound story.
func TestTranscripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	verdicts := map[string]map[invariant.Verdict]bool{}
	for _, path := range paths {
		t.Run(strings.TrimPrefix(path, "testdata/"), func(t *testing.T) {
			tr, err := parseTranscript(path)
			if err != nil {
				t.Fatal(err)
			}
			id := tr.invariant.ID
			if dir := filepath.Base(filepath.Dir(path)); dir != id {
				t.Fatalf("a transcript of %s is in %s", id, dir)
			}
			h := record(tr.events)
			result := invariant.Judge(h, []invariant.Invariant{tr.invariant}, tr.params)[0]
			if want := invariant.Verdict(strings.SplitN(filepath.Base(path), "-", 2)[0]); strings.TrimSuffix(string(want), ".txt") != string(result.Verdict) {
				t.Errorf("the file's name promises %s, the verdict is %s", want, describe(result))
			}
			if verdicts[id] == nil {
				verdicts[id] = map[invariant.Verdict]bool{}
			}
			verdicts[id][result.Verdict] = true
			got := describe(result) + "\n"
			if result.Verdict == invariant.Held {
				for _, other := range invariant.Judge(h, All(), tr.params) {
					if other.Verdict == invariant.Violated {
						t.Errorf("%s is %s", other.Invariant, describe(other))
					}
				}
				events, change := tr.events, "swapped"
				switch never := tr.invariant.Never; {
				case never != "" && len(tr.starred) == 1: // what must never happen takes its place
					events, change = slices.Clone(events), "instead"
					events[tr.starred[0]].Kind = never
				case never == "" && len(tr.starred) == 2:
					events = tr.swapped()
				default:
					t.Fatalf("%d events are starred, want 2, or 1 of a claim that an event must never come", len(tr.starred))
				}
				mutant := invariant.Judge(record(events), []invariant.Invariant{tr.invariant}, tr.params)[0]
				if mutant.Verdict != invariant.Violated {
					t.Errorf("with the starred events %s: %s", change, describe(mutant))
				}
				if c := result.Closest; c != nil {
					got += "closest: " + nearest(c) + "\n"
				}
				got += change + ": " + describe(mutant) + "\n"
			}
			whole := tr.text + "----\n" + got
			if *update {
				if err := os.WriteFile(path, []byte(whole), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if data, _ := os.ReadFile(path); string(data) != whole {
				t.Errorf("got\n%s\nwant what %s says (-update rewrites it)", got, path)
			}
		})
	}
	if t.Failed() {
		return // a transcript that was not judged may be the one
	}
	for _, inv := range All() {
		for _, v := range []invariant.Verdict{invariant.Held, invariant.Violated, invariant.Unknown} {
			if !verdicts[inv.ID][v] {
				t.Errorf("no transcript of %s is %s: write testdata/%s/%s-WHEN.txt", inv.ID, v, inv.ID, v)
			}
		}
	}
}
