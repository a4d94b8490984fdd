package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// set has controllers that play together, and the protocol by which they end a host and bring it
// back, as the phases of one host, HOST, that its steps lead to, one after the other.
type set struct {
	name     string
	like     string // the set whose operations concern it, if not its own
	topology string // what the topology has beside three hosts, and the spec beside the topology
	spec     string
	// processes are the controllers that crash, stand still and lag. On says the host that they run
	// on, if they run on hosts.
	processes []string
	onHost    bool
	// onVolume says that they play only where the workload has a volume.
	onVolume bool
	// unseen is in how many of the phases, the first ones, no controller ends a host that hangs. A
	// detach by Kubernetes' six minutes would take the volume from a host that may still write, and
	// is switched off there.
	unseen int
	phases []phase
}

// phase is a moment of a protocol, with the steps that lead there from the phase before.
type phase struct {
	name  string
	steps []string
}

// operation is one of the language, done to a host in a phase and, a while later, taken back.
type operation struct {
	name, do, undo string
	// of are the sets that it concerns; none stands for all.
	of []string
	// onVolume says that it needs a workload that has a volume.
	onVolume bool
}

const (
	external = "host.metal3.io/external-remediation"
	held     = "reboot.metal3.io/machine-remediation"
	hook     = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/backup"
)

// The ways on from a host that is off, for those whose host loses its network.
var back = []phase{
	{"off", []string{"when: {event: power-off, host: HOST, since: start}"}},
	{"nodeGone", []string{"when: {event: node-deleted, host: HOST, since: start}"}},
	{"booting", []string{"do: {restore: {host: HOST}}", "when: {event: boot-started, host: HOST}"}},
	{"back", []string{"when: {event: node-ready, host: HOST}"}},
}

var sets = []set{
	{
		name:      "checked",
		spec:      "healthCheck: {unhealthyAfter: 6s, nodeStartupTimeout: 90s}\n  controllers: [{name: reboot, settings: {pollInterval: 1s}}, {name: remediation}, {name: healthcheck}]",
		processes: []string{"reboot", "remediation", "healthcheck"},
		phases: append([]phase{
			{"idle", nil},
			{"marked", []string{"do: {cut: {host: HOST}}", "when: {event: annotation-set, host: HOST, key: " + external + "}"}},
			{"asked", []string{"when: {event: annotation-set, host: HOST, key: " + held + "}"}},
			{"goingOff", []string{"when: {event: bmc-command, host: HOST, since: start}"}},
		}, back...),
	},
	{
		name:      "unpowered",
		spec:      "healthCheck: {unhealthyAfter: 6s, nodeStartupTimeout: 90s}\n  controllers: [{name: remediation}, {name: healthcheck}]",
		processes: []string{"remediation", "healthcheck"}, unseen: 3,
		phases: []phase{
			{"idle", nil},
			{"marked", []string{"do: {cut: {host: HOST}}", "when: {event: annotation-set, host: HOST, key: " + external + "}"}},
			{"asked", []string{"when: {event: annotation-set, host: HOST, key: " + held + "}"}},
		},
	},
	{
		name:      "marked",
		spec:      "controllers: [{name: reboot, settings: {pollInterval: 1s}}, {name: remediation, settings: {keepMarkUntilNodeReturns: true}}]",
		processes: []string{"reboot", "remediation"}, unseen: 1,
		phases: append([]phase{
			{"idle", nil},
			{"marked", []string{"do: {cut: {host: HOST}}", "do: {annotate: {object: Machine/HOST, key: " + external + "}}"}},
			{"asked", []string{"when: {event: annotation-set, host: HOST, key: " + held + "}"}},
			{"goingOff", []string{"when: {event: bmc-command, host: HOST, since: start}"}},
		}, back...),
	},
	{
		name:      "rebooted",
		spec:      "controllers: [{name: reboot, settings: {pollInterval: 1s, softTimeout: 20s}}]",
		processes: []string{"reboot"}, unseen: 6,
		phases: []phase{
			{"idle", nil},
			{"asked", []string{"do: {annotate: {object: BareMetalHost/HOST, key: reboot.metal3.io}}"}},
			{"goingOff", []string{"when: {event: bmc-command, host: HOST}"}},
			{"off", []string{"when: {event: power-off, host: HOST}"}},
			{"booting", []string{"when: {event: boot-started, host: HOST}"}},
			{"back", []string{"when: {event: node-ready, host: HOST}"}},
		},
	},
	{
		name:      "deleted",
		spec:      "controllers: [{name: reboot, settings: {pollInterval: 1s, softTimeout: 20s}}, {name: deletion, settings: {pollInterval: 1s}}]",
		processes: []string{"reboot", "deletion"}, unseen: 6,
		phases: []phase{
			{"idle", nil},
			{"leaving", []string{"do: {delete: {object: Machine/HOST}}"}},
			{"asked", []string{"when: {event: annotation-set, host: HOST, key: reboot.metal3.io/machine-deletion}"}},
			{"goingOff", []string{"when: {event: bmc-command, host: HOST}"}},
			{"off", []string{"when: {event: power-off, host: HOST}"}},
			{"nodeGone", []string{"when: {event: node-deleted, host: HOST, since: start}"}},
		},
	},
	{
		name:      "hooked",
		spec:      "controllers: [{name: reboot, settings: {pollInterval: 1s, softTimeout: 20s}}, {name: deletion, settings: {pollInterval: 1s}}]",
		processes: []string{"reboot", "deletion"}, unseen: 3,
		phases: []phase{
			{"waiting", []string{"do: {annotate: {object: Machine/HOST, key: " + hook + ", value: backup}}", "do: {delete: {object: Machine/HOST}}", "when: {event: deletion-phase, host: HOST, value: WaitingForPreTerminateHook}"}},
			{"released", []string{"do: {removeAnnotation: {object: Machine/HOST, key: " + hook + "}}"}},
			{"off", []string{"when: {event: power-off, host: HOST}"}},
		},
	},
	{
		name:      "fenced",
		topology:  ", watchdog: 6s",
		spec:      "healthCheck: {unhealthyAfter: 6s, nodeStartupTimeout: 120s}\n  controllers: [{name: poisonpill, settings: {interval: 2s, requestTimeout: 1500ms, peerTimeout: 2s, recreateAfter: 1s}}, {name: healthcheck}]\n  assumes: [watchdogs-fire]",
		processes: []string{"poisonpill"}, onHost: true,
		phases: []phase{
			{"idle", []string{"after: 15s"}},
			{"cutOff", []string{"do: {cut: {host: HOST}}", "after: 1s"}},
			{"marked", []string{"when: {event: annotation-set, host: HOST, key: " + external + "}"}},
			{"declared", []string{"when: {event: fence-requested, host: HOST, since: start}"}},
			{"safeTime", []string{"when: {event: node-cordoned, host: HOST, since: start}"}},
			{"off", []string{"when: {event: boot-ended, host: HOST, since: start}"}},
			{"nodeGone", []string{"when: {event: node-deleted, host: HOST, since: start}"}},
			{"back", []string{"do: {restore: {host: HOST}}", "when: {event: node-ready, host: HOST}"}},
		},
	},
	{
		name:      "tainted",
		like:      "checked",
		spec:      "healthCheck: {unhealthyAfter: 6s, nodeStartupTimeout: 90s}\n  controllers: [{name: reboot, settings: {pollInterval: 1s}}, {name: remediation, settings: {release: out-of-service-taint}}, {name: healthcheck}]",
		processes: []string{"reboot", "remediation", "healthcheck"}, onVolume: true,
		phases: []phase{
			{"off", []string{"do: {cut: {host: HOST}}", "when: {event: power-off, host: HOST, since: start}"}},
			{"outOfService", []string{"when: {event: node-out-of-service, host: HOST, since: start}"}},
			{"released", []string{"when: {event: node-in-service, host: HOST, since: start}"}},
			{"booting", []string{"do: {restore: {host: HOST}}", "when: {event: boot-started, host: HOST, since: start}"}},
			{"back", []string{"when: {event: node-ready, host: HOST, since: start}"}},
		},
	},
	{
		name:      "remade",
		like:      "checked",
		spec:      "healthCheck: {unhealthyAfter: 6s, nodeStartupTimeout: 90s}\n  controllers: [{name: reboot, settings: {pollInterval: 1s}}, {name: remediation, settings: {release: node-recreation}}, {name: healthcheck}]",
		processes: []string{"reboot", "remediation", "healthcheck"}, onVolume: true,
		phases: []phase{
			{"off", []string{"do: {cut: {host: HOST}}", "when: {event: power-off, host: HOST, since: start}"}},
			{"nodeGone", []string{"when: {event: node-deleted, host: HOST, since: start}"}},
			{"remade", []string{"when: {event: node-created, host: HOST, since: start}"}},
			{"booting", []string{"do: {restore: {host: HOST}}", "when: {event: boot-started, host: HOST, since: start}"}},
			{"back", []string{"when: {event: node-ready, host: HOST, since: start}"}},
		},
	},
	{
		name:      "starved",
		topology:  ", watchdog: 10s",
		spec:      "controllers: [{name: watchdog}]\n  assumes: [watchdogs-fire]",
		processes: []string{"watchdog"}, onHost: true,
		phases: []phase{
			{"idle", nil},
			{"cutOff", []string{"do: {cut: {host: HOST}}", "after: 3s"}},
			{"reset", []string{"when: {event: watchdog-fired, host: HOST}"}},
			{"booting", []string{"when: {event: boot-complete, host: HOST}"}},
			{"back", []string{"do: {restore: {host: HOST}}", "when: {event: node-ready, host: HOST}"}},
		},
	},
}

// operations are done to HOST; ANY stands for each process of the set.
var operations = []operation{
	{name: "nothing"},
	{name: "cut", do: "cut: {host: HOST}", undo: "restore: {host: HOST}"},
	{name: "stopKubelet", do: "stopKubelet: {host: HOST}"},
	{name: "stopFeeding", do: "stopFeeding: {host: HOST}", of: []string{"fenced", "starved"}},
	{name: "stopAgent", do: "stopAgent: {host: HOST}", of: []string{"fenced", "starved"}},
	{name: "ignoreShutdown", do: "ignoreShutdown: {host: HOST}"},
	{name: "pause", do: "pause: {host: HOST}", undo: "resume: {host: HOST}"},
	{name: "hang", do: "hang: {host: HOST}"},
	{name: "panic", do: "panic: {host: HOST}"},
	{name: "powerLoss", do: "powerLoss: {host: HOST}", undo: "powerUp: {host: HOST}"},
	{name: "powerLost", do: "powerLoss: {host: HOST}"},
	{name: "button", do: "powerUp: {host: HOST}"},
	{name: "lateOn", do: "addFault: {name: late, host: HOST, rule: {when: {reset: [\"On\"], count: 1}, effect: {delay: 12s}}}", undo: "removeFault: {name: late}"},
	{name: "away", do: "addFault: {name: away, host: HOST, rule: {effect: {unreachable: true}}}", undo: "removeFault: {name: away}"},
	{name: "lag", do: "addFault: {name: lag, host: HOST, rule: {effect: {lag: 4s}}}", undo: "removeFault: {name: lag}"},
	{name: "deaf", do: "addFault: {name: deaf, host: HOST, rule: {when: {reset: [ForceOff]}, effect: {ignore: true}}}", undo: "removeFault: {name: deaf}"},
	{name: "bmcMoved", do: "moveBMC: {host: HOST, to: spare}", undo: "moveBMC: {host: HOST}"},
	{name: "crash-ANY", do: "crash: {controller: ANY, restartAfter: 2s}"},
	{name: "each-ANY", do: "crash: {controller: ANY, each: true, restartAfter: 1s}"},
	{name: "pause-ANY", do: "pauseController: {controller: ANY}", undo: "resumeController: {controller: ANY}"},
	{name: "second-ANY", do: "startSecond: {controller: ANY}", undo: "stopSecond: {controller: ANY}"},
	{name: "ahead-ANY", do: "setClock: {controller: ANY, ahead: 10m}", undo: "setClock: {controller: ANY}"},
	{name: "freeze-ANY", do: "freezeCache: {controller: ANY, kind: KIND}", undo: "thawCache: {controller: ANY, kind: KIND}"},
	{name: "expire-ANY", do: "expireWatch: {controller: ANY, kind: KIND}"},
	{name: "hostsClockAhead", do: "setClock: {host: HOST, ahead: 10m}", undo: "setClock: {host: HOST}"},
	{name: "machinePaused", do: "annotate: {object: Machine/HOST, key: cluster.x-k8s.io/paused}", undo: "removeAnnotation: {object: Machine/HOST, key: cluster.x-k8s.io/paused}"},
	{name: "machineSkipped", do: "annotate: {object: Machine/HOST, key: cluster.x-k8s.io/skip-remediation}", undo: "removeAnnotation: {object: Machine/HOST, key: cluster.x-k8s.io/skip-remediation}"},
	{name: "rebootAsked", do: "annotate: {object: BareMetalHost/HOST, key: reboot.metal3.io}", undo: "removeAnnotation: {object: BareMetalHost/HOST, key: reboot.metal3.io}", of: []string{"checked", "marked", "rebooted", "deleted", "hooked"}},
	{name: "heldByAnother", do: "annotate: {object: BareMetalHost/HOST, key: reboot.metal3.io/backup}", undo: "removeAnnotation: {object: BareMetalHost/HOST, key: reboot.metal3.io/backup}", of: []string{"checked", "marked", "rebooted", "deleted", "hooked"}},
	{name: "heldHardByAnother", do: `annotate: {object: BareMetalHost/HOST, key: reboot.metal3.io/backup, value: '{"mode":"hard"}'}`, undo: "removeAnnotation: {object: BareMetalHost/HOST, key: reboot.metal3.io/backup}", of: []string{"checked", "marked", "rebooted", "deleted", "hooked"}},
	{name: "markedByUser", do: "annotate: {object: Machine/HOST, key: " + external + "}", undo: "removeAnnotation: {object: Machine/HOST, key: " + external + "}", of: []string{"checked", "marked", "fenced"}},
	{name: "markWithdrawn", do: "removeAnnotation: {object: Machine/HOST, key: " + external + "}", of: []string{"checked", "marked", "fenced"}},
	{name: "wantedOff", do: "setOnline: {host: HOST, online: false}", undo: "setOnline: {host: HOST, online: true}", of: []string{"checked", "marked", "rebooted"}},
	{name: "cordon", do: "patch: {object: Node/HOST, merge: {spec: {unschedulable: true}}}", undo: "patch: {object: Node/HOST, merge: {spec: {unschedulable: false}}}"},
	{name: "label", do: "patch: {object: Node/HOST, merge: {metadata: {labels: {rack: b7}}}}"},
	{name: "strangersFinalizer", do: "patch: {object: Node/HOST, merge: {metadata: {finalizers: [example.com/x]}}}", undo: "patch: {object: Node/HOST, merge: {metadata: {finalizers: null}}}"},
	{name: "nodeKept", do: "patch: {object: Node/HOST, merge: {metadata: {finalizers: [example.com/x]}}}"},
	{name: "podKept", do: "patch: {object: Pod/exclusive, merge: {metadata: {finalizers: [example.com/x]}}}"},
	{name: "taint", do: "patch: {object: Node/HOST, merge: {spec: {taints: [{key: example.com/x, effect: NoSchedule}]}}}"},
	{name: "nodeDeleted", do: "delete: {object: Node/HOST}"},
	{name: "machineDeleted", do: "delete: {object: Machine/HOST}"},
	{name: "madeAnew", do: "delete: {object: BareMetalHost/HOST}", undo: "create: {object: BareMetalHost/HOST}"},
	{name: "detached", do: "annotate: {object: BareMetalHost/HOST, key: baremetalhost.metal3.io/detached}", undo: "removeAnnotation: {object: BareMetalHost/HOST, key: baremetalhost.metal3.io/detached}"},
	{name: "deprovisioned", do: "patch: {object: BareMetalHost/HOST, merge: {status: {provisioning: {state: deprovisioning}}}}", undo: "patch: {object: BareMetalHost/HOST, merge: {status: {provisioning: {state: provisioned}}}}"},
	{name: "hostTaken", do: "patch: {object: BareMetalHost/HOST, merge: {spec: {consumerRef: null}}}", undo: "patch: {object: BareMetalHost/HOST, merge: {spec: {consumerRef: {kind: Machine, name: HOST, namespace: default, apiVersion: cluster.x-k8s.io/v1beta2}}}}"},
	{name: "holdTakenAway", do: "removeAnnotation: {object: BareMetalHost/HOST, key: " + held + "}", of: []string{"checked", "marked", "unpowered"}},
	{name: "machineForced", do: "patch: {object: Machine/HOST, merge: {metadata: {finalizers: null}}}", of: []string{"deleted", "hooked"}},
	{name: "notDrained", do: "annotate: {object: Machine/HOST, key: machine.cluster.x-k8s.io/exclude-node-draining}", undo: "removeAnnotation: {object: Machine/HOST, key: machine.cluster.x-k8s.io/exclude-node-draining}", of: []string{"deleted", "hooked"}},
	{name: "drainTimed", do: "patch: {object: Machine/HOST, merge: {spec: {deletion: {nodeDrainTimeoutSeconds: 5}}}}", undo: "patch: {object: Machine/HOST, merge: {spec: {deletion: {nodeDrainTimeoutSeconds: null}}}}", of: []string{"deleted", "hooked"}},
	{name: "hostPaused", do: "annotate: {object: BareMetalHost/HOST, key: cluster.x-k8s.io/paused}", undo: "removeAnnotation: {object: BareMetalHost/HOST, key: cluster.x-k8s.io/paused}"},
	{name: "checkHasOtherTimes", do: "patch: {object: MachineHealthCheck/fencelab, merge: {spec: {checks: {nodeStartupTimeoutSeconds: 30}}}}", of: []string{"checked", "fenced"}},
	{name: "nodeForgotten", do: "patch: {object: Machine/HOST, merge: {status: {nodeRef: null}}}", undo: "patch: {object: Machine/HOST, merge: {status: {nodeRef: {name: HOST}}}}"},
	{name: "checkDeleted", do: "delete: {object: MachineHealthCheck/fencelab}", of: []string{"checked", "fenced"}},
	{name: "hooked", do: "annotate: {object: Machine/HOST, key: " + hook + "}", undo: "removeAnnotation: {object: Machine/HOST, key: " + hook + "}", of: []string{"deleted"}},
	{name: "budget", do: "create: {object: PodDisruptionBudget/all, with: {spec: {selector: {}}, status: {observedGeneration: 1, disruptionsAllowed: 0}}}", undo: "delete: {object: PodDisruptionBudget/all}", of: []string{"deleted", "hooked"}},
	{name: "checkPatched", do: "patch: {object: MachineHealthCheck/fencelab, merge: {spec: {remediation: {triggerIf: {unhealthyLessThanOrEqualTo: 1}}}}}", of: []string{"checked", "fenced"}},
	{name: "refused", do: "failAPI: {verb: patch, code: 500}", undo: "apiRestore: {}"},
	// The plain watchdog agent has no peers: where the control plane fails it resets every host, as
	// in the story wrong-control-plane-failure-resets-everybody.
	{name: "apiAway", do: "apiOutage: {}", undo: "apiRestore: {}", of: []string{"checked", "unpowered", "marked", "rebooted", "deleted", "hooked", "fenced"}},
	{name: "apiHangs", do: "apiOutage: {hang: true}", undo: "apiRestore: {}", of: []string{"checked", "unpowered", "marked", "rebooted", "deleted", "hooked", "fenced"}},
	{name: "etcdAway", do: "etcdOutage: {}", undo: "apiRestore: {}"},
	{name: "attachHangs", do: "breakStorage: {does: attach}", undo: "mendStorage: {does: attach}", onVolume: true},
	{name: "attachRefused", do: "breakStorage: {does: attach, refuses: true}", undo: "mendStorage: {does: attach, refuses: true}", onVolume: true},
	{name: "detachHangs", do: "breakStorage: {does: detach}", undo: "mendStorage: {does: detach}", onVolume: true},
	{name: "mountHangs", do: "breakStorage: {does: mount}", undo: "mendStorage: {does: mount}", onVolume: true},
	{name: "unmountHangs", do: "breakStorage: {does: unmount}", undo: "mendStorage: {does: unmount}", onVolume: true},
	{name: "keptOut", do: "fenceStorage: {host: HOST}", undo: "unfenceStorage: {host: HOST}", onVolume: true},
	{name: "storageAway", do: "cut: {between: [host/HOST, storage]}", undo: "restore: {between: [host/HOST, storage]}", onVolume: true},
	{name: "volumeDropped", do: "dropVolume: {host: HOST}", onVolume: true},
	{name: "daemon", do: "create: {object: Pod/daemon, with: {spec: {nodeName: HOST, tolerations: [{operator: Exists}], containers: [{name: daemon, image: daemon}]}}}"},
	{name: "job", do: "create: {object: Pod/job, with: {metadata: {finalizers: [batch.kubernetes.io/job-tracking]}, spec: {nodeName: HOST, restartPolicy: Never, containers: [{name: job, image: job}]}}}", undo: "patch: {object: Pod/job, merge: {metadata: {finalizers: null}}}"},
	{name: "podDeleted", do: "delete: {object: Pod/exclusive}", onVolume: true},
}

// byUser reports whether a user does it or takes it back at the API server, which must be there.
func (o operation) byUser() bool {
	return strings.Contains(o.do+o.undo, "object: ") || strings.Contains(o.do, "setOnline: ")
}

// untold are operations of the language that no generated story has, each with the reason.
var untold = map[string]string{
	"heal":        "a run does it at the end of every story",
	"impair":      "the simulator's links carry or don't",
	"fillDisk":    "the simulator's hosts have no disks",
	"killIronic":  "the simulator has no Ironic",
	"startIronic": "the simulator has no Ironic",
}

// story is a small scenario, and its name says how to make it again: SET.PHASE.OPERATION, the phase
// of a second host behind that, and volume if the workload has one. Its text is made when it is
// wanted: there are some hundred thousand pairs, of which few are played at a time.
type story struct {
	name string
	text func() string
	walk bool
}

// in returns the story as it is in another world, with that in front of its name.
func (s story) in(world string) story {
	return story{world + "." + s.name, func() string { return worlds[world](s.text()) }, s.walk}
}

// worlds change what a story has beside its operations.
var worlds = map[string]func(text string) string{
	// no Node and no Machine has the name of its host
	"renamed": func(text string) string {
		return strings.NewReplacer(
			"Node/worker-", "Node/node-", "nodeName: worker-", "nodeName: node-", "Machine/worker-", "Machine/pool-",
			"nodeRef: {name: worker-", "nodeRef: {name: node-", "kind: Machine, name: worker-", "kind: Machine, name: pool-",
		).Replace(workers.ReplaceAllString(text, "hosts: [{name: worker-1, nodeName: node-1, machineName: pool-1$1}, {name: worker-2, nodeName: node-2, machineName: pool-2$1}, {name: worker-3, nodeName: node-3, machineName: pool-3$1}]"))
	},
	// hosts and Pods take their time, and Kubernetes as well
	"slow": strings.NewReplacer(
		"workload: {host: worker-1}, lease: 1s}", "workload: {stops: 20s, host: worker-1}, lease: 1s, podGC: 40s, timings: {boot: 25s, softOff: 8s, hardOff: 2s}}",
		"workload: {host: worker-1, volume: {name: data}}, lease: 1s}", "workload: {stops: 20s, host: worker-1, volume: {name: data}}, lease: 1s, timings: {boot: 25s, softOff: 8s, hardOff: 2s}}",
	).Replace,
}

// workers are the hosts of a story, and what each of them has.
var workers = regexp.MustCompile(`workers: {count: 3([^}]*)}`)

// stories returns the stories of one operation, in order.
func stories() []story {
	var all []story
	for i := range sets {
		s := &sets[i]
		for reached := range s.phases {
			for _, op := range s.operations() {
				for beside := range s.phases { // alone, and beside a second host in each phase but the first
					first := s.steps(reached, "worker-1")
					needs := s.onVolume || op.onVolume
					if !needs {
						all = append(all, s.story(first, beside, false, op))
					}
					if needs || beside == 0 {
						all = append(all, s.story(first, beside, true, op))
					}
				}
			}
		}
	}
	return all
}

// pairs returns the stories of two operations, the second while the first lasts, in order, named
// SET.PHASE.FIRST+SECOND.
func pairs() []story {
	var all []story
	for i := range sets {
		s := &sets[i]
		ops := s.operations()
		for reached := range s.phases {
			first := s.steps(reached, "worker-1")
			for _, a := range ops {
				for _, b := range ops {
					if a.do == "" || b.do == "" || a.name == b.name {
						continue
					}
					all = append(all, s.story(first, 0, s.onVolume || a.onVolume || b.onVolume, a, b))
				}
			}
		}
	}
	return all
}

// steps lead a host to a phase.
func (s *set) steps(reached int, host string) path {
	p := path{phase: s.phases[reached].name, unseen: reached < s.unseen}
	for _, phase := range s.phases[:reached+1] {
		for _, step := range phase.steps {
			p.steps = append(p.steps, strings.ReplaceAll(step, "HOST", host))
		}
	}
	return p
}

// path is how a host comes to a phase.
type path struct {
	phase  string
	steps  []string
	unseen bool
}

// has reports whether a step does something.
func (p path) has(do string) bool {
	return slices.ContainsFunc(p.steps, func(step string) bool { return strings.Contains(step, do) })
}

// operations returns what can be done in the set, to each of its processes where it concerns one.
// Faults end with the story. What a user does may be taken back, or last for good.
func (s *set) operations() []operation {
	var all []operation
	for _, op := range operations {
		switch {
		case len(op.of) > 0 && !slices.Contains(op.of, cmp.Or(s.like, s.name)):
		case !strings.Contains(op.name, "ANY"):
			all = append(all, op)
			if op.byUser() && op.undo != "" {
				op.name, op.undo = op.name+"ForGood", ""
				all = append(all, op)
			}
		case s.onHost && (strings.HasPrefix(op.name, "freeze") || strings.HasPrefix(op.name, "expire") || strings.HasPrefix(op.name, "second") || strings.HasPrefix(op.name, "ahead")):
			// an agent has no cache, no second, and its host's clock
		default:
			for _, process := range s.processes {
				controller, in := process, process
				if s.onHost {
					controller, in = process+", host: HOST", "HOST."+process
				}
				replace := func(text string) string {
					if strings.HasPrefix(text, "crash") {
						return strings.ReplaceAll(text, "ANY", controller)
					}
					return strings.NewReplacer("ANY", in, "KIND", kinds[process]).Replace(text)
				}
				all = append(all, operation{name: strings.ReplaceAll(op.name, "ANY", process), do: replace(op.do), undo: replace(op.undo)})
			}
		}
	}
	return all
}

// kinds names, for each controller, the kind in its cache that matters most to it.
var kinds = map[string]string{"reboot": "BareMetalHost", "remediation": "BareMetalHost", "healthcheck": "Node", "deletion": "Machine"}

// story is that of some operations, with the first host in a phase and perhaps the second.
func (s *set) story(first path, beside int, onVolume bool, ops ...operation) story {
	what := ops[0].name
	for _, op := range ops[1:] {
		what += "+" + op.name
	}
	name := s.name + "." + first.phase + "." + what
	if beside > 0 {
		name += "." + s.phases[beside].name
	}
	if onVolume {
		name += ".volume"
	}
	return story{name: name, text: func() string { return s.text(name, what, first, beside, onVolume, ops) }}
}

// text brings the second host to its phase, the first one to its own, does the operations, takes
// them back, the last one first, and gives everything time to end.
func (s *set) text(name, what string, first path, beside int, onVolume bool, ops []operation) string {
	var second path
	if beside > 0 {
		second = s.steps(beside, "worker-2")
	}
	workload, spec := "{host: worker-1}", s.spec
	if onVolume {
		workload = "{host: worker-1, volume: {name: data}}"
	}
	if onVolume && first.unseen {
		spec = keepsAttached(spec)
	}
	steps := append(slices.Clone(second.steps), first.steps...)
	do := func(text string) {
		if text != "" {
			steps = append(steps, "do: {"+strings.ReplaceAll(text, "HOST", "worker-1")+"}")
		}
	}
	cut := first.has("cut:") && !first.has("restore:")
	ops = slices.DeleteFunc(slices.Clone(ops), func(op operation) bool { return op.name == "cut" && cut })
	for i, op := range ops {
		if i > 0 {
			steps = append(steps, "after: 5s")
		}
		do(op.do)
	}
	if len(ops) > 0 {
		steps = append(steps, "after: 20s")
	}
	for _, op := range slices.Backward(ops) {
		do(op.undo)
	}
	steps = append(steps, "after: 30s")
	if cut {
		do("restore: {host: HOST}")
	}
	if second.has("cut:") && !second.has("restore:") {
		steps = append(steps, "do: {restore: {host: worker-2}}")
	}
	if first.has(hook) && !first.has("removeAnnotation") {
		do("removeAnnotation: {object: Machine/HOST, key: " + hook + "}")
	}
	if second.has(hook) && !second.has("removeAnnotation") {
		steps = append(steps, "do: {removeAnnotation: {object: Machine/worker-2, key: "+hook+"}}")
	}
	steps = append(steps, "after: 1m")
	return s.file(name, fmt.Sprintf("The operation %s in the phase %s.", what, first.phase), workload, spec, steps)
}

// keepsAttached switches off the detach after six minutes.
func keepsAttached(spec string) string {
	return strings.Replace(spec, "controllers: [", "controllers: [{name: attachdetach, settings: {disableForceDetachOnTimeout: true}}, ", 1)
}

// file is a scenario with some steps.
func (s *set) file(name, description, workload, spec string, steps []string) string {
	return fmt.Sprintf(`apiVersion: fencelab.dev/v1alpha1
kind: Scenario
metadata: {name: %s, description: %s}
spec:
  worlds: [sim]
  topology: {workers: {count: 3%s}, workload: %s, lease: 1s}
  %s
  steps:
    - {%s}
`, strings.Trim(strings.ToLower(strings.NewReplacer(".", "-", "+", "-").Replace(name))[:min(len(name), 63)], "-"), description, s.topology, workload, spec, strings.Join(steps, "}\n    - {"))
}
