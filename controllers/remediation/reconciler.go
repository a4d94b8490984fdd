package remediation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
)

// Settings are the options of the machine remediation controller.
type Settings struct {
	// KeepMarkUntilNodeReturns chooses KeepMark instead of Decide.
	KeepMarkUntilNodeReturns bool `json:"keepMarkUntilNodeReturns"`
}

// DefaultSettings returns the options of seed 002.
func DefaultSettings() Settings { return Settings{} }

// Reconciler is the machine remediation controller. All fields must be set.
type Reconciler struct {
	// Client writes, and reads from a cache.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Decide is the function Decide or KeepMark, or a wrong one to be tested
	// against.
	Decide func(State) Action
}

// facts are the three objects that a State is read from. Machine and node are
// nil if there is none.
type facts struct {
	node    *corev1.Node
	machine *clusterv1.Machine
	host    *api.BareMetalHost
}

// lookAgain is when the host of a deleted Node is looked at again. What else is
// written brings its own watch event; but of a Node that came and went between two
// lists a cache never hears.
const lookAgain = time.Second

// Reconcile does one step for one host.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	action := Nothing
	var found facts
	for _, reader := range []client.Reader{r.Client, r.Live} {
		var err error
		if found, err = read(ctx, reader, request.NamespacedName); err != nil {
			return reconcile.Result{}, fmt.Errorf("remediate BareMetalHost %s: %w", request, err)
		}
		if found.host == nil {
			return reconcile.Result{}, nil
		}
		if action = r.Decide(found.state()); action == Nothing {
			return reconcile.Result{}, nil
		}
	}
	if err := client.IgnoreNotFound(r.act(ctx, found, action)); err != nil {
		return reconcile.Result{}, fmt.Errorf("%s for BareMetalHost %s: %w", action, request, err)
	}
	if action == DeleteNode && found.node.DeletionTimestamp == nil {
		return reconcile.Result{RequeueAfter: lookAgain}, nil
	}
	return reconcile.Result{}, nil
}

// read finds the host, the Machine that uses it and that Machine's Node.
func read(ctx context.Context, reader client.Reader, key types.NamespacedName) (facts, error) {
	var f facts
	host, err := get(ctx, reader, key, &api.BareMetalHost{})
	if host == nil || err != nil {
		return f, err
	}
	if ref := host.Spec.ConsumerRef; ref != nil && ref.Kind == "Machine" {
		machineKey := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
		if machineKey.Namespace == "" {
			machineKey.Namespace = host.Namespace
		}
		if f.machine, err = get(ctx, reader, machineKey, &clusterv1.Machine{}); err != nil {
			return f, err
		}
	}
	// A Machine that names another host is no longer this one's business: the
	// host is only let go of.
	if f.machine != nil && f.machine.Annotations[api.HostAnnotation] != key.String() {
		f.machine = nil
	}
	if f.machine != nil && f.machine.Status.NodeRef.IsDefined() {
		nodeKey := types.NamespacedName{Name: f.machine.Status.NodeRef.Name}
		if f.node, err = get(ctx, reader, nodeKey, &corev1.Node{}); err != nil {
			return f, err
		}
	}
	f.host = host
	return f, nil
}

// get reads an object that is not going to be changed: what is written is always
// what the live reader had, and that is nobody else's.
func get[T any, P interface {
	*T
	client.Object
}](ctx context.Context, reader client.Reader, key types.NamespacedName, into P) (P, error) {
	if err := reader.Get(ctx, key, into, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read %T %s: %w", into, key, err)
	}
	return into, nil
}

func (f facts) state() State {
	s := State{NodeExists: f.node != nil, StatusOn: f.host.Status.PoweredOn}
	if f.machine != nil {
		_, s.NeedsRemediation = f.machine.Annotations[api.ExternalRemediationAnnotation]
		_, s.PoweredOffMark = f.machine.Annotations[api.PoweredOffForRemediationAnnotation]
	}
	_, s.RebootAnnotation = f.host.Annotations[api.RemediationRebootAnnotation]
	s.AnswersRequest = s.RebootAnnotation && f.host.Status.Provisioning.RebootPending()
	return s
}

// act has the one effect of an action.
func (r *Reconciler) act(ctx context.Context, f facts, action Action) error {
	switch action {
	case RemoveReboot:
		return r.Client.Patch(ctx, f.host, api.RemoveAnnotations(f.host, api.RemediationRebootAnnotation))
	case DeleteNode:
		return r.deleteNode(ctx, f)
	case Nothing:
		return nil
	}
	machine := f.machine
	if machine == nil {
		return errors.New("no Machine uses this host") // the table never asks for it
	}
	switch action {
	case AddReboot:
		// The value leads back to the Machine, and a hang must not wait for a
		// soft shutdown (both seed 000).
		value := `{"mode":"hard","machine":` + api.Quote(string(machine.UID)) + `}`
		return r.Client.Patch(ctx, f.host, api.SetAnnotation(f.host, api.RemediationRebootAnnotation, value))
	case RemoveNeedsRemediation:
		return r.Client.Patch(ctx, machine, api.RemoveAnnotations(machine, api.ExternalRemediationAnnotation))
	case AddPoweredOffMark:
		return r.Client.Patch(ctx, machine, api.SetAnnotation(machine, api.PoweredOffForRemediationAnnotation, ""))
	case Finish:
		return r.Client.Patch(ctx, machine, api.RemoveAnnotations(machine,
			api.ExternalRemediationAnnotation, api.PoweredOffForRemediationAnnotation))
	}
	return nil
}

// deleteNode deletes the Node that was read, and no other: the Node of the next
// boot has its name (design, decision 9), or is the very same object when
// somebody else let the host boot. The latter writes to the Node, so its
// resourceVersion is a precondition too; and the host must not have changed
// between the decision and after the Node was read.
func (r *Reconciler) deleteNode(ctx context.Context, f facts) error {
	if f.node == nil {
		return errors.New("the host's Machine has no Node") // the table never asks for it
	}
	if f.node.DeletionTimestamp != nil {
		return nil // its finalizers have the word
	}
	key := client.ObjectKeyFromObject(f.host)
	host, err := get(ctx, r.Live, key, &api.BareMetalHost{})
	if err != nil {
		return err
	}
	if host == nil || host.ResourceVersion != f.host.ResourceVersion {
		return errors.New("the host changed while its Node was read")
	}
	return r.Client.Delete(ctx, f.node, client.Preconditions{UID: &f.node.UID, ResourceVersion: &f.node.ResourceVersion})
}

// HostOfMachine maps a Machine to its host.
func HostOfMachine(_ context.Context, _ client.Reader, machine client.Object) []reconcile.Request {
	namespace, name, ok := strings.Cut(machine.GetAnnotations()[api.HostAnnotation], "/")
	if !ok || namespace == "" || name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
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
