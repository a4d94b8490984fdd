// Package nodelifecycle stands in for the part of kube-controller-manager that notices a dead
// kubelet, where none runs: in the embedded control plane and in the simulator. It sets the Ready
// condition of a Node to Unknown when the Node's Lease has not been renewed in time; only a
// kubelet sets it back. A kubelet whose clock is behind writes renewals that are old on arrival,
// so a renewal counts from when its change was seen, as in kube-controller-manager. The stand-in
// also keeps the taints that go with that condition: the API server gives every new Node the taint
// of a Node that isn't ready, and a controller has to remove it.
package nodelifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
)

// Settings are the options of the stand-in.
type Settings struct {
	// NodeMonitorGracePeriod is how old a Node's Lease may grow.
	NodeMonitorGracePeriod metav1.Duration `json:"nodeMonitorGracePeriod"`
	// NoExecute sets the taints with that effect, too, by which Pods are evicted.
	NoExecute bool `json:"noExecute,omitempty"`
}

// DefaultSettings returns the settings of kube-controller-manager.
func DefaultSettings() Settings {
	return Settings{NodeMonitorGracePeriod: metav1.Duration{Duration: 50 * time.Second}}
}

// Reconciler is the stand-in for the node lifecycle controller. All fields must
// be set.
type Reconciler struct {
	// Client writes, and reads Nodes from a cache.
	Client client.Client
	// Live reads Leases. They are not watched: each is renewed every few
	// seconds, and matters once in a grace period.
	Live     client.Reader
	Clock    clock.PassiveClock
	Settings Settings

	mutex sync.Mutex
	// signs holds the last sign of life of each kubelet.
	signs map[string]sign
	// nodes and leases are objects to read into: a Node is large and read every few seconds, and
	// the reconcile doesn't keep it.
	nodes  scratch[corev1.Node]
	leases scratch[coordinationv1.Lease]
}

// scratch has objects to be used again. A sync.Pool would keep the whole simulated world alive
// that it belongs to.
type scratch[T any] struct {
	mutex sync.Mutex
	spare []*T
}

// take returns an empty object, to be given back with put.
func (s *scratch[T]) take() *T {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	n := len(s.spare)
	if n == 0 {
		return new(T)
	}
	used := s.spare[n-1]
	s.spare = s.spare[:n-1]
	*used = *new(T)
	return used
}

func (s *scratch[T]) put(used *T) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.spare = append(s.spare, used)
}

// sign is the last sign of life of a kubelet, and when it was first seen here.
type sign struct {
	node                           types.UID
	renewed, heartbeat, transition time.Time
	seen                           time.Time
}

// Reconcile looks at the Lease of one Node and says when to look again.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	node := r.nodes.take()
	defer r.nodes.put(node)
	if err := r.Client.Get(ctx, request.NamespacedName, node, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(request.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	ready := readyStatus(node)
	if taints, changed := taintsFor(node.Spec.Taints, ready, r.Settings.NoExecute); changed {
		if err := client.IgnoreNotFound(r.setTaints(ctx, node, taints)); err != nil {
			return reconcile.Result{}, fmt.Errorf("set the taints of Node %s: %w", node.Name, err)
		}
		// The write brings an event, but the Lease must be watched even if that
		// event is late.
		return reconcile.Result{RequeueAfter: r.Settings.NodeMonitorGracePeriod.Duration}, nil
	}
	if ready == corev1.ConditionUnknown {
		return reconcile.Result{}, nil // the kubelet's word brings an event
	}
	heard, err := r.heard(ctx, node)
	if err != nil {
		return reconcile.Result{}, err
	}
	grace := r.Settings.NodeMonitorGracePeriod.Duration
	if left := grace - r.Clock.Now().Sub(heard); left > 0 {
		return reconcile.Result{RequeueAfter: min(left, grace)}, nil
	}
	if err := client.IgnoreNotFound(r.setUnknown(ctx, node)); err != nil {
		return reconcile.Result{}, fmt.Errorf("set Ready of Node %s to Unknown: %w", node.Name, err)
	}
	return reconcile.Result{}, nil
}

// heard returns when the kubelet last gave a sign of life. It is the time that the kubelet wrote,
// or, where that is too old, the time when anything new of it was seen: its clock may be behind,
// and it may have written the Node's status before its Lease.
func (r *Reconciler) heard(ctx context.Context, node *corev1.Node) (time.Time, error) {
	said, err := r.renewed(ctx, node)
	if err != nil {
		return time.Time{}, err
	}
	renewed := said // never before it registered
	if renewed.Before(node.CreationTimestamp.Time) {
		renewed = node.CreationTimestamp.Time
	}
	now := sign{node: node.UID, renewed: said, seen: r.Clock.Now()}
	if ready := readyCondition(node); ready != nil {
		now.heartbeat, now.transition = ready.LastHeartbeatTime.Time, ready.LastTransitionTime.Time
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	last, known := r.signs[node.Name]
	if known && last.node == now.node && last.renewed.Equal(now.renewed) && last.heartbeat.Equal(now.heartbeat) && last.transition.Equal(now.transition) {
		now.seen = last.seen
	}
	if r.signs == nil {
		r.signs = map[string]sign{}
	}
	r.signs[node.Name] = now
	if now.seen.Sub(renewed) < r.Settings.NodeMonitorGracePeriod.Duration {
		return renewed, nil
	}
	return now.seen, nil
}

func (r *Reconciler) forget(node string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.signs, node)
}

// renewed is when the kubelet says it renewed the Lease; zero means never.
func (r *Reconciler) renewed(ctx context.Context, node *corev1.Node) (time.Time, error) {
	lease := r.leases.take()
	defer r.leases.put(lease)
	key := types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: node.Name}
	if err := r.Live.Get(ctx, key, lease, client.UnsafeDisableDeepCopy); err != nil && !apierrors.IsNotFound(err) {
		return time.Time{}, fmt.Errorf("read Lease %s: %w", key, err)
	}
	if lease.Spec.RenewTime == nil {
		return time.Time{}, nil
	}
	return lease.Spec.RenewTime.Time, nil
}

func (r *Reconciler) setUnknown(ctx context.Context, node *corev1.Node) error {
	now := metav1.NewTime(r.Clock.Now())
	unknown := corev1.NodeCondition{
		Type:               corev1.NodeReady,
		Status:             corev1.ConditionUnknown,
		Reason:             "NodeStatusUnknown",
		Message:            "the kubelet has stopped renewing its Lease",
		LastTransitionTime: now,
		LastHeartbeatTime:  now,
	}
	conditions := slices.DeleteFunc(slices.Clone(node.Status.Conditions), func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady
	})
	data, err := json.Marshal(append(conditions, unknown))
	if err != nil {
		return err
	}
	return r.Client.Status().Patch(ctx, node.DeepCopy(), api.SetStatus(node, `"conditions":`+string(data)))
}

func readyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

func readyStatus(node *corev1.Node) corev1.ConditionStatus {
	if ready := readyCondition(node); ready != nil {
		return ready.Status
	}
	return corev1.ConditionFalse
}

// taintsFor returns the taints that a Node should have, and whether they differ from its present
// ones: those of others, and one that keeps Pods from being bound to a Node that isn't Ready, or
// is out of reach.
func taintsFor(taints []corev1.Taint, ready corev1.ConditionStatus, evicting bool) (wanted []corev1.Taint, changed bool) {
	key := ""
	switch ready {
	case corev1.ConditionFalse:
		key = corev1.TaintNodeNotReady
	case corev1.ConditionUnknown:
		key = corev1.TaintNodeUnreachable
	}
	var missing []corev1.TaintEffect
	if key != "" {
		missing = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}[:1]
		if evicting {
			missing = missing[:2]
		}
	}
	for _, t := range taints {
		ours := (t.Effect == corev1.TaintEffectNoSchedule || evicting && t.Effect == corev1.TaintEffectNoExecute) && (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
		switch i := slices.Index(missing, t.Effect); {
		case !ours:
			wanted = append(wanted, t)
		case t.Key == key && i >= 0:
			wanted = append(wanted, t)
			missing = slices.Delete(missing, i, i+1)
		default:
			changed = true
		}
	}
	for _, effect := range missing {
		wanted = append(wanted, corev1.Taint{Key: key, Effect: effect})
		changed = true
	}
	return wanted, changed
}

func (r *Reconciler) setTaints(ctx context.Context, node *corev1.Node, taints []corev1.Taint) error {
	data, err := json.Marshal(taints)
	if err != nil {
		return err
	}
	return r.Client.Patch(ctx, node.DeepCopy(), api.SetSpec(node, `"taints":`+string(data)))
}
