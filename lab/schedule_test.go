package lab

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/fakebmc/wall"
	"github.com/fencelab/fencelab/lab/door"
	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/lab/hosts"
	"github.com/fencelab/fencelab/lab/record"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
)

// TestDeviations plays a process whose third effect, the first on n-3, deviates, with two
// that follow; one that died begins again.
func TestDeviations(t *testing.T) {
	const moment = scenarios.Duration(50 * time.Millisecond)
	for name, c := range map[string]struct {
		deviation scenarios.Deviation
		// answered says of n-3 whether it had an answer, and want is the history from then on.
		answered bool
		want     []string
	}{
		"delay": {scenarios.Deviation{Delay: moment}, true, []string{
			"controller-effect delete Node/n-3", "controller-effect delete Node/n-4"}},
		"error before": {scenarios.Deviation{Fault: scenarios.FaultErrorBefore}, false, []string{
			"controller-effect delete Node/n-4"}},
		"error after": {scenarios.Deviation{Fault: scenarios.FaultErrorAfter}, false, []string{
			"controller-effect delete Node/n-3", "controller-effect delete Node/n-4"}},
		"late": {scenarios.Deviation{Fault: scenarios.FaultLate, Delay: moment}, false, []string{
			"controller-effect delete Node/n-4", "controller-effect delete Node/n-3 executed 50ms late"}},
		"crash before": {scenarios.Deviation{Fault: scenarios.FaultCrashBefore}, false, []string{
			"controller-crashed before delete Node/n-3", "controller-started", "controller-effect delete Node/n-1"}},
		"crash after": {scenarios.Deviation{Fault: scenarios.FaultCrashAfter}, false, []string{
			"controller-effect delete Node/n-3", "controller-crashed after delete Node/n-3", "controller-started", "controller-effect delete Node/n-1"}},
		"crash late": {scenarios.Deviation{Fault: scenarios.FaultCrashLate, Delay: moment}, false, []string{
			"controller-crashed before delete Node/n-3", "controller-effect delete Node/n-3 executed 50ms late", "controller-started", "controller-effect delete Node/n-1"}},
		"conflict": {scenarios.Deviation{Fault: scenarios.FaultConflict}, true, []string{
			"controller-effect delete Node/n-4"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s := serveBMCs(t)
			r := hands{make(chan *hand, 10)}
			c.deviation.Step = "remediation/delete Node/n-3/1"
			plan := &scenarios.Plan{Deviations: []scenarios.Deviation{c.deviation}}
			backend := &Backend{
				plan: plan, kinds: objects.KindsOf(controllers.Default()), ctx: t.Context(), clock: wall.Clock(), record: &record.Record{Stream: s},
				plane: plane{door: door.New(s, gate.API(nil))}, hosts: hosts.Hosts{BMCs: b}, procs: running{runner: r},
			}
			begin(s)
			backend.procs.schedule = newSchedule(plan, s, false)
			p := &proc{b: backend, name: "remediation"}
			if err := p.start(); err != nil {
				t.Fatal(err)
			}
			h := <-r.started
			for effect := 1; effect <= 3; effect++ {
				if answered := h.act(t, effect); answered != (effect < 3 || c.answered) {
					t.Errorf("effect %d had an answer: %t", effect, answered)
				}
			}
			if strings.HasPrefix(name, "crash") {
				(<-r.started).act(t, 1)
			} else {
				h.act(t, 4)
			}
			backend.tasks.Wait()
			p.stop()
			deviated := false
			var got []string
			for _, e := range s.Pending() {
				if e.Kind == "deviated" {
					deviated = e.Value == c.deviation.String() && e.Actor == "remediation"
					continue
				}
				if deviated {
					got = append(got, strings.TrimSpace(strings.TrimSpace(string(e.Kind)+" "+e.Value)+" "+e.Note))
				}
			}
			if !deviated || !slices.Equal(got, c.want) {
				t.Errorf("the history has (deviated %t)\n%q, want\n%q", deviated, got, c.want)
			}
		})
	}
}

// begin lets the story begin.
func begin(s *record.Stream) {
	plan := new(scenarios.Plan)
	plan.Spec.Topology.Hosts = []scenarios.Host{{Name: "worker-1"}}
	s.Await(plan, nil)
	s.Now(history.Event{Kind: history.NodeReady, Host: "worker-1", Object: "Node/worker-1"})
}

// Reads are counted from the last effect of their actor, everything else from the beginning of the
// story.
func TestDeedsAreCounted(t *testing.T) {
	s := record.NewStream(wall.Clock().Now)
	all := newSchedule(new(scenarios.Plan), s, true)
	do := func(actor, does string, effect bool) { all.step(actor, does, effect) }
	do("a", "delete Node/x", true)
	begin(s)
	do("a", "get Node/x", false)
	do("a", "get Node/x", false)
	do("b", "get Node/x", false)
	do("a", "delete Node/x", true)
	do("a", "get Node/x", false)
	do("a", "delete Node/x", true)
	do("a", "deliver node-deleted Node/x", false)
	all.heal()
	do("a", "delete Node/x", true)
	var got []string
	for _, d := range all.deeds {
		got = append(got, d.String())
		if again, err := scenarios.ParseDeed(d.String()); err != nil || again != d {
			t.Errorf("%s is read as %v, %v", d, again, err)
		}
	}
	want := []string{
		"a/get Node/x/0.1", "a/get Node/x/0.2", "b/get Node/x/0.1", "a/delete Node/x/1", "a/get Node/x/1.1", "a/delete Node/x/2",
		"a/deliver node-deleted Node/x/1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the deeds are\n%q, want\n%q", got, want)
	}
}
