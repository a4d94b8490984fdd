package sim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/simtest"
)

// The beginnings of TestBadInput's stories, and the event that starts the controllers' work.
const (
	withReboot = `
  topology: {hosts: [{name: worker-1}, {name: worker-2}], workload: {host: worker-1}, lease: 1s}
  controllers:
    - {name: reboot, settings: {pollInterval: 1s}}
`
	withRemediation = withReboot + `    - {name: remediation}
`
	withHealthCheck = withRemediation + `    - {name: healthcheck}
  healthCheck: {unhealthyAfter: 5s, nodeStartupTimeout: 60s}
`
	withDeletion = withReboot + `    - {name: deletion, settings: {pollInterval: 1s}}
`
	withPoisonPill = `
  topology: {workers: {count: 3, watchdog: 6s}, workload: {host: worker-1}, lease: 1s}
  controllers:
    - {name: poisonpill, settings: {interval: 2s, requestTimeout: 1500ms, peerTimeout: 2s, recreateAfter: 1s}}
`
	marked  = `annotate: {object: Machine/worker-1, key: host.metal3.io/external-remediation}`
	deleted = `delete: {object: Machine/worker-1}`
	cutOff  = `cut: {host: worker-1}`
	fenced  = `event: node-deleted, host: worker-1`
	isOn    = `event: boot-complete, host: worker-1`
)

// TestBadInput gives each controller bad input. The controller reports it in an Event or a
// condition, or goes on as if nothing were wrong; it never panics; and once the input is put right,
// it does its work. Every guarantee is held, including those of a host that must not stay off.
func TestBadInput(t *testing.T) {
	huge := strings.Repeat("x", 100_000)
	says := func(who, reason string) string {
		return "event: controller-warning, actor: " + who + ", value: " + reason
	}
	patched := func(object, merge string) string { return "patch: {object: " + object + ", merge: " + merge + "}" }
	annotated := func(object, key, value string) string {
		return fmt.Sprintf("annotate: {object: %s, key: %s, value: %q}", object, key, value)
	}
	for _, row := range []struct {
		name, of string
		// spoil is the bad input, begin what the controllers then have to do, and mend puts the
		// input right; each may be empty.
		spoil, begin, mend string
		// told is the report to users, and end the required outcome.
		told, end string
	}{
		{"a mode that is none", withReboot, annotated("BareMetalHost/worker-1", "reboot.metal3.io", `{"mode":`), "", "",
			says("reboot", "RebootAnnotationNotUnderstood"), isOn},
		{"a huge mode", withReboot, annotated("BareMetalHost/worker-1", "reboot.metal3.io", huge), "", "",
			says("reboot", "RebootAnnotationNotUnderstood"), isOn},
		{"a huge hold", withReboot, annotated("BareMetalHost/worker-1", "reboot.metal3.io/technician", huge), "",
			"removeAnnotation: {object: BareMetalHost/worker-1, key: reboot.metal3.io/technician}", "event: power-off, host: worker-1", isOn},
		{"a boot at the end of time", withReboot, patched("BareMetalHost/worker-1", `{status: {provisioning: {lastPoweredOn: "9999-12-31T23:00:00.000000Z"}}}`),
			annotated("BareMetalHost/worker-1", "reboot.metal3.io", ""), "", "", isOn},
		{"failures below nothing", withReboot, patched("BareMetalHost/worker-1", `{status: {errorType: power management error, errorCount: -5}}`), "", "",
			"event: power-error, host: worker-1, value: \"false\"", ""},
		{"failures without end", withReboot, patched("BareMetalHost/worker-1", `{status: {errorType: power management error, errorCount: 9223372036854775807}}`), "", "",
			"event: power-error, host: worker-1, value: \"false\"", ""},
		{"an answer to nobody", withReboot, patched("BareMetalHost/worker-1", `{status: {provisioning: {heldOffFor: {nobody: nothing}}}}`), "", "",
			"event: held-off-for, host: worker-1", ""},

		{"a huge mark", withRemediation, "", annotated("Machine/worker-1", "host.metal3.io/external-remediation", huge), "", "", fenced},
		{"the Node of another", withRemediation, patched("Machine/worker-1", "{status: {nodeRef: {name: worker-2}}}"), marked,
			patched("Machine/worker-1", "{status: {nodeRef: {name: worker-1}}}"), says("remediation", "NodeOfAnotherMachine"), fenced},
		{"a host that is none", withRemediation, annotated("Machine/worker-1", "metal3.io/BareMetalHost", "x"), marked,
			annotated("Machine/worker-1", "metal3.io/BareMetalHost", "default/worker-1"), says("remediation", "HostOfAnotherMachine"), fenced},
		{"a huge name of a host", withRemediation, annotated("Machine/worker-1", "metal3.io/BareMetalHost", huge), marked,
			annotated("Machine/worker-1", "metal3.io/BareMetalHost", "default/worker-1"), says("remediation", "HostOfAnotherMachine"), fenced},
		{"a consumer that isn't there", withRemediation, patched("BareMetalHost/worker-1", "{spec: {consumerRef: {kind: Machine, name: nobody}}}"), marked,
			patched("BareMetalHost/worker-1", "{spec: {consumerRef: {kind: Machine, name: worker-1}}}"), says("remediation", "HostOfAnotherMachine"), fenced},
		{"a consumer of another kind", withRemediation, patched("BareMetalHost/worker-1", "{spec: {consumerRef: {kind: Server, name: worker-1}}}"), marked,
			patched("BareMetalHost/worker-1", "{spec: {consumerRef: {kind: Machine, name: worker-1}}}"), says("remediation", "HostOfAnotherMachine"), fenced},

		{"a limit that is none", withHealthCheck, patched("MachineHealthCheck/fencelab", "{spec: {remediation: {triggerIf: {unhealthyLessThanOrEqualTo: many}}}}"), cutOff,
			patched("MachineHealthCheck/fencelab", "{spec: {remediation: {triggerIf: {unhealthyLessThanOrEqualTo: 2}}}}"), says("healthcheck", "Invalid"), fenced},
		{"a selector that is none", withHealthCheck, patched("MachineHealthCheck/fencelab", "{spec: {selector: {matchExpressions: [{key: a, operator: Resembles}]}}}"), cutOff,
			patched("MachineHealthCheck/fencelab", "{spec: {selector: {matchExpressions: null}}}"), says("healthcheck", "Invalid"), fenced},
		{"the longest start", withHealthCheck, patched("MachineHealthCheck/fencelab", "{spec: {checks: {nodeStartupTimeoutSeconds: 2147483647}}}"), cutOff, "", "", fenced},
		{"a Machine of no host", withHealthCheck, "removeAnnotation: {object: Machine/worker-1, key: metal3.io/BareMetalHost}", cutOff,
			annotated("Machine/worker-1", "metal3.io/BareMetalHost", "default/worker-1"), says("healthcheck", "NoSuchHost"), fenced},

		{"a deleted Machine of no host", withDeletion, "removeAnnotation: {object: Machine/worker-1, key: metal3.io/BareMetalHost}", deleted,
			annotated("Machine/worker-1", "metal3.io/BareMetalHost", "default/worker-1"), says("deletion", "HostUnknown"), "event: machine-deleted, host: worker-1"},
		{"a consumer with another UID", withDeletion, patched("BareMetalHost/worker-1", "{spec: {consumerRef: {uid: another}}}"), deleted,
			patched("BareMetalHost/worker-1", "{spec: {consumerRef: {uid: null}}}"), says("deletion", "HostUnknown"), "event: machine-deleted, host: worker-1"},
		{"the Node of another for a deleted Machine", withDeletion, patched("Machine/worker-1", "{status: {nodeRef: {name: worker-2}}}"), deleted, "",
			says("deletion", "NodeOfAnotherMachine"), "event: machine-deleted, host: worker-1"},
		{"a huge hook", withDeletion, annotated("Machine/worker-1", "pre-drain.delete.hook.machine.cluster.x-k8s.io/x", huge), deleted,
			"removeAnnotation: {object: Machine/worker-1, key: pre-drain.delete.hook.machine.cluster.x-k8s.io/x}", "event: deletion-phase, host: worker-1, value: WaitingForPreDrainHook",
			"event: machine-deleted, host: worker-1"},

		{"no Node", withPoisonPill, patched("Machine/worker-1", "{status: {nodeRef: null}}"), marked,
			patched("Machine/worker-1", "{status: {nodeRef: {name: worker-1}}}"), "event: controller-warning, value: NoNode", "event: fence-ended, host: worker-1"},
		{"the Node of another for agents", withPoisonPill, patched("Machine/worker-1", "{spec: {providerID: another}}"), marked,
			patched("Machine/worker-1", "{spec: {providerID: metal3://default/worker-1}}"), "event: controller-warning, value: NoNode", "event: fence-ended, host: worker-1"},
		{"a stamp that is none", withPoisonPill, annotated("Node/worker-1", "poison-pill.fencelab.dev/fenced", "?"), marked, "", "", "event: fence-ended, host: worker-1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var steps []string
			step := func(name, when, do string) {
				fields := []string{fmt.Sprintf("name: %q", name)}
				if when != "" {
					fields = append(fields, "when: {"+when+", since: start}")
				} else if do != row.mend {
					fields = append(fields, "after: 15s") // as long as agents take to know each other
				}
				if do != "" {
					fields = append(fields, "do: {"+do+"}")
				}
				if when != "" || do != "" {
					steps = append(steps, "    - {"+strings.Join(fields, ", ")+"}\n")
				}
			}
			step("the agents know each other", "", "heal: {}")
			step("bad input", "", row.spoil)
			step("there is something to do", "", row.begin)
			step("users are told", row.told, "")
			step("it is put right", "", row.mend)
			step("it is done", row.end, "")
			text := "apiVersion: fencelab.dev/v1alpha1\nkind: Scenario\nmetadata: {name: bad-input, description: " + row.name + "}\nspec:" + row.of + "  steps:\n" + strings.Join(steps, "")
			s, err := sim.New()
			if err != nil {
				t.Fatal(err)
			}
			outcome := playOn(t, s, simtest.Compile(t, "bad-input.yaml", text))
			for _, e := range outcome.History.Events() {
				if e.Kind == history.ControllerError && strings.Contains(e.Value, "panic") {
					t.Errorf("%s", e)
				}
				if e.Kind == history.ControllerWarning && len(e.Note) > 1000 {
					t.Errorf("the Event %s of %s has %d bytes: who reads it sees but the beginning", e.Value, e.Actor, len(e.Note))
				}
			}
			if verdict, why := outcome.Verdict(); verdict != invariant.Held {
				t.Errorf("%s: %s", verdict, why)
			}
		})
	}
}
