package sim_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/backendtest"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/steps"
)

func catalog(t testing.TB) []*scenarios.Scenario {
	t.Helper()
	return storiesOf(t, "*.yaml")
}

// storiesOf returns the stories in the files of the catalog with such names.
func storiesOf(t testing.TB, names string) (all []*scenarios.Scenario) {
	t.Helper()
	files, err := filepath.Glob("../scenarios/catalog/*/" + names)
	if err != nil || len(files) == 0 {
		t.Fatalf("find %s in the catalog: %v, %d files", names, err, len(files))
	}
	vocabulary := objects.Vocabulary()
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		cells, err := file.LoadCells(path, data, vocabulary, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, cells...)
	}
	return all
}

// scenario returns the scenario of a name, which its file has, too.
func scenario(t testing.TB, name string) *scenarios.Scenario {
	t.Helper()
	for _, s := range storiesOf(t, name+".yaml") {
		if s.Metadata.Name == name {
			return s
		}
	}
	t.Fatalf("find scenario %s: its file has none of that name", name)
	return nil
}

func playOn(t testing.TB, s *sim.Simulator, plan *scenarios.Plan) *play.Outcome {
	t.Helper()
	outcome, err := play.Run(context.Background(), plan, s.Backend(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if outcome.Err != nil {
		t.Fatal(outcome.Err)
	}
	return outcome
}

// TestCatalog plays every scenario twice, the second time with the evidence for a report: it must
// come out as expected, and the same both times. No step lacks a verb, an object or a place, or
// writes nothing.
func TestCatalog(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	vocabulary := objects.Vocabulary()
	classes, lacking := map[steps.Class]int{}, map[string]bool{}
	for _, scenario := range catalog(t) {
		if worlds := scenario.Spec.Worlds; len(worlds) > 0 && !slices.Contains(worlds, "sim") {
			continue
		}
		t.Run(scenario.Metadata.Name, func(t *testing.T) {
			plan, err := scenarios.Compile(scenario, 1)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := file.LoadPlan("plan.txt", plan.Text(), vocabulary); err != nil || !cmp.Equal(plan, again) {
				t.Errorf("its plan can't be saved and read again: %v\n%s", err, cmp.Diff(plan, again))
			}
			first := playOn(t, s, plan)
			if mismatch := first.Meets(); mismatch != "" {
				t.Errorf("%s\n%s", mismatch, report.Text(first, ""))
			}
			world := s.Backend()
			world.Evidence = true
			world.Watch = func(step steps.Step) (scenarios.Deviation, bool) {
				classes[step.Class]++
				if step.Verb == "" || step.Object.Kind == "" || step.Place == "" {
					lacking[fmt.Sprintf("%s in %s: %+v", step.Class, plan.Metadata.Name, step)] = true
				}
				for _, r := range append(step.Footprint().Reads, step.Footprint().Writes...) {
					if r == "" || strings.HasSuffix(r, "/") {
						lacking[fmt.Sprintf("%s in %s has the footprint %v", step.Class, plan.Metadata.Name, step.Footprint())] = true
					}
				}
				return scenarios.Deviation{}, false
			}
			second, err := play.Run(t.Context(), plan, world, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(second.Artifacts) != 3 || len(second.Artifacts[2].Data) == 0 {
				t.Errorf("a run that is recorded has %d artifacts, want 3, with a trace", len(second.Artifacts))
			}
			if at := history.Diff(first.History, second.History); at >= 0 {
				t.Errorf("played twice, event %d differs", at+1)
			}
		})
	}
	for what := range lacking { // order does not matter: each is reported
		t.Error(what)
	}
	if len(classes) < 14 {
		t.Errorf("only the classes %v were met", classes)
	}
}

// TestEveryRule puts every preset into force in a simulated BMC, and every other rule that acts on
// its host. Rules that show only on the wire are refused. The others bend requests, with the same
// result each time.
func TestEveryRule(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	rules := []string{
		`{"effect": {"guest": {"ignore": true}}}`, `{"effect": {"guest": {"slow": "1m"}}}`, `{"effect": {"guest": {"paused": true}}}`,
		`{"effect": {"loss": {"for": "20s"}}}`, `{"effect": {"swap": "worker-2"}}`,
	}
	for _, reset := range []string{"On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi", "PowerCycle", "PushPowerButton"} {
		rules = append(rules, `{"when": {"reset": ["ForceOff"], "count": 1}, "effect": {"substitute": "`+reset+`"}}`)
	}
	for _, preset := range fakebmc.Presets() {
		rules = append(rules, `{"preset": "`+preset.Name+`"}`)
	}
	const redundant, never, unwatched = "nobody asks a host that is off to go off", "no controller asks for that", "the host has no watchdog"
	idle := map[string]string{ // rules that bend nothing in such a story
		`{"preset": "dell-redundant-off-409"}`: redundant, `{"preset": "ilo-power-is-off-400"}`: redundant, `{"preset": "swallowed-in-transition"}`: redundant,
		`{"preset": "idrac8-graceful-restart-is-hard"}`: never, `{"preset": "hpe-no-boot-change-in-post"}`: never, `{"preset": "dell-lockdown"}`: never,
		`{"preset": "cycle-ends-off"}`: never, `{"preset": "login-redirects"}`: "no controller logs in here", `{"preset": "reset-of-the-bmc-powers-on"}`: never,
		`{"preset": "openbmc-watchdog-resets"}`: unwatched, `{"preset": "openbmc-watchdog-powers-on"}`: unwatched,
	}
	story := scenario(t, "cut-off-host")
	steps, soft := story.Spec.Steps, scenario(t, "hold")
	for _, rule := range rules {
		t.Run(rule, func(t *testing.T) {
			fault := &scenarios.FaultOp{Name: "fault", Host: steps[0].Do.Cut.Host, Rule: json.RawMessage(rule)}
			bent := *story
			bent.Spec.Steps = append([]scenarios.Step{{Do: &scenarios.Op{AddFault: fault}}}, steps...)
			plan, err := scenarios.Compile(&bent, 1)
			if err != nil {
				t.Fatal(err)
			}
			for _, need := range objects.FaultNeeds(fault.Rule) {
				if sim.Capabilities.Lacks[need.Needs] == "" {
					continue
				}
				var refusal *play.Unsupported
				if _, err := s.Backend().Start(context.Background(), plan); !errors.As(err, &refusal) || len(refusal.Reasons) != 1 || !strings.Contains(refusal.Reasons[0], need.What) {
					t.Errorf("%s needs what there is not here, and Start says: %v", need.What, err)
				}
				return
			}
			first, second := playOn(t, s, plan), playOn(t, s, plan)
			bends := func(o *play.Outcome) bool {
				return slices.ContainsFunc(o.History.Events(), func(e history.Event) bool { return e.Kind == history.BMCFault && e.Value == "fault" })
			}
			if !bends(first) {
				softly := *soft
				softly.Spec.Steps = append([]scenarios.Step{{Do: &scenarios.Op{AddFault: fault}}}, soft.Spec.Steps...)
				if plan, err = scenarios.Compile(&softly, 1); err != nil {
					t.Fatal(err)
				}
				if bent, why := bends(playOn(t, s, plan)), idle[rule]; bent == (why != "") {
					t.Errorf("the rule bends something, of a hard reboot or of a soft one: %t; the table says why nothing: %q", bent, why)
				}
			}
			if at := history.Diff(first.History, second.History); at >= 0 {
				t.Errorf("played twice, event %d differs", at+1)
			}
		})
	}
}

// TestRequestLog reads the BMCs' log that goes with a report: it has every request, even an
// unanswered one, at the times of the history.
func TestRequestLog(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	story := scenario(t, "cut-off-host")
	host := story.Spec.Steps[0].Do.Cut.Host
	held := &scenarios.FaultOp{Name: "held", Host: host, Rule: json.RawMessage(`{"when": {"reset": ["On"]}, "effect": {"delay": "24h"}}`)}
	story.Spec.Steps = append([]scenarios.Step{{Do: &scenarios.Op{AddFault: held}}}, story.Spec.Steps...)
	plan, err := scenarios.Compile(story, 1)
	if err != nil {
		t.Fatal(err)
	}
	backend := s.Backend()
	backend.Evidence = true
	outcome, err := play.Run(context.Background(), plan, backend, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(outcome.Artifacts) != 3 || outcome.Artifacts[0].Name != "api.json" || outcome.Artifacts[1].Name != "bmc.jsonl" || outcome.Artifacts[2].Name != "trace.jsonl" {
		t.Fatalf("the run left %d artifacts beside its history, want api.json, bmc.jsonl and trace.jsonl", len(outcome.Artifacts))
	}
	var dumped []struct{ Kind string }
	if err := json.Unmarshal(outcome.Artifacts[0].Data, &dumped); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"Node", "BareMetalHost", "Machine"} {
		if !slices.ContainsFunc(dumped, func(obj struct{ Kind string }) bool { return obj.Kind == kind }) {
			t.Errorf("api.json has no %s:\n%s", kind, outcome.Artifacts[0].Data)
		}
	}
	type key struct {
		host, client string
		reset        fakebmc.ResetType
		at           time.Duration
	}
	records := map[key]fakebmc.Record{}
	hosts := map[string]int{}
	for lines := bufio.NewScanner(bytes.NewReader(outcome.Artifacts[1].Data)); lines.Scan(); {
		var r fakebmc.Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%v in %s", err, lines.Bytes())
		}
		records[key{r.Host, r.Request.Client, r.Request.ResetType, r.Received}] = r
		hosts[r.Host]++
	}
	for _, h := range story.Spec.Topology.Hosts {
		if hosts[h.Name] == 0 {
			t.Errorf("no request to the BMC of %s in %v", h.Name, hosts)
		}
	}
	answered, waiting := 0, 0
	for _, e := range outcome.History.Events() {
		if e.Kind != history.BMCCommand {
			continue
		}
		r, ok := records[key{e.Host, e.Actor, fakebmc.ResetType(e.Value), e.At}]
		switch {
		case !ok:
			t.Errorf("%s is not in the log", e)
		case e.Value == "On" && e.Host == host && r.Answered == fakebmc.Never && r.Executed == fakebmc.Never && slices.Equal(r.Rules, []string{"held"}):
			waiting++
		case r.Answered == e.At && r.Executed == e.At && r.Answer.Err() == nil:
			answered++
		default:
			t.Errorf("%s is in the log as %+v", e, r)
		}
	}
	if answered == 0 || waiting == 0 {
		t.Errorf("of the resets in the log %d were answered and %d wait, want some of each", answered, waiting)
	}
	if again, err := backend.Stop(); err != nil || again != nil {
		t.Errorf("stopped twice, the run leaves %v, %v", again, err)
	}
	if searched := playOn(t, s, plan); len(searched.Artifacts) > 0 || searched.History.Digest() != outcome.History.Digest() {
		t.Errorf("without a report the run leaves %v, and its digest is %s instead of %s", searched.Artifacts, searched.History.Digest(), outcome.History.Digest())
	}
}

func TestBackend(t *testing.T) {
	backendtest.Run(t, sim.Capabilities, func(t testing.TB) play.Backend {
		s, err := sim.New() // one plays a run at a time
		if err != nil {
			t.Fatal(err)
		}
		return s.Backend()
	})
}

// TestIdleRefusal: a failAPI that refuses nothing tests nothing.
func TestIdleRefusal(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"Secret", "BareMetalHost"} {
		story := scenario(t, "cut-off-host")
		fail := scenarios.Step{Do: &scenarios.Op{FailAPI: &scenarios.FailAPIOp{Controller: "reboot", Verb: "patch", Kind: kind, Code: 500, Times: 1}}}
		story.Spec.Steps = append([]scenarios.Step{fail}, story.Spec.Steps...)
		plan, err := scenarios.Compile(story, 1)
		if err != nil {
			t.Fatal(err)
		}
		mismatch := playOn(t, s, plan).Meets()
		if idle := strings.Contains(mismatch, "refused no request"); idle != (kind == "Secret") || !idle && mismatch != "" {
			t.Errorf("patches of a %s are refused once: %s", kind, mismatch)
		}
	}
}

// TestNodeNames plays a remediation of hosts whose Nodes are not called like them:
// it is the same story.
func TestNodeNames(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	story := scenario(t, "cut-off-host")
	for i := range story.Spec.Topology.Hosts {
		// Each has the name of another host.
		story.Spec.Topology.Hosts[i].NodeName = fmt.Sprintf("worker-%d", len(story.Spec.Topology.Hosts)-i)
	}
	plan, err := scenarios.Compile(story, 1)
	if err != nil {
		t.Fatal(err)
	}
	outcome := playOn(t, s, plan)
	if mismatch := outcome.Meets(); mismatch != "" {
		t.Errorf("%s\n%s", mismatch, report.Text(outcome, ""))
	}
	deleted := slices.ContainsFunc(outcome.History.Events(), func(e history.Event) bool {
		return e.Kind == history.NodeDeleted && e.Host == "worker-1" && e.Object == "Node/"+story.Spec.Topology.Hosts[0].NodeName
	})
	if !deleted {
		t.Error("the Node of worker-1 was not deleted under its name")
	}
}

// TestAdoption plays a remediation that is over before the garbage collection of
// the host's Pod: the kubelet of the next boot adopts the Pod, which stays. Without
// garbage collection's delay the Pod moves.
func TestAdoption(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, podGC := range []time.Duration{0, time.Minute} {
		story := scenario(t, "cut-off-host")
		home := story.Spec.Topology.Workload.Host
		story.Spec.Topology.PodGC = scenarios.Duration(podGC)
		story.Spec.Steps = []scenarios.Step{
			{Do: &scenarios.Op{StopKubelet: &scenarios.HostOp{Host: home}}},
			{When: scenarios.Trigger{Event: string(history.NodeDeleted), Host: home}},
			{When: scenarios.Trigger{Event: string(history.WorkloadStarted)}},
		}
		plan, err := scenarios.Compile(story, 1)
		if err != nil {
			t.Fatal(err)
		}
		outcome := playOn(t, s, plan)
		if mismatch := outcome.Meets(); mismatch != "" {
			t.Errorf("pod GC after %s: %s\n%s", podGC, mismatch, report.Text(outcome, ""))
		}
		var started []history.Event
		for _, e := range outcome.History.Events() {
			if e.Kind == history.WorkloadStarted {
				started = append(started, e)
			}
		}
		if len(started) != 2 {
			t.Fatalf("pod GC after %s: the workload started %d times, want twice", podGC, len(started))
		}
		stays := started[1].Host == home && started[1].UID == started[0].UID
		if stays != (podGC > 0) {
			t.Errorf("pod GC after %s: after the remediation came %s", podGC, started[1])
		}
	}
}

// TestBadDeviation: a deviation that names no step is a mistake, not
// a schedule.
func TestBadDeviation(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := scenarios.Compile(catalog(t)[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"", "remediation", "remediation/api", "remediation/api/0", "remediation/api/x", "remediation/api/01", "a/b/c/1"} {
		bad := plan.With([]scenarios.Deviation{{Step: step}})
		if _, err := s.Backend().Start(context.Background(), bad); err == nil {
			t.Errorf("the step %q was accepted", step)
		}
	}
}

// untold are the presets without a story in the catalogue, each with the reason.
var untold = map[string]string{
	"idrac8-graceful-restart-is-hard": unasked, "cycle-ends-off": unasked, "reset-of-the-bmc-powers-on": unasked, "ipmi-cycle-answers-first": unasked,
	"hpe-no-boot-change-in-post": settingsOnly, "dell-lockdown": settingsOnly, "target-before-enabled": settingsOnly,
	"session-limit": wireOnly, "idrac8-basic-only": wireOnly, "ami-etag-required": wireOnly, "idrac10-etag-rejected": wireOnly,
	"cimc-login-without-location": wireOnly, "no-managed-by": wireOnly, "hpe-406-identity": wireOnly, "login-redirects": wireOnly,
	"openbmc-watchdog-resets": watchdogOnly, "openbmc-watchdog-powers-on": watchdogOnly,
}

const (
	unasked      = "no controller asks for such a reset"
	settingsOnly = "no controller changes settings of a host"
	wireOnly     = "a client has to come over HTTP: fakebmc/redfish shows it"
	watchdogOnly = "no controller sets a BMC's watchdog"
)

// TestPresetsHaveStories: each misbehaviour of real BMCs has a story in the catalogue, or a reason
// why it has none.
func TestPresetsHaveStories(t *testing.T) {
	told := map[string]bool{}
	for _, scenario := range catalog(t) {
		for _, step := range scenario.Spec.Steps {
			if step.Do == nil || step.Do.AddFault == nil {
				continue
			}
			var rule fakebmc.Rule
			if err := json.Unmarshal(step.Do.AddFault.Rule, &rule); err != nil {
				t.Fatal(err)
			}
			if rule.Preset != "" {
				told[rule.Preset] = true
			}
		}
	}
	for _, p := range fakebmc.Presets() {
		switch why := untold[p.Name]; {
		case told[p.Name] && why != "":
			t.Errorf("%s has a story; it needs no reason for having none: %s", p.Name, why)
		case !told[p.Name] && why == "":
			t.Errorf("%s has neither a story nor a reason for having none", p.Name)
		}
		delete(untold, p.Name)
	}
	if len(untold) > 0 {
		t.Errorf("there are reasons for presets that aren't there: %v", untold)
	}
}
