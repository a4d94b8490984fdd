package fakebmc_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
)

// TestOutages plays scripts in which rules come and go: at a time, do; then the
// state as it is read, and the actual one.
func TestOutages(t *testing.T) {
	type step struct {
		at     time.Duration
		do     string // a reset type, +rule (see rules) or -rule
		read   string
		actual fakebmc.PowerState
		boots  int
	}
	rules := map[string]string{
		"loss":        `{"name": "loss", "effect": {"loss": {"downtime": "10s"}}}`,
		"loss-5s":     `{"name": "loss-5s", "effect": {"loss": {"for": "5s"}}}`,
		"loss-at-20s": `{"name": "loss-at-20s", "when": {"from": "20s", "until": "30s"}, "effect": {"loss": {"restore": "AlwaysOff"}}}`,
		"restart":     `{"name": "restart", "effect": {"restart": {"downtime": "10s"}}}`,
		"forget":      `{"name": "forget", "effect": {"restart": {"downtime": "10s", "forget": true}}}`,
		"restore-off": `{"name": "restore-off", "effect": {"restart": {"downtime": "10s", "restore": "AlwaysOff"}}}`,
		"restore":     `{"name": "restore", "effect": {"restart": {"downtime": "10s", "restore": "LastState"}}}`,
		"late":        `{"name": "late", "when": {"reset": ["ForceOff"]}, "effect": {"transition": {"for": "5s", "report": "PoweringOff"}}}`,
		"stuck":       `{"name": "stuck", "effect": {"stuck": {"report": "PoweringOff"}}}`,
		"slow":        `{"name": "slow", "when": {"reset": ["ForceOff"]}, "effect": {"delay": "5s"}}`,
		"deaf":        `{"name": "deaf", "effect": {"guest": {"ignore": true}}}`,
		"sluggish":    `{"name": "sluggish", "effect": {"guest": {"slow": "50s"}}}`,
		"leisurely":   `{"name": "leisurely", "effect": {"guest": {"slow": "80s"}}}`,
		"paused":      `{"name": "paused", "when": {"until": "30s"}, "effect": {"guest": {"paused": true}}}`,
		"unasked":     `{"name": "unasked", "when": {"from": "10s"}, "effect": {"unasked": {"reset": "ForceRestart", "after": "5s"}}}`,
		"again":       `{"name": "again", "effect": {"unasked": {"reset": "ForceRestart", "every": "20s"}}}`,
		"gone":        `{"name": "gone", "when": {"until": "10s"}, "effect": {"unasked": {"reset": "ForceOff", "after": "15s"}}}`,
	}
	for _, c := range []struct {
		name   string
		policy fakebmc.RestorePolicy
		steps  []step
	}{
		{"a reset that nobody asked for", "", []step{
			{0, "+unasked", "On", "On", 1},
			{14 * s, "", "On", "On", 1},
			{15 * s, "", "On", "On", 2},
			{600 * s, "", "On", "On", 2},
		}},
		{"again and again, but while the BMC is away", "", []step{
			{1 * s, "+again", "On", "On", 1},
			{2 * s, "", "On", "On", 2},
			{21 * s, "", "On", "On", 3},
			{35 * s, "+restart", "unreachable", "On", 3},
			{44 * s, "", "unreachable", "On", 3},
			{61 * s, "", "On", "On", 4},
			{62 * s, "-again", "On", "On", 4},
			{600 * s, "", "On", "On", 4},
		}},
		{"a rule that is over before", "", []step{
			{0, "+gone", "On", "On", 1},
			{60 * s, "", "On", "On", 1},
		}},
		{"a full power cycle takes the BMC along", "", []step{
			{1 * s, "FullPowerCycle", "unreachable", "Off", 1},
			{2 * s, "On", "unreachable", "Off", 1},
			{11*s + fakebmc.DefaultRestartTime - 1, "", "unreachable", "Off", 1},
			{11*s + fakebmc.DefaultRestartTime, "", "PoweringOn", "PoweringOn", 2},
			{120 * s, "", "On", "On", 2},
		}},
		{"a full power cycle of a host that is to stay off", fakebmc.AlwaysOff, []step{
			{1 * s, "FullPowerCycle", "unreachable", "Off", 1},
			{120 * s, "", "Off", "Off", 1},
			{121 * s, "ForceOn", "PoweringOn", "PoweringOn", 2},
			{140 * s, "ForceOn", "On", "On", 2},
		}},
		{"ac loss until it is removed, always on", fakebmc.AlwaysOn, []step{
			{0, "ForceOff", "PoweringOff", "PoweringOff", 1},
			{5 * s, "+loss", "unreachable", "Off", 1},
			{600 * s, "On", "unreachable", "Off", 1},
			{600 * s, "-loss", "unreachable", "Off", 1},
			{609 * s, "", "unreachable", "Off", 1},
			{610 * s, "", "PoweringOn", "PoweringOn", 2},
			{614 * s, "", "On", "On", 2},
		}},
		{"ac loss, last state was on", fakebmc.LastState, []step{
			{1 * s, "+loss-5s", "unreachable", "Off", 1},
			{6 * s, "", "PoweringOn", "PoweringOn", 2},
		}},
		{"ac loss, last state was off", fakebmc.LastState, []step{
			{0, "ForceOff", "PoweringOff", "PoweringOff", 1},
			{2 * s, "+loss-5s", "unreachable", "Off", 1},
			{7 * s, "", "Off", "Off", 1},
			{60 * s, "-loss-5s", "Off", "Off", 1},
		}},
		{"ac loss, always off", fakebmc.AlwaysOff, []step{
			{1 * s, "+loss-5s", "unreachable", "Off", 1},
			{60 * s, "", "Off", "Off", 1},
			{60 * s, "On", "PoweringOn", "PoweringOn", 2},
		}},
		{"ac loss in a window", fakebmc.AlwaysOn, []step{
			{0, "+loss-at-20s", "On", "On", 1},
			{20 * s, "", "unreachable", "Off", 1},
			{29 * s, "", "unreachable", "Off", 1},
			{30 * s, "", "Off", "Off", 1},
			{60 * s, "", "Off", "Off", 1},
		}},
		{"a window that never begins", fakebmc.AlwaysOn, []step{
			{0, "+loss-at-20s", "On", "On", 1},
			{10 * s, "-loss-at-20s", "On", "On", 1},
			{60 * s, "", "On", "On", 1},
		}},
		{"ac loss in a restart", fakebmc.AlwaysOn, []step{
			{0, "+restart", "unreachable", "On", 1},
			{5 * s, "+loss-5s", "unreachable", "Off", 1},
			{9 * s, "", "unreachable", "Off", 1},
			{10 * s, "", "PoweringOn", "PoweringOn", 2},
			{30 * s, "", "On", "On", 2},
		}},
		{"a restart in an ac loss is none", fakebmc.AlwaysOn, []step{
			{0, "+loss", "unreachable", "Off", 1},
			{1 * s, "+restart", "unreachable", "Off", 1},
			{60 * s, "", "unreachable", "Off", 1},
		}},
		{"a restart leaves the host alone", "", []step{
			{0, "+restart", "unreachable", "On", 1},
			{1 * s, "ForceOff", "unreachable", "On", 1},
			{10 * s, "", "On", "On", 1},
		}},
		{"a restart that restores off", "", []step{
			{0, "+restore-off", "unreachable", "On", 1},
			{10 * s, "", "PoweringOff", "PoweringOff", 1},
			{12 * s, "", "Off", "Off", 1},
		}},
		{"a restart that restores the last state", "", []step{
			{0, "+restore", "unreachable", "On", 1},
			{10 * s, "", "On", "On", 1},
		}},
		{"a transition outlives a restart", "", []step{
			{0, "+late", "On", "On", 1},
			{0, "ForceOff", "PoweringOff", "On", 1},
			{1 * s, "+restart", "unreachable", "On", 1},
			{10 * s, "", "unreachable", "On", 1},
			{11 * s, "", "PoweringOff", "PoweringOff", 1},
			{13 * s, "", "Off", "Off", 1},
		}},
		{"a transition is forgotten", "", []step{
			{0, "+late", "On", "On", 1},
			{0, "ForceOff", "PoweringOff", "On", 1},
			{1 * s, "+forget", "unreachable", "On", 1},
			{11 * s, "", "On", "On", 1},
			{60 * s, "", "On", "On", 1},
		}},
		{"asking again doesn't begin a transition again", "", []step{
			{0, "+late", "On", "On", 1},
			{0, "ForceOff", "PoweringOff", "On", 1},
			{4 * s, "ForceOff", "PoweringOff", "On", 1},
			{5 * s, "", "PoweringOff", "PoweringOff", 1},
		}},
		{"a restart overtakes a transition", "", []step{
			{0, "+late", "On", "On", 1},
			{0, "ForceOff", "PoweringOff", "On", 1},
			{1 * s, "ForceRestart", "On", "On", 2},
			{60 * s, "", "On", "On", 2},
		}},
		{"a stuck shutdown is forgotten", "", []step{
			{0, "+stuck", "On", "On", 1},
			{0, "GracefulShutdown", "PoweringOff", "On", 1},
			{1 * s, "+forget", "unreachable", "On", 1},
			{11 * s, "", "On", "On", 1},
		}},
		{"a delayed request dies with its connection", "", []step{
			{0, "+slow", "On", "On", 1},
			{0, "ForceOff", "On", "On", 1},
			{1 * s, "+restart", "unreachable", "On", 1},
			{60 * s, "", "On", "On", 1},
		}},
		{"a guest that ignores acpi", "", []step{
			{0, "+deaf", "On", "On", 1},
			{0, "GracefulShutdown", "On", "On", 1},
			{60 * s, "-deaf", "On", "On", 1},
			{60 * s, "GracefulShutdown", "PoweringOff", "PoweringOff", 1},
			{80 * s, "", "Off", "Off", 1},
		}},
		{"a guest that is slow", "", []step{
			{0, "+sluggish", "On", "On", 1},
			{0, "GracefulShutdown", "PoweringOff", "PoweringOff", 1},
			{49 * s, "", "PoweringOff", "PoweringOff", 1},
			{50 * s, "", "Off", "Off", 1},
		}},
		{"a guest that is paused for a while", "", []step{
			{0, "+paused", "Paused", "Paused", 1},
			{1 * s, "GracefulShutdown", "Paused", "Paused", 1},
			{30 * s, "", "On", "On", 1},
			{31 * s, "ForceOff", "PoweringOff", "PoweringOff", 1},
		}},
		{"the rule about the guest that remains", "", []step{
			{0, "+deaf", "On", "On", 1},
			{1 * s, "+paused", "Paused", "Paused", 1},
			{30 * s, "", "On", "On", 1},
			{31 * s, "GracefulShutdown", "On", "On", 1},
			{90 * s, "-paused", "On", "On", 1},
			{90 * s, "GracefulShutdown", "On", "On", 1},
			{91 * s, "-deaf", "On", "On", 1},
			{91 * s, "GracefulShutdown", "PoweringOff", "PoweringOff", 1},
		}},
		{"the older rule about the guest ends first", "", []step{
			{0, "+deaf", "On", "On", 1},
			{1 * s, "+paused", "Paused", "Paused", 1},
			{2 * s, "-deaf", "Paused", "Paused", 1},
			{30 * s, "GracefulShutdown", "PoweringOff", "PoweringOff", 1},
		}},
		{"of two speeds of the guest the first one counts", "", []step{
			{0, "+leisurely", "On", "On", 1},
			{0, "+sluggish", "On", "On", 1},
			{0, "GracefulShutdown", "PoweringOff", "PoweringOff", 1},
			{79 * s, "", "PoweringOff", "PoweringOff", 1},
			{80 * s, "On", "PoweringOn", "PoweringOn", 2},
			{90 * s, "-leisurely", "On", "On", 2},
			{90 * s, "GracefulShutdown", "PoweringOff", "PoweringOff", 2},
			{139 * s, "", "PoweringOff", "PoweringOff", 2},
			{140 * s, "", "Off", "Off", 2},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			if c.policy != "" {
				if err := w.bmc.SetRestorePolicy(c.policy); err != nil {
					t.Fatal(err)
				}
			}
			for _, st := range c.steps {
				w.clk.Advance(st.at - w.clk.Now())
				switch {
				case st.do == "":
				case st.do[0] == '+':
					if err := w.bmc.AddRule(systemtest.Rules(t, rules[st.do[1:]])[0]); err != nil {
						t.Fatal(err)
					}
				case st.do[0] == '-':
					w.bmc.RemoveRule(st.do[1:])
				default:
					w.ask(st.do)
				}
				got := *w.ask("read")
				if p, _ := w.host.PowerState(); got != st.read || p != st.actual || w.host.Boots() != st.boots {
					t.Errorf("at %v after %s: %q is read and the host is %s in boot %d, want %q and %s in boot %d",
						st.at, st.do, got, p, w.host.Boots(), st.read, st.actual, st.boots)
				}
			}
			w.bmc.Close()
			w.clk.Advance(time.Hour)
			if n := w.clk.Waiting(); n != 0 {
				t.Errorf("%d timers are left", n)
			}
		})
	}
}

// TestOwnResetsAreRecorded: what the BMC does by itself is evidence, too, and
// only rules that name it hit it.
func TestOwnResetsAreRecorded(t *testing.T) {
	w := newWorld(t,
		`{"name": "again", "when": {"reset": ["ForceOff"]}, "effect": {"auto": {"reset": "On", "after": "10s"}}}`,
		`{"name": "dead", "when": {"from": "1s"}, "effect": {"unreachable": true}}`,
		`{"name": "watched", "when": {"client": "watchdog"}, "effect": {"ignore": true}}`,
	)
	w.ask("ForceOff")
	w.clk.Advance(10 * s)
	if err := w.bmc.SetWatchdog(fakebmc.Watchdog{Enabled: true, Action: fakebmc.ResetPowerCycle, Timeout: 10 * s}); err != nil || !w.bmc.FeedWatchdog() {
		t.Fatal(err)
	}
	w.clk.Advance(5 * s)
	if left := w.bmc.Watchdog(); !left.Running || left.Remaining != 5*s {
		t.Errorf("watchdog %+v", left)
	}
	w.clk.Advance(15 * s)
	if left := w.bmc.Watchdog(); left.Running || left.Expired == 0 {
		t.Errorf("watchdog %+v", left)
	}
	var got []string
	for _, r := range w.log {
		got = append(got, fmt.Sprintf("%v %s %s executed %v by %v", r.Received, r.Request.Client, r.Request.ResetType, r.Executed, r.Rules))
	}
	want := []string{
		"0s test ForceOff executed 0s by [again]",
		"10s bmc On executed 10s by []",
		"20s watchdog PowerCycle executed -1ns by [watched]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if want := []string{"10s bmc On while Off", "20s watchdog PowerCycle while On"}; !slices.Equal(w.own, want) {
		t.Errorf("it was about to do %q, want %q", w.own, want)
	}
}

func TestWatchdog(t *testing.T) {
	for _, c := range []struct {
		action fakebmc.ResetType
		final  fakebmc.PowerState
		boots  int
	}{{"", "On", 1}, {"ForceRestart", "On", 2}, {"ForceOff", "Off", 1}, {"PowerCycle", "On", 2}} {
		w := newWorld(t)
		if w.bmc.FeedWatchdog() {
			t.Error("a watchdog that was never set is fed")
		}
		if err := w.bmc.SetWatchdog(fakebmc.Watchdog{Enabled: true, Action: c.action, Timeout: 10 * s}); err != nil {
			t.Fatal(err)
		}
		w.clk.Advance(time.Minute)
		for range 5 {
			w.bmc.FeedWatchdog()
			w.clk.Advance(9 * s)
		}
		if w.host.Boots() != 1 {
			t.Errorf("%q: it bit while it was fed", c.action)
		}
		w.clk.Advance(time.Minute)
		if p, _ := w.host.PowerState(); p != c.final || w.host.Boots() != c.boots {
			t.Errorf("%q: the host is %s in boot %d, want %s in boot %d", c.action, p, w.host.Boots(), c.final, c.boots)
		}
	}
	w := newWorld(t)
	for _, bad := range []fakebmc.Watchdog{{Action: "On"}, {Timeout: -1}, {Timeout: 1e18}} {
		if err := w.bmc.SetWatchdog(bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	if err := w.bmc.SetRestorePolicy("Sometimes"); err == nil {
		t.Error("an unknown restore policy was accepted")
	}
}

// TestRulesThatTheSystemCanNotPerform are refused, not ignored.
func TestRulesThatTheSystemCanNotPerform(t *testing.T) {
	b := fakebmc.New("node-1", fixed{}, &systemtest.Clock{})
	for _, rule := range []string{`{"effect": {"guest": {"paused": true}}}`, `{"effect": {"swap": "*"}}`, `{"preset": "wrong-host"}`} {
		if err := b.AddRule(systemtest.Rules(t, rule)[0]); !errors.Is(err, fakebmc.ErrUnsupported) {
			t.Errorf("%s: %v, want ErrUnsupported", rule, err)
		}
	}
	if n := len(b.Rules()); n != 0 {
		t.Errorf("%d rules are in force", n)
	}
}

// TestManagerReset: a BMC that accepts the reset is away for a while, unless a fault
// has it do nothing.
func TestManagerReset(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []fakebmc.Option
		rule    string
		away    time.Duration
	}{
		{"by default", nil, "", fakebmc.DefaultRestartTime},
		{"as long as it is told", []fakebmc.Option{fakebmc.RestartTime(30 * s)}, "", 30 * s},
		{"told nothing", []fakebmc.Option{fakebmc.RestartTime(0)}, "", fakebmc.DefaultRestartTime},
		{"ignored", nil, `{"effect": {"ignore": true}}`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.bmc.Close()
			w.bmc = fakebmc.New("node-1", w.host, w.clk, c.options...)
			if c.rule != "" {
				if err := w.bmc.AddRule(systemtest.Rules(t, c.rule)[0]); err != nil {
					t.Fatal(err)
				}
			}
			lost := w.bmc.Lost()
			status := 0
			w.bmc.Do(w.bmc.ManagerResetRequest("test"), func(a fakebmc.Answer) { status = a.Status })
			if status != 204 {
				t.Errorf("status %d", status)
			}
			select {
			case <-lost:
				if c.away == 0 {
					t.Error("its sessions are lost")
				}
			default:
				if c.away > 0 {
					t.Error("its sessions live on")
				}
			}
			if c.away > 0 {
				w.clk.Advance(c.away - 1)
				if got := *w.ask("read"); got != "unreachable" {
					t.Errorf("at %v: %s", w.clk.Now(), got)
				}
				w.clk.Advance(1)
			}
			if got := *w.ask("read"); got != "On" {
				t.Errorf("at %v: %s, want On", w.clk.Now(), got)
			}
			if w.host.Boots() != 1 {
				t.Error("the host restarted with its BMC")
			}
		})
	}
}

// TestRestarted: a rule can be in force for so long after the BMC is up again, and not before its
// first restart.
func TestRestarted(t *testing.T) {
	clk := &systemtest.Clock{}
	b := fakebmc.New("h", memory.New(clk, memory.Timing{}, true), clk)
	defer b.Close()
	if err := b.AddRule(systemtest.Rules(t, `{"when": {"restarted": "30s"}, "effect": {"report": "Off"}}`)[0]); err != nil {
		t.Fatal(err)
	}
	reported := func() (p fakebmc.PowerState) {
		b.Do(b.PowerRequest("c"), func(a fakebmc.Answer) { p = a.PowerState })
		return p
	}
	var got []fakebmc.PowerState
	look := func(after time.Duration) {
		clk.Advance(after)
		got = append(got, reported())
	}
	look(time.Second)
	b.Do(b.ManagerResetRequest("c"), func(fakebmc.Answer) {})
	look(fakebmc.DefaultRestartTime)
	look(29 * time.Second)
	look(time.Second)
	if want := []fakebmc.PowerState{"On", "Off", "Off", "On"}; !slices.Equal(got, want) {
		t.Errorf("it reports %v, want %v", got, want)
	}
}

// TestHostsOfNobody: a rule for no host is refused by whoever knows the hosts.
func TestHostsOfNobody(t *testing.T) {
	for glob, ok := range map[string]bool{"": true, "node-*": true, "node-2": true, "worker-*": false} {
		r := fakebmc.Rule{Name: "r", When: fakebmc.Selector{Host: glob}, Effect: fakebmc.Effect{Hang: true}}
		if err := r.Concerns("node-1", "node-2"); (err == nil) != ok {
			t.Errorf("%q: %v", glob, err)
		}
	}
	if err := (fakebmc.Rule{Name: "r", Preset: "off-ignored", When: fakebmc.Selector{Host: "x"}}).Concerns("y"); err == nil {
		t.Error("a preset for no host is taken")
	}
}
