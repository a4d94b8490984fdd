package deletion

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/api/hold"
)

// Settings are the options of the deletion controller.
type Settings struct {
	// PollInterval is how often it looks at what nobody tells of: Pods that stop, budgets
	// that allow an eviction again, volumes that are detached. No round of evictions begins
	// sooner after the one before, and no condition is worded anew.
	PollInterval metav1.Duration `json:"pollInterval"`
	// AnswerWithin is how long after its request the answer that the host is off may be
	// acted upon, as with the remediation controller: it must be shorter than the fastest
	// host boots.
	AnswerWithin metav1.Duration `json:"answerWithin"`
}

// DefaultSettings returns times that suit the fastest virtual machines as well as servers.
func DefaultSettings() Settings {
	return Settings{PollInterval: metav1.Duration{Duration: 5 * time.Second}, AnswerWithin: metav1.Duration{Duration: 5 * time.Second}}
}

// Reconciler is the deletion controller. All fields but Warn and Inform must be set.
type Reconciler struct {
	// Client writes, and reads from a cache which Machines there are to look at.
	Client client.Client
	// Live reads from the API server all that a deletion hangs on: it is rare, and a hook
	// or a Pod that a cache doesn't know yet would be overlooked.
	Live  client.Reader
	Clock clock.PassiveClock
	// Warn and Inform tell the users of an object of a problem, and of progress; may be nil.
	Warn, Inform func(about client.Object, reason, message string)
	Settings     Settings
	// Decide is the function Decide, or a wrong one to be tested against.
	Decide func(State) Action

	mutex    sync.Mutex
	machines map[types.NamespacedName]*memory
}

// memory is what the controller remembers of a Machine. It may be lost at any time.
type memory struct {
	uid types.UID
	// round is the round of evictions that is under way.
	round round
	// reported is when the condition was written last or, of one that an earlier process may
	// have written, when this one first saw the Machine: one that keeps dying must not
	// report more often.
	reported time.Time
	// warned has the warnings that were given.
	warned map[string]bool
	// request is the age of the request to keep the host off, and lateAnswers counts the
	// answers in a row that came too late.
	request     hold.Age
	lateAnswers int
}

// Reconcile does one step for one Machine.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	machine, err := api.Get(ctx, r.Client, key, &clusterv1.Machine{})
	if machine != nil && (machine.DeletionTimestamp != nil || !hasFinalizer(machine)) {
		machine, err = api.Get(ctx, r.Live, key, &clusterv1.Machine{})
	} else if machine != nil {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("delete Machine %s: %w", key, err)
	}
	if machine == nil {
		r.forget(key)
		return reconcile.Result{}, nil
	}
	if _, paused := machine.Annotations[clusterv1.PausedAnnotation]; paused {
		return reconcile.Result{}, nil
	}
	m := r.remember(machine)
	f, err := r.read(ctx, m, machine)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("delete Machine %s: %w", key, err)
	}
	return r.step(ctx, m, f)
}

// step has one effect.
func (r *Reconciler) step(ctx context.Context, m *memory, f *facts) (reconcile.Result, error) {
	state := r.state(m, f)
	action := r.Decide(state)
	r.complain(m, f, state, action)
	if err := client.IgnoreNotFound(r.act(ctx, m, f, state, action)); err != nil {
		return reconcile.Result{}, fmt.Errorf("%s for Machine %s: %w", action, client.ObjectKeyFromObject(f.machine), err)
	}
	switch {
	case action == Evict, action == Cordon:
		return reconcile.Result{RequeueAfter: soon}, nil
	case action == Nothing, action == RemoveFinalizer, action == AddFinalizer:
		return reconcile.Result{}, nil
	}
	// What was written brings a watch event, but a cache may have missed what it is about.
	return reconcile.Result{RequeueAfter: r.Settings.PollInterval.Duration}, nil
}

// soon is when the next Pod is evicted: no watch tells of one that was.
const soon = 10 * time.Millisecond

func (r *Reconciler) remember(machine *clusterv1.Machine) *memory {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	key := client.ObjectKeyFromObject(machine)
	m := r.machines[key]
	if m == nil || m.uid != machine.UID {
		m = &memory{uid: machine.UID, reported: r.Clock.Now(), warned: map[string]bool{}}
		if r.machines == nil {
			r.machines = map[types.NamespacedName]*memory{}
		}
		r.machines[key] = m
	}
	return m
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.machines, key)
}

func hasFinalizer(machine *clusterv1.Machine) bool {
	return slices.Contains(machine.Finalizers, clusterv1.MachineFinalizer)
}

// facts are the objects that a State is read from. What is not there is nil.
type facts struct {
	machine *clusterv1.Machine
	host    *api.BareMetalHost
	node    *corev1.Node
	// evict are the Pods to be evicted, leaving those that were and run yet.
	evict, leaving []*corev1.Pod
	// volumes are the names of the attachments to the Node.
	volumes []string
	// sharer says who else may have the node, if anybody.
	sharer string
	// foreign is the Node that status.nodeRef names and that is another machine's, or of
	// which nobody can tell whose it is, and whose says why.
	foreign *corev1.Node
	whose   api.Proof
}

// read finds what belongs to a Machine that is being deleted.
func (r *Reconciler) read(ctx context.Context, m *memory, machine *clusterv1.Machine) (*facts, error) {
	f := &facts{machine: machine}
	if machine.DeletionTimestamp == nil {
		return f, nil
	}
	began := r.Clock.Now()
	var err error
	if f.host, err = hostOf(ctx, r.Live, machine); err != nil {
		return nil, err
	}
	m.request.Look(holdKey.Content(f.host), began)
	if err = f.findNode(ctx, r.Live); err != nil || f.node == nil {
		return f, err
	}
	if f.hostUsed() {
		if f.sharer, err = api.Sharer(ctx, r.Client, machine, f.node, f.host); err != nil {
			return nil, err
		}
	}
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": f.node.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Pods on Node %s: %w", f.node.Name, err)
	}
	for i := range pods.Items {
		switch pod := &pods.Items[i]; {
		case stays(pod):
		case pod.DeletionTimestamp != nil:
			f.leaving = append(f.leaving, pod)
		default:
			f.evict = append(f.evict, pod)
		}
	}
	var attachments storagev1.VolumeAttachmentList
	if err := r.Live.List(ctx, &attachments, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the VolumeAttachments: %w", err)
	}
	for i := range attachments.Items {
		if attachments.Items[i].Spec.NodeName == f.node.Name {
			f.volumes = append(f.volumes, attachments.Items[i].Name)
		}
	}
	return f, nil
}

// hostOf returns the BareMetalHost that the Machine names, or nil if there is none.
func hostOf(ctx context.Context, reader client.Reader, machine *clusterv1.Machine) (*api.BareMetalHost, error) {
	namespace, name, ok := strings.Cut(machine.Annotations[api.HostAnnotation], "/")
	if !ok || namespace == "" || name == "" {
		return nil, nil
	}
	return api.Get(ctx, reader, types.NamespacedName{Namespace: namespace, Name: name}, &api.BareMetalHost{})
}

// findNode finds the Machine's Node: the one that status.nodeRef names, unless that is
// another machine's, for a name is used again; else one that proves to be the Machine's, for
// a kubelet may have registered before anybody set the reference.
func (f *facts) findNode(ctx context.Context, reader client.Reader) (err error) {
	host := f.host
	if !f.hostUsed() {
		host = nil // another's tells nothing about this Machine
	}
	if f.machine.Status.NodeRef.IsDefined() {
		node, err := api.Get(ctx, reader, types.NamespacedName{Name: f.machine.Status.NodeRef.Name}, &corev1.Node{})
		if err != nil {
			return err
		}
		if node != nil {
			if f.whose, err = api.WhoseNode(ctx, reader, f.machine, node, host); err != nil {
				return err
			}
			if f.whose.Owner == api.Own {
				f.node = node
				return nil
			}
		}
		f.foreign = node
	}
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the Nodes: %w", err)
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if f.foreign != nil && node.Name == f.foreign.Name || !mayBe(node, f.machine, host) {
			continue
		}
		proof, err := api.WhoseNode(ctx, reader, f.machine, node, host)
		if err != nil {
			return err
		}
		if proof.Owner == api.Own {
			f.node = node
			return nil
		}
	}
	return nil
}

// mayBe reports whether it is worth asking for the owner of a Node that nobody refers to.
func mayBe(node *corev1.Node, machine *clusterv1.Machine, host *api.BareMetalHost) bool {
	if id := machine.Spec.ProviderID; id != "" && node.Spec.ProviderID != "" {
		return node.Spec.ProviderID == id
	}
	return host != nil && host.Status.Hardware.SystemUUID != "" && strings.EqualFold(host.Status.Hardware.SystemUUID, node.Status.NodeInfo.SystemUUID)
}

// state makes the facts about a Machine comparable.
func (r *Reconciler) state(m *memory, f *facts) State {
	machine := f.machine
	s := State{
		Deleting:         machine.DeletionTimestamp != nil,
		Finalizer:        hasFinalizer(machine),
		PreDrainHook:     len(api.DeletionHooks(machine.Annotations, api.PreDrain)) > 0,
		PreTerminateHook: len(api.DeletionHooks(machine.Annotations, api.PreTerminate)) > 0,
	}
	if !s.Deleting {
		return s
	}
	s.SkipDrain = wanted(machine, clusterv1.ExcludeNodeDrainingAnnotation) ||
		r.over(machine.Spec.Deletion.NodeDrainTimeoutSeconds, deletionStatus(machine).NodeDrainStartTime)
	// Pods that are not drained keep their volumes.
	s.SkipDetach = wanted(machine, clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation) || wanted(machine, clusterv1.ExcludeNodeDrainingAnnotation) ||
		r.over(machine.Spec.Deletion.NodeVolumeDetachTimeoutSeconds, deletionStatus(machine).WaitForNodeVolumeDetachStartTime)
	if node := f.node; node != nil {
		s.NodeExists, s.Shared, s.NodeLeaving = true, f.sharer != "", node.DeletionTimestamp != nil
		s.Cordoned, s.Unreachable = node.Spec.Unschedulable, ready(node) == corev1.ConditionUnknown
		if len(f.evict) > 0 && m.round.next(f.evict) == nil && !r.lately(m.round.began) {
			m.round = m.round.after(f.evict, r.Clock.Now())
		}
		s.PodsToEvict = m.round.next(f.evict) != nil
		s.PodsLater = !s.PodsToEvict && len(f.evict) > 0
		s.PodsLeaving, s.VolumesAttached = len(f.leaving) > 0, len(f.volumes) > 0
	}
	s.NodeUnproven = f.node == nil && f.foreign != nil && f.whose.Owner == api.Unproven
	if f.hostUsed() {
		s.HostUsed = true
		state := f.host.ProvisioningState()
		s.Provisioned = state.Provisioned()
		s.Deprovisioned = state == api.StateDeprovisioning || state == api.StateAvailable
		s.Requested, s.HeldOff = f.requested(), f.heldOff()
		s.Outdated = r.outdated(m, f)
	}
	s.Left = f.host != nil && !s.HostUsed && f.requested()
	var recorded metav1.Condition
	if recorded = condition(machine); recorded.Status == metav1.ConditionTrue {
		s.Recorded = Phase(recorded.Reason)
	}
	s.Stale = s.Recorded == s.Phase() && recorded.Message != r.message(m, f, s)
	s.JustReported = r.lately(m.reported)
	return s
}

// lately reports whether a time is less than a poll interval ago. One that is still to come
// was taken before somebody set the clock.
func (r *Reconciler) lately(at time.Time) bool {
	ago := r.Clock.Now().Sub(at)
	return 0 <= ago && ago < r.Settings.PollInterval.Duration
}

func wanted(machine *clusterv1.Machine, annotation string) bool {
	_, ok := machine.Annotations[annotation]
	return ok
}

// over reports whether a time that the user has set for something is over.
func (r *Reconciler) over(seconds *int32, since metav1.Time) bool {
	return seconds != nil && *seconds > 0 && !since.IsZero() && r.Clock.Now().Sub(since.Time) >= time.Duration(*seconds)*time.Second
}

func ready(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// act has the one effect of an action.
func (r *Reconciler) act(ctx context.Context, m *memory, f *facts, s State, action Action) error {
	switch action {
	case AddFinalizer, RemoveFinalizer:
		return r.setFinalizer(ctx, f.machine, action == AddFinalizer)
	case Record:
		return r.record(ctx, m, f, s)
	case Release, LetGo, HoldOff, HoldAgain:
		if f.host == nil {
			return errors.New("the Machine has no host") // Decide never asks for it
		}
	}
	switch action {
	case Release:
		return r.release(ctx, f)
	case LetGo:
		return r.letGo(ctx, f)
	case HoldOff, HoldAgain:
		return r.hold(ctx, f)
	case Cordon, Evict, DeleteNode:
		if f.node == nil {
			return errors.New("the Machine has no Node") // Decide never asks for it
		}
	}
	switch action {
	case Cordon:
		return r.Client.Patch(ctx, f.node, api.SetSpec(f.node, `"unschedulable":true`))
	case Evict:
		return r.evict(ctx, m, m.round.next(f.evict))
	case DeleteNode:
		return r.deleteNode(ctx, m, f)
	}
	return nil
}

func (r *Reconciler) setFinalizer(ctx context.Context, machine *clusterv1.Machine, add bool) error {
	finalizers := slices.DeleteFunc(slices.Clone(machine.Finalizers), func(f string) bool { return f == clusterv1.MachineFinalizer })
	if add {
		finalizers = append(finalizers, clusterv1.MachineFinalizer)
	}
	return r.Client.Patch(ctx, machine.DeepCopy(), api.SetFinalizers(machine, finalizers))
}

// deleteNode deletes the Node that was read, and no other, in the version that was read;
// and the host must not have changed between the decision and after the Node was read
// (design, decision 9).
func (r *Reconciler) deleteNode(ctx context.Context, m *memory, f *facts) error {
	if f.host == nil {
		return errors.New("the Machine has no host") // Decide never asks for it
	}
	host, err := api.Get(ctx, r.Live, client.ObjectKeyFromObject(f.host), &api.BareMetalHost{})
	switch {
	case err != nil:
		return err
	case host == nil || host.ResourceVersion != f.host.ResourceVersion:
		return errors.New("the host changed while its Node was read")
	case r.outdated(m, f):
		return errors.New("the answer to its request became too old while its Node was read")
	}
	return r.Client.Delete(ctx, f.node, client.Preconditions{UID: &f.node.UID, ResourceVersion: &f.node.ResourceVersion})
}

// MachineOfHost maps a host to the Machine that uses it.
func MachineOfHost(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
	host, ok := obj.(*api.BareMetalHost)
	if !ok {
		return nil
	}
	key, ok := api.Consumer(host)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// MachineOfNode maps a Node to the Machines that have it.
func MachineOfNode(ctx context.Context, reader client.Reader, obj client.Object) []reconcile.Request {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return nil
	}
	var machines clusterv1.MachineList
	if err := reader.List(ctx, &machines, client.UnsafeDisableDeepCopy); err != nil {
		return nil // a cache that has not synced: its Machines are visited when it has
	}
	var requests []reconcile.Request
	for i := range machines.Items {
		machine := &machines.Items[i]
		if machine.DeletionTimestamp != nil && (machine.Status.NodeRef.Name == node.Name || machine.Spec.ProviderID != "" && machine.Spec.ProviderID == node.Spec.ProviderID) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(machine)})
		}
	}
	return requests
}
