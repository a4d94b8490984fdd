package release

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
)

// EvictionSettings are the options of taint eviction.
type EvictionSettings struct {
	// Disabled is kube-controller-manager's --controllers=-taint-eviction-controller.
	Disabled bool `json:"disabled"`
}

// DefaultEvictionSettings are Kubernetes' own.
func DefaultEvictionSettings() EvictionSettings { return EvictionSettings{} }

// Eviction deletes Pods from Nodes with taints of the effect NoExecute that they don't tolerate, or
// no longer. Its times begin anew with each process.
type Eviction struct {
	Client   client.Client
	Clock    clock.PassiveClock
	Settings EvictionSettings

	mutex sync.Mutex
	since map[types.UID]time.Time
}

// Reconcile looks at one Pod.
func (r *Eviction) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if r.Settings.Disabled {
		return reconcile.Result{}, nil
	}
	pod, err := api.Get(ctx, r.Client, request.NamespacedName, &corev1.Pod{})
	if pod == nil || err != nil || pod.Spec.NodeName == "" {
		return reconcile.Result{}, err
	}
	node, err := api.Get(ctx, r.Client, types.NamespacedName{Name: pod.Spec.NodeName}, &corev1.Node{})
	if err != nil {
		return reconcile.Result{}, err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	tolerated, evicted := Tolerated(pod, node)
	if !evicted {
		delete(r.since, pod.UID)
		return reconcile.Result{}, nil
	}
	if r.since[pod.UID].IsZero() {
		if r.since == nil {
			r.since = map[types.UID]time.Time{}
		}
		r.since[pod.UID] = r.Clock.Now()
	}
	if left := tolerated - r.Clock.Since(r.since[pod.UID]); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if pod.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	gone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if err := client.IgnoreNotFound(r.Client.Delete(ctx, gone)); err != nil {
		return reconcile.Result{}, fmt.Errorf("evict Pod %s from Node %s: %w", pod.Name, node.Name, err)
	}
	return reconcile.Result{}, nil
}

// Tolerated is for how long a Pod tolerates the taints of its Node, and whether it is evicted then.
// A Node that is gone has none.
func Tolerated(pod *corev1.Pod, node *corev1.Node) (within time.Duration, evicted bool) {
	if node == nil {
		return 0, false
	}
	shortest := int64(-1)
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		at := slices.IndexFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return tolerates(&t, taint) })
		if at < 0 {
			return 0, true
		}
		if seconds := pod.Spec.Tolerations[at].TolerationSeconds; seconds != nil && (shortest < 0 || *seconds < shortest) {
			shortest = max(0, *seconds)
		}
	}
	return time.Duration(shortest) * time.Second, shortest >= 0
}

func tolerates(t *corev1.Toleration, taint *corev1.Taint) bool {
	return (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == "" || t.Key == taint.Key) &&
		(t.Operator == corev1.TolerationOpExists || t.Value == taint.Value)
}

// PodsOf maps a Node to its Pods.
func PodsOf(ctx context.Context, reader client.Reader, node client.Object) (requests []reconcile.Request) {
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil // a cache that has not synced: it brings every Pod when it has
	}
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == node.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pods.Items[i])})
		}
	}
	return requests
}
