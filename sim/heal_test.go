package sim_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/page"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/simtest"
)

// at returns when the n-th event of a kind happened, counted from 1.
func at(t *testing.T, h *history.History, kind history.Kind, n int) time.Duration {
	t.Helper()
	for _, e := range h.Events() {
		if e.Kind == kind {
			if n--; n == 0 {
				return e.At
			}
		}
	}
	t.Fatalf("the history has no further %s", kind)
	return 0
}

// TestLeaseAhead: in the quiet time after a story Leases are renewed ahead, and yet a kubelet that
// dies then is missed as soon as at any other time.
func TestLeaseAhead(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	const lease = time.Second
	for _, watchdog := range []string{"10s", "47s", "95s"} {
		outcome := playOn(t, s, simtest.Compile(t, "scenario.yaml", `
apiVersion: fencelab.dev/v1alpha1
kind: Scenario
metadata: {name: late-watchdog, description: A watchdog fires long after the story.}
spec:
  topology:
    hosts: [{name: worker-1, watchdog: `+watchdog+`}]
    lease: 1s
    timings: {boot: 20s}
  controllers: [{name: reboot}]
  steps:
    - do: {stopFeeding: {host: worker-1}}
    - after: 1s
  invariants: [node-restored]
`))
		fired, silent := at(t, outcome.History, history.WatchdogFired, 1), at(t, outcome.History, history.NodeNotReady, 1)
		// Four Leases are missed, the last renewal was up to one before.
		if took := silent - fired; took < 3*lease || took > 4*lease+100*time.Millisecond {
			t.Errorf("watchdog %s: the Node was missed %s after its kubelet had died, want about %s", watchdog, took, 4*lease)
		}
		back := at(t, outcome.History, history.BootComplete, 2)
		if ready := at(t, outcome.History, history.NodeReady, 2); ready-back > lease {
			t.Errorf("watchdog %s: the Node was Ready %s after its kubelet had started", watchdog, ready-back)
		}
	}
}

// TestHealCatchesUp: what the schedule has delayed beyond the end of the story comes
// when the faults are withdrawn, in order.
func TestHealCatchesUp(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	plan := simtest.Compile(t, "scenario.yaml", `
apiVersion: fencelab.dev/v1alpha1
kind: Scenario
metadata: {name: late-deliveries, description: A cache learns of a request hours later.}
spec:
  topology:
    hosts: [{name: worker-1}]
  controllers: [{name: reboot}]
  steps:
    - do: {annotate: {object: BareMetalHost/worker-1, key: reboot.metal3.io, value: '{"mode":"hard"}'}}
    - after: 2s
  invariants: [one-cycle-per-request, annotations-cleared]
  limits: {settle: 20s}
`)
	late := plan.With([]scenarios.Deviation{{Step: "reboot.BareMetalHost/deliver/1", Delay: scenarios.Duration(3 * time.Hour)}})
	outcome := playOn(t, s, late)
	if mismatch := outcome.Meets(); mismatch != "" {
		t.Fatalf("%s\n%s", mismatch, report.Text(outcome, ""))
	}
	healed, off := at(t, outcome.History, history.Healed, 1), at(t, outcome.History, history.PowerOff, 1)
	if off < healed || off-healed > 5*time.Second {
		t.Errorf("the faults were withdrawn at %s, and the host was powered off at %s", healed, off)
	}
}

// TestTheDeadLearnNothing: a watch that expires while its process is down brings it no list, and
// nothing to do.
func TestTheDeadLearnNothing(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	plan := simtest.Compile(t, "scenario.yaml", `
apiVersion: fencelab.dev/v1alpha1
kind: Scenario
metadata: {name: down, description: A watch expires while its process is down.}
spec:
  topology: {hosts: [{name: worker-1}], lease: 1s}
  controllers: [{name: reboot, settings: {pollInterval: 1s}}, {name: remediation}]
  steps:
    - do: {crash: {controller: remediation, restartAfter: 5s}}
    - do: {expireWatch: {controller: remediation, kind: Machine}}
    - do: {annotate: {object: Machine/worker-1, key: host.metal3.io/external-remediation}}
    - when: {event: controller-started, actor: remediation}
    - when: {event: node-deleted, host: worker-1}
`)
	outcome, err := play.Run(t.Context(), plan, s.Evident(), nil)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(outcome.Artifacts, func(a play.Artifact) bool { return a.Name == page.Trace })
	if i < 0 {
		t.Fatal("there is no trace")
	}
	down, back := at(t, outcome.History, history.ControllerCrashed, 1), time.Duration(0)
	for _, e := range outcome.History.Events() {
		if e.Kind == history.ControllerStarted && e.At > down {
			back = e.At
		}
	}
	did := 0
	for line := range bytes.Lines(outcome.Artifacts[i].Data) {
		var entry struct {
			At            time.Duration
			What, Process string
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Process != "remediation" {
			continue
		}
		if did++; entry.At > down && entry.At < back {
			t.Errorf("while it is down, from %s to %s: %s", down, back, line)
		}
	}
	if did == 0 || back == 0 {
		t.Errorf("the trace has %d entries of remediation, which started again at %s", did, back)
	}
}

// TestRestless: a run in which something is missing again and again ends, and says so.
func TestRestless(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	outcome := playOn(t, s, simtest.Compile(t, "scenario.yaml", `
apiVersion: fencelab.dev/v1alpha1
kind: Scenario
metadata: {name: restless, description: A health check marks a Machine as soon as its host is back.}
spec:
  topology: {hosts: [{name: worker-1}], lease: 1s}
  healthCheck: {unhealthyAfter: 3s, nodeStartupTimeout: 60s}
  controllers:
    - {name: reboot, settings: {pollInterval: 1s}}
    - {name: remediation}
    - {name: healthcheck, overlay: [{when: {remediating: false}, then: Mark}]}
  steps:
    - after: 1s
  limits: {settle: 30s}
  invariants: [annotations-cleared]
`))
	if verdict, reason := outcome.Verdict(); verdict != invariant.Unknown || !strings.Contains(reason, "never came to rest") {
		t.Errorf("%s: %s, want that it is unknown, and why", verdict, reason)
	}
	if took := at(t, outcome.History, history.Done, 1); took > 10*time.Minute {
		t.Errorf("the run took %s", took)
	}
}
