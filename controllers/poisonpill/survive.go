package poisonpill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/api/fence"
)

// survive does the next step for every boot that is fenced, or has to be. All healthy agents do
// so: their writes have preconditions, so that the second writer changes nothing.
func (a *Agent) survive(ctx context.Context, s *survey) error {
	concerned := map[string]bool{}
	for node := range s.fences { // order does not matter: into a set
		concerned[node] = true
	}
	for node := range s.machines { // order does not matter: into a set
		if s.marked(node) || s.stamp(node) != "" {
			concerned[node] = true
		}
	}
	a.complain(s)
	var problems []error
	for _, node := range slices.Sorted(maps.Keys(concerned)) {
		if err := a.help(ctx, s, node); err != nil {
			problems = append(problems, err)
		}
		if err := a.feed(ctx); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// complain warns once of Machines that no agent can help. One agent's warning is enough.
func (a *Agent) complain(s *survey) {
	for _, node := range slices.Sorted(maps.Keys(s.nodes)) {
		if ready(s.nodes[node]) {
			if node != a.Node {
				return
			}
			break
		}
	}
	for _, m := range s.lost {
		if a.warned[m.UID] {
			continue
		}
		if a.warned == nil {
			a.warned = map[types.UID]bool{}
		}
		a.warned[m.UID] = true
		a.warn(m, "NoNode", fmt.Sprintf("the Machine is to be remediated, and its status.nodeRef is %q, which is no Node of its own: nobody knows which host has to be reset before that is corrected", api.Shorten(m.Status.NodeRef.Name)))
	}
}

// help does the next step for one boot.
func (a *Agent) help(ctx context.Context, s *survey, name string) error {
	state := a.facts(s, name)
	action := a.Decide(state)
	if action == RecreateNode {
		var err error
		if state.Lingering, err = a.bound(ctx, name); err != nil {
			return err
		}
		action = a.Decide(state)
	}
	if action == Wait {
		if state.Lingering {
			a.m.Next = min(a.m.Next, a.Boot.Uptime()+a.Settings.Interval.Duration)
		}
		return nil
	}
	a.m.Next = min(a.m.Next, a.Boot.Uptime()+again)
	err := a.act(ctx, s, name, action)
	if err != nil {
		return quiet(fmt.Errorf("%s for Node %s: %w", action, name, err))
	}
	return nil
}

// bound reports whether Pods are still bound to a Node's name: a Node that is made anew would keep
// them, and their volumes.
func (a *Agent) bound(ctx context.Context, node string) (bool, error) {
	var pods corev1.PodList
	if err := a.API.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list the Pods of Node %s: %w", node, err)
	}
	return len(pods.Items) > 0, nil
}

// facts gathers the facts for the next step for a boot.
func (a *Agent) facts(s *survey, name string) State {
	f, node := s.fences[name], s.nodes[name]
	state := State{About: OfFence, Marked: s.marked(name), Fenced: f != nil, Node: NodeGone}
	switch boot := bootOf(node); {
	case node == nil:
	case boot == "":
		state.Node = NodeBlank
	case f != nil && boot == f.Spec.Boot:
		state.Node = NodeFenced
	default:
		state.Node = NodeOther
	}
	if f == nil {
		state.Stamped = s.stamp(name) != ""
		return state
	}
	machine := s.machineOf(f)
	state.Orphan = machine == nil || machine.UID != f.Spec.Machine.UID
	state.Marked = !state.Orphan && isMarked(machine)
	state.Stamped = !state.Orphan && machine.Annotations[api.MarkedBootAnnotation] == f.Spec.Boot
	state.Backed = f.Spec.Backup.ProviderID != "" || len(f.Spec.Backup.Labels) > 0
	state.Cordoned = node != nil && strings.HasSuffix(node.Annotations[FencedAnnotation], " "+string(f.UID)) &&
		(state.Node != NodeFenced || node.Spec.Unschedulable) // a user may have opened it, and it could be given work
	state.Leaving = node != nil && !node.DeletionTimestamp.IsZero()
	state.Bare = state.Node == NodeOther && madeAnew(node, f) && amended(node, f) != nil
	w := a.m.waitFor(f)
	a.observe(w, s, f)
	if state.Promised = w.Promise.Boot == f.Spec.Boot && len(w.Promise.Peers) > 0; !state.Promised && state.Node == NodeFenced && !w.Warned {
		w.Warned = true
		a.warn(node, "NotProtected", fmt.Sprintf("boot %s has to end, and no agent of it has announced when its host would be reset: reset the host, or delete the Node when it is off", f.Spec.Boot))
	}
	if state.Quorate = w.Quorate; state.Promised && state.Quorate {
		terms := a.Settings.withClockError(w.Promise.Terms)
		now := a.Boot.Uptime()
		safe, waited := max(terms.Sum(), a.Settings.SafeTime.Duration), now-w.Since
		left := func(term time.Duration) bool { return waited >= safe-term }
		state.Safe = left(0)
		state.OnlyReadsLeft, state.OnlyRoundsLeft = left(terms.Reads.Duration), left(terms.Rounds.Duration)
		state.OnlyPauseLeft, state.OnlyResetLeft = left(terms.Pause.Duration), left(terms.Reset.Duration)
		state.OnlyClockErrorLeft = left(terms.ClockError)
		if !state.Safe {
			a.m.Next = min(a.m.Next, w.Since+safe)
		}
	}
	if state.Node == NodeGone {
		left := w.Gone + a.Settings.RecreateAfter.Duration - a.Boot.Uptime()
		if state.Lingering = left > 0; state.Lingering {
			a.m.Next = min(a.m.Next, a.Boot.Uptime()+left)
		}
	}
	return state
}

// observe notes what the others know, and since when. The agent of the fenced boot may have lived
// by any of its promises, with other peers, so a changed promise counts too.
func (a *Agent) observe(w *wait, s *survey, f *fence.NodeFence) {
	now, node := a.Boot.Uptime(), s.nodes[f.Name]
	if node != nil {
		if p := s.readings.of(node); !p.promises(w.Promise) {
			w.Promise, w.Quorate = p, false
		}
		w.Missing = false
	} else if !w.Missing {
		w.Missing, w.Gone = true, now
	}
	if quorate := w.Promise.quorate(func(peer string) bool { return s.nodes[peer] != nil && s.knownTo(peer, f.UID) }); quorate && !w.Quorate {
		w.Quorate, w.Since = true, now
	}
}

// act takes the step.
func (a *Agent) act(ctx context.Context, s *survey, name string, action Action) error {
	f, node, machine := s.fences[name], s.nodes[name], s.machines[name]
	if f != nil {
		machine = s.machineOf(f)
	}
	if action == RequestFence {
		boot := bootOf(node)
		if f == nil {
			boot = cmp.Or(s.stamp(name), boot)
		}
		return a.request(ctx, s, name, boot)
	}
	if f == nil && action != RemoveMark {
		return errors.New("there is no NodeFence") // the table never asks for it
	}
	if (action == Cordon || action == DeleteNode || action == Uncordon || action == Restore) && node == nil || action == RemoveMark && machine == nil {
		return errors.New("there is no such object") // nor for this
	}
	if action == Cordon || action == DeleteNode {
		if now := renewed(f, node, action == Cordon); now != nil { // before that it may still change
			return a.API.Patch(ctx, now, client.MergeFromWithOptions(f, client.MergeFromWithOptimisticLock{}))
		}
	}
	switch action {
	case Cordon:
		stamp := a.Clock.Now().UTC().Format(time.RFC3339) + " " + string(f.UID)
		return a.API.Patch(ctx, node.DeepCopy(), patchNode(node, api.Quote(stamp), true))
	case DeleteNode:
		return a.API.Delete(ctx, node.DeepCopy(), client.Preconditions{UID: &node.UID, ResourceVersion: &node.ResourceVersion})
	case RemoveMark:
		return a.API.Patch(ctx, machine.DeepCopy(), api.RemoveAnnotations(machine, api.ExternalRemediationAnnotation, api.MarkedBootAnnotation))
	case RecreateNode:
		return a.API.Create(ctx, f.Spec.Backup.Node(f.Name))
	case Uncordon:
		return a.API.Patch(ctx, node.DeepCopy(), patchNode(node, "null", cordoned(f, node)))
	case Restore:
		if amended := amended(node, f); amended != nil {
			return a.API.Patch(ctx, amended, client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{}))
		}
	case Finish:
		return a.API.Delete(ctx, f.DeepCopy(), client.Preconditions{UID: &f.UID})
	}
	return nil
}

// patchNode stamps a Node or removes the stamp, and sets whether Pods may come.
func patchNode(node *corev1.Node, stamp string, unschedulable bool) client.Patch {
	return client.RawPatch("application/merge-patch+json", fmt.Appendf(nil,
		`{"metadata":{"resourceVersion":%s,"annotations":{%s:%s}},"spec":{"unschedulable":%t}}`,
		api.Quote(node.ResourceVersion), api.Quote(FencedAnnotation), stamp, unschedulable))
}

// request stamps the mark with a boot and makes the boot's NodeFence, with the backup of its Node.
// It is fine if another agent has made it first.
func (a *Agent) request(ctx context.Context, s *survey, name, boot string) error {
	machine := s.machines[name]
	if machine == nil || boot == "" {
		return fmt.Errorf("request the fencing of Node %s: no Machine is marked for it, or it tells of no boot", name)
	}
	if s.stamp(name) != boot {
		if err := a.stamp(ctx, machine, boot); err != nil {
			return fmt.Errorf("request the fencing of Node %s: %w", name, err)
		}
	}
	f := &fence.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: fence.NodeFenceSpec{
		Boot:        boot,
		Machine:     fence.MachineReference{Namespace: machine.Namespace, Name: machine.Name, UID: machine.UID},
		RequestedAt: metav1.NewMicroTime(a.Clock.Now().UTC()),
	}}
	if node := s.nodes[name]; node != nil {
		f.Spec.Backup = backup(node)
	}
	if err := a.API.Create(ctx, f); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("request the fencing of Node %s: %w", name, err)
	}
	return nil
}

// stamp stamps the mark of a Machine with its boot, unless another agent has.
func (a *Agent) stamp(ctx context.Context, machine *clusterv1.Machine, boot string) error {
	err := a.API.Patch(ctx, machine.DeepCopy(), api.SetAnnotation(machine, api.MarkedBootAnnotation, boot))
	if !apierrors.IsConflict(err) {
		return err
	}
	now, failed := api.Get(ctx, a.API, client.ObjectKeyFromObject(machine), &clusterv1.Machine{})
	if failed == nil && now != nil && now.UID == machine.UID && isMarked(now) && now.Annotations[api.MarkedBootAnnotation] == boot {
		return nil
	}
	return err
}

// backup returns the data to recreate a Node from, without what agents have written there.
func backup(node *corev1.Node) fence.Backup {
	return fence.BackupOf(node, AgentAnnotation, FencedAnnotation)
}

// cordoned reports whether users want a Node cordoned that the survivors have cordoned: they did
// before, and have not taken it away since.
func cordoned(f *fence.NodeFence, node *corev1.Node) bool {
	return f.Spec.Backup.Unschedulable && node.Spec.Unschedulable
}

// renewed returns a NodeFence with all that users have set on its Node since the backup, or nil if
// there is nothing new. They may cordon the Node until the survivors do.
func renewed(f *fence.NodeFence, node *corev1.Node, theirCordon bool) *fence.NodeFence {
	now := f.DeepCopy()
	now.Spec.Backup = backup(node)
	if !theirCordon {
		now.Spec.Backup.Unschedulable = cordoned(f, node)
	}
	if equality.Semantic.DeepEqual(now, f) {
		return nil
	}
	return now
}

// madeAnew reports whether a Node was created after the one that was fenced. Both times are the
// API server's.
func madeAnew(node *corev1.Node, f *fence.NodeFence) bool {
	return f.CreationTimestamp.Before(&node.CreationTimestamp)
}

// amended returns a Node made by a kubelet with what it lacks of the backup, or nil if it lacks
// nothing. Settings of the kubelet or anybody else stay.
func amended(node *corev1.Node, f *fence.NodeFence) *corev1.Node {
	b, n := &f.Spec.Backup, node.DeepCopy()
	lacks := add(&n.Labels, b.Labels)
	lacks = add(&n.Annotations, b.Annotations) || lacks
	for _, t := range b.Taints {
		if !slices.ContainsFunc(n.Spec.Taints, func(o corev1.Taint) bool { return o.MatchTaint(&t) }) {
			n.Spec.Taints, lacks = append(n.Spec.Taints, t), true
		}
	}
	if b.Unschedulable && !n.Spec.Unschedulable {
		n.Spec.Unschedulable, lacks = true, true
	}
	if !lacks {
		return nil
	}
	return n
}

// add adds the missing entries, and reports whether there were any.
func add(to *map[string]string, entries map[string]string) (added bool) {
	for key, value := range entries { // order does not matter: each entry is added by itself
		if _, ok := (*to)[key]; !ok {
			if *to == nil {
				*to = map[string]string{}
			}
			(*to)[key], added = value, true
		}
	}
	return added
}

func (a *Agent) warn(about client.Object, reason, message string) {
	if a.Warn != nil {
		a.Warn(about, reason, message)
	}
}

// quiet drops the errors that mean that another agent came first.
func quiet(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
