// Package scenarios is the language of scenarios, as data: who takes part, what goes wrong and
// when, and which guarantees must hold. Compile makes a Plan of a Scenario, which leaves no
// choice open. Package file reads both, package play plays a plan, and report prints what came
// of it.
package scenarios

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
)

// APIVersion and KindScenario head every scenario file.
const (
	APIVersion   = "fencelab.dev/v1alpha1"
	KindScenario = "Scenario"
	KindPlan     = "Plan"
)

// ClusterName is the name of the Cluster API cluster that the Machines belong to,
// and of its MachineHealthCheck.
const ClusterName = "fencelab"

// Scenario is one fencing story: who takes part, what goes wrong and when, and
// which guarantees must hold.
type Scenario struct {
	// apiVersion is fencelab.dev/v1alpha1.
	APIVersion string `json:"apiVersion"`
	// kind is Scenario.
	Kind string `json:"kind"`
	// metadata names and describes the scenario.
	Metadata Metadata `json:"metadata"`
	// parameters are filled in when the file is loaded: $(name) in spec and in the description.
	Parameters []Parameter `json:"parameters,omitempty"`
	// matrix makes a scenario from each combination of parameter values.
	Matrix *Matrix `json:"matrix,omitempty"`
	// spec is the story.
	Spec Spec `json:"spec"`

	// File is the file that it was loaded from, as its user named it, and Lines has the lines of
	// its name and its steps there, by their paths.
	File  string         `json:"-"`
	Lines map[string]int `json:"-"`
}

// NameAt is the path of a scenario's name.
const NameAt = "metadata.name"

// StepAt is the path of a step, counted from 0.
func StepAt(i int) string { return fmt.Sprintf("spec.steps[%d]", i) }

// Metadata names a scenario and says what it is for.
type Metadata struct {
	// name is the scenario's name: lower-case letters, digits and dashes.
	Name string `json:"name"`
	// description says in a sentence or two what happens and what it shows.
	Description string `json:"description"`
	// seeds are the numbers of the design documents that the scenario
	// exercises: 000 to 004.
	Seeds []string `json:"seeds,omitempty"`
	// labels are words of your own, by which run --filter finds the scenario.
	Labels []string `json:"labels,omitempty"`
	// upstream names the public thread, as owner/repository#number, whose bug the scenario
	// reproduces.
	Upstream string `json:"upstream,omitempty"`
}

// Spec is the story of a scenario.
type Spec struct {
	// topology describes the hosts and the exclusive workload. All of it is up and healthy
	// when the story begins.
	Topology Topology `json:"topology"`
	// healthCheck is the MachineHealthCheck for all hosts, which the controller healthcheck
	// acts on. Default: none.
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// controllers are the controllers under test. The stand-ins for what a cluster does on
	// its own (nodelifecycle, workload) run without being listed.
	Controllers []Controller `json:"controllers"`
	// steps happen in order: a step waits for its trigger from the moment the previous step
	// was done, unless it has since. A step whose trigger is never seen makes the verdict
	// unknown.
	Steps []Step `json:"steps"`
	// invariants are the guarantees to judge. Default: all.
	Invariants []string `json:"invariants,omitempty"`
	// claims are fields by which a system states that a host is off, for the guarantee
	// claim-is-true.
	Claims []OffClaim `json:"claims,omitempty"`
	// requests say what kinds of a system's own mean: which ask for a host to be fenced, by the
	// guarantee one-fencing-per-request, which mark one, and which release what ran there.
	Requests map[string]Request `json:"requests,omitempty"`
	// expect is the expected outcome. Default: every guarantee is held.
	Expect Expectation `json:"expect,omitzero"`
	// limits bound the run.
	Limits Limits `json:"limits,omitzero"`
	// assumes lists the premises without which no controller could keep what the story
	// promises; searches leave out schedules that break them. bmc-obeys: a BMC carries out
	// what it accepts, within 5 s. requests-arrive: what is written or commanded arrives
	// within a second, or never. watchdogs-fire: a watchdog resets its host within a second
	// of running out. agents-run: an agent runs and feeds its watchdog, and its kernel
	// reboots, within a second of when they should. controllers-run: a controller hears of
	// changes, takes its turn and gets its answers within a second.
	Assumes []string `json:"assumes,omitempty"`
	// worlds are the backends that can play the story: sim, lab. Default: both.
	Worlds []string `json:"worlds,omitempty"`
}

// HasPods reports whether controllers are Pods.
func (s *Spec) HasPods() bool {
	return slices.ContainsFunc(s.Controllers, func(c Controller) bool { return c.Pods != nil })
}

// HasPrograms reports whether executables take the place of controllers.
func (s *Spec) HasPrograms() bool {
	return slices.ContainsFunc(s.Controllers, func(c Controller) bool { return c.Program != nil })
}

// SpeaksIPMI reports whether a controller commands BMCs by IPMI.
func (s *Spec) SpeaksIPMI() bool {
	return slices.ContainsFunc(s.Controllers, func(c Controller) bool { return c.Via == ViaIPMI })
}

// ProgramOf is the program of a controller, nil if it is one of fencelab's or of a module.
func (s *Spec) ProgramOf(controller string) *Program {
	if c := s.Controller(controller); c != nil {
		return c.Program
	}
	return nil
}

// PodsOf are the Pods that a controller is, nil if it is none.
func (s *Spec) PodsOf(controller string) *Pods {
	if c := s.Controller(controller); c != nil {
		return c.Pods
	}
	return nil
}

// Controller is the one of a name, nil for what a world has in the place of Kubernetes' own.
func (s *Spec) Controller(name string) *Controller {
	for i := range s.Controllers {
		if s.Controllers[i].Name == name {
			return &s.Controllers[i]
		}
	}
	return nil
}

// Topology is the machines of a scenario.
type Topology struct {
	// hosts are the bare-metal hosts, each with a BMC, a Machine and a Node.
	Hosts []Host `json:"hosts"`
	// workers replaces hosts if all hosts are alike.
	Workers *Workers `json:"workers,omitempty"`
	// workload is the exclusive workload: at most one copy of it may run.
	Workload Workload `json:"workload,omitzero"`
	// lease is how often a kubelet renews its Lease. A Node is no longer Ready once its
	// Lease is four times as old.
	Lease Duration `json:"lease,omitzero"`
	// podGC is how long a Pod's Node must be gone before the Pod is released: 40 to 60
	// seconds in a real cluster. Until then a kubelet adopts Pods that are bound to its
	// Node's name, even those of an earlier Node. Default: a Pod is released as soon as its
	// Node is deleted, and no kubelet adopts it.
	PodGC Duration `json:"podGC,omitzero"`
	// timings are how long the simulator's hosts, and the lab's model hosts, take. Virtual
	// machines take as long as they take.
	Timings HostTimings `json:"timings,omitzero"`
	// ironic is an Ironic that owns the BMCs: it has adopted the hosts, and controllers
	// command their power through it. Default: controllers talk to the BMCs or, in the lab,
	// to what --power selects.
	Ironic *Ironic `json:"ironic,omitempty"`
	// bmc is somebody else's program in the place of the hosts' BMCs. Default: fencelab's own BMCs.
	BMC *BMC `json:"bmc,omitempty"`
}

// Ironic says how an Ironic behaves. Times are whole seconds; what is left out is Ironic's
// own default.
type Ironic struct {
	// syncInterval is how often Ironic compares each host's power with its record; where
	// they differ, it changes the host.
	SyncInterval Duration `json:"syncInterval,omitzero"`
	// powerTimeout is how long Ironic waits for a host to be on, or forced off. The host is
	// locked meanwhile.
	PowerTimeout Duration `json:"powerTimeout,omitzero"`
	// bin is the directory with Ironic's executables, ironic and ironic-dbsync. Default:
	// /usr/bin, where Debian installs them.
	Bin string `json:"bin,omitempty"`
	// image is a container image with Ironic's executables, as that of a program. Default: those of
	// bin.
	Image Image `json:"image,omitempty"`
	// enrolls says that clients enroll hosts of their own, as baremetal-operator does with a new
	// BareMetalHost, and that Ironic has the interfaces that it asks for then. That needs Ironic
	// 24.
	Enrolls bool `json:"enrolls,omitempty"`
}

// Workers are hosts that are all alike. A plan, and a scenario that was loaded, has them
// one by one.
type Workers struct {
	// count is the number of hosts. They are named worker-1, worker-2 and so on.
	Count int `json:"count"`
	// watchdog is the time after which each host's watchdog resets it.
	Watchdog Duration `json:"watchdog,omitzero"`
}

// Host is one machine.
type Host struct {
	// name is the name of the host and, unless they have others, of its Machine and its Node.
	Name string `json:"name"`
	// nodeName is the name of the host's Node. Kubelets of several hosts that have one name write
	// to one Node. Default: the host's name.
	NodeName string `json:"nodeName,omitempty"`
	// machineName is the name of the host's Machine. Default: the host's name.
	MachineName string `json:"machineName,omitempty"`
	// labels are the labels that the kubelet puts on the Node.
	Labels map[string]string `json:"labels,omitempty"`
	// domain is the failure domain that the host is in, such as a rack whose links to the
	// rest fail together.
	Domain string `json:"domain,omitempty"`
	// role is control-plane for a host on which a member of the API server's store runs: unless a
	// majority of the members runs and reaches each other, the API server does not answer.
	// Default: the store stands on none of the hosts.
	Role string `json:"role,omitempty"`
	// off says that the host is off when the story begins, and that its BareMetalHost wants it so:
	// it is a spare that a step takes into use.
	Off bool `json:"off,omitempty"`
	// powerRestore says how the host's BMC reacts when AC power returns: AlwaysOn, AlwaysOff, or
	// LastState. Default: LastState.
	PowerRestore string `json:"powerRestore,omitempty"`
	// watchdog is the time after which the host's watchdog resets it if nothing feeds it.
	// Default: no watchdog.
	Watchdog Duration `json:"watchdog,omitzero"`
	// softdog makes the watchdog the kernel's own, which stops with the processors, instead
	// of a separate device.
	Softdog bool `json:"softdog,omitempty"`
}

// ControlPlane is the role of hosts that have a member of the API server's store.
const ControlPlane = "control-plane"

// Node is the name of the host's Node.
func (h *Host) Node() string { return cmp.Or(h.NodeName, h.Name) }

// Machine is the name of the host's Machine.
func (h *Host) Machine() string { return cmp.Or(h.MachineName, h.Name) }

// Called returns the name of the host's object of a kind.
func (h *Host) Called(kind Naming) string {
	switch kind {
	case AfterNode:
		return h.Node()
	case AfterMachine:
		return h.Machine()
	}
	return h.Name
}

// Namesake is the first host before the i-th one whose Node has the same name, or nil.
func (t *Topology) Namesake(i int) *Host {
	for j := range t.Hosts[:i] {
		if t.Hosts[j].Node() == t.Hosts[i].Node() {
			return &t.Hosts[j]
		}
	}
	return nil
}

// NodeOf is the name of the Node of a host.
func (t *Topology) NodeOf(host string) string {
	for i := range t.Hosts {
		if t.Hosts[i].Name == host {
			return t.Hosts[i].Node()
		}
	}
	return host
}

// Workload is a process of which at most one copy may run.
type Workload struct {
	// host is where the workload runs when the story begins. Default: there is no workload.
	Host string `json:"host,omitempty"`
	// stops is how long its process takes to stop when it is asked to, such as 20s, or never: then
	// it ends when it is killed, once its Pod's grace of 30 s is over. Default: a moment.
	Stops string `json:"stops,omitempty"`
	// volume is the volume that the workload writes to, wherever it runs. Default: none.
	Volume *Volume `json:"volume,omitempty"`
}

// Volume is a PersistentVolume that one host at a time may write to. With it, the stand-ins take
// part that release a Pod and its volume: attachdetach, attacher, podgc and tainteviction.
type Volume struct {
	// name is the volume's name.
	Name string `json:"name"`
	// attach is how long the storage takes to attach it to a host.
	Attach Duration `json:"attach,omitzero"`
	// detach is how long the storage takes to detach it from a host.
	Detach Duration `json:"detach,omitzero"`
}

// HealthCheck says when a Machine counts as unhealthy. Times are whole seconds.
type HealthCheck struct {
	// unhealthyAfter is how long a Node may be not Ready.
	UnhealthyAfter Duration `json:"unhealthyAfter"`
	// nodeStartupTimeout is how long a Machine may be without a Node.
	NodeStartupTimeout Duration `json:"nodeStartupTimeout"`
	// maxUnhealthy is how many Machines may be unhealthy at once; if there are more, none
	// is remediated. It is a number, or a percentage such as 40%. Default: 100%.
	MaxUnhealthy string `json:"maxUnhealthy,omitempty"`
	// unhealthyRange replaces maxUnhealthy: Machines are remediated only while the number
	// of unhealthy ones is in this range, such as [2-3].
	UnhealthyRange string `json:"unhealthyRange,omitempty"`
}

// ActsOn returns the least and the most of the Machines that may be unhealthy for any of them to be
// remediated. A percentage is rounded down.
func (h *HealthCheck) ActsOn(machines int) (least, most int) {
	if bounds := NumberRange.FindStringSubmatch(h.UnhealthyRange); bounds != nil {
		least, _ = strconv.Atoi(bounds[1])
		most, _ = strconv.Atoi(bounds[2])
		return least, most
	}
	number, percent := strings.CutSuffix(h.MaxUnhealthy, "%")
	n, err := strconv.Atoi(number)
	switch {
	case err != nil:
		return 0, machines
	case percent:
		return 0, machines * n / 100
	}
	return 0, n
}

// Limits returns ActsOn for any number of Machines. With share the most is in percent of them,
// which MaxUnhealthy says, or nothing limits it.
func (h *HealthCheck) Limits() (least, most int, share bool) {
	least, most = h.ActsOn(100) // a share of one hundred Machines is its percentage
	_, err := strconv.Atoi(h.MaxUnhealthy)
	return least, most, err != nil && !NumberRange.MatchString(h.UnhealthyRange)
}

// HostTimings are how long simulated hosts take.
type HostTimings struct {
	// boot is the time from power-on to the start of the kubelet.
	Boot Duration `json:"boot,omitzero"`
	// softOff is the time from a graceful shutdown request to power-off.
	SoftOff Duration `json:"softOff,omitzero"`
	// hardOff is the time from a forced power-off until the last process is gone.
	HardOff Duration `json:"hardOff,omitzero"`
}

// RateLimit is how often a client asks a server: burst times at once, and then no sooner
// than every so often. A request that is too soon waits in the client.
type RateLimit struct {
	// every is the time between two requests.
	Every Duration `json:"every"`
	// burst is how many requests may be sent at once after a pause.
	Burst int `json:"burst"`
}

// Controller is one controller under test.
type Controller struct {
	// name is a registered controller, as listed by fencelab list --controllers, or any
	// name for one that has a program or Pods. Further ones of a kind, which know nothing of the
	// first, are named NAME-2 and NAME-3.
	Name string `json:"name"`
	// settings are the controller's own settings.
	Settings json.RawMessage `json:"settings,omitempty"`
	// replicas is how many processes of the controller run, at most 3; a Lease decides
	// which of them leads. The others are named NAME-2 and NAME-3. Default: 1, without a
	// Lease.
	Replicas int `json:"replicas,omitempty"`
	// hosts are the hosts on which the controller's processes run, one for each. A process lives
	// its host's life, as an agent does, and reaches the API server over its links; the way to
	// BMCs is its own. Default: beside the API server.
	Hosts []string `json:"hosts,omitempty"`
	// rateLimit limits how often each process of the controller sends requests to the API
	// server, as real clients limit themselves. Default: no limit.
	RateLimit *RateLimit `json:"rateLimit,omitempty"`
	// via is the protocol by which a controller that plays power commands BMCs: redfish or ipmi.
	// Default: redfish.
	Via string `json:"via,omitempty"`
	// overlay makes the controller wrong on purpose: the first rule whose facts all match
	// decides in its place.
	Overlay []Rule `json:"overlay,omitempty"`
	// plays is the part as which the guarantees judge a controller from another module, or
	// a program: power, remediation, healthcheck, fencer, or deletion. Default: the part
	// that the controller declares.
	Plays string `json:"plays,omitempty"`
	// also are parts that a program plays as well: it is judged as those too.
	Also []string `json:"also,omitempty"`
	// program runs as this controller, instead of fencelab's own controller if there is one of that
	// name.
	Program *Program `json:"program,omitempty"`
	// pods run as this controller on every host, as those of a DaemonSet.
	Pods *Pods `json:"pods,omitempty"`
}

// Place is the host on which the n-th process of the controller runs, "" if it has none.
func (c *Controller) Place(n int) string {
	if n > len(c.Hosts) {
		return ""
	}
	return c.Hosts[n-1]
}

// PlacedOn are the processes of controllers that run on a host because the story says so.
func (s *Spec) PlacedOn(host string) (processes []string) {
	for i := range s.Controllers {
		for n, on := range s.Controllers[i].Hosts {
			if on == host {
				processes = append(processes, history.Process(s.Controllers[i].Name, n+1))
			}
		}
	}
	return processes
}

// The protocols of Controller.Via.
const (
	ViaRedfish = "redfish"
	ViaIPMI    = "ipmi"
)

// Rule is one line of an overlay.
type Rule struct {
	// when is a set of facts about the controller's state, with their values. A fact that
	// is left out may have any value.
	When map[string]any `json:"when"`
	// then is the action to take instead.
	Then string `json:"then"`
}

// Step waits for its trigger and then does one thing. A step without do only
// waits: it says what has to happen before the story goes on. In a plan, and in a
// scenario that was loaded, none has a repeat.
type Step struct {
	// name says what the step means, for people.
	Name string `json:"name,omitempty"`
	// when is the event that the step waits for. Default: nothing.
	When Trigger `json:"when,omitzero"`
	// after is how long to wait once the trigger has been seen.
	After Span `json:"after,omitzero"`
	// do is the operation to perform then.
	Do *Op `json:"do,omitempty"`
	// forGood leaves the fault in force when the others are withdrawn at the end of the story:
	// what can be done without the broken part has to be done all the same.
	ForGood bool `json:"forGood,omitempty"`
	// repeat replaces this step with steps that are done several times.
	Repeat *Repeat `json:"repeat,omitempty"`
}

// Trigger is an event to wait for, every field of which that is given must match;
// or several, in any order.
type Trigger struct {
	// event is the kind of event, such as node-deleted or bmc-command.
	Event string `json:"event,omitempty"`
	// host is the event's host.
	Host string `json:"host,omitempty"`
	// object is the event's object, such as Node/worker-1.
	Object string `json:"object,omitempty"`
	// actor is who caused the event: a controller's name.
	Actor string `json:"actor,omitempty"`
	// key is the annotation's key.
	Key string `json:"key,omitempty"`
	// value is the event's value: a reset type, an annotation's value, an effect
	// such as "patch BareMetalHost/worker-1".
	Value string `json:"value,omitempty"`
	// occurrence says which of the matching events is meant, counted from 1. Default: 1.
	Occurrence int `json:"occurrence,omitempty"`
	// allOf replaces event with several events, which may happen in any order.
	AllOf []Trigger `json:"allOf,omitempty"`
	// anyOf replaces event with several events, of which the first that happens is enough:
	// schedules may differ in which.
	AnyOf []Trigger `json:"anyOf,omitempty"`
	// since is the name of an earlier step, or start: events count from when that step was
	// done, or from the beginning of the story, so the event may already have happened.
	// Default: the previous step.
	Since string `json:"since,omitempty"`
}

// Expectation is the expected outcome of a run. The zero value expects every guarantee to be held.
type Expectation struct {
	// violated is the invariant that the run must violate, for scenarios with controllers
	// that are wrong on purpose.
	Violated string `json:"violated,omitempty"`
	// events are claims about the events of this particular story, in addition to the guarantees.
	// Their name in reports is as-told.
	Events []Assertion `json:"events,omitempty"`
}

// Assertion claims that an event comes, or that it never does, counted from the
// beginning of the story.
type Assertion struct {
	// happens is an event that must happen.
	Happens Trigger `json:"happens,omitzero"`
	// never is an event that must not happen.
	Never Trigger `json:"never,omitzero"`
	// only is an event that may happen only if another has happened before. What its actor could
	// not know yet is excused.
	Only Trigger `json:"only,omitzero"`
	// if is the event that must have happened before that of only.
	If Trigger `json:"if,omitzero"`
	// for is how long before, at least, the latest event of if must have happened.
	For Duration `json:"for,omitzero"`
	// until is the event that ends what if has begun.
	Until Trigger `json:"until,omitzero"`
	// after is the event from which the claim counts.
	After Trigger `json:"after,omitzero"`
	// before is the event until which the claim counts.
	Before Trigger `json:"before,omitzero"`
	// within is the time limit, counted from after or from the beginning. It is not applied
	// to schedules that delay steps.
	Within Duration `json:"within,omitzero"`
}

// Limits bound a run, in the backend's time.
type Limits struct {
	// step is how long a step may wait for its trigger without anything coming closer.
	Step Duration `json:"step,omitzero"`
	// settle is how long the run may make no progress after the faults are withdrawn,
	// before what is still pending counts as lost.
	Settle Duration `json:"settle,omitzero"`
	// quiet is how long the run continues once nothing is missing any more, since a wrong
	// controller may do harm later. Default: the longest time in the settings of the
	// controllers and the health check; 15s in the lab and in most schedules of a search.
	Quiet Duration `json:"quiet,omitzero"`
}

// Parameter is something that a file leaves open, and writes as $(name) in its spec and
// its description. A matrix or the command line gives it values.
type Parameter struct {
	// name stands between $( and ) where the parameter is used.
	Name string `json:"name"`
	// type is text, duration, number or boolean.
	Type string `json:"type"`
	// default is the value if neither the matrix nor the command line gives one.
	Default any `json:"default,omitempty"`
}

// Matrix makes several scenarios of one file, its cells: one for each combination of
// values. A cell is called NAME.PARAMETER=VALUE,PARAMETER=VALUE.
type Matrix struct {
	// cross lists values of parameters. There is a cell for each combination.
	Cross map[string][]any `json:"cross,omitempty"`
}

// Repeat is steps that come several times: as often as times says, or once for each name.
type Repeat struct {
	// times is how often the steps are done. $(round) is the number of the repetition, from
	// 1.
	Times int `json:"times,omitempty"`
	// for is the name that, between $( and ), stands for one of the texts of in.
	For string `json:"for,omitempty"`
	// in is a list of texts. The steps are done once for each.
	In []string `json:"in,omitempty"`
	// steps are the steps to repeat.
	Steps []Step `json:"steps"`
}
