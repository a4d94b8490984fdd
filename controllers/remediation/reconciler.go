package remediation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/api/fence"
	"github.com/fencelab/fencelab/controllers/api/hold"
)

// Settings are the options of the machine remediation controller.
type Settings struct {
	// KeepMarkUntilNodeReturns chooses KeepMark instead of Decide.
	KeepMarkUntilNodeReturns bool `json:"keepMarkUntilNodeReturns"`
	// AnswerWithin is how long after its request an answer may be acted upon. It
	// must be shorter than the fastest host boots, for power may come back by
	// itself right after the reading, and longer than the reading and two writes
	// take, or no Node is ever deleted.
	AnswerWithin metav1.Duration `json:"answerWithin"`
	// TrustPoweredOn accepts status.poweredOn: false as the answer to a request, whenever it was
	// written, like cluster-api-provider-metal3. It is for power controllers that give no other
	// answer, and is not safe: such a status may be older than the request or than the host's next
	// boot.
	TrustPoweredOn bool `json:"trustPoweredOn,omitempty"`
	// Fences are the hosts that this controller fences, where others fence the rest; all if empty.
	Fences []string `json:"fences,omitempty"`
	// Delay is how long it has to see a Machine marked before it begins to fence the host. The
	// other one wins where two can fence each other.
	Delay metav1.Duration `json:"delay,omitzero"`
	// Release is the way in which the workload of a host that is off is released.
	Release Release `json:"release"`
	// NodeTimeout is how long KeepMark waits for the Node of a host that it let go
	// of before it power-cycles the host again.
	NodeTimeout metav1.Duration `json:"nodeTimeout"`
}

// Hosts are the field of the settings that names hosts, and those.
func (s *Settings) Hosts() (field string, names []string) { return "fences", s.Fences }

// DefaultSettings returns the options of seed 002, with times that suit the fastest
// virtual machines as well as servers, and Cluster API's default for a Node to
// start.
func DefaultSettings() Settings {
	return Settings{
		Release:      NodeDeletion,
		AnswerWithin: metav1.Duration{Duration: 5 * time.Second},
		NodeTimeout:  metav1.Duration{Duration: 10 * time.Minute},
	}
}

// Reconciler is the machine remediation controller. All fields but Warn must be set.
type Reconciler struct {
	// Client writes, and reads from a cache.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Clock dates requests. It is compared with no other clock, except that of the previous
	// process. Steady measures how long this process has waited: setting the clock doesn't move it.
	Clock, Steady clock.PassiveClock
	// Warn warns the users of an object; may be nil.
	Warn     func(about client.Object, reason, message string)
	Settings Settings
	// Decide is the function Decide or KeepMark, or a wrong one to be tested
	// against.
	Decide func(State) Action

	mutex sync.Mutex
	hosts map[types.NamespacedName]*memory
}

// holdKey is the key of the request that holds a host off until its Node is gone.
var holdKey = hold.NewKey(api.RemediationRebootKey)

// memory is the controller's memory of a host. It may be lost at any time: the boot that a request
// names remains.
type memory struct {
	// request is the age of the request that holds the host off.
	request hold.Age
	// released is when the host was first seen let go of and its Node missing.
	released time.Time
	// marked is when the Machine was first seen marked.
	marked time.Time
	// lateAnswers counts the answers in a row that came too late, and warned has the
	// warnings that were given.
	lateAnswers int
	warned      map[warning]bool
}

// warning is a message about an object.
type warning struct {
	about   types.UID
	message string
}

// facts are the three objects that a State is read from. Machine and node are nil if they don't
// exist.
type facts struct {
	node    *corev1.Node
	machine *clusterv1.Machine
	host    *api.BareMetalHost
	// whose is the owner of the node, and foreign a Node that turned out not to be the Machine's.
	whose   api.Proof
	foreign *corev1.Node
	// sharer says who else may have the node, if anybody.
	sharer string
	// emptied says that nothing is left on the node that the out-of-service taint releases.
	emptied bool
	// barrier is the host's StorageFence, if that is asked for.
	barrier *fence.StorageFence
	// astray is the Machine that uses the host and names another one.
	astray *clusterv1.Machine
}

// lookAgain is when the host of a deleted Node, or of a request that was made anew, is looked at
// again. Other writes bring their own watch events in time. But a cache never learns of a Node
// that came and went between two lists, and an answer that arrives late is too old.
const lookAgain = time.Second

// Reconcile does one step for one host.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	action := Nothing
	if len(r.Settings.Fences) > 0 && !slices.Contains(r.Settings.Fences, request.Name) {
		return reconcile.Result{}, nil
	}
	var found facts
	m := r.remember(request.NamespacedName)
	for i, reader := range []client.Reader{r.Client, r.Live} {
		began, live := r.Clock.Now(), i == 1
		var err error
		if found, err = read(ctx, reader, request.NamespacedName); err != nil {
			r.complain(ctx, m, found)
			return reconcile.Result{}, fmt.Errorf("remediate BareMetalHost %s: %w", request, err)
		}
		if found.host == nil {
			r.forget(request.NamespacedName)
			return reconcile.Result{}, nil
		}
		if found.node != nil && marked(found.machine) {
			if found.sharer, err = api.Sharer(ctx, r.Client, found.machine, found.node, found.host); err != nil {
				return reconcile.Result{}, fmt.Errorf("remediate BareMetalHost %s: %w", request, err)
			}
		}
		r.complain(ctx, m, found)
		if live {
			m.request.Look(holdKey.Content(found.host), began)
		}
		s := found.state()
		if r.Settings.TrustPoweredOn {
			s.AnswersRequest = s.RebootAnnotation && !s.StatusOn
		}
		s.Outdated = r.outdated(m, found)
		if r.Settings.Release == StorageFence {
			if err = s.kept(ctx, r.Live, &found); err != nil {
				return reconcile.Result{}, fmt.Errorf("remediate BareMetalHost %s: %w", request, err)
			}
		}
		if (r.Settings.Release == OutOfServiceTaint || r.Settings.Release == StorageFence) && found.node != nil {
			if found.emptied, err = empty(ctx, r.Live, found.node.Name); err != nil {
				return reconcile.Result{}, fmt.Errorf("remediate BareMetalHost %s: %w", request, err)
			}
			s.tainted(found)
		}
		if r.Settings.Release == NodeRecreation {
			if err = s.recreated(ctx, r.Live, found); err != nil {
				return reconcile.Result{}, fmt.Errorf("remediate BareMetalHost %s: %w", request, err)
			}
		}
		left := r.overdueIn(m, s)
		s.Overdue = left < 0
		action = r.Decide(s)
		wait := r.delayed(m, s, action)
		if action == Nothing {
			if (s.Shared || s.Tainted || s.Backed || s.Remade || found.barrier != nil) && left <= 0 {
				left = lookAgain // neither Pods nor volumes are watched for it, nor the storage, nor other Machines
			}
			return reconcile.Result{RequeueAfter: max(0, left)}, nil
		}
		if wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, nil
		}
	}
	r.count(m, found, action)
	if err := client.IgnoreNotFound(r.act(ctx, m, found, action)); err != nil {
		return reconcile.Result{}, fmt.Errorf("%s for BareMetalHost %s: %w", action, request, err)
	}
	switch {
	case action == FenceStorage, action == UnfenceStorage, action == ForgetFence,
		action == AskAgain, action == DeleteNode && found.node.DeletionTimestamp == nil:
		return reconcile.Result{RequeueAfter: lookAgain}, nil
	}
	return reconcile.Result{}, nil
}

// outdated reports whether the host may have booted since it was off in answer to
// the request. Without a Node there is nothing left that could be done too late, unless this
// controller makes it anew.
func (r *Reconciler) outdated(m *memory, f facts) bool {
	return !r.Settings.TrustPoweredOn && (f.node != nil || r.Settings.Release == NodeRecreation) && m.request.Outdated(holdKey.Content(f.host), f.node, r.Clock.Now(), r.Settings.AnswerWithin.Duration)
}

// overdueIn returns how long the Node of a host that was let go of may still take to return. It is
// negative when the Node should be back, and 0 when none is expected.
func (r *Reconciler) overdueIn(m *memory, s State) time.Duration {
	if s.NodeExists && (r.Settings.Release == NodeDeletion || s.NodeReady) || s.RebootAnnotation || !s.PoweredOffMark {
		m.released = time.Time{}
		return 0
	}
	now := r.Steady.Now()
	if m.released.IsZero() {
		m.released = now
	}
	left := m.released.Add(r.Settings.NodeTimeout.Duration).Sub(now)
	if left <= 0 {
		return -1
	}
	return left
}

// delayed returns how long an action that begins a fencing has to wait.
func (r *Reconciler) delayed(m *memory, s State, action Action) time.Duration {
	switch {
	case !s.NeedsRemediation || s.RebootAnnotation || s.Fenced:
		m.marked = time.Time{}
	case action == AddReboot, action == FenceStorage:
		if m.marked.IsZero() {
			m.marked = r.Steady.Now()
		}
		return m.marked.Add(r.Settings.Delay.Duration).Sub(r.Steady.Now())
	}
	return 0
}

func (r *Reconciler) remember(key types.NamespacedName) *memory {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	m := r.hosts[key]
	if m == nil {
		m = new(memory)
		if r.hosts == nil {
			r.hosts = map[types.NamespacedName]*memory{}
		}
		r.hosts[key] = m
	}
	return m
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.hosts, key)
}

// read finds the host, the Machine that uses it and that Machine's Node.
func read(ctx context.Context, reader client.Reader, key types.NamespacedName) (facts, error) {
	var f facts
	host, err := api.Get(ctx, reader, key, &api.BareMetalHost{})
	if host == nil || err != nil {
		return f, err
	}
	f.host = host
	// A host that is deprovisioned is let go of too, and its reboot annotations are
	// removed (seed 000): to ask for a reboot then would be a quarrel without end.
	if !host.ProvisioningState().Provisioned() {
		return f, nil
	}
	if machineKey, ok := api.Consumer(host); ok {
		if f.machine, err = api.Get(ctx, reader, machineKey, &clusterv1.Machine{}); err != nil {
			return f, err
		}
	}
	// A Machine that names another host is no longer this one's business: the host is only let go
	// of.
	if f.machine != nil && f.machine.Annotations[api.HostAnnotation] != key.String() {
		f.machine, f.astray = nil, f.machine
	}
	if f.machine != nil && f.machine.Status.NodeRef.IsDefined() {
		nodeKey := types.NamespacedName{Name: f.machine.Status.NodeRef.Name}
		if f.node, err = api.Get(ctx, reader, nodeKey, &corev1.Node{}); err != nil || f.node == nil {
			return f, err
		}
		if f.whose, err = api.WhoseNode(ctx, reader, f.machine, f.node, host); err != nil {
			return f, err
		}
	}
	return f, f.check()
}

// check refuses to remediate a Machine whose nodeRef leads to another's Node, by provider IDs, or
// to a Node whose owner can't be determined: a name is used again, and nodeRef has no UID (design,
// decisions 19 and 23). A Node that is another's by other evidence is left alone, and so is a Node
// without a boot, which stands for no host yet.
func (f *facts) check() error {
	if f.node == nil || f.whose.Owner == api.Own {
		return nil
	}
	_, byID := api.ByProviderID(f.machine, f.node)
	unproven := f.whose.Owner == api.Unproven && f.node.Status.NodeInfo.BootID != ""
	if b := backupOf(f.machine); f.whose.Owner == api.Unproven && !unproven && b != nil && b.UID != f.node.UID {
		return nil // it was made from the backup, and stays the Machine's until a kubelet says otherwise
	}
	if marked(f.machine) && (byID || unproven) {
		return errors.New(f.anothersNode())
	}
	f.node, f.foreign = nil, f.node
	return nil
}

func (f facts) state() State {
	s := State{NodeExists: f.node != nil, StatusOn: f.host.Status.PoweredOn, Shared: f.sharer != ""}
	if f.machine != nil {
		_, s.NeedsRemediation = f.machine.Annotations[api.ExternalRemediationAnnotation]
		_, s.PoweredOffMark = f.machine.Annotations[api.PoweredOffForRemediationAnnotation]
	}
	s.RebootAnnotation, s.AnswersRequest = holdKey.Asked(f.host), holdKey.Answered(f.host)
	return s
}

// act has the one effect of an action.
func (r *Reconciler) act(ctx context.Context, m *memory, f facts, action Action) error {
	switch action {
	case RemoveReboot:
		return r.Client.Patch(ctx, f.host, api.RemoveAnnotations(f.host, holdKey.Annotation()))
	case DeleteNode:
		return r.deleteNode(ctx, m, f)
	case TaintNode, UntaintNode:
		if f.node == nil {
			return errors.New("the host's Machine has no Node") // the table never asks for it
		}
		if kept := f.barrier != nil && f.barrier.Is(fence.Fenced); action == TaintNode && !kept && r.outdated(m, f) {
			return errors.New("the answer to its request became too old while its Node was read")
		}
		return r.setTaint(ctx, f.node, action == TaintNode)
	case RecreateNode:
		return r.recreate(ctx, m, f)
	case UnfenceStorage, ForgetFence:
		return r.letIn(ctx, f, action == ForgetFence)
	case Nothing:
		return nil
	}
	machine := f.machine
	if machine == nil {
		return errors.New("no Machine uses this host") // the table never asks for it
	}
	switch action {
	case AddReboot, AskAgain:
		// Hard: a hang must not wait for a soft shutdown (seed 000).
		ask, err := holdKey.Ask(f.host, f.node, hold.Request{Mode: api.RebootHard, Machine: machine.UID, At: metav1.NewMicroTime(r.Clock.Now().UTC())})
		if err != nil {
			return err
		}
		return r.Client.Patch(ctx, f.host, ask)
	case RemoveNeedsRemediation:
		return r.Client.Patch(ctx, machine, api.RemoveAnnotations(machine, api.ExternalRemediationAnnotation))
	case FenceStorage:
		return r.keepOut(ctx, f)
	case AddPoweredOffMark:
		ended := ""
		if f.node != nil {
			ended = f.node.Status.NodeInfo.BootID
		}
		return r.Client.Patch(ctx, machine, api.SetAnnotation(machine, api.PoweredOffForRemediationAnnotation, ended))
	case BackUpNode:
		if f.node == nil {
			return errors.New("the host's Machine has no Node") // the table never asks for it
		}
		return r.backUp(ctx, f)
	case ForgetPoweredOff:
		return r.Client.Patch(ctx, machine, api.RemoveAnnotations(machine, api.PoweredOffForRemediationAnnotation, api.NodeBackupAnnotation))
	case Finish:
		return r.Client.Patch(ctx, machine, api.RemoveAnnotations(machine,
			api.ExternalRemediationAnnotation, api.PoweredOffForRemediationAnnotation, api.NodeBackupAnnotation))
	}
	return nil
}

// deleteNode deletes only the Node that was read. The Node of the next boot has its name (design,
// decision 9), or is the very same object if somebody else let the host boot. In that case the
// boot writes to the Node, so its resourceVersion is a precondition too. And the host must not
// have changed between the decision and the reading of the Node. The answer may have become too
// old meanwhile.
func (r *Reconciler) deleteNode(ctx context.Context, m *memory, f facts) error {
	if f.node == nil {
		return errors.New("the host's Machine has no Node") // the table never asks for it
	}
	if f.node.DeletionTimestamp != nil {
		return nil // its finalizers keep it: there is nothing to do
	}
	if b := backupOf(f.machine); r.Settings.Release == NodeRecreation && b != nil && b.UID == f.node.UID && !equality.Semantic.DeepEqual(b.Backup, fence.BackupOf(f.node)) {
		return r.backUp(ctx, f) // users have changed the Node since, and its version is a precondition below
	}
	if err := r.unchanged(ctx, m, f); err != nil {
		return err
	}
	return r.Client.Delete(ctx, f.node, client.Preconditions{UID: &f.node.UID, ResourceVersion: &f.node.ResourceVersion})
}

// unchanged fails if the host is another than the decision was about, or its answer too old.
func (r *Reconciler) unchanged(ctx context.Context, m *memory, f facts) error {
	key := client.ObjectKeyFromObject(f.host)
	host, err := api.Get(ctx, r.Live, key, &api.BareMetalHost{})
	if err != nil {
		return err
	}
	if host == nil || host.ResourceVersion != f.host.ResourceVersion {
		return errors.New("the host changed while its Node was read")
	}
	if r.outdated(m, f) {
		return errors.New("the answer to its request became too old while its Node was read")
	}
	return nil
}

// HostOfMachine maps a Machine to its host. A marked Machine is also mapped to a host that it uses
// but doesn't name, so that the mismatch gets reported.
func HostOfMachine(ctx context.Context, reader client.Reader, machine client.Object) []reconcile.Request {
	var requests []reconcile.Request
	if namespace, name, ok := strings.Cut(machine.GetAnnotations()[api.HostAnnotation], "/"); ok && namespace != "" && name != "" {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	}
	if !marked(machine) {
		return requests
	}
	var hosts api.BareMetalHostList
	if err := reader.List(ctx, &hosts, client.UnsafeDisableDeepCopy); err != nil {
		return requests // a cache that has not synced: it brings every host when it has
	}
	for i := range hosts.Items {
		request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&hosts.Items[i])}
		if key, ok := api.Consumer(&hosts.Items[i]); ok && key == client.ObjectKeyFromObject(machine) && !slices.Contains(requests, request) {
			requests = append(requests, request)
		}
	}
	return requests
}

// HostOfNode maps a Node to the host of the Machine that has it.
func HostOfNode(ctx context.Context, reader client.Reader, node client.Object) []reconcile.Request {
	var machines clusterv1.MachineList
	if err := reader.List(ctx, &machines, client.UnsafeDisableDeepCopy); err != nil {
		return nil // a cache that has not synced: its hosts are visited when it has
	}
	var requests []reconcile.Request
	for i := range machines.Items {
		if machines.Items[i].Status.NodeRef.Name == node.GetName() {
			requests = append(requests, HostOfMachine(ctx, reader, &machines.Items[i])...)
		}
	}
	return requests
}
