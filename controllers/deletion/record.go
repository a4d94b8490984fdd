package deletion

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
)

// What a condition quotes has no bounds of its own.
const mostNamed = 5

// condition is the Machine's condition Deleting.
func condition(machine *clusterv1.Machine) metav1.Condition {
	for _, c := range machine.Status.Conditions {
		if c.Type == clusterv1.MachineDeletingCondition {
			return c
		}
	}
	return metav1.Condition{}
}

func deletionStatus(machine *clusterv1.Machine) clusterv1.MachineDeletionStatus {
	if machine.Status.Deletion == nil {
		return clusterv1.MachineDeletionStatus{}
	}
	return *machine.Status.Deletion
}

// record writes the phase and what it waits for to the condition, when a wait began to
// status.deletion, and to status.phase that the Machine is deleted. The write fails if
// anything about the Machine is different from what the decision was based on, its hooks
// above all. As with all conditions, lastTransitionTime is that of the status: since when a
// phase lasts is in status.deletion.
func (r *Reconciler) record(ctx context.Context, m *memory, f *facts, s State) error {
	machine, now := f.machine, metav1.NewTime(r.Clock.Now())
	phase := s.Phase()
	was := condition(machine)
	is := metav1.Condition{
		Type:               clusterv1.MachineDeletingCondition,
		Status:             metav1.ConditionTrue,
		Reason:             string(phase),
		Message:            r.message(m, f, s),
		ObservedGeneration: machine.Generation,
		LastTransitionTime: was.LastTransitionTime,
	}
	if was.Status != is.Status {
		is.LastTransitionTime = now
	}
	conditions := slices.DeleteFunc(slices.Clone(machine.Status.Conditions), func(c metav1.Condition) bool { return c.Type == is.Type })
	conditions = append(conditions, is)
	slices.SortFunc(conditions, func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) })
	fields, err := json.Marshal(conditions)
	if err != nil {
		return err
	}
	// Owners of hooks may wait for the phase (seed 003).
	status := `"conditions":` + string(fields) + `,"phase":` + api.Quote(string(clusterv1.MachinePhaseDeleting))
	if name, since := began(phase, deletionStatus(machine)); name != "" && since.IsZero() {
		status += `,"deletion":{` + api.Quote(name) + ":" + api.Quote(now.UTC().Format(time.RFC3339)) + "}"
	}
	if err := r.Client.Status().Patch(ctx, machine.DeepCopy(), api.SetStatus(machine, status)); err != nil {
		return err
	}
	m.reported = r.Clock.Now()
	if r.Inform != nil && was.Reason != is.Reason {
		r.Inform(machine, is.Reason, is.Message)
	}
	return nil
}

// began is the field of status.deletion that says since when a phase lasts, and what it
// says: the first time counts.
func began(phase Phase, status clusterv1.MachineDeletionStatus) (field string, since metav1.Time) {
	switch phase {
	case WaitingForPreDrain:
		return "waitForPreDrainHookStartTime", status.WaitForPreDrainHookStartTime
	case Draining:
		return "nodeDrainStartTime", status.NodeDrainStartTime
	case WaitingForDetach:
		return "waitForNodeVolumeDetachStartTime", status.WaitForNodeVolumeDetachStartTime
	case WaitingForTerminate:
		return "waitForPreTerminateHookStartTime", status.WaitForPreTerminateHookStartTime
	}
	return "", metav1.Time{}
}

// message says in a sentence what the phase of s waits for.
func (r *Reconciler) message(m *memory, f *facts, s State) string {
	switch s.Phase() {
	case WaitingForPreDrain:
		return "The drain waits until these hooks are removed: " + hooks(f, api.PreDrain)
	case WaitingForTerminate:
		return "The host stays on until these hooks are removed: " + hooks(f, api.PreTerminate)
	case Draining:
		return r.draining(m, f)
	case WaitingForDetach:
		return "Volumes are still attached to Node " + f.node.Name + ": " + list(f.volumes)
	case Terminating:
		return terminating(f, s)
	case DeletingNode:
		return "The host is off; Node " + f.node.Name + " is being deleted"
	case WaitingForPerson:
		return fmt.Sprintf("%s, so nobody can tell whether it is off. Make sure that it is, then delete Node %s by hand", trouble(f, s), f.node.Name)
	case WaitingForProof:
		if s.Shared {
			return fmt.Sprintf("Node %s %s: to drain or delete it would release what runs on another host. Give the other one a Node of its own; or, if this Node is the other one's by now, correct spec.providerID and the reference of this Machine", f.node.Name, f.sharer)
		}
		return fmt.Sprintf("Nobody can tell whose the Node %s is, which status.nodeRef names: it %s. Set spec.providerID of both, or correct the reference", f.foreign.Name, f.whose.Why)
	case Completed:
		return "Host and Node are gone"
	}
	return ""
}

func terminating(f *facts, s State) string {
	name := client.ObjectKeyFromObject(f.host).String()
	if !s.Provisioned && !s.Requested {
		return fmt.Sprintf("BareMetalHost %s is %s; it can be switched off once it is provisioned", name, cmp.Or(string(f.host.ProvisioningState()), "being registered"))
	}
	return "BareMetalHost " + name + " has to go off, and be known to be off"
}

// hooks names the hooks of a point, and whose they are.
func hooks(f *facts, point api.DeletionPoint) string {
	var all []string
	for _, hook := range api.DeletionHooks(f.machine.Annotations, point) {
		owner := "nobody says whose"
		if hook.Owner != "" {
			owner = "of " + api.Shorten(hook.Owner)
		}
		all = append(all, fmt.Sprintf("%s (%s)", hook.Annotation, owner))
	}
	return list(all)
}

// draining says which Pods are waited for, and why.
func (r *Reconciler) draining(m *memory, f *facts) string {
	var all []string
	for _, pod := range f.evict {
		text := client.ObjectKeyFromObject(pod).String() + " is to be evicted"
		if why, ok := m.round.refused[pod.UID]; ok {
			text += ", which was refused: " + api.Shorten(why)
		}
		all = append(all, text)
	}
	for _, pod := range f.leaving {
		all = append(all, client.ObjectKeyFromObject(pod).String()+" is stopping")
	}
	if len(all) == 0 {
		return "Node " + f.node.Name + " is being cordoned"
	}
	return "Node " + f.node.Name + " is being drained: " + list(all)
}

// trouble says why nobody can tell whether the host is off.
func trouble(f *facts, s State) string {
	switch name := f.machine.Annotations[api.HostAnnotation]; {
	case name == "":
		return "The Machine has no annotation " + api.HostAnnotation
	case f.host == nil:
		return "There is no BareMetalHost " + api.Shorten(name)
	case s.HostUsed:
		return fmt.Sprintf("BareMetalHost %s is %s", api.Shorten(name), f.host.ProvisioningState())
	default:
		return fmt.Sprintf("BareMetalHost %s is not used by this Machine", api.Shorten(name))
	}
}

// list joins some of many.
func list(all []string) string {
	if more := len(all) - mostNamed; more > 0 {
		return strings.Join(all[:mostNamed], "; ") + fmt.Sprintf("; and %d more", more)
	}
	return strings.Join(all, "; ")
}

// complain tells of what a user has to look at, once.
func (r *Reconciler) complain(m *memory, f *facts, s State, action Action) {
	if r.Warn == nil || !s.Deleting {
		return
	}
	warn := func(reason, message string) {
		if !m.warned[message] {
			m.warned[message] = true
			r.Warn(f.machine, reason, message)
		}
	}
	var keys []string
	for key := range f.machine.Annotations { // order does not matter: sorted below
		if api.MisspelledHook(key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		warn("NotADeletionHook", fmt.Sprintf("annotation %s is no deletion hook, and nobody waits for it: those begin with %s or %s", key, api.PreDrain, api.PreTerminate))
	}
	for _, point := range []api.DeletionPoint{api.PreDrain, api.PreTerminate} {
		for _, hook := range api.DeletionHooks(f.machine.Annotations, point) {
			if hook.Owner == "" {
				warn("DeletionHookWithoutOwner", fmt.Sprintf("the hook %s does not say whose it is: its value should name who removes it", hook.Annotation))
			}
		}
	}
	if f.foreign != nil {
		if f.whose.Owner == api.Anothers {
			warn("NodeOfAnotherMachine", fmt.Sprintf("the Node %s, which status.nodeRef names, %s: it is left alone", f.foreign.Name, f.whose.Why))
		}
	}
	if m.late(action) && f.host != nil {
		warn("AnswersTooLate", fmt.Sprintf(
			"each of the last %d requests to BareMetalHost %s to stay off was answered when it was %s old or older, which is too old to go by: "+
				"set answerWithin of the deletion controller to more than what the BMC and the reboot controller take for an answer, and to less than the host takes to boot",
			lateAnswers, client.ObjectKeyFromObject(f.host), r.Settings.AnswerWithin.Duration))
	}
	if phase := s.Phase(); phase == WaitingForPerson || phase == WaitingForProof {
		warn(string(phase), r.message(m, f, s))
	}
}

// lateAnswers are as many as a user wants to know of.
const lateAnswers = 3

// late takes note of answers that come too late, one after the other, and reports whether
// they are that many: where a BMC is that slow, the host is asked for ever.
func (m *memory) late(action Action) bool {
	switch action {
	case HoldAgain:
		m.lateAnswers++
	case HoldOff, DeleteNode, Release:
		m.lateAnswers = 0
	}
	return m.lateAnswers >= lateAnswers
}
