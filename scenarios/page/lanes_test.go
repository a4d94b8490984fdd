package page

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

var update = flag.Bool("update", false, "write the golden lanes anew")

// runs are the saved runs that tests draw: a split brain, a status that was
// trusted too long, a remediation that held, one that never came to its end, and
// one from the lab.
func runs(t testing.TB) map[string]*Run {
	dirs, err := filepath.Glob("testdata/*/history.jsonl")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("there are no runs in testdata (%v)", err)
	}
	all := map[string]*Run{}
	for _, file := range dirs {
		run, err := Read(os.DirFS(filepath.Dir(file)))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[filepath.Base(filepath.Dir(file))] = run
	}
	return all
}

// text renders the lanes of a run.
func text(run *Run) string {
	var b strings.Builder
	for _, group := range Lanes(run) {
		fmt.Fprintf(&b, "%s\n", group.Name)
		for _, lane := range group.Lanes {
			fmt.Fprintf(&b, "  %s\n", lane.Name)
			for _, band := range lane.Bands {
				fmt.Fprintf(&b, "    %9s to %9s  %-8s  %s\n", history.Seconds(band.From), history.Seconds(band.To), band.Kind, band.Said())
			}
			if len(lane.Marks) > 0 {
				b.WriteString("    events")
				for _, mark := range lane.Marks {
					fmt.Fprintf(&b, " %d", mark.Seq)
					if mark.Kind == "trouble" {
						b.WriteString("!")
					}
				}
				b.WriteString("\n")
			}
		}
	}
	return b.String()
}

func TestLanes(t *testing.T) {
	for name, run := range runs(t) {
		golden := filepath.Join("testdata", name, "lanes.txt")
		got := text(run)
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || got != string(want) {
			t.Errorf("the lanes of %s are not those of %s (%v); run with -update and review the difference:\n%s", name, golden, err, got)
		}
	}
}

// TestLanesAreWhole: bands of a lane follow each other within the run, and every
// event is on a lane or makes a band.
func TestLanesAreWhole(t *testing.T) {
	for name, run := range runs(t) {
		end := run.Events[len(run.Events)-1].At
		for _, group := range Lanes(run) {
			for _, lane := range group.Lanes {
				last := time.Duration(0)
				for _, b := range lane.Bands {
					if b.From < last || b.To <= b.From || b.To > end {
						t.Errorf("%s, %s: a band from %s to %s follows one to %s; the run ends at %s", name, lane.ID, b.From, b.To, last, end)
					}
					last = b.To
				}
				if !slices.IsSortedFunc(lane.Marks, func(a, b Mark) int { return a.Seq - b.Seq }) {
					t.Errorf("%s, %s: the marks are out of order", name, lane.ID)
				}
			}
		}
	}
}

func TestCompare(t *testing.T) {
	const s = time.Second
	truth := []Band{{From: 0, To: 10 * s, Kind: "on"}, {From: 10 * s, To: 20 * s, Kind: "off"}, {From: 20 * s, To: 30 * s, Kind: "booting"}}
	for _, test := range []struct {
		name           string
		believed, want []Band
	}{
		{"true all along", []Band{{From: 2 * s, To: 9 * s, Kind: "on"}}, []Band{{From: 2 * s, To: 9 * s, Kind: "on"}}},
		{"on a second too long", []Band{{From: 2 * s, To: 11 * s, Kind: "on"}},
			[]Band{{From: 2 * s, To: 10 * s, Kind: "on"}, {From: 10 * s, To: 11 * s, Kind: "on", Differs: true, Marked: " (not true)"}}},
		{"off of a host that boots", []Band{{From: 15 * s, To: 30 * s, Kind: "off"}},
			[]Band{{From: 15 * s, To: 20 * s, Kind: "off"}, {From: 20 * s, To: 30 * s, Kind: "off", Differs: true, Marked: " (not true)"}}},
		{"silence is never untrue", []Band{{From: 5 * s, To: 25 * s, Kind: "silent"}}, []Band{{From: 5 * s, To: 25 * s, Kind: "silent"}}},
	} {
		if got := compare(test.believed, truth, otherPower); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}

// TestOutdated: of what a cache has, the item is marked that the API has otherwise; if it only
// lacks something, that is said.
func TestOutdated(t *testing.T) {
	for _, c := range []struct{ believed, has, marked string }{
		{"poweredOn: true; Node: Ready", "poweredOn: true; Node: Ready", ""},
		{"poweredOn: true; Node: Ready; a, b", "poweredOn: true; Node: Ready; a", "poweredOn: true; Node: Ready; a, b (not true)"},
		{"poweredOn: true; Node: Ready", "poweredOn: true; Node: not Ready; a", "poweredOn: true; Node: Ready (not true)"},
		{"poweredOn: true; a", "poweredOn: true; a, b", "poweredOn: true; a; not yet b"},
		{"Node: Ready", "", "Node: Ready (not true)"},
	} {
		if marked, differs := outdated(&Band{Text: c.believed}, &Band{Text: c.has}); marked != c.marked || differs != (c.marked != "") {
			t.Errorf("%q beside %q: %q (%t), want %q", c.believed, c.has, marked, differs, c.marked)
		}
	}
}

// TestAnswer: a BMC that answered before the host changed hasn't lied.
func TestAnswer(t *testing.T) {
	const s = time.Second
	power := &Lane{Bands: []Band{{From: 0, To: 10 * s, Kind: "off"}}, last: &Band{From: 10 * s, To: 12 * s, Kind: "booting"}}
	for answered, want := range map[time.Duration]string{4 * s: "Off, 8s ago, which was true then", 11 * s: "Off, 1s ago (not true)", 12 * s: "Off, 0s ago (not true)"} {
		if got := answer(&Band{Kind: "off", Text: "Off", Differs: true}, answered, 12*s, power); got != want {
			t.Errorf("answered at %s: %q, want %q", answered, got, want)
		}
	}
	if got := answer(&Band{Kind: "off", Text: "Off"}, 4*s, 5*s, power); got != "Off, 1s ago" {
		t.Errorf("of a host that is off: %q", got)
	}
}

func TestAxisKeepsOrder(t *testing.T) {
	for name, run := range runs(t) {
		a := newAxis(run)
		end := run.Events[len(run.Events)-1].At
		last := -1.0
		for i := range 1000 {
			x := a.place(end * time.Duration(i) / 1000)
			if x < last || x > a.width() {
				t.Fatalf("%s: %s is at %.1f, after one at %.1f, on an axis of %.1f", name, end*time.Duration(i)/1000, x, last, a.width())
			}
			last = x
		}
		for i, tick := range a.ticks()[1:] {
			if tick.X-a.ticks()[i].X < apart {
				t.Errorf("%s: the labels %s and %s overlap", name, a.ticks()[i].Text, tick.Text)
			}
		}
	}
}

// TestCaches: what a controller has in its cache is drawn beside what the API has, and
// marked for as long as it is behind; a process that starts anew begins with nothing.
func TestCaches(t *testing.T) {
	var h history.History
	add := func(at time.Duration, kind history.Kind, value string) {
		h.Append(history.Event{At: at, Kind: kind, Host: "w", Object: "BareMetalHost/w", Value: value})
	}
	add(0, history.PowerReported, "true")
	h.Append(history.Event{At: 0, Kind: history.BootStarted, Host: "w", Boot: "b1"})
	add(5*time.Second, history.PowerReported, "false")
	h.Append(history.Event{At: 5 * time.Second, Kind: history.PowerOff, Host: "w", Boot: "b1"})
	h.Append(history.Event{At: 20 * time.Second, Kind: history.Done})
	learned := func(at time.Duration, value string) Entry {
		return Entry{At: at, What: "learned", Process: "reboot", Event: &history.Event{Kind: history.PowerReported, Host: "w", Object: "BareMetalHost/w", Value: value}}
	}
	run := &Run{Events: h.Events(), Trace: []Entry{
		learned(time.Second, "true"), learned(8*time.Second, "false"), {At: 10 * time.Second, What: "forgot", Process: "reboot"}, learned(12*time.Second, "false"),
	}}
	lane := find(Lanes(run), "w: reboot believes")
	want := []Band{
		{From: time.Second, To: 5 * time.Second, Kind: "on", Text: "poweredOn: true"},
		{From: 5 * time.Second, To: 8 * time.Second, Kind: "on", Text: "poweredOn: true", Differs: true, Marked: "poweredOn: true (not true)"},
		{From: 8 * time.Second, To: 10 * time.Second, Kind: "off", Text: "poweredOn: false"},
		{From: 12 * time.Second, To: 20 * time.Second, Kind: "off", Text: "poweredOn: false"},
	}
	if !slices.Equal(lane.Bands, want) {
		t.Errorf("the lane has %v, want %v", lane.Bands, want)
	}
	// When the host had just gone off, the cache was behind.
	for _, fact := range Moment(run, 4)["w"] {
		if fact.Lane == "reboot believes" && (!fact.Differs || !fact.Believed || fact.Text != "poweredOn: true (not true)") {
			t.Errorf("after event 4 the cache has %+v", fact)
		}
	}
}

// TestPart: two runs part at the first event that is not the same, whatever its number;
// that the schedule left its default is the cause, and no difference.
func TestPart(t *testing.T) {
	var here, there history.History
	for i := range 3 {
		here.Append(history.Event{At: time.Duration(i), Kind: history.PowerOn, Host: "w"})
		there.Append(history.Event{At: time.Duration(i), Kind: history.PowerOn, Host: "w"})
	}
	here.Append(history.Event{At: 3, Kind: history.Deviated})
	for _, h := range []*history.History{&here, &there} {
		h.Append(history.Event{At: 4, Kind: history.PowerOff, Host: "w"})
	}
	if same, a, b := part(here.Events(), there.Events()); same != 4 || a != nil || b != nil {
		t.Errorf("%d events are the same, then %v and %v", same, a, b)
	}
	here.Append(history.Event{At: 5, Kind: history.PowerOn, Host: "w"})
	if same, a, b := part(here.Events(), there.Events()); same != 4 || a == nil || a.Seq != 6 || b != nil {
		t.Errorf("%d events are the same, then %v and %v", same, a, b)
	}
}
