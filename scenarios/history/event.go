// Package history is the record of a run: what happened, in order, and who saw
// it. Every other package of the scenario engine speaks in its events; the
// invariants are judged from nothing else.
package history

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Layer says whose word an event is. Safety is judged from World and API
// events only: nothing that a controller or a BMC says is evidence.
type Layer string

// The layers.
const (
	// World events are physical facts, appended by an observer on the host's
	// side: the simulated host, or the hypervisor and the guest's heartbeat.
	World Layer = "world"
	// API events are versions of objects as the API server committed them.
	API Layer = "api"
	// BMC events are requests that a management controller received.
	BMC Layer = "bmc"
	// Controller events are starts, stops and crashes of the processes under
	// test, and what they say.
	Controller Layer = "controller"
	// Engine events are the scenario's actions and its phases.
	Engine Layer = "scenario"
)

// Late is the Key of a BMCCommand whose client has stopped waiting.
const Late = "late"

// IsEntry reports whether a SpecChanged is about an entry, which may be anybody's.
func (e *Event) IsEntry() bool { return e.Kind == SpecChanged && !strings.HasPrefix(e.Key, "spec.") }

// The keys and the values of a FieldIs about an object of a kind that the system describes: a
// request to fence, or a mark.
const (
	Fencing       = "fencing"
	Marking       = "marking"
	FencingWanted = "wanted"
	FencingDone   = "done"
	FencingGone   = "gone"
)

// User is who a scenario's operations on API objects are done as.
const User = "user"

// UserNamed is a user with a name, of several; "" is the User.
func UserNamed(name string) string {
	if name == "" {
		return User
	}
	return User + "/" + name
}

// IsUser reports whether an actor is a user.
func IsUser(actor string) bool { return actor == User || strings.HasPrefix(actor, User+"/") }

// Kind says what happened. Its layer is fixed: see Kind.Layer.
type Kind string

// World events. Host is always set; Boot is the boot incarnation that the event
// belongs to.
const (
	// PowerOn is a power edge from off to on.
	PowerOn Kind = "power-on"
	// PowerOff is a power edge from on to off. It ends the boot that ran.
	PowerOff Kind = "power-off"
	// BootStarted begins a boot incarnation: after a power edge or a reset.
	BootStarted Kind = "boot-started"
	// BootComplete is the start of the boot's kubelet process, before its
	// first API call.
	BootComplete Kind = "boot-complete"
	// BootEnded says that the last process of the boot is gone: by power edge,
	// reset or watchdog. Note says which.
	BootEnded Kind = "boot-ended"
	// WorkloadStarted and WorkloadStopped bracket one process of the exclusive
	// workload. Object is the workload, UID the UID of the Pod whose process it
	// is. The end of a boot stops its processes without an event of their own.
	WorkloadStarted Kind = "workload-started"
	WorkloadStopped Kind = "workload-stopped"
	// HostPaused and HostResumed bracket a time in which the host makes no
	// progress. Its processes still count as running.
	HostPaused  Kind = "host-paused"
	HostResumed Kind = "host-resumed"
	// WatchdogFired says that the watchdog reset the host.
	WatchdogFired Kind = "watchdog-fired"
	// WatchdogDisarmed says that whoever fed the watchdog has closed it in order: it waits for
	// nothing, until the next boot or until somebody feeds it again.
	WatchdogDisarmed Kind = "watchdog-disarmed"
	// VolumeAttached and VolumeDetached say that the storage has given a volume, the Object, to
	// Host, and taken it away; Boot is the one that runs there, if any, and Actor whoever asked.
	// They come from an observer on the storage's side, and so do the others of volumes.
	VolumeAttached Kind = "volume-attached"
	VolumeDetached Kind = "volume-detached"
	// VolumeMounted and VolumeUnmounted bracket a mount for writing. The end of a boot ends its
	// mounts without an event of their own.
	VolumeMounted   Kind = "volume-mounted"
	VolumeUnmounted Kind = "volume-unmounted"
	// VolumeWritten is a write of the workload in Boot that reached the storage, and Value how many
	// seconds of writing that is. Only the first is recorded after each change of who has access.
	VolumeWritten Kind = "volume-written"
	// VolumeFenced and VolumeUnfenced bracket a time in which the storage takes nothing from Host,
	// whatever that has attached or mounted.
	VolumeFenced   Kind = "volume-fenced"
	VolumeUnfenced Kind = "volume-unfenced"
	// LinkCut and LinkRestored bracket a cut of the network: of every link of Host but
	// its BMC's when Object is api, or of those from From to To, which are ends of links.
	LinkCut      Kind = "link-cut"
	LinkRestored Kind = "link-restored"
	// LinkImpaired is a link, named like one that is cut, becoming poor; Note says how.
	// LinkRestored ends that, too.
	LinkImpaired Kind = "link-impaired"
	// QuorumLost and QuorumRegained bracket a time in which no majority of the members of the API
	// server's store runs and reaches each other, so that it answers no request. Host is the last
	// one that went, or came back, and Actor who did that, as in the event just before.
	QuorumLost     Kind = "quorum-lost"
	QuorumRegained Kind = "quorum-regained"
	// EvidenceLost and EvidenceRegained bracket a time in which the observer
	// of Host saw nothing. What happened meanwhile is unknown. Having regained
	// it, the observer repeats what then stands: PowerOff, or BootStarted,
	// BootComplete and WorkloadStarted of what runs. Without a Host it is the
	// API observer that missed versions.
	EvidenceLost     Kind = "evidence-lost"
	EvidenceRegained Kind = "evidence-regained"
)

// API events. Object is "Kind/name" of the object that changed, UID its UID.
//
// Host is the name of the host of the topology that the object stands for at
// that version, and is always set: for a BareMetalHost its own, for a Machine
// that of the BareMetalHost it consumes, for a Node that of the machine whose
// kubelet registers it, for a Pod that of the Node it is bound to. Only a Pod
// that was never bound has none. Objects that stand for no host of the topology
// are not recorded. An object that is gone has removed its annotations: there is
// an AnnotationRemoved for each.
const (
	NodeCreated Kind = "node-created"
	NodeDeleted Kind = "node-deleted"
	// NodeTakenOver is a Node's being written to by the kubelet of another host than before, which
	// has its name. From then on it stands for Host, and no longer for that in Value.
	NodeTakenOver Kind = "node-taken-over"
	// NodeDeleting is a Node's being marked for deletion while a finalizer keeps it.
	NodeDeleting Kind = "node-deleting"
	// NodeReady and NodeNotReady are changes of the Ready condition; a Node that
	// is created Ready has a NodeReady right after. Note has the condition's
	// status (True, False, Unknown). Value of NodeNotReady is how long before that
	// the condition says it became so, if that is more than a second: whoever wrote it
	// was late, and who reads it counts from there.
	NodeReady    Kind = "node-ready"
	NodeNotReady Kind = "node-not-ready"
	// NodeCondition is a change of another condition than Ready. Key has its type, Value its
	// status, which is empty when the condition is gone, and Note its age, as Value of NodeNotReady
	// has.
	NodeCondition Kind = "node-condition"
	// MachineCondition is the same of a Machine's condition that a health check minds. It comes as
	// well when a check begins to mind it.
	MachineCondition Kind = "machine-condition"
	// NodeLabels is the Node's set of labels, as "k=v,k=v" sorted, in Value;
	// recorded on creation and on every change.
	NodeLabels Kind = "node-labels"
	// CheckChanged is a change of a health check, and Value has the [Check]. If only a Machine has
	// changed, which the check leaves out now or no longer, Key is its name. The check that a story
	// begins with is no change.
	CheckChanged Kind = "check-changed"
	// NodeTaints is the Node's set of taints, as "k:EFFECT=v,k:EFFECT=v" sorted, but for those that
	// Kubernetes itself sets and takes away. NodeAnnotations is that of its annotations, but for
	// those in the domains of Kubernetes and fencelab; of a long value it has a digest. A Node that
	// is created without has had no such event.
	NodeTaints      Kind = "node-taints"
	NodeAnnotations Kind = "node-annotations"
	// NodeNetwork is the Node's ranges of Pod addresses, as "0=CIDR,1=CIDR", in Value. A Node that
	// is created without has had no such event.
	NodeNetwork Kind = "node-network"
	// SpecChanged is a change or an end of what a BareMetalHost's spec says in a field that has no
	// kind of event of its own: Key is the field, and Value its JSON, empty if it is gone. Or it is
	// one of a BareMetalHost's or a Machine's entry of that sort: a label, an annotation or a
	// condition, as labels[rack], or the host's error. Note has the entry's old value then, and it
	// has an event when it is first there, too.
	SpecChanged Kind = "spec-changed"
	// NodeCordoned and NodeUncordoned are changes of spec.unschedulable, which
	// is false in a Node that is created unless a NodeCordoned follows.
	NodeCordoned   Kind = "node-cordoned"
	NodeUncordoned Kind = "node-uncordoned"
	// NodeOutOfService and NodeInService are the coming and the going of the taint which says that
	// the Node's host is off for sure. A Node that is deleted has lost it.
	NodeOutOfService Kind = "node-out-of-service"
	NodeInService    Kind = "node-in-service"
	// VolumesInUse is a change of what the Node says that its kubelet has mounted, in Value, or
	// empty. A Node that is created without has had no such event.
	VolumesInUse Kind = "volumes-in-use"
	// DetachAsked is a VolumeAttachment's being marked for deletion, or gone unmarked. Value is the
	// volume.
	DetachAsked Kind = "detach-asked"
	// StorageFenceAsked and StorageUnfenceAsked are the word of a StorageFence: Host is to be kept
	// out of the storage, or let in again. The storage does that later, if at all.
	StorageFenceAsked   Kind = "storage-fence-asked"
	StorageUnfenceAsked Kind = "storage-unfence-asked"
	// PodBound and PodDeleted are the life of the exclusive workload's Pod. A
	// Pod that is gone from the API releases its workload. Value is the UID of the
	// Node that it was bound to, of Pods that say so: those of the stand-ins.
	// Key of PodBound says why no drain evicts it: daemon or static.
	PodBound Kind = "pod-bound"
	// PodTerminating is a Pod's being marked for deletion with time to stop: what an
	// eviction does that is not refused. Its kubelet deletes it when its processes are gone.
	// Key is the PodDisruptionBudget that would have refused an eviction, where none was asked for.
	PodTerminating Kind = "pod-terminating"
	PodDeleted     Kind = "pod-deleted"
	// PodProtected and PodUnprotected are the times from when on, and no longer, an eviction of the
	// Pod is refused. Key is the PodDisruptionBudget, or several.
	PodProtected   Kind = "pod-protected"
	PodUnprotected Kind = "pod-unprotected"
	// FinalizerAdded and FinalizerRemoved are changes of a finalizer of a Node, a Machine or a Pod,
	// in a domain that is a user's to write to. Key is the finalizer.
	FinalizerAdded   Kind = "finalizer-added"
	FinalizerRemoved Kind = "finalizer-removed"
	// AnnotationSet and AnnotationRemoved are changes of an annotation on a
	// BareMetalHost or Machine that asks for fencing or keeps controllers from it.
	// Key is the annotation; Value its value. Setting one that is there is a change
	// of its value.
	AnnotationSet     Kind = "annotation-set"
	AnnotationRemoved Kind = "annotation-removed"
	// FieldIs is a field of an object, of those that the story asks for, having another
	// value: Key is its JSONPath, Value its text, which is empty when it is gone.
	//
	// With the Key Fencing it is a request of the system's own to fence the host, and with Marking
	// a mark of its own: its Value is FencingWanted, FencingDone or, when its object is gone
	// before, or means it no more, FencingGone.
	FieldIs Kind = "field-is"
	// PowerReported is a change of the BareMetalHost's status.poweredOn, with
	// true or false in Value: what the controllers believe, not a fact.
	PowerReported Kind = "power-reported"
	// OnlineWanted is a change of the BareMetalHost's spec.online, with true or
	// false in Value.
	OnlineWanted Kind = "online-wanted"
	// ProvisioningState is a change of the host's provisioning state, in Value.
	ProvisioningState Kind = "provisioning-state"
	// LastPoweredOn and PendingRebootSince are changes of the two times of seed
	// 000 in the BareMetalHost's status. Value is the time as RFC 3339 with
	// microseconds in UTC, so that they compare as strings, or empty.
	LastPoweredOn      Kind = "last-powered-on"
	PendingRebootSince Kind = "pending-reboot-since"
	// HeldOffFor is a change of which keyed annotations the BareMetalHost's status
	// answers; Value is "key=id,key=id", sorted by key, or empty.
	HeldOffFor Kind = "held-off-for"
	// PowerError is the beginning or end of a power management error in the
	// BareMetalHost's status, with true or false in Value.
	PowerError Kind = "power-error"
	// HostConsumer is a change of the BareMetalHost's spec.consumerRef; Value is
	// Kind/name, Kind/namespace/name if that is another than the host's, or empty.
	HostConsumer Kind = "host-consumer"
	// BareMetalHostCreated, BareMetalHostDeleted, MachineCreated and MachineDeleted
	// are the life of those objects.
	BareMetalHostCreated Kind = "baremetalhost-created"
	BareMetalHostDeleted Kind = "baremetalhost-deleted"
	MachineCreated       Kind = "machine-created"
	MachineDeleted       Kind = "machine-deleted"
	// MachineDeleting reports that a Machine was marked for deletion while something has to be done
	// before it goes. DeletionPhase carries the reason of its condition Deleting in Value. Those
	// are beliefs of the controllers, not facts.
	MachineDeleting Kind = "machine-deleting"
	DeletionPhase   Kind = "deletion-phase"
	// DrainTimeout is a change of how long the drain of a Machine's Node may take, in Value; empty
	// without a limit.
	DrainTimeout Kind = "drain-timeout"
	// DetachTimeout is the same for the volumes that are waited for after that.
	DetachTimeout Kind = "detach-timeout"
	// MachineNode is a change of the Machine's status.nodeRef; Value is the Node's
	// name, or empty.
	MachineNode Kind = "machine-node"
	// Stamped is a change of what an agent notes on a Machine or a Node about a fencing: Key
	// is the annotation, Value what it says, or empty.
	Stamped Kind = "stamped"
	// FenceRequested and FenceEnded are the life of a NodeFence. Host is that of the
	// Node whose name it has; Value is the boot that it names.
	FenceRequested Kind = "fence-requested"
	FenceEnded     Kind = "fence-ended"
	// HostReleased is the end of an object's keeping its host for a tenant, of a kind that a module
	// says so of: another tenant may have the host now. Or an object of a kind that the story
	// describes says that nothing runs on the host any more.
	HostReleased Kind = "host-released"
)

// BMC events. Host is the host whose BMC it is.
const (
	// BMCCommand is a reset type that the BMC received, in Value, whatever became of
	// it; also one that the BMC asks of itself. Actor is the client, or "bmc",
	// "watchdog" or "restore". A request that found no connection was not received.
	// Key is Late when its client had given it up, or died, before it arrived.
	BMCCommand Kind = "bmc-command"
	// BMCFault says that a fault rule, named in Value, bent a request.
	BMCFault Kind = "bmc-fault"
)

// Controller events. Actor is the controller.
const (
	ControllerStarted Kind = "controller-started"
	ControllerCrashed Kind = "controller-crashed"
	// ControllerStopping says that a process on a host was asked to end in order.
	ControllerStopping Kind = "controller-stopping"
	// ControllerEffect is one write or BMC command, as the controller sent it.
	// Value is "verb Kind/name" or "bmc RESETTYPE host".
	ControllerEffect Kind = "controller-effect"
	// ControllerError is an error that a reconcile returned.
	ControllerError Kind = "controller-error"
	// ControllerPanicked is a panic of a reconcile, which is tried again like one that failed.
	// Value is the panic's value, and Note its place.
	ControllerPanicked Kind = "controller-panicked"
	// APIFault says that a request to the API server failed because the scenario wanted it to.
	// Object is the request's object, Value the HTTP status, "outage" or "etcd"; Note is its verb.
	APIFault Kind = "api-fault"
	// ControllerWarning is a Warning Event that a controller recorded.
	ControllerWarning Kind = "controller-warning"
)

// Engine events.
const (
	// RunStarted ends the bringing up of the topology, which is now healthy. What
	// stands then was recorded before it, as it came up: of each host that is on a BootStarted,
	// BootComplete, NodeCreated, NodeReady and NodeLabels at least.
	RunStarted Kind = "run-started"
	// OpApplied says that an operation of the plan was accepted. Key is its name in scenarios, such
	// as addFault; Object the fault, controller or API object that it names; Value says all of it
	// to people, and Note is the step's name.
	OpApplied Kind = "op-applied"
	// Deviated says that the schedule left its default. Value is the deviation, Key
	// the delay that it brings, if it does, and Note how long a fault lasts, if it does;
	// Hinders names the party that either holds up. A step that waits for another one has two: when
	// it begins to wait, whose Note is for how long at most, and when it comes, whose Key is how
	// long that was. That Frees the party.
	Deviated Kind = "deviated"
	// ScheduleEnded says that no step deviates from here on: the story could not go on.
	ScheduleEnded Kind = "schedule-ended"
	// StepOverdue reports that a step has waited in vain. Value is the kind of event that never
	// came; Host, Object and Key are the ones it was expected to have; Note is the step's name.
	StepOverdue Kind = "step-overdue"
	// Healed begins the liveness phase: every fault is withdrawn that doesn't last for good.
	Healed Kind = "healed"
	// LabStalled and LabRecovered bracket a time in which the lab got too little of its machine to
	// be in time. Lateness meanwhile may be no controller's fault. Value of LabRecovered is how
	// long that was.
	LabStalled   Kind = "lab-stalled"
	LabRecovered Kind = "lab-recovered"
	// Done ends a complete history. A history without it was cut short.
	Done Kind = "done"
)

// Layer returns whose word an event of this kind is, or "" for an unknown kind.
func (k Kind) Layer() Layer {
	switch k { // which is faster than a map: every guarantee asks at every event
	case PowerOn, PowerOff, BootStarted, BootComplete, BootEnded, WorkloadStarted, WorkloadStopped,
		HostPaused, HostResumed, VolumeAttached, VolumeDetached, VolumeMounted, VolumeUnmounted,
		VolumeWritten, VolumeFenced, VolumeUnfenced, WatchdogFired, WatchdogDisarmed, LinkCut,
		LinkRestored, LinkImpaired, QuorumLost, QuorumRegained, EvidenceLost, EvidenceRegained:
		return World
	case NodeOutOfService, NodeInService, VolumesInUse, DetachAsked, StorageFenceAsked,
		StorageUnfenceAsked, NodeCreated, NodeDeleted, NodeTakenOver,
		NodeReady, NodeNotReady, NodeCondition, NodeLabels, NodeTaints, NodeAnnotations, NodeNetwork, SpecChanged, NodeCordoned, NodeUncordoned, PodBound, PodTerminating,
		PodDeleted, PodProtected, PodUnprotected, FinalizerAdded, FinalizerRemoved, AnnotationSet, AnnotationRemoved, PowerReported, OnlineWanted, ProvisioningState,
		LastPoweredOn, PendingRebootSince, HeldOffFor, PowerError, HostConsumer, BareMetalHostCreated,
		BareMetalHostDeleted, MachineCreated, MachineDeleted, MachineNode, FenceRequested, FenceEnded,
		CheckChanged, MachineCondition, HostReleased, Stamped, MachineDeleting, NodeDeleting, DeletionPhase, DrainTimeout, DetachTimeout, FieldIs:
		return API
	case BMCCommand, BMCFault:
		return BMC
	case ControllerStarted, ControllerStopping, ControllerCrashed, ControllerEffect, ControllerError,
		ControllerPanicked, APIFault, ControllerWarning:
		return Controller
	case RunStarted, OpApplied, Deviated, ScheduleEnded, StepOverdue, Healed, LabStalled,
		LabRecovered, Done:
		return Engine
	}
	return ""
}

// Lasts returns how long a deviation can hold up its party, 0 for events of other kinds.
func (e *Event) Lasts() (sum time.Duration) {
	if e.Kind != Deviated || len(e.Frees) > 0 { // of a wait that has ended, the beginning counts
		return 0
	}
	for _, text := range [...]string{e.Key, e.Note} {
		if d, err := time.ParseDuration(text); err == nil { // or there is none
			sum += d
		}
	}
	return sum
}

// Kinds returns every kind of a layer, sorted.
func Kinds(layer Layer) []Kind {
	var kinds []Kind
	for kind := range phrases { // order does not matter: sorted below
		if kind.Layer() == layer {
			kinds = append(kinds, kind)
		}
	}
	sortKinds(kinds)
	return kinds
}

// Event is one thing that happened. Fields that don't apply are empty.
type Event struct {
	// Seq numbers the events of a history from 1.
	Seq int `json:"seq"`
	// At is the time since the run started, on the backend's clock.
	At time.Duration `json:"at"`
	// Kind says what happened and by that in which layer.
	Kind Kind `json:"kind"`
	// Host names the host concerned.
	Host string `json:"host,omitempty"`
	// Boot identifies the boot incarnation concerned.
	Boot string `json:"boot,omitempty"`
	// Object is "Kind/name" of an API object, or the workload's name.
	Object string `json:"object,omitempty"`
	UID    string `json:"uid,omitempty"`
	// Actor is who did it, where that is known: of an API event the writer, which
	// is a controller, a kubelet, User, or string(Engine) for the topology; of a
	// power edge and of the end of a boot string(Engine) when the scenario itself
	// caused it, else the client whose command led to it, or "bmc", "watchdog" or
	// "restore" when the BMC did it by itself, or the agent that let the watchdog of
	// its own host run out.
	Actor string `json:"actor,omitempty"`
	Key   string `json:"key,omitempty"`
	Value string `json:"value,omitempty"`
	// From and To are the ends of one direction of a link.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Hinders names the party that the event holds up, and Frees the hindrances that it ends: those
	// whose names are, or begin with, one of these.
	Hinders *Hindrance `json:"hinders,omitempty"`
	Frees   []string   `json:"frees,omitempty"`
	// Lasting are, of Healed, the names of the hindrances that it doesn't end.
	Lasting []string `json:"lasting,omitempty"`
	// Note is for people.
	Note string `json:"note,omitempty"`

	// phrase is that of the event which this one stands for.
	phrase string
}

// As is the event as one of another kind, which is judged in its place and keeps its phrase.
func (e Event) As(kind Kind, object, key string) Event {
	e.phrase = e.Phrase()
	e.Kind, e.Object, e.Key, e.Value = kind, object, key, ""
	return e
}

// String renders the event as one line of a report, without its number:
//
//	41.200s world power-on worker-1 boot=b2
func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%9s  %-10s %-18s", Seconds(e.At), e.Kind.Layer(), e.Kind)
	if e.Kind == OpApplied {
		e.Object, e.Key = "", "" // Value says it again
	}
	for _, field := range []struct{ name, value string }{
		{"", e.Host}, {"boot", e.Boot}, {"", e.Object}, {"", e.Key}, {"by", e.Actor}, {"", e.Value}, {"from", e.From}, {"to", e.To}, {"#", e.Note},
	} {
		switch {
		case field.value == "":
		case field.name == "":
			b.WriteString(" " + field.value)
		case field.name == "#":
			b.WriteString("  # " + field.value)
		default:
			b.WriteString(" " + field.name + "=" + field.value)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// Phrase says what happened as a clause of an English sentence, without the
// time: "worker-1 was powered on", "the Node of worker-1 was deleted".
func (e Event) Phrase() string {
	if e.phrase != "" {
		return e.phrase
	}
	phrase := phrases[e.Kind]
	if own := ownPhrases[e.Key+" "+e.Value]; own != "" && e.Kind == FieldIs {
		phrase = own
	}
	if e.From != "" && e.To != "" { // one link of a host, and not all
		phrase = cmp.Or(linkPhrases[e.Kind], phrase)
	}
	return strings.NewReplacer("{from}", e.From, "{to}", e.To, "{host}", e.Host, "{object}", e.Object, "{key}", e.Key, "{value}", cmp.Or(e.Value, "none"), "{actor}", e.Actor).Replace(phrase)
}

var linkPhrases = map[Kind]string{
	LinkCut:      "{from} was cut off from {to}",
	LinkRestored: "{from} was connected to {to} again",
	LinkImpaired: "the link from {from} to {to} became poor",
}

var ownPhrases = map[string]string{
	Fencing + " " + FencingWanted: "{object} asked for {host} to be fenced",
	Fencing + " " + FencingDone:   "{object} said that {host} was fenced",
	Fencing + " " + FencingGone:   "{object} asked for nothing any more",
	Marking + " " + FencingWanted: "{object} marked {host}",
	Marking + " " + FencingDone:   "{object} was done with {host}",
	Marking + " " + FencingGone:   "{object} marked {host} no more",
}

var phrases = map[Kind]string{
	PowerOn:              "{host} was powered on",
	PowerOff:             "{host} was powered off",
	BootStarted:          "{host} began to boot",
	BootComplete:         "{host} finished booting",
	BootEnded:            "the last process of {host}'s boot was gone",
	WorkloadStarted:      "{object} started on {host}",
	WorkloadStopped:      "{object} stopped on {host}",
	WatchdogFired:        "the watchdog of {host} fired",
	WatchdogDisarmed:     "the watchdog of {host} was disarmed",
	VolumeAttached:       "{object} was attached to {host}",
	VolumeDetached:       "{object} was detached from {host}",
	VolumeMounted:        "{object} was mounted on {host}",
	VolumeUnmounted:      "{object} was unmounted on {host}",
	VolumeWritten:        "{host} wrote to {object}",
	VolumeFenced:         "the storage cut {host} off",
	VolumeUnfenced:       "the storage let {host} in again",
	QuorumLost:           "the API server lost its quorum",
	QuorumRegained:       "the API server had its quorum again",
	NodeOutOfService:     "the Node of {host} was tainted as out of service",
	NodeInService:        "the Node of {host} was no longer out of service",
	VolumesInUse:         "the Node of {host} said that it uses {value}",
	DetachAsked:          "{value} was to be detached from {host}",
	StorageFenceAsked:    "{host} was to be kept out of the storage",
	StorageUnfenceAsked:  "{host} was to be let in to the storage again",
	EvidenceLost:         "the observer of {host} fell silent",
	NodeCreated:          "the Node of {host} was created",
	NodeDeleted:          "the Node of {host} was deleted",
	NodeTakenOver:        "{host} took the Node of {value} over",
	NodeReady:            "the Node of {host} became Ready",
	NodeNotReady:         "the Node of {host} stopped being Ready",
	PodBound:             "{object} was bound to {host}",
	PodTerminating:       "{object} on {host} was marked for deletion",
	FinalizerAdded:       "{key} was to be removed before {object} goes",
	FinalizerRemoved:     "{key} let {object} go",
	PodProtected:         "{key} forbade from then on to evict {object} from {host}",
	PodUnprotected:       "{key} no longer forbade to evict {object} from {host}",
	PodDeleted:           "{object} on {host} was deleted",
	AnnotationSet:        "{key} was set on {object}",
	AnnotationRemoved:    "{key} was removed from {object}",
	FieldIs:              "{key} of {object} became {value}",
	PowerReported:        "{object} was reported powered on: {value}",
	OnlineWanted:         "{object} was asked to be online: {value}",
	LastPoweredOn:        "a boot of {host} was recorded",
	PendingRebootSince:   "a request to reboot {host} was recorded",
	ProvisioningState:    "{object} came to the provisioning state {value}",
	HeldOffFor:           "{object} answered who holds it off: {value}",
	PowerError:           "{object} had a power management error: {value}",
	HostReleased:         "{object} released {host}",
	HostConsumer:         "the consumer of {object} became {value}",
	BareMetalHostCreated: "{object} was created",
	MachineCreated:       "{object} was created",
	DrainTimeout:         "the time to drain for {object} became {value}",
	DetachTimeout:        "the time to wait for volumes for {object} became {value}",
	MachineNode:          "the Node of {object} became {value}",
	CheckChanged:         "{object} became {value}",
	NodeCondition:        "{key} of the Node of {host} became {value}",
	MachineCondition:     "{key} of {object} became {value}",
	NodeLabels:           "the labels of the Node of {host} became {value}",
	NodeTaints:           "the taints of the Node of {host} became {value}",
	NodeAnnotations:      "the annotations of the Node of {host} became {value}",
	NodeNetwork:          "the Pod addresses of the Node of {host} became {value}",
	SpecChanged:          "{key} of {object} became {value}",
	EvidenceRegained:     "the observer of {host} was heard again",
	BareMetalHostDeleted: "{object} was deleted",
	MachineDeleted:       "{object} was deleted",
	NodeCordoned:         "the Node of {host} was cordoned",
	NodeUncordoned:       "the Node of {host} was uncordoned",
	HostPaused:           "{host} stood still",
	HostResumed:          "{host} went on",
	LinkCut:              "{host} was cut off",
	LinkRestored:         "{host} was connected again",
	LinkImpaired:         "the network of {host} became poor",
	FenceRequested:       "boot {value} of {host} was to end",
	Stamped:              "{key} of {object} became {value}",
	FenceEnded:           "the fencing of {host} was called over",
	MachineDeleting:      "{object} was marked for deletion",
	NodeDeleting:         "the Node of {host} was marked for deletion",
	DeletionPhase:        "the deletion of {object} came to {value}",
	BMCCommand:           "the BMC of {host} received {value}",
	BMCFault:             "{value} bent a request to the BMC of {host}",
	APIFault:             "a request of {actor} about {object} failed: {value}",
	ControllerStarted:    "{actor} started",
	ControllerCrashed:    "{actor} crashed",
	ControllerStopping:   "{actor} was asked to end",
	ControllerEffect:     "{actor} asked for {value}",
	ControllerWarning:    "{actor} warned about {object}: {value}",
	ControllerError:      "{actor} failed: {value}",
	ControllerPanicked:   "{actor} panicked: {value}",
	RunStarted:           "the run started",
	OpApplied:            "the scenario: {value}",
	Deviated:             "the schedule left its default: {value}",
	ScheduleEnded:        "the schedule ended, for the story could not go on",
	StepOverdue:          "the story had waited in vain for {value}",
	Healed:               "the faults were withdrawn",
	LabStalled:           "the lab got too little of its machine",
	LabRecovered:         "the lab was in time again, after {value}",
	Done:                 "the run ended",
}

// Seconds renders a time as seconds with milliseconds: "41.200s".
func Seconds(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }
