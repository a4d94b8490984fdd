// Package deletion is the deletion of a Machine as Cluster API has it, with the hooks of
// seed 003: pre-drain hooks pause it before the drain of its Node, pre-terminate hooks
// before its host is switched off. Any number of hooks may stand at a point, in no order,
// and none of them ever times out: their owners remove them, and nobody else.
//
// Each step is finished before the next one begins:
//
//	pre-drain hooks, drain, volumes, pre-terminate hooks, host off, Node, host released
//
// A host is known to be off only by the answer to a request of this very deletion, as
// seeds 000 and 002 have it: a reboot annotation with a key of our own, which the reboot
// controller answers once it has found the host off, and which keeps it off. Under that
// the Node is deleted, and only then the host is given back: offline, and nobody's. So
// whoever gets it next makes a Node of its own, and the Node of a host that runs is never
// deleted, whatever takes how long (design, decision 15). Where nobody can tell whether
// the host is off, because there is no BareMetalHost or it is another's, the Node is left
// to people, and the Machine goes once it is gone.
//
// What stands in the Machine's condition Deleting is recorded before it is done, in a
// write that fails if anything about the Machine is different. That is the moment at
// which a point is passed: a hook that comes later is too late for termination, which
// can't be called back. All else is read live whenever it matters.
package deletion

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/fencelab/fencelab/controllers/api"
)

// Phase is what a deletion waits for, as the reason of the condition Deleting.
type Phase string

// The phases, in order. Their names are Cluster API's where it has one.
const (
	NotDeleting         Phase = ""
	WaitingForPreDrain  Phase = clusterv1.MachineDeletingWaitingForPreDrainHookReason
	Draining            Phase = clusterv1.MachineDeletingDrainingNodeReason
	WaitingForDetach    Phase = clusterv1.MachineDeletingWaitingForVolumeDetachReason
	WaitingForTerminate Phase = clusterv1.MachineDeletingWaitingForPreTerminateHookReason
	Terminating         Phase = clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason
	DeletingNode        Phase = clusterv1.MachineDeletingDeletingNodeReason
	// WaitingForPerson says that nobody can tell whether the Machine's host is off.
	WaitingForPerson Phase = "HostUnknown"
	// WaitingForProof says that nobody can tell whose the Node is that the Machine names, or
	// whether it is only one's.
	WaitingForProof Phase = api.NodeUnproven
	Completed       Phase = clusterv1.MachineDeletingDeletionCompletedReason
)

// State is every fact that the decision about one Machine rests on.
type State struct {
	// Deleting: the Machine has a deletionTimestamp.
	Deleting bool `json:"deleting"`
	// Finalizer: it has the finalizer that keeps it until all is done.
	Finalizer bool `json:"finalizer"`
	// PreDrainHook and PreTerminateHook: it has hooks of that point.
	PreDrainHook     bool `json:"preDrainHook"`
	PreTerminateHook bool `json:"preTerminateHook"`
	// Recorded is the phase that its condition tells of.
	Recorded Phase `json:"recorded"`
	// Stale: the condition doesn't say what it should of that phase, such as whose hooks
	// are waited for. JustReported: it was written a moment ago.
	Stale        bool `json:"stale"`
	JustReported bool `json:"justReported"`

	// NodeExists: its Node exists.
	NodeExists bool `json:"nodeExists"`
	// NodeUnproven: the Machine names a Node, and nobody can tell whether it is its own.
	NodeUnproven bool `json:"nodeUnproven"`
	// Shared: another host may have this Node as well. Only with NodeExists.
	Shared bool `json:"shared"`
	// NodeLeaving: it was deleted, and finalizers keep it.
	NodeLeaving bool `json:"nodeLeaving"`
	// Cordoned: nothing new is scheduled to it.
	Cordoned bool `json:"cordoned"`
	// Unreachable: its kubelet hasn't been heard of, so that no process can be stopped
	// there and no volume be detached before the host is off.
	Unreachable bool `json:"unreachable"`
	// PodsToEvict: a Pod on it is to be evicted now.
	PodsToEvict bool `json:"podsToEvict"`
	// PodsLater: those that are to be evicted were refused in this round, as by a budget, or
	// have come since it began, and wait for the next one.
	PodsLater bool `json:"podsLater"`
	// PodsLeaving: one was evicted and has not stopped yet.
	PodsLeaving bool `json:"podsLeaving"`
	// VolumesAttached: volumes are attached to it.
	VolumesAttached bool `json:"volumesAttached"`
	// SkipDrain and SkipDetach: a user doesn't want these, or their time is over.
	SkipDrain  bool `json:"skipDrain"`
	SkipDetach bool `json:"skipDetach"`

	// HostUsed: the BareMetalHost that the Machine names exists, and is the Machine's.
	HostUsed bool `json:"hostUsed"`
	// Provisioned: the reboot interface is responsible for it, and so can answer.
	// Deprovisioned: it no longer is. A host that is neither will be one of them.
	Provisioned   bool `json:"provisioned"`
	Deprovisioned bool `json:"deprovisioned"`
	// Requested: that host was asked to go off, and stay off, for this deletion.
	Requested bool `json:"requested"`
	// HeldOff: it is, in answer to that request.
	HeldOff bool `json:"heldOff"`
	// Left: a host that is the Machine's no more is still asked to stay off for this deletion.
	Left bool `json:"left"`
	// Outdated: it may have booted after that answer, for its Node tells of another boot
	// or a boot's time has passed.
	Outdated bool `json:"outdated"`
}

// Action is the one thing to do next.
type Action string

// The actions. Nothing and Wait have no effect: with Wait the Machine is looked at again
// after a while, since nothing that is watched tells of what it waits for.
const (
	Nothing      Action = "Nothing"
	Wait         Action = "Wait"
	AddFinalizer Action = "AddFinalizer"
	// Record writes the phase, what it waits for and since when.
	Record Action = "Record"
	Cordon Action = "Cordon"
	// Evict asks for the eviction of one Pod.
	Evict Action = "Evict"
	// HoldOff asks the reboot controller to switch the host off and keep it off;
	// HoldAgain makes that request anew, for the answer to it is too old.
	HoldOff   Action = "HoldOff"
	HoldAgain Action = "HoldAgain"
	// DeleteNode deletes the Machine's Node while its host is held off.
	DeleteNode Action = "DeleteNode"
	// Release gives the host back, offline, and lets go of it.
	Release Action = "Release"
	// LetGo takes that request back from a host that is no longer the Machine's.
	LetGo Action = "LetGo"
	// RemoveFinalizer ends the deletion.
	RemoveFinalizer Action = "RemoveFinalizer"
)

// Actions is every action.
var Actions = []Action{
	Nothing, Wait, AddFinalizer, Record, Cordon, Evict, HoldOff, HoldAgain, DeleteNode, Release, LetGo, RemoveFinalizer,
}

// terminating reports whether the host was asked to go off: no hook can keep it on any more.
func (s State) terminating() bool {
	return s.Requested || s.Recorded == DeletingNode || s.Recorded == Completed
}

// drained reports whether there is nothing left to drain. A drain that was finished is
// not begun again: what runs there now may be what the owner of a pre-terminate hook
// started (upstream kubernetes-sigs/cluster-api#11590).
func (s State) drained() bool {
	if !s.NodeExists || s.SkipDrain || s.Recorded == WaitingForDetach || s.pastDetachment() {
		return true
	}
	return s.Cordoned && !s.PodsToEvict && !s.PodsLater && (!s.PodsLeaving || s.Unreachable)
}

// pastDetachment reports whether drain and detachment were finished, and the host not asked to go
// off: a hook that is set by then is heard, whatever stands on record.
func (s State) pastDetachment() bool {
	return s.Recorded == WaitingForTerminate || s.Recorded == Terminating
}

// detached reports whether no volume is waited for. Those of a Node out of reach can't be
// detached before its host is off.
func (s State) detached() bool {
	return !s.NodeExists || !s.VolumesAttached || s.SkipDetach || s.Unreachable || s.pastDetachment()
}

// Phase is what the deletion waits for by now. Hooks pause it where they stand, whether
// there is a Node to drain or not (seed 003).
func (s State) Phase() Phase {
	switch {
	case !s.Deleting:
		return NotDeleting
	case s.terminating():
		return s.ending()
	case s.PreDrainHook:
		return WaitingForPreDrain
	case s.NodeUnproven, s.Shared:
		return WaitingForProof
	case !s.drained():
		return Draining
	case !s.detached():
		return WaitingForDetach
	case s.PreTerminateHook:
		return WaitingForTerminate
	}
	return s.ending()
}

// ending is the phase of a deletion that no hook stops any more.
func (s State) ending() Phase {
	answers := s.HostUsed && !s.Deprovisioned
	switch {
	case answers && !s.HeldOff:
		return Terminating
	case answers && s.Shared:
		return WaitingForProof // that this host is off proves nothing about the other
	case answers && s.NodeExists:
		return DeletingNode
	case s.NodeUnproven && s.HostUsed:
		return WaitingForProof // before the host is given back
	case s.NodeExists && (s.HostUsed || s.Recorded != Completed):
		return WaitingForPerson
	}
	// A Node that comes after the host was given back is that of its next user.
	return Completed
}

// Decide says what to do next about a Machine. What is about to be done stands on record
// first: who reads the condition knows the phase, and a hook that was set in time is never
// overlooked. What is waited for within a phase can change as fast as others write, and
// nothing rests on it, so that is not written as soon as it changes.
func Decide(s State) Action {
	phase := s.Phase()
	switch {
	case phase == NotDeleting && !s.Finalizer:
		return AddFinalizer
	case phase == NotDeleting, !s.Finalizer:
		return Nothing
	case phase != s.Recorded, s.Stale && !s.JustReported:
		return Record
	}
	switch phase {
	case Draining:
		return drain(s)
	case WaitingForDetach, WaitingForPerson, WaitingForProof:
		return Wait
	case Terminating:
		if !s.Requested && s.Provisioned {
			return HoldOff
		}
		return Wait
	case DeletingNode:
		switch {
		case s.NodeLeaving:
			return Wait // its finalizers keep it: there is nothing to do
		case s.Outdated:
			return HoldAgain
		}
		return DeleteNode
	case Completed:
		switch {
		case s.HostUsed && s.Outdated:
			return HoldAgain
		case s.HostUsed:
			return Release
		case s.Left:
			return LetGo
		}
		return RemoveFinalizer
	}
	if s.Stale {
		return Wait // until that may be reported
	}
	return Nothing // until a hook is removed, of which the watch tells
}

// drain cordons the Node and evicts one Pod after the other. One that a budget protects
// doesn't keep the others.
func drain(s State) Action {
	switch {
	case !s.Cordoned:
		return Cordon
	case s.PodsToEvict:
		return Evict
	}
	return Wait
}
