// Package workload stands in for a StatefulSet of one replica, the scheduler and pod garbage
// collection, where none of them runs. Each is a controller of its own: one keeps an exclusive Pod,
// one binds it to a Ready Node, and one releases it.
//
// A Node that is merely not Ready keeps its Pod, since the process may still run. Only a Node that
// was deleted releases it (seed 002): at once, or as pod garbage collection does it, some time
// after no Node of its name is there.
package workload

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Settings describe the Pod.
type Settings struct {
	// Namespace and Name are the Pod's.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Image is its only container's.
	Image string `json:"image"`
	// PreferredNode is the Node that it is bound to if that is Ready. Left out,
	// or not Ready: the first Ready Node by name.
	PreferredNode string `json:"preferredNode,omitempty"`
	// Quarantine is how long there must be no Node of the name that the Pod was bound
	// to before the Pod is released, as in kube-controller-manager: there it is 40
	// seconds, and up to 20 more until the next round. A Node that is there again keeps
	// the Pod, whichever it is. 0 releases the Pod as soon as its very Node is gone.
	Quarantine metav1.Duration `json:"quarantine,omitzero"`
	// Stops is how long its processes take to stop, or never.
	Stops string `json:"stops,omitempty"`
	// Volume names the volume that they write to. Where there is one, others release the Pod.
	Volume string `json:"volume,omitempty"`
}

// DefaultSettings returns the Pod default/exclusive.
func DefaultSettings() Settings {
	return Settings{Namespace: metav1.NamespaceDefault, Name: "exclusive", Image: "exclusive"}
}

func (s *Settings) key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// Unbound returns the request for a Pod that waits for a Node.
func Unbound(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
	return requestFor(obj.(*corev1.Pod), "")
}

// AllUnbound returns, for any Node, the requests for all Pods that wait for one.
func AllUnbound(ctx context.Context, cache client.Reader, _ client.Object) []reconcile.Request {
	return requestsFor(ctx, cache, "")
}

// Bound returns the request for a Pod that has a Node.
func Bound(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
	pod := obj.(*corev1.Pod)
	if pod.Spec.NodeName == "" {
		return nil
	}
	return requestFor(pod, pod.Spec.NodeName)
}

// BoundTo returns the requests for the Pods that have a Node.
func BoundTo(ctx context.Context, cache client.Reader, node client.Object) []reconcile.Request {
	return requestsFor(ctx, cache, node.GetName())
}

func requestsFor(ctx context.Context, cache client.Reader, node string) (all []reconcile.Request) {
	var pods corev1.PodList
	if err := cache.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil // a cache always answers
	}
	for i := range pods.Items {
		all = append(all, requestFor(&pods.Items[i], node)...)
	}
	return all
}

func requestFor(pod *corev1.Pod, node string) []reconcile.Request {
	if pod.Spec.NodeName != node {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(pod)}}
}
