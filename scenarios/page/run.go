// Package page draws a saved run as one HTML page that needs nothing beside it:
// who did what when, in lanes; what was believed beside what was true; and each
// event, to be looked up and pointed at.
//
// It reads the files of a report (docs/reports.md) and knows nothing else of the
// run, so that a page can be drawn of any report, wherever it comes from. All that
// is in them is hostile: names and notes come from scenarios, BMCs and consoles.
package page

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// Run is the data that a page is drawn from.
type Run struct {
	// Report is the run's report.json; zero where there is none.
	Report   Report
	Events   []history.Event
	Requests []Request
	// Trace is the simulator's record beside the history, in order.
	Trace    []Entry
	Consoles []Console
	// Lines are the lines of the consoles, each at its time.
	Lines []Line
	// Held is the nearest run that held, if it is known.
	Held *Run
	// Plan is the text of plan.txt, which has the story.
	Plan string
}

// Report is the part of report.json that the page shows.
type Report struct {
	Scenario   string            `json:"scenario"`
	Verdict    invariant.Verdict `json:"verdict"`
	Expected   string            `json:"expected"`
	AsExpected bool              `json:"asExpected"`
	Reason     string            `json:"reason"`
	Divides    string            `json:"divides"`
	Backend    string            `json:"backend"`
	Version    string            `json:"version"`
	Seed       uint64            `json:"seed"`
	Replay     string            `json:"replay"`
	Digest     string            `json:"digest"`
	Seconds    float64           `json:"seconds"`
	Steps      struct {
		Done  int    `json:"done"`
		Of    int    `json:"of"`
		Stuck string `json:"stuck"`
	} `json:"steps"`
	Injected struct {
		Idle []string `json:"idle"`
	} `json:"injected"`
	Deviations []struct {
		Step  string  `json:"step"`
		Delay float64 `json:"delaySeconds"`
		Fault string  `json:"fault"`
		Told  string  `json:"told"`
	} `json:"deviations"`
	Causes []string `json:"causes"`
	// Waits say of each controller what it waits for, where something never came.
	Waits []string `json:"waits"`
	Notes []string `json:"notes"`
	// Story is the way to a failure, event by event.
	Story []struct {
		Event   int     `json:"event"`
		Seconds float64 `json:"atSeconds"`
		Text    string  `json:"text"`
		Marked  bool    `json:"marked"`
	} `json:"story"`
	Invariants []Guarantee `json:"invariants"`
}

// Guarantee is a run's verdict on one guarantee.
type Guarantee struct {
	ID      string            `json:"id"`
	Verdict invariant.Verdict `json:"verdict"`
	Reason  string            `json:"reason"`
	Judged  int               `json:"judged"`
	First   int               `json:"firstEvent"`
	Second  int               `json:"secondEvent"`
	Margin  float64           `json:"marginSeconds"`
	Limit   float64           `json:"limitSeconds"`
}

// Request is one line of bmc.jsonl. Times are nanoseconds; -1 is never.
type Request struct {
	Host    string `json:"host"`
	Request struct {
		Client string `json:"client"`
		Via    string `json:"via"`
		Method string `json:"method"`
		Path   string `json:"path"`
		Reset  string `json:"reset"`
	} `json:"request"`
	Received time.Duration `json:"received"`
	Executed time.Duration `json:"executed"`
	Answered time.Duration `json:"answered"`
	Actual   string        `json:"actual"`
	Answer   struct {
		Status     int    `json:"status"`
		PowerState string `json:"powerState"`
		MessageID  string `json:"messageId"`
		Message    string `json:"message"`
	} `json:"answer"`
	Rules []string `json:"rules"`
}

// Entry is one line of trace.jsonl, as docs/reports.md describes it.
type Entry struct {
	At time.Duration `json:"at"`
	// What is the kind of entry: an object changed, a process decided, ran, learned or forgot, or a
	// step deviated.
	What    string          `json:"what"`
	Process string          `json:"process,omitempty"`
	Key     string          `json:"key,omitempty"`
	Facts   json.RawMessage `json:"facts,omitempty"`
	Action  string          `json:"action,omitempty"`
	Object  string          `json:"object,omitempty"`
	Fields  []Field         `json:"fields,omitempty"`
	// Event is the change that a process learned, as the history records it of the API.
	Event *history.Event `json:"event,omitempty"`
	// After is the step that a step which deviated has waited for, in words.
	After string `json:"after,omitempty"`
}

// What the Action of an entry says of a reconcile that has run, beside a time after which it is to
// run again.
const (
	Failed = "failed"
	AtOnce = "at once"
)

// Field is a field of an object that is different now. What is not there is empty.
type Field struct {
	Path string `json:"path"`
	Was  string `json:"was,omitempty"`
	Is   string `json:"is,omitempty"`
}

// Console is the output of a host in the lab.
type Console struct{ Host, Text string }

// Line is one line of consoles.jsonl: what a host has written, and when.
type Line struct {
	At   time.Duration `json:"at"`
	Host string        `json:"host"`
	Text string        `json:"text"`
}

// Read reads the files of a report. Only history.jsonl has to be there.
func Read(files fs.FS) (*Run, error) {
	run := &Run{}
	data, err := fs.ReadFile(files, "history.jsonl")
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	h, err := history.Read(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("read history.jsonl: %w", err)
	}
	run.Events = h.Events()
	for _, file := range []struct {
		name string
		read func([]byte) error
	}{
		{"report.json", func(data []byte) error { return json.Unmarshal(data, &run.Report) }},
		{Requests, run.ReadRequests},
		{Trace, run.ReadTrace},
		{Lines, func(data []byte) (err error) { run.Lines, err = readLines[Line](data); return err }},
		{"plan.txt", func(data []byte) error { run.Plan = string(data); return nil }},
	} {
		data, err := fs.ReadFile(files, file.name)
		if err == nil {
			err = file.read(data)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read %s: %w", file.name, err)
		}
	}
	if _, err := fs.Stat(files, Held+"/history.jsonl"); err == nil {
		held, err := fs.Sub(files, Held)
		if err == nil {
			run.Held, err = Read(held)
		}
		if err != nil {
			return nil, fmt.Errorf("read the run that held: %w", err)
		}
	}
	consoles, err := fs.Glob(files, "*.console")
	if err != nil {
		return nil, fmt.Errorf("look for consoles: %w", err)
	}
	for _, name := range consoles {
		host := strings.TrimSuffix(filepath.Base(name), ".console")
		if text := run.console(host); text != "" {
			run.Consoles = append(run.Consoles, Console{host, text})
			continue
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		run.Consoles = append(run.Consoles, Console{host, printable(data)})
	}
	return run, nil
}

// Requests, Trace and Lines are files of a report. They hold every request to the BMCs, the world's
// record of the controllers beside the history, and the console lines of the hosts in the lab.
const (
	Requests = "bmc.jsonl"
	Trace    = "trace.jsonl"
	Lines    = "consoles.jsonl"
)

// console returns a host's output, each line with its time; empty without any.
func (r *Run) console(host string) string {
	var text strings.Builder
	for _, l := range r.Lines {
		if l.Host == host {
			fmt.Fprintf(&text, "%10.3f  %s\n", l.At.Seconds(), l.Text)
		}
	}
	return printable([]byte(text.String()))
}

// ReadRequests takes over the requests to the BMCs.
func (r *Run) ReadRequests(data []byte) (err error) {
	r.Requests, err = readLines[Request](data)
	slices.SortStableFunc(r.Requests, func(a, b Request) int { return cmp.Compare(a.Received, b.Received) })
	return err
}

// ReadTrace takes in the simulator's trace.
func (r *Run) ReadTrace(data []byte) (err error) {
	r.Trace, err = readLines[Entry](data)
	slices.SortStableFunc(r.Trace, func(a, b Entry) int { return cmp.Compare(a.At, b.At) })
	return err
}

// readLines reads JSON values, one a line.
func readLines[T any](data []byte) (values []T, err error) {
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var value T
		if err := json.Unmarshal(lines.Bytes(), &value); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		values = append(values, value)
	}
	return values, lines.Err()
}

// Write draws the page of the report in files, as a file of its own.
func Write(files fs.FS, name string) error {
	run, err := Read(files)
	if err != nil {
		return fmt.Errorf("draw %s: %w", name, err)
	}
	data, err := Render(run)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name, data, 0o644); err != nil {
		return fmt.Errorf("save the page: %w", err)
	}
	return nil
}

// Name is the file name of the page in a report's directory.
const Name = "report.html"

// consoleLimit bounds what of a console is on the page: its end.
const consoleLimit = 32 << 10

// printable is the end of a console without what would move a cursor.
func printable(data []byte) string {
	if len(data) > consoleLimit {
		data = append([]byte("...\n"), data[len(data)-consoleLimit:]...)
	}
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r >= ' ' && r != 0x7f {
			return r
		}
		return -1
	}, strings.ToValidUTF8(string(data), "\uFFFD"))
}

// broken is the violation that the page is about: the one that the report's reason
// names, else the first; nil without any.
func (r *Run) broken() (found *Guarantee) {
	for i := range r.Report.Invariants {
		g := &r.Report.Invariants[i]
		if g.Verdict != invariant.Violated || r.event(g.First) == nil || r.event(g.Second) == nil {
			continue
		}
		if strings.HasPrefix(r.Report.Reason, g.ID+":") {
			return g
		}
		if found == nil {
			found = g
		}
	}
	return found
}

func (r *Run) event(seq int) *history.Event {
	if seq < 1 || seq > len(r.Events) {
		return nil
	}
	return &r.Events[seq-1]
}

// hosts returns the hosts that the violation is about, in the order in which to look at them.
func (r *Run) hosts() (names []string) {
	if g := r.broken(); g != nil {
		for _, seq := range []int{g.First, g.Second} {
			if host := r.event(seq).Host; host != "" && !slices.Contains(names, host) {
				names = append(names, host)
			}
		}
	}
	return names
}

// began is when the story began: what was before it only brought the topology up.
func (r *Run) began() time.Duration {
	i := slices.IndexFunc(r.Events, func(e history.Event) bool { return e.Kind == history.OpApplied || e.Kind == history.Deviated })
	if i < 0 {
		return 0
	}
	return r.Events[i].At
}

// Decision returns what the actor of an event had last decided about the event's object or
// host when it happened, nil if that isn't known.
func (r *Run) Decision(e *history.Event) *Entry { return decisionsIn(r.Trace).behind(e) }

// decisions finds the decisions of a trace by their process and by what they are about.
type decisions struct {
	trace []Entry
	// of has the places in the trace, in order.
	of map[about][]int
}

// about is a process, and the name of an object or a host.
type about struct{ process, name string }

func decisionsIn(trace []Entry) decisions {
	d := decisions{trace, make(map[about][]int)}
	for i := range trace {
		if t := &trace[i]; t.What == "decided" {
			for key := range strings.SplitSeq(t.Key, " or ") {
				at := about{t.Process, key[strings.LastIndex(key, "/")+1:]}
				d.of[at] = append(d.of[at], i)
			}
		}
	}
	return d
}

// behind is the decision behind an event: see [Run.Decision].
func (d decisions) behind(e *history.Event) *Entry {
	last := -1
	for _, name := range []string{e.Host, lastWord(e.Object), lastWord(e.Value)} {
		if name == "" {
			continue
		}
		all := d.of[about{e.Actor, name}]
		if n := sort.Search(len(all), func(i int) bool { return d.trace[all[i]].At > e.At }); n > 0 {
			last = max(last, all[n-1])
		}
	}
	if last < 0 {
		return nil
	}
	return &d.trace[last]
}

// lastWord is the name in KIND/NAME, and the last of several words; empty if there is but one.
func lastWord(text string) string {
	if i := strings.LastIndexAny(text, "/ "); i >= 0 {
		return text[i+1:]
	}
	return ""
}

// nothing is the name of a controller's decision to do nothing.
const nothing = "Nothing"

// deed is an effect in a few words: what its controller calls it, or else what was done to what
// kind of object.
func (d decisions) deed(e *history.Event) string {
	if t := d.behind(e); t != nil && t.Action != "" && t.Action != nothing {
		return t.Action
	}
	text, _, _ := strings.Cut(e.Value, "/")
	return text
}

// toldOf is a deviation in words, or else by its name in the plan.
func (r *Run) toldOf(e *history.Event) string {
	for _, d := range r.Report.Deviations {
		if d.Told != "" && (e.Value == d.Step || strings.HasPrefix(e.Value, d.Step+" ")) {
			return d.Told
		}
	}
	return e.Value
}
