package sim_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/simtest"
	"github.com/fencelab/fencelab/sim/steps"
)

// ordered plays a plan with deviations, and returns what came of it, the steps that were taken, and
// when.
func ordered(t *testing.T, s *sim.Simulator, plan *scenarios.Plan, deviations ...scenarios.Deviation) (*play.Outcome, []string, map[string]time.Duration) {
	t.Helper()
	var order []string
	times := map[string]time.Duration{}
	backend := s.Backend()
	backend.Evidence = true
	backend.Took = func(step steps.Name, at time.Duration) {
		order = append(order, step.String())
		times[step.String()] = at
	}
	outcome, err := play.Run(t.Context(), plan.With(deviations), backend, nil)
	if err := cmp.Or(err, outcome.Err); err != nil {
		t.Fatal(err)
	}
	return outcome, order, times
}

// deviated returns the events of deviations.
func deviated(o *play.Outcome) (all []history.Event) {
	for _, e := range o.History.Events() {
		if e.Kind == history.Deviated {
			all = append(all, e)
		}
	}
	return all
}

// TestOrder: a step that waits for another one comes right after it, whatever the two are, and the
// other one comes when it did. A plan with the order is replayed, and put in words.
func TestOrder(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	plan := simtest.Plan(t, "../scenarios/catalog/reboot-annotation/plain-power-cycle.yaml")
	_, _, benign := ordered(t, s, plan)
	digests := map[string]bool{}
	for _, c := range []struct{ first, other string }{
		{"reboot.BareMetalHost/deliver/1", "worker-2.kubelet/kubelet/4"},
		{"reboot/bmc/6", "nodelifecycle/work/5"}, // without anything else at that time
		{"worker-2.kubelet/kubelet/7", "nodelifecycle/api/8"},
		{"worker-1/boot/2", "worker-2.kubelet/kubelet/10"},
	} {
		d := scenarios.Deviation{Step: c.first, After: c.other, Delay: scenarios.Duration(time.Minute)}
		if benign[c.other] <= benign[c.first] || benign[c.first] == 0 {
			t.Fatalf("%s is due at %s and %s at %s: that tests no order", c.first, benign[c.first], c.other, benign[c.other])
		}
		outcome, order, due := ordered(t, s, plan, d)
		events := deviated(outcome)
		if len(events) != 2 || events[1].Value != d.String() {
			t.Fatalf("%s: the events are %v", d, events)
		}
		if i := slices.Index(order, c.other); i < 0 || order[i+1] != c.first {
			t.Errorf("%s: the steps were %v", d, order)
		}
		if came := events[1].At; due[c.other] != benign[c.other] || came != due[c.other] || events[1].Key != (came-benign[c.first]).String() {
			t.Errorf("%s: the other one came at %s, as by default at %s, and this one at %s, %s late", d, due[c.other], benign[c.other], came, events[1].Key)
		}
		if len(outcome.Injected.Idle) > 0 {
			t.Errorf("%s: %v", d, outcome.Injected.Idle)
		}
		digests[outcome.History.Digest()] = true
		saved, err := file.LoadPlan("plan.txt", outcome.Plan.Text(), objects.Vocabulary())
		if err != nil {
			t.Fatal(err)
		}
		again, err := play.Run(t.Context(), saved, s.Evident(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if at := history.Diff(outcome.History, again.History); at >= 0 {
			t.Errorf("%s: played from its plan, event %d differs", d, at+1)
		}
		if text := report.Text(again, ""); !strings.Contains(text, " came only after ") || strings.Contains(text, "only after "+c.other) {
			t.Errorf("%s: the report doesn't say so in words:\n%s", d, text)
		}
	}
	if len(digests) != 4 {
		t.Errorf("4 orders have %d histories", len(digests))
	}
}

// TestOrderThatNeverComes: a step waits no longer than it may, and never once the schedule has
// ended; that an order did not come about is said, and holds up no party any more.
func TestOrderThatNeverComes(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	plan := simtest.Plan(t, "../scenarios/catalog/reboot-annotation/plain-power-cycle.yaml")
	_, _, benign := ordered(t, s, plan)
	for _, most := range []time.Duration{3 * time.Second, 3 * time.Hour} {
		d := scenarios.Deviation{Step: "reboot.BareMetalHost/deliver/1", After: "reboot/api/999", Delay: scenarios.Duration(most)}
		outcome, _, _ := ordered(t, s, plan, d)
		events := deviated(outcome)
		if len(events) != 2 || len(events[1].Frees) != 1 || events[1].Frees[0] != events[0].Hinders.Name {
			t.Fatalf("%s: the events are %v", d, events)
		}
		if waited := events[1].At - benign[d.Step]; waited != most && most < time.Hour || waited > time.Hour {
			t.Errorf("%s: it waited for %s", d, waited)
		}
		if idle := outcome.Injected.Idle; len(idle) != 1 || !strings.Contains(idle[0], d.String()+" was never taken") {
			t.Errorf("%s: it is said that %v", d, idle)
		}
		if text := report.Text(outcome, ""); !strings.Contains(text, "reboot's news of ") || !strings.Contains(text, " waited in vain for reboot/api/999") {
			t.Errorf("%s: the report is\n%s", d, text)
		}
	}
}

// TestOrderOfDeliveries: the deliveries behind one that waits come with it, in their order.
func TestOrderOfDeliveries(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	plan := simtest.Plan(t, "../scenarios/catalog/reboot-annotation/plain-power-cycle.yaml")
	d := scenarios.Deviation{Step: "workload.Node/deliver/1", After: "worker-2.kubelet/kubelet/9", Delay: scenarios.Duration(time.Minute)}
	_, order, times := ordered(t, s, plan, d)
	first, second := slices.Index(order, d.Step), slices.Index(order, "workload.Node/deliver/2")
	if first < 0 || second < first || order[first-1] != d.After {
		t.Errorf("the steps were %v", order)
	}
	if at := times["workload.Node/deliver/2"]; at != times[d.After] {
		t.Errorf("the delivery behind came at %s, and the first at %s", at, times[d.Step])
	}
}

// TestAWait: a request that waits for another step makes its actor late, and excuses what it does
// itself once it has come; it excuses no other deed meanwhile.
func TestAWait(t *testing.T) {
	const party = "controller/reboot"
	d := scenarios.Deviation{Step: "reboot/api/1", After: "remediation/api/1", Delay: scenarios.Duration(time.Minute)}
	h := invariant.NewHindrances(invariant.Params{})
	h.Observe(&history.Event{At: time.Second, Kind: history.Deviated, Hinders: d.Waits(party, 0, scenarios.Manner{Sent: true})})
	deed := history.Event{At: 10 * time.Second, Kind: history.BMCCommand, Actor: "reboot"}
	if h.Belated(&deed) {
		t.Error("a request that waits still excuses another one")
	}
	h.Observe(&history.Event{At: 11 * time.Second, Kind: history.Deviated, Hinders: d.Came(party, 10*time.Second, scenarios.Manner{Sent: true}), Frees: []string{history.WaitOf(d.Step)}})
	if deed.At = 11 * time.Second; !h.Belated(&deed) {
		t.Error("a request that has waited isn't excused")
	}
	if lost := h.LostTo(0, 20*time.Second, func(*invariant.Spell) time.Duration { return 0 }, func(*invariant.Spell) bool { return true }); lost != 10*time.Second {
		t.Errorf("%s are lost to a wait of 10s", lost)
	}
}

// TestALateGivingUp: when a client gives up, a request has failed, so time is lost until it is
// tried again, however late that was; a request that is late by little has not failed.
func TestALateGivingUp(t *testing.T) {
	const backoff, late = 20 * time.Second, time.Second
	for class, want := range map[steps.Class]time.Duration{
		steps.ClassTimeout: late + backoff + 5*time.Second, steps.ClassBMC: late, steps.ClassTimer: late,
	} {
		d := scenarios.Deviation{Step: "reboot/" + string(class) + "/1", Delay: scenarios.Duration(late)}
		waits := d
		waits.After = "remediation/api/1"
		for name, events := range map[string][]history.Event{
			"delayed": {{Hinders: d.Hinders("controller/reboot", 0, class.Manner())}},
			"waited": {
				{Hinders: waits.Waits("controller/reboot", 0, class.Manner())},
				{At: late, Hinders: waits.Came("controller/reboot", late, class.Manner()), Frees: []string{history.WaitOf(d.Step)}},
			},
		} {
			h := invariant.NewHindrances(invariant.Params{Timings: invariant.Timings{Backoff: backoff}})
			for i := range events {
				events[i].Kind, events[i].Seq = history.Deviated, i+1
				h.Observe(&events[i])
			}
			if lost := h.Lost(0, time.Hour, invariant.Parties{First: "reboot"}); lost != want {
				t.Errorf("%s, %s: %s are lost, want %s", class, name, lost, want)
			}
		}
	}
}

// TestLoopsOfAProcess: a schedule delays one of the controllers that share a process and leaves the
// others alone; when the process dies, all of them do.
func TestLoopsOfAProcess(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	plan := simtest.Plan(t, "../scenarios/catalog/agents/cut-off-host-resets-itself.yaml")
	var times map[string]time.Duration
	at := func(deviations ...scenarios.Deviation) (deleted, created, bound time.Duration, life int) {
		outcome, _, taken := ordered(t, s, plan, deviations...)
		times = taken
		for _, e := range outcome.History.Events() {
			switch {
			case e.Kind == history.ControllerStarted && e.Actor == "workload":
				life++
			case e.Kind == history.ControllerEffect && e.Value == "create Pod/exclusive":
				created = e.At
			case e.Kind == history.PodDeleted && e.Actor == "workload":
				deleted = e.At
			case e.Kind == history.PodBound && e.Actor == "workload":
				bound = e.At
			}
		}
		return deleted, created, bound, life
	}
	const wait = 20 * time.Second
	deleted, created, bound, life := at()
	if life != 1 || deleted == 0 || created-deleted > wait/2 || bound-created > wait/2 {
		t.Fatalf("undisturbed, the Pod is deleted at %s, created at %s, bound at %s, by %d processes", deleted, created, bound, life)
	}
	// last is the last step of an actor and a class until a time.
	benign := times
	last := func(of string, until time.Duration) (name string) {
		for n, when := range benign { // order does not matter: no two come at once
			if strings.HasPrefix(n, of+"/") && when <= until && (name == "" || when > benign[name]) {
				name = n
			}
		}
		return name
	}
	for _, c := range []struct {
		step                   string
		releases, keeps, binds time.Duration
	}{
		{last("workload.release/work", deleted), wait, 0, 0}, {last("workload.keep/api", created), 0, wait, 0}, {last("workload.bind/work", bound), 0, 0, wait},
	} {
		d, c1, b, life := at(scenarios.Deviation{Step: c.step, Delay: scenarios.Duration(wait)})
		near := func(got, want time.Duration) bool { return (got - want).Abs() < time.Second }
		if life != 1 || !near(d-deleted, c.releases) || !near(c1-d-(created-deleted), c.keeps) || !near(b-c1-(bound-created), c.binds) {
			t.Errorf("with %s %s late, the Pod is deleted at %s, created at %s, bound at %s, by %d processes", c.step, wait, d, c1, b, life)
		}
	}
	if _, _, b, life := at(scenarios.Deviation{Step: last("workload.bind/api", bound), Fault: scenarios.FaultCrashBefore}); life != 2 || b < bound+time.Second {
		t.Errorf("when it dies before it binds, the Pod is bound at %s, by %d processes", b, life)
	}
}
