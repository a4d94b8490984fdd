package invariant

import (
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Request is a row of the table of writes: what the processes of a part send, the guarantee that
// rules on what comes of it, and by what right they may send it.
//
// The table, the kinds of harms and the kinds of events that take nothing have together a row for
// all that a process under test can do in either world. Without a row, a write makes its run
// unjudged.
type Request struct {
	// Part is one of Parts, or "" for any.
	Part string
	// Does has a verb and a kind of objects, or bmc and a reset type. An update, a patch and an
	// apply are all a patch.
	Does string
	// Judge is the guarantee, or "" if none needs to rule; Right says by what right, or why not.
	Judge, Right string
}

// Requests are all rows of requests.
var Requests = []Request{
	{"power", "patch BareMetalHost", "status-truthful", "it owns the status; of the annotations it removes the plain one, and all when the host is deprovisioned"},
	{"power", "bmc On", "online-respected", "the user wants the host on, and no key holds it off"},
	{"power", "bmc ForceOn", "online-respected", "as On"},
	{"power", "bmc GracefulShutdown", "no-false-fence", "a request, or spec.online"},
	{"power", "bmc PushPowerButton", "no-false-fence", "as GracefulShutdown"},
	{"power", "bmc ForceOff", "soft-has-its-time", "a hard request, or a soft one whose time is over"},
	{"power", "bmc GracefulRestart", "one-cycle-per-request", "one request, which it answers"},
	{"power", "bmc ForceRestart", "one-cycle-per-request", "as GracefulRestart"},
	{"power", "bmc PowerCycle", "one-cycle-per-request", "as GracefulRestart"},
	{"remediation", "patch BareMetalHost", "no-false-fence", "the Machine is marked; its key is its own"},
	{"remediation", "patch Machine", "unhealthy-is-fenced", "it takes a mark away that it is done with"},
	{"remediation", "patch Node", "bystanders-spared", "the Machine is marked"},
	{"remediation", "delete Node", "fenced-before-release", "the Machine is marked, and the boot is over"},
	{"remediation", "create Node", "released-only-when-over", "the Node that it has deleted, whose boot is over"},
	{"remediation", "delete Pod", "fenced-before-release", "as its Node"},
	{"remediation", "evict Pod", "bystanders-spared", "the Machine is marked"},
	{"remediation", "create StorageFence", "bystanders-spared", "the Machine is marked"},
	{"remediation", "patch StorageFence", "released-only-when-over", "the boot that had the volume is over, or it was never given up"},
	{"remediation", "delete StorageFence", "nothing-is-left", "the storage has let the host in again"},
	{"healthcheck", "patch Machine", "no-false-fence", "the Node is unhealthy for longer than it may be"},
	{"healthcheck", "patch MachineHealthCheck", "", "it reports what it has counted, and that is its own"},
	{"deletion", "patch Machine", "own-annotations-only", "its finalizer, with which all goes that is on the Machine"},
	{"deletion", "patch BareMetalHost", "infrastructure-before-node", "the Machine is being deleted: the host goes off and is given back"},
	{"deletion", "patch Node", "hooks-pause-drain", "the Machine is being deleted, and no hook keeps it"},
	{"deletion", "evict Pod", "hooks-pause-drain", "as its Node"},
	{"deletion", "delete Pod", "drained-before-interrupted", "as its Node"},
	{"deletion", "delete Node", "infrastructure-before-node", "the last process of its host is gone"},
	{"fencer", "patch Machine", "unhealthy-is-fenced", "it takes a mark away that is answered"},
	{"fencer", "patch Node", "nothing-is-left", "a cordon and a stamp, which it takes away; labels and taints of the Node before"},
	{"fencer", "create Node", "nothing-is-left", "the Node that it has deleted had a Machine, which is there"},
	{"fencer", "delete Node", "safe-time-kept", "its boot is over and it takes no more work"},
	{"fencer", "delete Pod", "fenced-before-release", "as its Node"},
	{"fencer", "evict Pod", "bystanders-spared", "the Machine is marked, or the boot is to be fenced"},
	{"fencer", "create NodeFence", "no-false-fence", "the Machine is marked"},
	{"fencer", "patch NodeFence", "node-restored", "it renews the backup of a Node that it is about to delete"},
	{"fencer", "delete NodeFence", "safe-time-kept", "the boot that it names is over"},
	{"tenancy", "bmc On", "online-respected", "the tenant wants the host on"},
	{"tenancy", "bmc ForceOn", "online-respected", "as On"},
	{"tenancy", "bmc GracefulShutdown", "no-false-fence", "the tenant wants the host off, or is gone"},
	{"tenancy", "bmc PushPowerButton", "no-false-fence", "as GracefulShutdown"},
	{"tenancy", "bmc ForceOff", "no-false-fence", "as GracefulShutdown"},
	{"tenancy", "bmc GracefulRestart", "no-false-fence", "as GracefulShutdown"},
	{"tenancy", "bmc ForceRestart", "no-false-fence", "as GracefulShutdown"},
	{"tenancy", "bmc PowerCycle", "no-false-fence", "as GracefulShutdown"},
	{"", "patch BareMetalHost", "bystanders-spared", "each field that matters has a kind of event, which is ruled on by itself"},
	{"", "patch Machine", "bystanders-spared", "as a BareMetalHost"},
	{"", "patch Node", "bystanders-spared", "as a BareMetalHost"},
	{"", "delete VolumeAttachment", "released-only-when-over", "the boot that has the volume is over, or kept out"},
	{"", "create Secret", "", "no history has what is secret, and no guarantee needs it"},
	{"", "patch Secret", "", "as create"},
	{"", "delete Secret", "", "as create"},
	{"", "delete Machine", "bystanders-spared", "none: only users ask for that"},
	{"", "delete BareMetalHost", "bystanders-spared", "none: only users ask for that"},
}

// Harmless is a kind of event that takes nothing from anybody, and why no guarantee need rule on it
// when it comes.
type Harmless struct {
	Kind history.Kind
	Why  string
}

// HarmlessKinds are the events of processes under test that are no harms.
var HarmlessKinds = []Harmless{
	{history.AnnotationSet, "any but a mark or a request is a note, and what it keeps others from is a user's to say"},
	{history.AnnotationRemoved, "any but a mark, a request, a hook or a pause is its author's own note"},
	{history.NodeCreated, "nothing is taken; nothing-is-left looks at a Node that is one too many, released-only-when-over at one that says of a volume that it is free"},
	{history.VolumesInUse, "a report: one-writer looks at what is mounted"},
	{history.VolumeFenced, "nothing is written any more; bystanders-spared looks at who asked for it"},
	{history.VolumeUnfenced, "one-writer looks at who may write"},
	{history.VolumeAttached, "one-writer looks at who may write"},
	{history.VolumeDetached, "one-writer looks at who may write, whoever has detached it"},
	{history.VolumeMounted, "one-writer looks at who may write"},
	{history.VolumeUnmounted, "nothing is taken but what its writer has given up"},
	{history.VolumeWritten, "one-writer looks at who writes"},
	{history.NodeLabels, "node-restored looks at those that are missing in the end"},
	{history.NodeTaints, "node-restored looks at those of users that are missing in the end, and at those of controllers that are still there; who is evicted by one has an event of its own"},
	{history.NodeAnnotations, "as labels"},
	{history.NodeNetwork, "as labels"},
	{history.NodeReady, "a report: node-restored looks at whether a kubelet stands behind it"},
	{history.NodeCondition, "a report, by whoever stands in for a problem detector"},
	{history.MachineCondition, "a report"},
	{history.NodeNotReady, "a report of the Node's silence, by whoever stands in for a control plane"},
	{history.PodProtected, "the budget says so, which somebody else has made"},
	{history.PodUnprotected, "as protected"},
	{history.FinalizerAdded, "whoever adds one keeps the object until it takes that away, and excuses only others"},
	{history.PodBound, "nothing is taken; at-most-one looks at what runs"},
	{history.PowerReported, "a report: status-truthful looks at whether it is true"},
	{history.LastPoweredOn, "a report: status-truthful looks at whether it is true"},
	{history.PendingRebootSince, "a report: status-truthful looks at whether it is true"},
	{history.HeldOffFor, "a report: status-truthful looks at whether it is true"},
	{history.PowerError, "a report of what a BMC has said"},
	{history.FieldIs, "a field that the story asks for: claim-is-true looks at what it claims"},
	{history.MachineNode, "a note of which Node it is"},
	{history.DeletionPhase, "a note of how far it has come, which excuses nothing"},
	{history.Stamped, "nothing is taken; nothing-is-left looks at what stays"},
	{history.BMCCommand, "what comes of it is ruled on: a host that goes off, comes on or is reset"},
	{history.BMCFault, "a fault is the BMC's"},
	{history.BootStarted, "the power edge or the reset before it is ruled on"},
	{history.BootComplete, "the power edge or the reset before it is ruled on"},
	{history.BootEnded, "ruled on when the next boot shows whether it was a reset"},
	{history.WatchdogFired, "the reset that comes of it is ruled on"},
	{history.QuorumRegained, "nothing is taken"},
	{history.WatchdogDisarmed, "whoever then counts on the end of that boot is ruled on"},
	{history.WorkloadStarted, "at-most-one looks at what runs, whoever has started it"},
	{history.WorkloadStopped, "nothing is taken but what drained-before-interrupted waits for"},
}

// alike are verbs that change an object, as the table has them.
var alike = map[string]string{"update": "patch", "apply": "patch"}

// requests has, by what a row is about, the parts that may do that, and harmless the kinds of
// events.
var (
	requests = make(map[string][]string)
	harmless = make(map[history.Kind]bool)
)

func init() {
	for i := range Requests {
		requests[Requests[i].Does] = append(requests[Requests[i].Does], Requests[i].Part)
	}
	for i := range HarmlessKinds {
		harmless[HarmlessKinds[i].Kind] = true
	}
}

// unlisted reports whether what a process under test did has no row, of requests or of events. An
// object of another kind than the world's own kinds is the program's own.
func (l *ledger) unlisted(e *history.Event) bool {
	if e.Kind != history.ControllerEffect {
		layer := e.Kind.Layer()
		return (layer == history.World || layer == history.API || layer == history.BMC) && !harmless[e.Kind]
	}
	verb, object, _ := strings.Cut(e.Value, " ")
	about, _, _ := strings.Cut(object, "/")
	if verb == "bmc" {
		about, _, _ = strings.Cut(about, " ")
	} else if len(l.kinds) > 0 && !slices.Contains(l.kinds, about) {
		return false
	}
	if a := alike[verb]; a != "" {
		verb = a
	}
	return !slices.ContainsFunc(requests[verb+" "+about], func(part string) bool { return part == "" || l.roles.In(part, e.Actor) })
}
