package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

func render(t testing.TB, run *Run) []byte {
	t.Helper()
	data, err := Render(run)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// long is a run of n events of three hosts, with requests to their BMCs.
func long(n int) *Run {
	run := &Run{Report: Report{Scenario: "long", Verdict: "held"}}
	var h history.History
	kinds := []history.Kind{history.ControllerEffect, history.PowerReported, history.NodeReady, history.BMCCommand, history.NodeNotReady, history.PowerOn, history.BootStarted, history.PowerOff}
	for i := range n {
		at := time.Duration(i) * 7 * time.Millisecond
		host := fmt.Sprintf("worker-%d", i%3+1)
		h.Append(history.Event{
			At: at, Kind: kinds[i%len(kinds)], Host: host, Actor: []string{"reboot", "remediation", "healthcheck"}[i%3],
			Object: "BareMetalHost/" + host, UID: "00000000-0000-4000-8000-00000000000a", Value: []string{"true", "false"}[i/3%2], Note: "a note of usual length",
		})
		if i%4 == 0 {
			r := Request{Host: host, Received: at, Executed: at, Answered: at + 20*time.Millisecond, Actual: "On"}
			r.Request.Client, r.Request.Method, r.Request.Path = "reboot", "GET", "/redfish/v1/Systems/"+host
			r.Answer.Status, r.Answer.PowerState = 200, []string{"On", "Off"}[i/4%2]
			run.Requests = append(run.Requests, r)
		}
	}
	run.Events = h.Events()
	// Add the simulator's trace.
	for i := range run.Events {
		e := &run.Events[i]
		switch i % 5 {
		case 0:
			facts, err := json.Marshal(map[string]bool{"nodeExists": i%2 == 0, "needsRemediation": i%3 == 0, "statusOn": i%4 == 0, "rebootAnnotation": i%7 == 0})
			if err != nil {
				panic(err) // a map of flags
			}
			run.Trace = append(run.Trace, Entry{At: e.At, What: "decided", Process: e.Actor, Key: "fencelab/" + e.Host, Facts: facts, Action: "DeleteNode"})
		case 1, 3:
			run.Trace = append(run.Trace, Entry{At: e.At, What: "changed", Process: e.Actor, Object: e.Object, Fields: []Field{
				{"metadata.annotations.reboot.metal3.io/machine-remediation", "", `{"mode":"hard"}`}, {"status.poweredOn", "true", "false"},
			}})
		default:
			if e.Kind.Layer() == history.API {
				run.Trace = append(run.Trace, Entry{At: e.At, What: "learned", Process: e.Actor, Event: e})
			}
		}
	}
	return run
}

func TestPageIsSmall(t *testing.T) {
	for name, most := range map[string]int{"split-brain": 400 << 10, "long": 2 << 20} {
		run := long(5000)
		if name != "long" {
			run = runs(t)[name]
		}
		if data := render(t, run); len(data) > most {
			t.Errorf("the page of %s has %d bytes: more than %d", name, len(data), most)
		}
	}
}

// hostile is a text that would run if it came into the page as it is.
const hostile = `</script><script>document.title="owned"</script><img src=x onerror='document.title="owned"'>"'` + "`${alert(1)}`"

// hostileRun has it everywhere.
func hostileRun() *Run {
	run := long(20)
	for i := range run.Events {
		e := &run.Events[i]
		e.Host, e.Object, e.Actor, e.Note, e.Value, e.Boot = "w"+hostile, hostile, hostile, hostile, hostile, hostile
	}
	run.Report.Scenario, run.Report.Reason, run.Report.Replay = hostile, hostile, hostile
	run.Report.Invariants = []Guarantee{{ID: hostile, Verdict: "violated", Reason: hostile, First: 1, Second: 2}}
	run.Consoles = []Console{{hostile, hostile}}
	run.Plan = hostile
	run.Requests[0].Host, run.Requests[0].Answer.Message = "w"+hostile, hostile
	facts, err := json.Marshal(map[string]string{hostile: hostile})
	if err != nil {
		panic(err)
	}
	run.Trace = []Entry{
		{What: "decided", Process: hostile, Key: hostile, Facts: facts, Action: hostile},
		{What: "learned", Process: hostile, Event: &run.Events[1]},
		{What: "changed", Process: hostile, Object: hostile, Action: hostile},
	}
	return run
}

func TestHostileTextIsText(t *testing.T) {
	page := render(t, hostileRun())
	if n := bytes.Count(page, []byte("<script")); n != 2 {
		t.Errorf("the page has %d scripts instead of its own two", n)
	}
	if bytes.Contains(page, []byte("<img")) {
		t.Error("an element of a hostile text is in the page")
	}
}

func TestPageNeedsNothingElse(t *testing.T) {
	for name, run := range runs(t) {
		page := string(render(t, run))
		for _, word := range []string{"http://", "https://", "src=", "@import", "url(//"} {
			if strings.Contains(page, word) {
				t.Errorf("the page of %s has %q: it must not need anything else", name, word)
			}
		}
		if !strings.Contains(page, "default-src &#39;none&#39;") {
			t.Errorf("the page of %s has no policy against what it doesn't bring itself", name)
		}
	}
}

func TestRead(t *testing.T) {
	one := []byte(`{"seq":1,"at":0,"kind":"run-started"}` + "\n")
	for _, test := range []struct {
		name  string
		files fstest.MapFS
		want  string // of the error; empty is none
	}{
		{"only a history", fstest.MapFS{"history.jsonl": {Data: one}}, ""},
		{"no history", fstest.MapFS{}, "read the history"},
		{"a broken history", fstest.MapFS{"history.jsonl": {Data: []byte("{")}}, "read history.jsonl"},
		{"a broken report", fstest.MapFS{"history.jsonl": {Data: one}, "report.json": {Data: []byte("{")}}, "read report.json"},
		{"broken requests", fstest.MapFS{"history.jsonl": {Data: one}, "bmc.jsonl": {Data: []byte("{}\nx\n")}}, "read bmc.jsonl: line 2"},
	} {
		run, err := Read(test.files)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.want == "":
			render(t, run)
		case err == nil || !strings.Contains(err.Error(), test.want):
			t.Errorf("%s: got the error %v, want one with %q", test.name, err, test.want)
		}
	}
}

func TestConsoles(t *testing.T) {
	run, err := Read(fstest.MapFS{
		"history.jsonl":    {Data: []byte(`{"seq":1,"at":0,"kind":"run-started"}` + "\n")},
		"worker-1.console": {Data: append(bytes.Repeat([]byte("x"), 2*consoleLimit), "\x1b[2Jend\xff\n"...)},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := run.Consoles
	if len(got) != 1 || got[0].Host != "worker-1" || !strings.HasSuffix(got[0].Text, "[2Jend\uFFFD\n") || len(got[0].Text) > consoleLimit+8 {
		t.Errorf("the console is %d bytes and ends with %q", len(got[0].Text), got[0].Text[len(got[0].Text)-12:])
	}
}

// TestLines: with the times of its lines known, a console shows them. The last line at a moment
// stands for the host's console until its power goes.
func TestLines(t *testing.T) {
	run, err := Read(fstest.MapFS{
		"history.jsonl": {Data: []byte(`{"seq":1,"at":0,"kind":"power-on","host":"worker-1"}
{"seq":2,"at":3000000000,"kind":"boot-started","host":"worker-1","boot":"b1"}
{"seq":3,"at":6000000000,"kind":"power-off","host":"worker-1"}
{"seq":4,"at":9000000000,"kind":"done"}
`)},
		"consoles.jsonl": {Data: []byte(`{"at":2000000000,"host":"worker-1","text":"\u001b[2Jhello"}
{"at":5000000000,"host":"worker-1","text":"softdog: fired"}
{"at":5500000000,"host":"worker-2","text":"somebody else's"}
`)},
		"worker-1.console": {Data: []byte("\x1b[2Jhello\nsoftdog: fired\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []Console{{"worker-1", "     2.000  [2Jhello\n     5.000  softdog: fired\n"}}; !slices.Equal(run.Consoles, want) {
		t.Errorf("the consoles are %q, want %q", run.Consoles, want)
	}
	var bands []Band
	for _, group := range Lanes(run) {
		for _, lane := range group.Lanes {
			if lane.ID == "worker-1: console" {
				bands = lane.Bands
			}
		}
	}
	if want := []Band{{From: 2 * time.Second, To: 5 * time.Second, Kind: "console", Text: "[2Jhello"}, {From: 5 * time.Second, To: 6 * time.Second, Kind: "console", Text: "softdog: fired"}}; !slices.Equal(bands, want) {
		t.Errorf("the lane is %v, want %v", bands, want)
	}
	if said := Moment(run, 2)["worker-1"]; !slices.Contains(said, Fact{Lane: "console", Text: "[2Jhello"}) {
		t.Errorf("at event 2 the host says %v", said)
	}
}

func TestWrite(t *testing.T) {
	name := filepath.Join(t.TempDir(), Name)
	if err := Write(os.DirFS("testdata/split-brain"), name); err != nil {
		t.Fatal(err)
	}
	saved, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(saved, render(t, runs(t)["split-brain"])) {
		t.Errorf("the page that was saved is not the one that is drawn (%v)", err)
	}
	if err := Write(fstest.MapFS{}, name); err == nil {
		t.Error("a page was drawn of nothing")
	}
}
