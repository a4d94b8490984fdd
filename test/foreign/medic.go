package foreign

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
)

// Module has a health check that works with the types of this package.
func Module() controllers.Module {
	return controllers.Module{
		AddToScheme: AddToScheme,
		Controllers: []controllers.Registration{{
			Name:    "medic",
			Plays:   controllers.HealthCheck,
			For:     &Machine{},
			Reads:   []client.Object{&BareMetalHost{}},
			Watches: []controllers.Watch{{Kind: &corev1.Node{}, Map: machineOf}},
			New: func(d controllers.Deps) (reconcile.Reconciler, error) {
				return &Medic{Client: d.Client, Live: d.Live, Clock: d.Clock}, nil
			},
		}},
	}
}

// Mark has remediation fence a Machine, and Noted is a label that the medic leaves on its host.
const (
	Mark  = "host.metal3.io/external-remediation"
	Noted = "medic"
)

// patience is how long a Node may be there and not Ready, and startup how long it may be missing.
const (
	patience = 3 * time.Second
	startup  = time.Minute
)

// Medic marks Machines whose Nodes have not been Ready, or not there, for some time.
type Medic struct {
	Client client.Client
	Live   client.Reader
	Clock  clock.PassiveClock

	missing map[string]time.Time // since when, by the Machine
}

// machineOf maps a Node to its Machine, from the cache.
func machineOf(ctx context.Context, reader client.Reader, node client.Object) (requests []reconcile.Request) {
	var machines MachineList
	if err := reader.List(ctx, &machines); err != nil {
		return nil
	}
	for i := range machines.Items {
		if ref := machines.Items[i].Status.NodeRef; ref != nil && ref.Name == node.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&machines.Items[i])})
		}
	}
	return requests
}

// Reconcile looks after one Machine.
func (m *Medic) Reconcile(ctx context.Context, key reconcile.Request) (reconcile.Result, error) {
	var machine Machine
	if err := m.Live.Get(ctx, key.NamespacedName, &machine); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if _, marked := machine.Annotations[Mark]; marked || machine.Status.NodeRef == nil {
		return reconcile.Result{}, nil
	}
	if err := m.note(ctx, &machine); err != nil {
		return reconcile.Result{}, err
	}
	left, err := m.left(ctx, &machine)
	if err != nil || left != 0 {
		return reconcile.Result{RequeueAfter: max(0, left)}, err
	}
	before := copied(&machine)
	if machine.Annotations == nil {
		machine.Annotations = make(map[string]string)
	}
	machine.Annotations[Mark] = ""
	if err := m.Client.Patch(ctx, &machine, client.MergeFrom(before)); err != nil {
		return reconcile.Result{}, fmt.Errorf("mark %s: %w", key, err)
	}
	delete(m.missing, machine.Name) // it is given the same time again
	return reconcile.Result{}, nil
}

// left returns how long a Machine is still given: 0 when its time is over, and less when its Node
// is Ready.
func (m *Medic) left(ctx context.Context, machine *Machine) (time.Duration, error) {
	var node corev1.Node
	err := m.Live.Get(ctx, client.ObjectKey{Name: machine.Status.NodeRef.Name}, &node)
	if apierrors.IsNotFound(err) {
		since, known := m.missing[machine.Name]
		if !known {
			if m.missing == nil {
				m.missing = make(map[string]time.Time)
			}
			since = m.Clock.Now()
			m.missing[machine.Name] = since
		}
		return max(0, startup-m.Clock.Since(since)), nil
	}
	if err != nil {
		return 0, err
	}
	delete(m.missing, machine.Name)
	for _, c := range node.Status.Conditions {
		if c.Type != corev1.NodeReady || c.Status == corev1.ConditionTrue {
			continue
		}
		if left := patience - m.Clock.Since(c.LastTransitionTime.Time); left > 0 {
			return left + time.Millisecond, nil
		}
		return 0, nil
	}
	return -1, nil
}

// note labels the hosts of a Machine, of which the cache has the list.
func (m *Medic) note(ctx context.Context, machine *Machine) error {
	var hosts BareMetalHostList
	if err := m.Client.List(ctx, &hosts); err != nil {
		return err
	}
	for i := range hosts.Items {
		host := &hosts.Items[i]
		if host.Spec.ConsumerRef == nil || host.Spec.ConsumerRef.Name != machine.Name || host.Labels[Noted] != "" {
			continue
		}
		before := copied(host)
		if host.Labels == nil {
			host.Labels = make(map[string]string)
		}
		host.Labels[Noted] = machine.Name
		if err := m.Client.Patch(ctx, host, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("note %s: %w", host.Name, err)
		}
	}
	return nil
}
