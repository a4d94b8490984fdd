package sim

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim/simtest"
	"github.com/fencelab/fencelab/sim/steps"
)

// TestIndependence takes a step and another one that waits in both orders, all along some stories.
// Two that are said to be independent must lead to the same world.
func TestIndependence(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	independent, byOutcome := 0, 0
	for _, file := range []string{"machine-remediation/three-hosts.yaml", "health-check/all-at-once.yaml", "poison-pill/agent-is-gone.yaml", "agents/cut-off-host-resets-itself.yaml"} {
		plan := simtest.Plan(t, "../scenarios/catalog/"+file)
		for n := 0; ; n += 3 { // a pair in three
			audited, err := s.Audit(plan, n, steps.Step.Independent)
			if !audited && err == nil {
				break
			}
			if independent++; err != nil {
				t.Errorf("%s, behind step %d: %v", file, n, err)
			}
		}
		for n, found := 0, true; found; n += 7 {
			found = false
			audited, err := s.Audit(plan, n, func(one, other steps.Step) bool {
				is := one.MayBeIndependent(other) && !one.Independent(other)
				found = found || is
				return is
			})
			if err != nil {
				t.Errorf("%s, behind step %d: %v", file, n, err)
			} else if audited {
				byOutcome++
			}
		}
	}
	if independent < 250 || byOutcome < 100 {
		t.Errorf("%d pairs were independent, and %d by what came of them", independent, byOutcome)
	}
}

// TestAuditOfDigests: the worlds that an audit compares write the same revisions. The reboot
// controller answers a keyed annotation by a digest of it, and some annotations hold a revision.
func TestAuditOfDigests(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	plan := simtest.Plan(t, "../scenarios/catalog/machine-remediation/leader-dies.yaml")
	plan.Deviations = []scenarios.Deviation{{Step: "remediation-2/work/3", After: "remediation-2/lease/15"}}
	for n := range 100 {
		if _, err := s.Audit(plan, n, steps.Step.Independent); err != nil {
			t.Errorf("behind step %d: %v", n, err)
		}
	}
}

// TestAuditsEnd: no audit leaves what its two worlds have begun.
func TestAuditsEnd(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	plan := simtest.Plan(t, "../scenarios/catalog/poison-pill/agent-is-gone.yaml")
	all := func(audits int) {
		for n := range audits {
			if _, err := s.Audit(plan, n*37%400, steps.Step.MayBeIndependent); err != nil {
				t.Fatal(err)
			}
		}
	}
	all(5) // the simulator keeps some threads for the next run
	before := runtime.NumGoroutine()
	all(100)
	if after := runtime.NumGoroutine(); after > before+8 {
		t.Errorf("there are %d goroutines behind 100 audits, and %d before", after, before)
	}
}

// TestIndependenceOfADeath swaps a call at which a process dies with the write of another one. Of
// what is sent to the dead process nothing comes, and the numbers of later steps say nothing of
// the world.
func TestIndependenceOfADeath(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	story := simtest.Plan(t, "../test/process/testdata/campaign/stories/stale.yaml")
	for _, fault := range []scenarios.StepFault{scenarios.FaultCrashBefore, scenarios.FaultCrashAfter, scenarios.FaultCrashLate, scenarios.FaultCrashStale} {
		died := scenarios.Deviation{Step: "remediation/api/3", Fault: fault}
		if fault.HasExtent() {
			died.Delay = scenarios.Duration(time.Second)
		}
		plan := story.With([]scenarios.Deviation{died, {Step: "remediation.Machine/deliver/1", Delay: scenarios.Duration(5 * time.Millisecond)}})
		both := func(one, other steps.Step) bool {
			write := other.Actor == "healthcheck" && other.Class == steps.ClassAPI && other.Effect
			return one.Name() == died.Step && write && one.Independent(other)
		}
		audited, err := s.Audit(plan, 0, both)
		if err != nil {
			t.Errorf("%s: %v", fault, err)
		} else if !audited {
			t.Errorf("%s: no write waits while the process dies", fault)
		}
	}
}

// TestAudit: a class whose footprint is empty is found in a story, and the steps are named. The
// story is one whose first pairs show it: behind how many steps is where the search begins.
func TestAudit(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		class  steps.Class
		story  string
		behind int
	}{
		{steps.ClassAPI, "agents/wrong-feeds-a-cut-off-host", 20},
		{steps.ClassDeliver, "machine-remediation/three-hosts", 150},
		{steps.ClassLate, "deletion-hooks/deprovisioned-while-hooked", 8},
		{steps.ClassStart, "machine-remediation/crash-after-asking", 8},
		{steps.ClassWork, "deletion-hooks/deprovisioned-while-hooked", 0},
		{steps.ClassTimer, "bmc-faults/bmc-reset-twice", 10},
		{steps.ClassBMC, "reboot-annotation/online-false-before-the-request", 3},
		{steps.ClassAnswer, "machine-remediation/answers-are-too-late", 105},
		{steps.ClassTimeout, "machine-remediation/answers-are-too-late", 0},
		{steps.ClassPower, "deletion-hooks/late-deletion-of-the-next-node", 0},
		{steps.ClassBoot, "reboot-annotation/wrong-boots-without-a-record", 28},
		{steps.ClassKubelet, "agents/wrong-feeds-a-cut-off-host", 20},
		{steps.ClassWorkload, "deletion-hooks/node-is-not-ready-and-within-reach", 47},
		{steps.ClassWatchdog, "agents/agent-keeps-dying-on-a-cut-off-host", 128},
		{steps.ClassLease, "../../docs/examples/paused-leader", 150},
		{steps.ClassPeer, "poison-pill/peer-remembers-after-its-own-death", 715},
	} {
		plan := simtest.Plans(t, "../scenarios/catalog/"+tc.story+".yaml")[0]
		if tc.class == steps.ClassLate { // it takes a client that gives up
			plan = plan.With([]scenarios.Deviation{{Step: firstEffect(t, s, plan), Fault: scenarios.FaultLate, Delay: scenarios.Duration(time.Second)}})
		}
		if tc.class == steps.ClassLease { // it takes two that want the Lease of a third
			i := slices.IndexFunc(plan.Spec.Controllers, func(c scenarios.Controller) bool { return c.Replicas > 1 })
			plan.Spec.Controllers[i].Replicas = 3
		}
		lacking := func(one, other steps.Step) bool {
			return (one.Class == tc.class || other.Class == tc.class) && !one.MayBeIndependent(other)
		}
		found, tried := "", 0
		for n := tc.behind; found == ""; n++ {
			audited, err := s.Audit(plan, n, lacking)
			if err != nil {
				found = err.Error()
			} else if !audited {
				break
			}
			tried++
		}
		if !strings.Contains(found, "/"+string(tc.class)+"/") || !strings.Contains(found, "are said to be independent") {
			t.Errorf("%s: with an empty footprint, of %d pairs none is found: %q", tc.class, tried, found)
		}
		if tried > 40 {
			t.Errorf("%s: it took %d pairs behind step %d: begin later", tc.class, tried, tc.behind)
		}
	}
}

// firstEffect is the first step of a story that writes into the API.
func firstEffect(t *testing.T, s *Simulator, plan *scenarios.Plan) (name string) {
	b := s.Backend()
	b.Watch = func(step steps.Step) (scenarios.Deviation, bool) {
		if name == "" && step.Class == steps.ClassAPI && step.Effect {
			name = step.Name()
		}
		return scenarios.Deviation{}, false
	}
	if _, err := play.Run(t.Context(), plan, b, nil); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestFootprints checks which steps depend on each other.
func TestFootprints(t *testing.T) {
	process := func(name string, class steps.Class, effect bool, verb string, on steps.Object) steps.Step {
		return steps.Step{Class: class, Effect: effect, Verb: verb, Object: on, Place: steps.PlaceProcess + name}
	}
	host := func(name string) steps.Step {
		return steps.Step{Class: steps.ClassWorkload, Verb: "start", Object: steps.Object{Kind: "Pod", Name: name}, Place: steps.PlaceHost + name}
	}
	agent := func(name string, class steps.Class, verb, kind, on, answers string) steps.Step {
		return steps.Step{Class: class, Verb: verb, Object: steps.Object{Kind: kind, Name: on}, Place: steps.PlaceAgent + name, Answers: answers}
	}
	power := func(name string) steps.Step {
		return steps.Step{Class: steps.ClassPower, Verb: "force off", Object: steps.Object{Kind: "Host", Name: name}, Place: steps.PlaceHost + name, Node: name}
	}
	effect := func(s steps.Step) steps.Step { s.Effect = true; return s }
	whole := func(s steps.Step) steps.Step { s.Whole = true; return s }
	answers := func(asker string) steps.Step {
		return agent("worker-2", steps.ClassAPI, "list", "NodeFence", "", asker)
	}
	asks := func(asker string) steps.Step { return agent(asker, steps.ClassPeer, "ask", "Host", "worker-2", "") }
	stepsOn := agent("worker-2", steps.ClassTimer, "step", "Process", "", "")
	look, feeds := agent("worker-1", steps.ClassTimer, "step", "Process", "", ""), agent("worker-1", steps.ClassWatchdog, "feed", "Host", "worker-1", "")
	renews := steps.Step{Class: steps.ClassKubelet, Verb: "renew", Object: steps.Object{Kind: "Node", Name: "worker-1"}, Place: steps.PlaceHost + "worker-1"}
	asksBMC := process("a", steps.ClassBMC, false, "read", steps.Object{Kind: "BMC", Name: "worker-1"})
	read := process("a", steps.ClassAPI, false, "get", steps.Object{Kind: "BareMetalHost", Name: "worker-1"})
	list := process("a", steps.ClassAPI, false, "list", steps.Object{Kind: "BareMetalHost", Name: ""})
	for _, tc := range []struct {
		what        string
		one, other  steps.Step
		independent bool
	}{
		{"two reads", read, process("b", steps.ClassAPI, false, "get", steps.Object{Kind: "BareMetalHost", Name: "worker-1"}), true},
		{"a read and a write of the same object", read, process("b", steps.ClassAPI, true, "patch", steps.Object{Kind: "BareMetalHost", Name: "worker-1"}), false},
		{"a read and a write of another object", read, process("b", steps.ClassAPI, true, "patch", steps.Object{Kind: "BareMetalHost", Name: "worker-10"}), true},
		{"a list and a write of one of them", list, process("b", steps.ClassAPI, true, "patch", steps.Object{Kind: "BareMetalHost", Name: "worker-2"}), false},
		{"writes of two objects of a kind, whose watchers learn of one first",
			process("a", steps.ClassAPI, true, "patch", steps.Object{Kind: "Machine", Name: "worker-1"}), process("b", steps.ClassAPI, true, "patch", steps.Object{Kind: "Machine", Name: "worker-2"}), false},
		{"writes of two kinds", process("a", steps.ClassAPI, true, "patch", steps.Object{Kind: "Machine", Name: "worker-1"}), process("b", steps.ClassAPI, true, "patch", steps.Object{Kind: "BareMetalHost", Name: "worker-1"}), true},
		{"two steps of a process", read, process("a", steps.ClassWork, false, "take", steps.Object{Kind: "Queue", Name: "a"}), false},
		{"deliveries to two processes", process("a", steps.ClassDeliver, false, "deliver", steps.Object{Kind: "Node", Name: ""}), process("b", steps.ClassDeliver, false, "deliver", steps.Object{Kind: "Node", Name: ""}), true},
		{"a command and what runs on a host", process("a", steps.ClassBMC, true, "ForceOff", steps.Object{Kind: "BMC", Name: "worker-1"}), host("worker-1"), false},
		{"steps of two agents", look, agent("worker-2", steps.ClassTimer, "step", "Process", "", ""), true},
		{"a question, and a step of whom it is for", agent("worker-2", steps.ClassPeer, "ask", "Host", "worker-1", ""), look, false},
		{"a question for another one", agent("worker-2", steps.ClassPeer, "ask", "Host", "worker-3", ""), look, true},
		{"two questions for one", asks("worker-1"), asks("worker-3"), true},
		{"two questions for one with a rate limit", whole(asks("worker-1")), whole(asks("worker-3")), false},
		{"a question, and a question for who asks", asks("worker-1"), agent("worker-3", steps.ClassPeer, "ask", "Host", "worker-1", ""), false},
		{"a step of an answer, and one of who has asked", answers("agent/worker-1"), look, false},
		{"a step of an answer to one who answers somebody", answers(steps.PlaceAgents), look, false},
		{"a step of an answer, and one of who answers, which may publish", answers("agent/worker-1"), stepsOn, false},
		{"a write of an answer, and a step of who answers, whose effects are counted", effect(answers("agent/worker-1")), stepsOn, false},
		{"a step of an answer of one with a rate limit, and one of who answers", whole(answers("agent/worker-1")), stepsOn, false},
		{"a step of an answer, and the start of who answers", answers("agent/worker-1"), agent("worker-2", steps.ClassStart, "start", "Process", "", ""), false},
		{"a step of an answer, and the power of the host that answers", answers("agent/worker-1"), power("worker-2"), false},
		{"steps of two answers", answers("agent/worker-1"), answers("agent/worker-3"), true},
		{"an agent that feeds the watchdog, and the kubelet beside it", feeds, renews, true},
		{"an agent that feeds the watchdog, and the power of its host", feeds, power("worker-1"), false},
		{"an agent that feeds the watchdog, and the power of another host", feeds, power("worker-2"), true},
		{"a command, whose cable may lead to any host, and an agent", process("a", steps.ClassBMC, true, "ForceOff", steps.Object{Kind: "BMC", Name: "worker-2"}), look, false},
		{"a kubelet, and the power of its host", renews, power("worker-1"), false},
		{"a kubelet, and the power of another host", renews, power("worker-2"), true},
		{"a write of a Node, and the power of its host", process("a", steps.ClassAPI, true, "patch", steps.Object{Kind: "Node", Name: "worker-1"}), power("worker-1"), false},
		{"a question to a BMC, and a kubelet", asksBMC, renews, true},
		{"a question to a BMC, and the power of any host", asksBMC, power("worker-2"), false},
		{"a write of a Pod, and any kubelet", process("a", steps.ClassAPI, true, "delete", steps.Object{Kind: "Pod", Name: "x"}), renews, false},
		{"a start, which lists everything, and a write", process("a", steps.ClassStart, false, "start", steps.Object{Kind: "Process", Name: "a"}), process("b", steps.ClassAPI, true, "patch", steps.Object{Kind: "Machine", Name: "x"}), false},
	} {
		if got := tc.one.Independent(tc.other); got != tc.independent || tc.other.Independent(tc.one) != got {
			t.Errorf("%s: independent %t, want %t: %v, %v", tc.what, got, tc.independent, tc.one.Footprint(), tc.other.Footprint())
		}
	}

	ofRequest := func(s steps.Step, request string) steps.Step { s.Request = request; return s }
	apartly := func(s steps.Step, request string) steps.Step { s.Apart = true; return ofRequest(s, request) }
	adds := process("a", steps.ClassTimer, false, "add", steps.Object{Kind: "Request", Name: "z"})
	take := process("a", steps.ClassWork, false, "take", steps.Object{Kind: "Queue", Name: "a"})
	fires := steps.Step{Class: steps.ClassWatchdog, Verb: "reset", Object: steps.Object{Kind: "Host", Name: "worker-1"}, Place: steps.PlaceHost + "worker-1", Node: "worker-1"}
	for _, tc := range []struct {
		what        string
		one         steps.Step
		came        steps.Outcome
		other       steps.Step
		independent bool
	}{
		{"a renewal that writes no Node, and who lists them", renews, 0, process("a", steps.ClassAPI, false, "list", steps.Object{Kind: "Node"}), true},
		{"one that does", renews, steps.NodeWritten, process("a", steps.ClassAPI, false, "list", steps.Object{Kind: "Node"}), false},
		{"a step that publishes nothing, and a question for it", look, 0, agent("worker-2", steps.ClassPeer, "ask", "Host", "worker-1", ""), true},
		{"one that publishes something", look, steps.Published, agent("worker-2", steps.ClassPeer, "ask", "Host", "worker-1", ""), false},
		{"a question that isn't answered at once, and a step of who asks", asks("worker-1"), 0, look, true},
		{"one that is", asks("worker-1"), steps.Answered, look, false},
		{"a step of an answer that goes on, and one of who has asked", answers("agent/worker-1"), 0, look, true},
		{"the last step of an answer", answers("agent/worker-1"), steps.Answered, look, false},
		{"the last one, behind which who has asked publishes something, and a question for it", answers("agent/worker-1"), steps.Answered | steps.Published, agent("worker-3", steps.ClassPeer, "ask", "Host", "worker-1", ""), false},
		{"a step of an answer to one who answers somebody", answers(steps.PlaceAgents), 0, look, false},
		{"a call in a reconcile, and a request whose time has come", read, 0, adds, true},
		{"one that asks to be called again, and a request whose time has come", read, steps.Queued, adds, false},
		{"one for whose worker a request waits, and a worker that takes one", apartly(read, "x"), steps.Freed, apartly(take, ""), false},
		{"one for whose worker no request waits, and a worker that takes one", apartly(read, "x"), 0, apartly(take, ""), true},
		{"calls for two requests", ofRequest(read, "x"), 0, ofRequest(read, "y"), false},
		{"calls for two requests that share no memory", apartly(read, "x"), 0, apartly(read, "y"), true},
		{"two effects for such requests", apartly(effect(read), "x"), 0, apartly(effect(asksBMC), "y"), false},
		{"a call for a request, and a delivery to the cache that its reconcile reads", apartly(read, "x"), 0, process("a", steps.ClassDeliver, false, "deliver", steps.Object{Kind: "Node"}), false},
		{"a delivery that queues nothing, and a request whose time has come", process("a", steps.ClassDeliver, false, "deliver", steps.Object{Kind: "Node"}), 0, adds, true},
		{"calls for two requests of a process with a rate limit", whole(apartly(read, "x")), 0, whole(apartly(read, "y")), false},
		{"a watchdog that waits on, and the kubelet beside it", fires, 0, renews, true},
		{"a watchdog that waits on, and a question to its host", fires, 0, agent("worker-2", steps.ClassPeer, "ask", "Host", "worker-1", ""), true},
		{"a watchdog that waits on, and an agent that feeds it", fires, 0, feeds, false},
		{"a watchdog that waits on, and the power of its host", fires, 0, power("worker-1"), false},
		{"a watchdog that waits on, and a command", fires, 0, process("a", steps.ClassBMC, true, "ForceOff", steps.Object{Kind: "BMC", Name: "worker-2"}), false},
		{"a watchdog that fires, and the kubelet beside it", fires, steps.Fired, renews, false},
	} {
		if got := !tc.one.FootprintOf(tc.came).Meets(tc.other.FootprintOf(0)); got != tc.independent {
			t.Errorf("%s: independent %t, want %t: %v, %v", tc.what, got, tc.independent, tc.one.FootprintOf(tc.came), tc.other.FootprintOf(0))
		}
	}
}
