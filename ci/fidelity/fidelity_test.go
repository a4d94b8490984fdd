package fidelity

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
)

// known says in which stories the worlds may differ, and why.
const known = "../../docs/fidelity.md"

// TestStories compares the lab's runs, in the directory that FENCELAB_OUT names, with the
// simulator's: the verdict, and the order of events.
func TestStories(t *testing.T) {
	out := os.Getenv("FENCELAB_OUT")
	if out == "" {
		t.Skip("make e2e compares what the lab has told")
	}
	simulator, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	excused, err := os.ReadFile(known)
	if err != nil {
		t.Fatal(err)
	}
	plans, _ := filepath.Glob(filepath.Join(out, "*", "plan.txt")) // the pattern is a good one
	if len(plans) == 0 {
		t.Skip("the lab has told no story")
	}
	for _, path := range plans {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			plan, err := file.LoadPlanFile(path, objects.Vocabulary())
			if err != nil {
				t.Fatal(err)
			}
			if worlds := plan.Spec.Worlds; len(worlds) > 0 && !slices.Contains(worlds, "sim") || len(plan.Deviations) > 0 {
				t.Skip("only the lab can tell this")
			}
			// one of ours that ran as a program plays as itself
			for i := range plan.Spec.Controllers {
				switch c := &plan.Spec.Controllers[i]; {
				case c.Program == nil:
				case !c.Program.TakesSettings() || objects.Vocabulary().Controllers[c.Name].Settings == nil:
					t.Skip("only the lab can run a program")
				default:
					c.Program, c.Plays = nil, ""
				}
			}
			verdict, tooSlow, told := read(t, filepath.Dir(path))
			simulate := func(but ...history.Kind) []string {
				outcome, err := play.Run(t.Context(), plan, simulator.Backend(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if said, _ := outcome.Verdict(); string(said) != verdict {
					t.Fatalf("the lab says %s, the simulator %s", verdict, said)
				}
				simulated := outcome.History.Events()
				if outcome.Broken != nil {
					simulated = UpTo(simulated, outcome.Broken.Second.Seq)
				}
				return Differences(Telling{"in the lab", Orders(told, but...)}, Telling{"in the simulator", Orders(simulated, but...)}, verdict == "violated")
			}
			differ := simulate()
			if boot := slowestBoot(told); len(differ) > 0 && boot > 0 {
				plan.Spec.Topology.Timings.Boot = scenarios.Duration(boot)
				t.Logf("%s\ntold once more with hosts that take %v to boot, as they did in the lab", strings.Join(differ, "\n"), boot)
				differ = simulate()
			}
			if len(differ) > 0 && tooSlow != "" {
				t.Logf("%s\ncompared once more without what hosts do as soon as they get to it, since some starved: %s", strings.Join(differ, "\n"), tooSlow)
				differ = simulate(own...)
			}
			if row := "\n| `" + plan.Metadata.Name + "` |"; len(differ) > 0 && strings.Contains(string(excused), row) {
				t.Skip("docs/fidelity.md says why: " + strings.Join(differ, "; "))
			}
			if len(differ) > 0 {
				t.Errorf("events come in another order than in the simulator:\n  %s\nwhere that is right, docs/fidelity.md says why", strings.Join(differ, "\n  "))
			}
		})
	}
}

// slowestBoot is how long the longest boot took within a story, from the power-on or the reset on;
// 0 if there was none. A host that is emulated on busy cores takes several times as long as
// another, and what waits for times and not for it then comes first.
func slowestBoot(events []history.Event) (longest time.Duration) {
	began := make(map[string]time.Duration)
	for i := range events {
		switch e := &events[i]; e.Kind {
		case history.RunStarted:
			clear(began)
			longest = 0
		case history.PowerOn, history.BootEnded: // what ends without a power-off begins anew
			began[e.Host] = e.At
		case history.PowerOff:
			delete(began, e.Host)
		case history.BootComplete:
			if at, known := began[e.Host]; known {
				longest = max(longest, e.At-at)
			}
		}
	}
	return longest
}

// read returns the verdict of a run that was saved, by what its machine may have spoilt it, and its
// history, up to a violation.
func read(t *testing.T, dir string) (verdict, tooSlow string, events []history.Event) {
	t.Helper()
	var report struct {
		Verdict    string `json:"verdict"`
		TooSlow    string `json:"tooSlow"`
		Invariants []struct {
			Verdict string `json:"verdict"`
			Second  int    `json:"secondEvent"`
		} `json:"invariants"`
	}
	data, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err == nil {
		err = json.Unmarshal(data, &report)
	}
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for decoder := json.NewDecoder(bufio.NewReader(file)); decoder.More(); {
		var e history.Event
		if err := decoder.Decode(&e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	for _, i := range report.Invariants {
		if i.Verdict == "violated" && i.Second > 0 {
			events = UpTo(events, i.Second)
		}
	}
	return report.Verdict, report.TooSlow, events
}

// TestSlowestBoot: boots count from their beginning, whatever that was, and only those of the
// story.
func TestSlowestBoot(t *testing.T) {
	event := func(kind history.Kind, host string, at int) history.Event {
		return history.Event{Kind: kind, Host: host, At: time.Duration(at) * time.Second}
	}
	story := []history.Event{
		event(history.PowerOn, "a", 0), event(history.PowerOn, "b", 0), event(history.BootComplete, "a", 60), event(history.RunStarted, "", 61),
		event(history.BootComplete, "b", 99),
		event(history.BootEnded, "a", 100), event(history.BootComplete, "a", 105),
		event(history.BootEnded, "b", 110), event(history.PowerOff, "b", 110), event(history.PowerOn, "b", 150), event(history.BootComplete, "b", 157),
	}
	if got, want := slowestBoot(story), 7*time.Second; got != want {
		t.Errorf("the slowest boot took %v, want %v", got, want)
	}
	if got := slowestBoot(story[:4]); got != 0 {
		t.Errorf("a story without boots has one of %v", got)
	}
}

// TestOrders: what is compared, and what counts as a difference.
func TestOrders(t *testing.T) {
	engine := string(history.Engine)
	event := func(kind history.Kind, host, key, actor string) history.Event {
		e := history.Event{Kind: kind, Host: host, Key: key, Actor: actor}
		if kind == history.AnnotationSet {
			e.Object = "Machine/" + host
		}
		return e
	}
	told := Orders([]history.Event{
		event(history.PowerOn, "worker-1", "", engine),
		event(history.RunStarted, "", "", engine),
		event(history.AnnotationSet, "worker-1", "a", history.User),
		event(history.AnnotationSet, "worker-1", "b", "remediation"),
		event(history.PodDeleted, "worker-1", "", "podgc"),
		event(history.PowerOff, "worker-1", "", "reboot"),
		event(history.NodeDeleted, "worker-1", "", "remediation"),
		event(history.PowerOn, "worker-2", "", "reboot"),
	})
	off, gone := "power-off", "node-deleted"
	for _, c := range []struct {
		of    []string
		ended bool
		want  string
	}{
		{[]string{"annotation-set b", off, gone}, false, ""},
		{[]string{"annotation-set b", gone, off}, false, "worker-1, after 1 events of its own: power-off, node-deleted in the lab, node-deleted, power-off in the simulator"},
		{[]string{"annotation-set b", off}, false, "worker-1, after 2 events of its own: node-deleted in the lab, nothing more in the simulator"},
		{[]string{"annotation-set b", off}, true, ""},
		{[]string{"annotation-set a", off}, true, "worker-1, after 0 events of its own: annotation-set b, power-off in the lab, annotation-set a, power-off in the simulator"},
	} {
		if got := strings.Join(Differences(Telling{"in the lab", told}, Telling{"in the simulator", map[string][]string{"worker-1": c.of, "worker-2": {"power-on"}}}, c.ended), "; "); got != c.want {
			t.Errorf("%v, ended %v: %q, want %q", c.of, c.ended, got, c.want)
		}
	}
	if got := Differences(Telling{"in the lab", told}, Telling{"in the simulator", map[string][]string{"worker-1": told["worker-1"]}}, false); len(got) != 1 {
		t.Errorf("a host of whom only one world tells: %q", got)
	}
}
