package fakebmc_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
)

const s = time.Second

// world is one host and its BMC on virtual time.
type world struct {
	t    *testing.T
	clk  *systemtest.Clock
	host *memory.Host
	bmc  *fakebmc.BMC
	log  []fakebmc.Record
	own  []string // what the BMC was about to do by itself
	// received are the resets of others.
	received []string
}

// newWorld starts with a host that is on; it takes 4 s to power on, 2 s to power
// off and 20 s to shut down.
func newWorld(t *testing.T, rules ...string) *world {
	t.Helper()
	w := &world{t: t, clk: &systemtest.Clock{}}
	w.host = memory.New(w.clk, memory.Timing{On: 4 * s, Off: 2 * s, Shutdown: 20 * s}, true)
	w.bmc = fakebmc.New("node-1", w.host, w.clk, fakebmc.OnRequest(func(r fakebmc.Record) { w.log = append(w.log, r) }),
		fakebmc.OnReset(func(client string, reset fakebmc.ResetType) {
			p, _ := w.host.PowerState()
			if client == "test" {
				w.received = append(w.received, fmt.Sprintf("%s while %s", reset, p))
				return
			}
			w.own = append(w.own, fmt.Sprintf("%v %s %s while %s", w.clk.Now(), client, reset, p))
		}))
	for _, r := range systemtest.Rules(t, rules...) {
		if err := w.bmc.AddRule(r); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// ask sends a power read, or a reset, and returns where its answer will be.
func (w *world) ask(what string) *string {
	req := w.bmc.PowerRequest("test")
	if what != "read" {
		req = w.bmc.ResetRequest("test", fakebmc.ResetType(what))
	}
	got := new(string)
	w.bmc.Do(req, func(a fakebmc.Answer) {
		if *got != "" {
			w.t.Errorf("%s was answered twice", what)
		}
		*got = show(a)
	})
	return got
}

func show(a fakebmc.Answer) string {
	switch {
	case errors.Is(a.Err(), fakebmc.ErrUnreachable):
		return "unreachable"
	case a.Status == 200 && a.PowerState == "":
		return "null"
	case a.Status == 200:
		return string(a.PowerState)
	case a.MessageID != "":
		return fmt.Sprintf("%d %s", a.Status, a.MessageID[strings.LastIndexByte(a.MessageID, '.')+1:])
	}
	return fmt.Sprint(a.Status)
}

// TestEffects plays scripts: at a time, ask; then expect an answer by the end of
// that step ("-" is none yet), and the actual state.
func TestEffects(t *testing.T) {
	type step struct {
		at     time.Duration
		ask    string
		want   string
		actual fakebmc.PowerState
	}
	for _, c := range []struct {
		name  string
		rules []string
		steps []step
	}{
		{"none: truth", nil, []step{
			{0, "read", "On", "On"},
			{1 * s, "GracefulShutdown", "204", "PoweringOff"},
			{2 * s, "read", "PoweringOff", "PoweringOff"},
			{3 * s, "ForceOff", "204", "PoweringOff"},
			{5 * s, "read", "Off", "Off"},
			{6 * s, "ForceOff", "204", "Off"},
			{7 * s, "ForceRestart", "409 ActionParameterValueConflict", "Off"},
			{7 * s, "On", "204", "PoweringOn"},
			{11 * s, "read", "On", "On"},
			{11 * s, "Suspend", "400 ActionParameterValueNotInList", "On"},
		}},
		{"delay: executed and answered late", []string{`{"when": {"reset": ["ForceOff"]}, "effect": {"delay": "5s"}}`}, []step{
			{0, "ForceOff", "-", "On"},
			{4 * s, "read", "On", "On"},
			{5 * s, "read", "PoweringOff", "PoweringOff"},
		}},
		{"delay after execution", []string{`{"when": {"reset": ["ForceOff"]}, "effect": {"delay": "5s", "stage": "executed"}}`}, []step{
			{0, "ForceOff", "-", "PoweringOff"},
			{2 * s, "read", "Off", "Off"},
		}},
		{"hang", []string{`{"when": {"method": "GET"}, "effect": {"hang": true}}`}, []step{
			{0, "read", "-", "On"},
			{3600 * s, "read", "-", "On"},
			{3600 * s, "ForceOff", "204", "PoweringOff"},
		}},
		{"hang after execution", []string{`{"when": {"reset": ["ForceOff"]}, "effect": {"hang": true, "stage": "executed"}}`}, []step{
			{0, "ForceOff", "-", "PoweringOff"},
		}},
		{"ignore the first two", []string{`{"when": {"reset": ["ForceOff"], "count": 2}, "effect": {"ignore": true}}`}, []step{
			{0, "ForceOff", "204", "On"},
			{1 * s, "GracefulShutdown", "204", "PoweringOff"}, // doesn't use up the count
			{2 * s, "ForceOff", "204", "PoweringOff"},
			{5 * s, "read", "PoweringOff", "PoweringOff"},
			{5 * s, "ForceOff", "204", "PoweringOff"},
			{7 * s, "read", "Off", "Off"},
		}},
		{"stuck shutdown", []string{`{"effect": {"stuck": {}}}`}, []step{
			{0, "GracefulShutdown", "204", "On"},
			{3600 * s, "read", "On", "On"},
			{3600 * s, "ForceOff", "204", "PoweringOff"},
		}},
		{"stuck shutdown reports PoweringOff until it is forced", []string{`{"effect": {"stuck": {"report": "PoweringOff"}}}`}, []step{
			{0, "GracefulShutdown", "204", "On"},
			{600 * s, "read", "PoweringOff", "On"},
			{600 * s, "ForceOff", "204", "PoweringOff"},
			{602 * s, "read", "Off", "Off"},
			{602 * s, "On", "204", "PoweringOn"},
			{606 * s, "read", "On", "On"},
		}},
		{"stuck shutdown reports PoweringOff for a while", []string{`{"effect": {"stuck": {"report": "PoweringOff", "for": "1m"}}}`}, []step{
			{0, "GracefulShutdown", "204", "On"},
			{59 * s, "read", "PoweringOff", "On"},
			{60 * s, "read", "On", "On"},
		}},
		{"lag", []string{`{"effect": {"lag": "10s"}}`}, []step{
			{1 * s, "ForceOff", "204", "PoweringOff"},
			{10 * s, "read", "On", "Off"},
			{11 * s, "read", "PoweringOff", "Off"},
			{13 * s, "read", "Off", "Off"},
			{14 * s, "On", "204", "PoweringOn"},
			{23 * s, "read", "Off", "On"},
			{28 * s, "read", "On", "On"},
		}},
		{"lags add up", []string{`{"effect": {"lag": "5s"}}`, `{"effect": {"lag": "5s"}}`}, []step{
			{1 * s, "ForceOff", "204", "PoweringOff"},
			{10 * s, "read", "On", "Off"},
			{13 * s, "read", "Off", "Off"},
		}},
		{"report Off while it runs", []string{`{"effect": {"report": "Off"}}`}, []step{{0, "read", "Off", "On"}}},
		{"report null", []string{`{"effect": {"report": "null"}}`}, []step{{0, "read", "null", "On"}}},
		{"report what no schema knows", []string{`{"effect": {"report": "ForceOffInProgress"}}`}, []step{
			{0, "read", "ForceOffInProgress", "On"},
		}},
		{"report PoweringOff when off", []string{`{"when": {"phase": ["Off"]}, "effect": {"report": "PoweringOff"}}`}, []step{
			{0, "ForceOff", "204", "PoweringOff"},
			{1 * s, "read", "PoweringOff", "PoweringOff"},
			{9 * s, "read", "PoweringOff", "Off"},
		}},
		{"unreachable for a while", []string{`{"when": {"from": "1s", "until": "3s"}, "effect": {"unreachable": true}}`}, []step{
			{0, "read", "On", "On"},
			{1 * s, "ForceOff", "unreachable", "On"},
			{3 * s, "read", "On", "On"},
		}},
		{"connection lost after execution", []string{`{"when": {"reset": ["ForceOff"]}, "effect": {"unreachable": true, "stage": "executed"}}`}, []step{
			{0, "ForceOff", "unreachable", "PoweringOff"},
		}},
		{"unreachable when off", []string{`{"when": {"phase": ["Off"]}, "effect": {"unreachable": true}}`}, []step{
			{0, "ForceOff", "204", "PoweringOff"},
			{1 * s, "read", "PoweringOff", "PoweringOff"},
			{2 * s, "read", "unreachable", "Off"},
			{2 * s, "On", "unreachable", "Off"},
		}},
		{"refuse", []string{`{"when": {"skip": 1, "count": 1}, "effect": {"refuse": {"status": 503, "id": "IDRAC.2.8.SYS518"}}}`}, []step{
			{0, "read", "On", "On"},
			{0, "ForceOff", "503 SYS518", "On"},
			{0, "ForceOff", "204", "PoweringOff"},
		}},
		{"refuse after execution", []string{`{"when": {"method": "POST"}, "effect": {"refuse": {"status": 500}, "stage": "executed"}}`}, []step{
			{0, "ForceOff", "500 GeneralError", "PoweringOff"},
		}},
		{"the first end counts, delays add up", []string{
			`{"effect": {"delay": "1s"}}`, `{"effect": {"refuse": {"status": 503}}}`,
			`{"effect": {"hang": true}}`, `{"effect": {"delay": "2s"}}`,
		}, []step{
			{0, "read", "-", "On"},
			{3 * s, "", "", "On"},
		}},
		{"a path selects", []string{`{"when": {"path": "/redfish/v1/Systems/*/Actions/*"}, "effect": {"refuse": {"status": 404}}}`}, []step{
			{0, "read", "On", "On"},
			{0, "On", "404 GeneralError", "On"},
		}},
		{"another host's rule", []string{`{"when": {"host": "node-2*"}, "effect": {"hang": true}}`}, []step{{0, "read", "On", "On"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.rules...)
			for _, st := range c.steps {
				w.clk.Advance(st.at - w.clk.Now())
				if st.ask != "" {
					got := *w.ask(st.ask)
					if want := strings.TrimPrefix(st.want, "-"); got != want {
						t.Errorf("at %v %s: answer %q, want %q", st.at, st.ask, got, want)
					}
				}
				if p, _ := w.host.PowerState(); p != st.actual {
					t.Errorf("at %v after %s: the host is %s, want %s", st.at, st.ask, p, st.actual)
				}
			}
		})
	}
}

func TestRecords(t *testing.T) {
	w := newWorld(t,
		`{"name": "slow", "when": {"reset": ["ForceOff"]}, "effect": {"delay": "5s"}}`,
		`{"name": "slow-answer", "when": {"reset": ["ForceOff"]}, "effect": {"delay": "1s", "stage": "executed"}}`,
		`{"name": "deaf", "when": {"reset": ["On"]}, "effect": {"hang": true}}`,
		`{"name": "lie", "when": {"phase": ["On"]}, "effect": {"report": "Off"}}`,
	)
	w.clk.Advance(1 * s)
	w.ask("ForceOff")
	w.ask("read")
	w.ask("On")
	if p := w.bmc.Pending(); len(p) != 1 || p[0].Seq != 1 || p[0].Executed != fakebmc.Never {
		t.Errorf("pending %+v, want the first request, not executed", p)
	}
	w.clk.Advance(5 * s)
	if p := w.bmc.Pending(); len(p) != 1 || p[0].Executed != 6*s || p[0].Answered != fakebmc.Never {
		t.Errorf("pending %+v, want the first request, executed and not answered", p)
	}
	w.clk.Advance(1 * s)
	var got []string
	for _, r := range w.log {
		got = append(got, fmt.Sprintf("%d %s %s %q received %d executed %d answered %d actual %q: %s by %v",
			r.Seq, r.Host, r.Request.Method, r.Request.ResetType, int(r.Received.Seconds()), int(r.Executed.Seconds()),
			int(r.Answered.Seconds()), r.Actual, show(r.Answer), r.Rules))
	}
	want := []string{
		`2 node-1 GET "" received 1 executed 1 answered 1 actual "On": Off by [lie]`,
		`3 node-1 POST "On" received 1 executed 0 answered 0 actual "": 0 by [deaf]`,
		`1 node-1 POST "ForceOff" received 1 executed 6 answered 7 actual "": 204 by [slow slow-answer]`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r := w.log[1]; r.Executed != fakebmc.Never || r.Answered != fakebmc.Never {
		t.Errorf("a hang is logged as executed %v and answered %v", r.Executed, r.Answered)
	}
	if p := w.bmc.Pending(); len(p) != 0 {
		t.Errorf("pending %+v after all is answered", p)
	}
}

func TestRulesAtRunTime(t *testing.T) {
	w := newWorld(t)
	lag := systemtest.Rules(t, `{"name": "lag", "effect": {"lag": "10s"}}`)[0]
	if err := w.bmc.AddRule(lag); err != nil {
		t.Fatal(err)
	}
	if err := w.bmc.AddRule(lag); err == nil {
		t.Error("a second rule of the same name was added")
	}
	if err := w.bmc.AddRule(fakebmc.Rule{Name: "empty"}); err == nil {
		t.Error("an invalid rule was added")
	}
	w.ask("ForceOff")
	w.clk.Advance(3 * s)
	if got := *w.ask("read"); got != "On" {
		t.Errorf("with the lag: %s, want On", got)
	}
	if got := w.bmc.Rules(); len(got) != 1 || got[0].Name != "lag" {
		t.Errorf("rules in force: %v", got)
	}
	if !w.bmc.RemoveRule("lag") || w.bmc.RemoveRule("lag") {
		t.Error("the rule could not be removed once")
	}
	if got := *w.ask("read"); got != "Off" {
		t.Errorf("without the lag: %s, want Off", got)
	}
	// A new lag knows nothing of what was before it.
	if err := w.bmc.AddRule(lag); err != nil {
		t.Fatal(err)
	}
	if got := *w.ask("read"); got != "Off" {
		t.Errorf("with a new lag: %s, want Off", got)
	}
}

// unwatched hides a host's Watch.
type unwatched struct{ fakebmc.System }

func TestLagBySampling(t *testing.T) {
	clk := &systemtest.Clock{}
	h := memory.New(clk, memory.Timing{}, true)
	b := fakebmc.New("node-1", unwatched{h}, clk)
	if err := b.AddRule(systemtest.Rules(t, `{"effect": {"lag": "10s"}}`)[0]); err != nil {
		t.Fatal(err)
	}
	read := func() (got fakebmc.PowerState) {
		b.Do(b.PowerRequest(""), func(a fakebmc.Answer) { got = a.PowerState })
		return got
	}
	b.Do(b.ResetRequest("", fakebmc.ResetForceOff), func(fakebmc.Answer) {})
	clk.Advance(9 * s)
	if got := read(); got != fakebmc.On {
		t.Errorf("after 9s: %s, want On", got)
	}
	clk.Advance(1100 * time.Millisecond)
	if got := read(); got != fakebmc.Off {
		t.Errorf("after 10.1s: %s, want Off", got)
	}
	b.RemoveRule("rule-1")
	clk.Advance(s)
	if n := clk.Waiting(); n != 0 {
		t.Errorf("%d timers are left without a lag rule", n)
	}
}

func TestCloseStopsWhatWaits(t *testing.T) {
	w := newWorld(t, `{"effect": {"delay": "5s"}}`, `{"effect": {"lag": "5s"}}`)
	answer := w.ask("ForceOff")
	w.bmc.Close()
	w.clk.Advance(time.Hour)
	if p, _ := w.host.PowerState(); *answer != "" || p != fakebmc.On {
		t.Errorf("after Close the request was answered %q and the host is %s", *answer, p)
	}
	if got := *w.ask("read"); got != "unreachable" {
		t.Errorf("after Close: %s, want unreachable", got)
	}
	if n := w.clk.Waiting(); n != 0 {
		t.Errorf("%d timers are left", n)
	}
}

type broken struct{}

func (broken) PowerState() (fakebmc.PowerState, error) { return "", errors.New("no hypervisor") }
func (broken) Reset(fakebmc.ResetType) error           { return errors.New("no hypervisor") }

func TestSystemErrors(t *testing.T) {
	b := fakebmc.New("node-1", broken{}, &systemtest.Clock{})
	for _, req := range []fakebmc.Request{b.PowerRequest(""), b.ResetRequest("", fakebmc.ResetOn)} {
		b.Do(req, func(a fakebmc.Answer) {
			if a.Status != 500 || a.Err() == nil || !strings.Contains(a.Err().Error(), "no hypervisor") {
				t.Errorf("%s %s: %v, want a 500 with the cause", req.Method, req.Path, a.Err())
			}
		})
	}
	b.Do(fakebmc.Request{Method: "GET", Path: "/redfish/v1/Systems/node-2"}, func(a fakebmc.Answer) {
		if a.Status != 404 {
			t.Errorf("another host's system: %v, want 404", a.Err())
		}
	})
}

// TestConcurrentUse is for the race detector: clients, rules that come and go,
// timers and edges at the same time, each request answered once.
func TestConcurrentUse(t *testing.T) {
	clk := &systemtest.Clock{}
	h := memory.New(clk, memory.Timing{On: 3, Off: 2, Shutdown: 5}, true)
	var mu sync.Mutex
	logged := map[uint64]int{}
	b := fakebmc.New("node-1", h, clk, fakebmc.OnRequest(func(r fakebmc.Record) {
		mu.Lock()
		defer mu.Unlock()
		logged[r.Seq]++
	}))
	rules := systemtest.Rules(t, `{"effect": {"lag": "10ns"}}`, `{"effect": {"delay": "3ns"}}`,
		`{"effect": {"stuck": {"report": "PoweringOff"}}}`, `{"when": {"phase": ["Off"], "count": 9}, "effect": {"ignore": true}}`,
		`{"effect": {"transition": {"for": "2ns"}}}`, `{"when": {"within": "5ns"}, "effect": {"duplicate": "3ns"}}`,
		`{"when": {"reset": ["On"]}, "effect": {"auto": {"reset": "ForceOff", "after": "2ns"}}}`, `{"effect": {"loss": {"for": "3ns", "downtime": "1ns"}}}`,
		`{"effect": {"restart": {"downtime": "4ns", "forget": true}}}`, `{"effect": {"guest": {"slow": "9ns"}}}`)
	const each = 300
	var clients, all sync.WaitGroup
	var answers sync.WaitGroup
	for i, reset := range []fakebmc.ResetType{"", "", "On", "ForceOff", "GracefulShutdown", "ForceRestart"} {
		answers.Add(each)
		clients.Go(func() {
			for range each {
				req := b.ResetRequest(fmt.Sprint(i), reset)
				if reset == "" {
					req = b.PowerRequest(fmt.Sprint(i))
				}
				b.Do(req, func(fakebmc.Answer) { answers.Done() })
			}
		})
	}
	stop := make(chan struct{})
	all.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			r := rules[i%len(rules)]
			if !b.RemoveRule(r.Name) {
				if err := b.AddRule(r); err != nil {
					t.Error(err)
				}
			}
			b.Pending()
			clk.Advance(1)
		}
	})
	clients.Wait()
	answers.Wait() // the clock goes on until all are answered
	close(stop)
	all.Wait()
	for seq, n := range logged {
		if n != 1 {
			t.Errorf("request %d was logged %d times", seq, n)
		}
	}
	if len(logged) < 6*each { // and what the BMC did by itself
		t.Errorf("%d requests were logged, want at least %d", len(logged), 6*each)
	}
}

// fixed is a System that costs nothing.
type fixed struct{}

func (fixed) PowerState() (fakebmc.PowerState, error) { return fakebmc.On, nil }
func (fixed) Reset(fakebmc.ResetType) error           { return nil }

func TestFastPathAllocatesNothing(t *testing.T) {
	for _, rules := range [][]string{nil, {`{"when": {"reset": ["On"], "phase": ["Off"]}, "effect": {"hang": true}}`}} {
		var answered, logged int
		b := fakebmc.New("node-1", fixed{}, &systemtest.Clock{}, fakebmc.OnRequest(func(fakebmc.Record) { logged++ }))
		for _, r := range systemtest.Rules(t, rules...) {
			if err := b.AddRule(r); err != nil {
				t.Fatal(err)
			}
		}
		reply := func(fakebmc.Answer) { answered++ }
		if n := testing.AllocsPerRun(100, func() {
			b.Do(b.PowerRequest("client"), reply)
			b.Do(b.ResetRequest("client", fakebmc.ResetForceOff), reply)
			b.Do(b.ResetRequest("client", fakebmc.ResetOn), reply)
		}); n != 0 {
			t.Errorf("with %d rules that don't match, a read and two resets allocate %v times", len(rules), n)
		}
		if answered != logged || answered == 0 {
			t.Errorf("%d answers, %d records", answered, logged)
		}
	}
}

func BenchmarkDo(b *testing.B) {
	reply := func(fakebmc.Answer) {}
	for _, c := range []struct{ name, rule string }{
		{"no rule", ""},
		{"a rule that does not match", `{"when": {"reset": ["On"]}, "effect": {"hang": true}}`},
		{"report", `{"effect": {"report": "Off"}}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			bmc := fakebmc.New("node-1", fixed{}, &systemtest.Clock{}, fakebmc.OnRequest(func(fakebmc.Record) {}))
			if c.rule != "" {
				if err := bmc.AddRule(systemtest.Rules(b, c.rule)[0]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				bmc.Do(bmc.PowerRequest("client"), reply)
			}
		})
	}
}

// TestOnReset: a BMC tells of the resets that reach it, whatever it makes of them.
func TestOnReset(t *testing.T) {
	for _, c := range []struct {
		rule     string
		received bool
	}{
		{`{"when": {"client": "nobody"}, "effect": {"ignore": true}}`, true},
		{`{"effect": {"ignore": true}}`, true},
		{`{"effect": {"delay": "1m"}}`, true},
		{`{"effect": {"hang": true}}`, true},
		{`{"effect": {"refuse": {"status": 503}}}`, true},
		{`{"effect": {"unreachable": true, "stage": "executed"}}`, true},
		{`{"effect": {"unreachable": true}}`, false},
	} {
		w := newWorld(t, c.rule)
		w.ask("ForceOff")
		w.ask("read")
		want := 0
		if c.received {
			want = 1
		}
		if len(w.received) != want || want == 1 && w.received[0] != "ForceOff while On" {
			t.Errorf("%s: received %q, want %d", c.rule, w.received, want)
		}
	}
}
