package search

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/simtest"
	"github.com/fencelab/fencelab/sim/steps"
)

// TestArrange: a step is tried after each step that depends on it and doesn't descend from it, as
// long as it may come so late, and after the first and the last of those that recur.
func TestArrange(t *testing.T) {
	var story []told
	add := func(at time.Duration, cause string, step steps.Step) {
		n := 1
		from := -1
		for i := range story {
			if story[i].Actor == step.Actor && story[i].Class == step.Class {
				n++
			}
			if story[i].Name() == cause {
				from = i
			}
		}
		step.N = n
		story = append(story, told{Step: step, at: at, taken: len(story), cause: from})
	}
	node := func(name string) steps.Object { return steps.Object{Kind: "Node", Name: name} }
	call := func(actor, verb string, effect bool, on steps.Object) steps.Step {
		return steps.Step{Actor: actor, Class: steps.ClassAPI, Verb: verb, Effect: effect, Object: on, Place: steps.PlaceProcess + actor, Alone: true}
	}
	deliver := steps.Step{Actor: "c.Node", Class: steps.ClassDeliver, Verb: "deliver", Object: node(""), Place: steps.PlaceProcess + "c"}
	prompt := call("d", "patch", true, node("y"))
	prompt.Assumed = steps.PremisesOf(&scenarios.Spec{Assumes: []string{scenarios.RequestsArrive}})

	several := func(verb string, on steps.Object, request string) steps.Step { // of several workers
		s := call("r", verb, true, on)
		s.Alone, s.Request = false, request
		return s
	}

	add(0, "", call("a", "patch", true, node("x")))
	add(1*time.Second, "", call("b", "get", false, node("x")))
	add(2*time.Second, "", call("b", "get", false, node("y")))
	add(3*time.Second, "", prompt)
	add(3500*time.Millisecond, "", call("e", "get", false, node("y")))
	add(4*time.Second, "a/api/1", call("f", "delete", true, node("x"))) // it descends
	add(5*time.Second, "", call("a", "get", false, node("x")))          // its worker is busy
	for round := range 5 {
		add(time.Duration(10+round)*time.Second, "", call("g", "list", false, node("")))
	}
	add(20*time.Second, "", deliver)
	add(21*time.Second, "", deliver)
	add(22*time.Second, "", call("c", "get", false, steps.Object{Kind: "Machine", Name: "x"}))
	add(100*time.Second, "", call("h", "get", false, node("x")))
	add(200*time.Second, "", several("get", steps.Object{Kind: "Secret", Name: "u"}, "u"))
	add(201*time.Second, "", several("get", steps.Object{Kind: "Secret", Name: "v"}, "v"))
	add(202*time.Second, "", several("patch", steps.Object{Kind: "Secret", Name: "u"}, "u"))
	asked := several("GracefulShutdown", steps.Object{Kind: "BMC", Name: "u"}, "w")
	asked.Class = steps.ClassBMC
	add(203*time.Second, "", asked)
	add(204*time.Second, "", several("get", steps.Object{Kind: "Secret", Name: "w"}, "w"))

	got := map[string][]string{}
	a := arrange(story, apart)
	for i := range story {
		for _, d := range a.of(i) {
			if d.After != "" {
				got[d.Step] = append(got[d.Step], d.After)
			}
		}
	}
	want := map[string][]string{
		"a/api/1":          {"b/api/1", "d/api/1", "g/api/1", "g/api/5"}, // that of d is another write of the kind
		"b/api/1":          {"f/api/1"},                                  // b works on one thing at a time
		"b/api/2":          {"d/api/1"},
		"d/api/1":          {"e/api/1", "f/api/1"}, // everything else comes more than a second later
		"f/api/1":          {"a/api/2", "g/api/1", "g/api/5"},
		"c.Node/deliver/1": {"c/api/1"},
		"c.Node/deliver/2": {"c/api/1"},
		"r/api/1":          {"r/api/2", "r/bmc/1", "r/api/4"}, // others take these, and the same r/api/3
		"r/api/2":          {"r/api/3", "r/bmc/1", "r/api/4"},
		"r/api/3":          {"r/bmc/1", "r/api/4"},
		"r/bmc/1":          {"r/api/4"}, // its client may have given up
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestOrdersByOutcome: a kubelet's renewal that leaves its Node alone comes late past those who
// read the Node of another, and past other renewals. It may write where its Node was changed
// before, and where an operation was applied. An agent's step needn't come late past a question
// unless it publishes something. A step comes late no more once its process has started anew, nor a
// request that waits for its time once it is in the queue.
func TestOrdersByOutcome(t *testing.T) {
	renews := func(host string, idle bool) told {
		var came steps.Outcome
		if !idle {
			came = steps.NodeWritten
		}
		return told{came: came, Step: steps.Step{Actor: host, Class: steps.ClassKubelet, N: 1, Verb: steps.Renews, Object: steps.Object{Kind: "Node", Name: host}, Place: steps.PlaceHost + host}}
	}
	call := func(actor, verb string, effect bool, kind, on string) told {
		return told{Step: steps.Step{Actor: actor, Class: steps.ClassAPI, N: 1, Verb: verb, Effect: effect, Object: steps.Object{Kind: kind, Name: on}, Place: steps.PlaceProcess + actor}}
	}
	lists, reads, writes := call("a", "list", false, "Node", ""), call("b", "get", false, "Lease", "x"), call("c", "patch", true, "Node", "x")
	starts := func(process string) told {
		return told{Step: steps.Step{Actor: process, Class: steps.ClassStart, N: 2, Place: steps.PlaceProcess + process}}
	}
	ofQueue := func(class steps.Class, n int, on string) told {
		return told{Step: steps.Step{Actor: "a", Class: class, N: n, Object: steps.Object{Kind: "Request", Name: on}, Place: steps.PlaceProcess + "a"}}
	}
	adds := func(request string) told { return ofQueue(steps.ClassTimer, len(request), request) }
	takes := func(n int) told { return ofQueue(steps.ClassWork, n, "") }
	queues := func(request string) told {
		t := ofQueue(steps.ClassDeliver, 1, "")
		t.Actor, t.came, t.queues = "a.Node", steps.Queued, []queued{{"a", request}}
		return t
	}
	step := func(came steps.Outcome) told {
		return told{came: came, Step: steps.Step{Actor: "a.agent", Class: steps.ClassTimer, N: 1, Verb: "step", Place: steps.PlaceAgent + "a"}}
	}
	asks := told{Step: steps.Step{Actor: "b.agent", Class: steps.ClassPeer, N: 1, Object: steps.Object{Kind: "Host", Name: "a"}, Place: steps.PlaceAgent + "b"}}
	for name, tc := range map[string]struct {
		story []told
		// op is how many of the steps come before an operation, 0 for none.
		op   int
		want []string
	}{
		"idle":                          {[]told{renews("x", true), lists, renews("y", true)}, 0, nil},
		"its Lease is read":             {[]told{renews("x", true), reads, lists}, 0, []string{"b/api/1"}},
		"its Node is written":           {[]told{renews("x", true), writes, lists, renews("y", true)}, 0, []string{"c/api/1", "a/api/1"}},
		"it writes":                     {[]told{renews("x", false), lists, renews("y", true), renews("z", false)}, 0, []string{"a/api/1", "z/kubelet/1"}},
		"an operation between":          {[]told{renews("x", true), lists, call("d", "list", false, "Node", "")}, 2, []string{"d/api/1"}},
		"its Lease is watched":          {[]told{func() told { r := renews("x", false); r.Watched = true; return r }(), lists}, 0, []string{"a/api/1"}},
		"its process starts anew":       {[]told{lists, writes, starts("b"), starts("a"), call("d", "patch", true, "Node", "y")}, 0, []string{"c/api/1"}},
		"its request is queued":         {[]told{adds("x"), adds("yy"), queues("yy"), takes(1), queues("x"), takes(2)}, 0, []string{"a/timer/2", "a.Node/deliver/1", "a/work/1"}},
		"an agent publishes nothing":    {[]told{step(0), asks}, 0, nil},
		"an agent publishes something":  {[]told{step(steps.Published), asks}, 0, []string{"b.agent/peer/1"}},
		"an operation means nothing":    {[]told{step(0), lists, asks}, 1, nil},
		"a write past one that is idle": {[]told{writes, renews("y", true), renews("x", true)}, 0, []string{"x/kubelet/1"}},
	} {
		story := slices.Clone(tc.story)
		for i := range story {
			story[i].at, story[i].taken, story[i].cause = time.Duration(i)*time.Second, i, -1
			if tc.op > 0 && i >= tc.op {
				story[i].before, story[i].by = 1, 1
			}
		}
		var got []string
		for _, d := range arrange(story, apart).orders(0) {
			got = append(got, d.After)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestAges: of what a controller reads before an effect, the last answer comes late, and no other.
func TestAges(t *testing.T) {
	call := func(class steps.Class, n int, effect bool) steps.Step {
		return steps.Step{Actor: "a", Class: class, N: n, Effect: effect, Place: steps.PlaceProcess + "a", Alone: true}
	}
	var story []told
	for i, step := range []steps.Step{
		call(steps.ClassWork, 1, false), call(steps.ClassAPI, 1, true), // it decides by its cache
		call(steps.ClassWork, 2, false), call(steps.ClassAPI, 2, false), call(steps.ClassBMC, 1, false), call(steps.ClassAPI, 3, true),
		call(steps.ClassWork, 3, false), call(steps.ClassAPI, 4, false), // it has nothing to do
	} {
		story = append(story, told{Step: step, at: time.Duration(i) * time.Second, taken: i, cause: i - 1})
	}
	a := arrange(story, apart)
	var got []scenarios.Deviation
	for i := range story {
		got = append(got, a.ages(i)...)
	}
	want := []scenarios.Deviation{{Step: "a/bmc/1", Delay: scenarios.Duration(time.Second)}, {Step: "a/bmc/1", Delay: scenarios.Duration(15 * time.Second)}, {Step: "a/bmc/1", Delay: scenarios.Duration(90 * time.Second)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestOrders: the orders and faults of right controllers hold; nearly all orders come about, and
// those that don't are counted.
func TestOrders(t *testing.T) {
	simulator, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	plan := simtest.Plan(t, "../../scenarios/catalog/reboot-annotation/plain-power-cycle.yaml")
	s, _, err := New(t.Context(), simulator, new(scenarios.Scenario), plan, Options{Strategy: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	orders := 0
	for n := range s.Total {
		if schedule, _ := s.Next(n); schedule.Deviations[0].After != "" {
			orders++
		}
	}
	alone := NewAlone(simulator, s.Story)
	tally := s.Run(alone, nil)
	if alone.Close() != nil || tally.Tried != s.Total || tally.Held != s.Total {
		t.Errorf("of %d schedules %d were tried, and %d held: %v, %v", s.Total, tally.Tried, tally.Held, tally.Failed, alone.Close())
	}
	if orders < 150 || tally.Disordered == 0 || tally.Disordered > orders/4 {
		t.Errorf("of %d orders, %d did not come about", orders, tally.Disordered)
	}
	if tally.Audits < s.Total/recheck/2 {
		t.Errorf("with %d schedules there were %d audits", s.Total, tally.Audits)
	}
}

// TestOrdersFind: an order that breaks a guarantee is found, is as small as it can be, and fails
// when it is played again.
func TestOrdersFind(t *testing.T) {
	simulator, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	plan := simtest.Plan(t, "../../docs/examples/answer-about-the-boot-before.yaml")
	s, _, err := New(t.Context(), simulator, new(scenarios.Scenario), plan, Options{Strategy: "orders", Schedules: 1300})
	if err != nil {
		t.Fatal(err)
	}
	alone := NewAlone(simulator, s.Story)
	tally := s.Run(alone, nil)
	if err := s.Explain(t.Context(), alone, &tally); err != nil {
		t.Fatal(err)
	}
	// The new boot registers its Node when remediation has read that of the one before.
	const divides = "worker-1.kubelet's registration of Node/worker-1 (no. 1 of 2) came 3.362s or more late, after remediation's read of Node/worker-1, and held in all others"
	others := regexp.MustCompile("[0-9]+ of [0-9]+ others")
	if !slices.ContainsFunc(tally.Failures(), func(f campaign.Failure) bool {
		return strings.HasSuffix(others.ReplaceAllString(f.Divides, "all others"), divides)
	}) {
		t.Errorf("what divides the failures isn't that %s: %+v", divides, tally.Failures())
	}
	player, found := NewPlayer(simulator, s.Story), false
	for _, f := range tally.Failures() {
		left := f.Schedule
		found = found || slices.ContainsFunc(left.Deviations, func(d scenarios.Deviation) bool { return d.After != "" })
		again, err := player.Try(campaign.Schedule{Number: 1, Deviations: left.Deviations})
		if err != nil || again.Signature != f.Signature {
			t.Errorf("%v: %q became %q, %v", left.Deviations, f.Signature, again.Signature, err)
		}
	}
	if !found {
		var all []string
		for _, f := range tally.Failures() {
			all = append(all, f.Signature)
		}
		t.Errorf("no order breaks it: %s", strings.Join(all, "; "))
	}
}
