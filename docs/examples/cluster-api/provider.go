package clusterapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
)

// errWait asks for another reconcile after poll.
var errWait = errors.New("wait")

const (
	poll      = 10 * time.Second
	finalizer = "hostmachine.infrastructure.fencelab.dev"
	// holdKey is the key of the annotation that holds a host off: the one that fencelab's
	// stories speak of.
	holdKey        = api.DeletionRebootKey
	holdAnnotation = api.RebootAnnotation + "/" + holdKey
	// releasedAnnotation has the UID of the HostMachine that gave the host back last. It is written
	// with the release itself, so that a release whose answer got lost is known to be done.
	releasedAnnotation = "hostmachine.fencelab.dev/released"
)

// provider is a provider of infrastructure as Cluster API wants one. Its HostMachines
// are made for the Machines of a topology, whose hosts run already; a HostMachine that is
// deleted is gone when its host is known to be off, by the rules of the reboot controller,
// and was given back. It runs in Cluster API's process, so that what both do to a host is
// judged together.
type provider struct {
	objects
	recorder events.EventRecorder
}

func (p *provider) setUp(mgr manager.Manager) error {
	p.recorder = mgr.GetEventRecorder("hostmachine")
	return ctrl.NewControllerManagedBy(mgr).Named("hostmachine").
		For(&clusterv1.Machine{}).
		Watches(&HostMachine{}, handler.EnqueueRequestsFromMapFunc(p.machineOf)).
		Watches(&api.BareMetalHost{}, handler.EnqueueRequestsFromMapFunc(p.machineOfHost)).
		Complete(p)
}

func (p *provider) machineOf(_ context.Context, obj client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(obj)}} // they have one name
}

func (p *provider) machineOfHost(ctx context.Context, host client.Object) (requests []reconcile.Request) {
	var all HostMachineList
	if err := p.Client.List(ctx, &all, client.InNamespace(host.GetNamespace())); err != nil {
		return nil
	}
	for i := range all.Items {
		if all.Items[i].Spec.Host == host.GetName() {
			requests = append(requests, p.machineOf(ctx, &all.Items[i])...)
		}
	}
	return requests
}

// Reconcile makes the infrastructure of one Machine, or takes it away.
func (p *provider) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var machine clusterv1.Machine
	err := p.Client.Get(ctx, request.NamespacedName, &machine)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	if err == nil && machine.DeletionTimestamp.IsZero() && machine.Spec.InfrastructureRef.Kind != "HostMachine" {
		return reconcile.Result{}, p.adopt(ctx, &machine)
	}
	var infra HostMachine
	if err := p.Live.Get(ctx, request.NamespacedName, &infra); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if infra.DeletionTimestamp.IsZero() || !slices.Contains(infra.Finalizers, finalizer) {
		return reconcile.Result{}, nil
	}
	if err := p.release(ctx, &infra); !errors.Is(err, errWait) {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: poll}, nil
}

// adopt gives a Machine of the topology a HostMachine.
func (p *provider) adopt(ctx context.Context, machine *clusterv1.Machine) error {
	if err := p.cluster(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}); err != nil {
		return fmt.Errorf("make the cluster: %w", err)
	}
	_, host, _ := strings.Cut(machine.Annotations[api.HostAnnotation], "/")
	infra := &HostMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: machine.Namespace, Name: machine.Name, Finalizers: []string{finalizer}},
		Spec:       HostMachineSpec{ProviderID: machine.Spec.ProviderID, Host: host},
	}
	if err := p.create(ctx, infra, func() { infra.Status.Initialization.Provisioned = true }); err != nil {
		return fmt.Errorf("make the HostMachine: %w", err)
	}
	return p.patch(ctx, machine, map[string]any{"spec": map[string]any{"infrastructureRef": clusterv1.ContractVersionedObjectReference{
		APIGroup: GroupVersion.Group, Kind: "HostMachine", Name: machine.Name,
	}}})
}

// objects makes and changes objects.
type objects struct {
	Client client.Client
	Live   client.Reader
}

// cluster makes the Cluster and its control plane, which is somebody else's.
func (o objects) cluster(ctx context.Context, key client.ObjectKey) error {
	meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
	plane := &HostedControlPlane{ObjectMeta: meta}
	err := o.create(ctx, plane, func() {
		plane.Status.ExternalManagedControlPlane = true
		plane.Status.Initialization = HostedControlPlaneInitialization{ControlPlaneInitialized: true, Provisioned: true}
	})
	if err != nil {
		return err
	}
	cluster := &clusterv1.Cluster{ObjectMeta: meta}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: GroupVersion.Group, Kind: "HostedControlPlane", Name: key.Name}
	cluster.Spec.InfrastructureRef = cluster.Spec.ControlPlaneRef // without one a MachineHealthCheck takes every Machine for healthy
	return o.create(ctx, cluster, func() {
		yes := true
		cluster.Status.Initialization = clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: &yes, ControlPlaneInitialized: &yes}
		cluster.Status.Conditions = []metav1.Condition{
			{Type: clusterv1.ClusterInfrastructureReadyCondition, Status: metav1.ConditionTrue, Reason: clusterv1.ClusterInfrastructureReadyReason, LastTransitionTime: metav1.Now()},
			{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: clusterv1.ClusterControlPlaneInitializedReason, LastTransitionTime: metav1.Now()},
		}
	})
}

// create makes an object that may be there already, and gives it its status.
func (o objects) create(ctx context.Context, obj client.Object, status func()) error {
	if err := o.Client.Create(ctx, obj); err != nil {
		if client.IgnoreAlreadyExists(err) != nil {
			return err
		}
		if err := o.Live.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
	}
	status()
	return o.Client.Status().Update(ctx, obj)
}

// release has the host held off, gives it back when it is known to be off, and lets the
// HostMachine go.
func (p *provider) release(ctx context.Context, infra *HostMachine) error {
	var host api.BareMetalHost
	err := p.Live.Get(ctx, client.ObjectKey{Namespace: infra.Namespace, Name: infra.Spec.Host}, &host)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil && host.Annotations[releasedAnnotation] == string(infra.UID) {
		return p.let(ctx, infra)
	}
	if err != nil || host.Spec.ConsumerRef == nil || host.Spec.ConsumerRef.Name != infra.Name {
		return p.unlessNodeless(ctx, infra)
	}
	content := fmt.Sprintf(`{"mode":"soft","hostMachine":%q}`, infra.UID)
	switch {
	case host.Annotations[holdAnnotation] != content:
		return p.patch(ctx, &host, map[string]any{"metadata": map[string]any{"annotations": map[string]any{holdAnnotation: content}}})
	case host.Status.PoweredOn || host.Status.Provisioning.HeldOffFor[holdKey] != api.RequestID(content):
		return nil // it is not known to be off for this very request
	}
	err = p.patch(ctx, &host, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{holdAnnotation: nil, releasedAnnotation: infra.UID}, "resourceVersion": host.ResourceVersion},
		"spec":     map[string]any{"online": false, "consumerRef": nil},
	})
	if err != nil {
		return fmt.Errorf("give the host back: %w", err)
	}
	return p.let(ctx, infra)
}

// unlessNodeless lets a HostMachine go once its Node is gone, when its host can't be asked.
// Deleting the Node is left to a person, because Cluster API would delete it at once.
func (p *provider) unlessNodeless(ctx context.Context, infra *HostMachine) error {
	var nodes corev1.NodeList
	if err := p.Live.List(ctx, &nodes); err != nil {
		return err
	}
	for i := range nodes.Items {
		if nodes.Items[i].Spec.ProviderID == infra.Spec.ProviderID {
			p.recorder.Eventf(infra, nil, corev1.EventTypeWarning, "HostUnknown", "Release", "the host is gone or not the Machine's: see that it is off, and delete its Node")
			return errWait
		}
	}
	return p.let(ctx, infra)
}

// let lets a HostMachine go.
func (p *provider) let(ctx context.Context, infra *HostMachine) error {
	left := slices.DeleteFunc(slices.Clone(infra.Finalizers), func(f string) bool { return f == finalizer })
	return p.patch(ctx, infra, map[string]any{"metadata": map[string]any{"finalizers": left, "resourceVersion": infra.ResourceVersion}})
}

func (o objects) patch(ctx context.Context, obj client.Object, change any) error {
	data, err := json.Marshal(change)
	if err != nil {
		return err
	}
	return o.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, data))
}
