package workload

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
)

// Binder binds the Pod to a Node that is Ready and schedulable, and writes the UID of that Node to
// the Pod.
type Binder struct {
	// Client writes, and reads from a cache.
	Client   client.Client
	Settings Settings
}

// Reconcile binds the Pod if it has no Node.
func (b *Binder) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if request.NamespacedName != b.Settings.key() {
		return reconcile.Result{}, nil
	}
	var pod corev1.Pod
	if err := b.Client.Get(ctx, request.NamespacedName, &pod, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	node, err := b.choose(ctx)
	if err != nil || node == nil { // the event of a Node leads here again
		return reconcile.Result{}, err
	}
	err = b.Client.SubResource("binding").Create(ctx, pod.DeepCopy(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			Annotations: map[string]string{api.NodeUIDAnnotation: string(node.UID)},
		},
		Target: corev1.ObjectReference{Kind: "Node", Name: node.Name},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return reconcile.Result{}, fmt.Errorf("bind Pod %s to Node %s: %w", request, node.Name, err)
	}
	return reconcile.Result{}, nil
}

// choose returns the preferred Node or else the first by name, or nil if none can be bound to.
func (b *Binder) choose(ctx context.Context) (chosen *corev1.Node, err error) {
	var nodes corev1.NodeList
	if err := b.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		preferred := node.Name == b.Settings.PreferredNode
		if schedulable(node) && (chosen == nil || preferred || chosen.Name != b.Settings.PreferredNode && node.Name < chosen.Name) {
			chosen = node
		}
	}
	return chosen, nil
}

func schedulable(node *corev1.Node) bool {
	if node.Spec.Unschedulable || node.DeletionTimestamp != nil {
		return false
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule {
			return false
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
