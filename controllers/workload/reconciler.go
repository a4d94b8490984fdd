// Package workload stands in for what a StatefulSet of one replica, pod garbage
// collection and the scheduler do together for an exclusive workload, where none
// of them runs: it keeps one Pod, bound to a Ready Node.
//
// A Node that is merely not Ready keeps its Pod, since the process may still
// run. Only a Node that was deleted releases it (seed 002): at once, or as pod
// garbage collection does it, some time after no Node of its name is there.
package workload

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
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

// Reconciler keeps the Pod. All fields must be set.
type Reconciler struct {
	// Client writes, and reads from a cache.
	Client client.Client
	// Live reads from the API server: only there can one be sure that a Node is
	// gone.
	Live     client.Reader
	Clock    clock.PassiveClock
	Settings Settings

	// missing is since when there has been no Node for the Pod with this UID.
	missing    time.Time
	missingFor types.UID
}

// Reconcile does one step for the Pod, whatever Pod or Node the request is about.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := types.NamespacedName{Namespace: r.Settings.Namespace, Name: r.Settings.Name}
	if request != ThePod && request.NamespacedName != key {
		return reconcile.Result{}, nil
	}
	var pod corev1.Pod
	var again time.Duration
	err := r.Client.Get(ctx, key, &pod, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		err = r.bind(ctx, key)
	case err == nil && r.Settings.Volume == "":
		again, err = r.release(ctx, &pod)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("keep Pod %s: %w", key, err)
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// release deletes the Pod if the Node that it was bound to is gone. It returns when
// to look again if that is not long enough ago.
func (r *Reconciler) release(ctx context.Context, pod *corev1.Pod) (again time.Duration, err error) {
	gone, err := r.gone(ctx, r.Client, pod)
	switch {
	case err != nil:
		return 0, err
	case !gone:
		r.missingFor = ""
		return 0, nil
	case r.missingFor != pod.UID:
		r.missing, r.missingFor = r.Clock.Now(), pod.UID
	}
	if left := r.Settings.Quarantine.Duration - r.Clock.Now().Sub(r.missing); left > 0 {
		return left, nil
	}
	if gone, err = r.gone(ctx, r.Live, pod); err != nil || !gone {
		return 0, err
	}
	err = r.Client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	return 0, client.IgnoreNotFound(err)
}

// gone reports whether the Pod's Node is gone, even if a Node of the same name
// exists; with a quarantine any of that name counts.
func (r *Reconciler) gone(ctx context.Context, reader client.Reader, pod *corev1.Pod) (bool, error) {
	var node corev1.Node
	err := reader.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, &node, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read Node %s: %w", pod.Spec.NodeName, err)
	case r.Settings.Quarantine.Duration > 0:
		return false, nil
	}
	return string(node.UID) != pod.Annotations[api.NodeUIDAnnotation], nil
}

// bind creates the Pod on a Node that is Ready and schedulable. That it is alone
// its name ensures.
func (r *Reconciler) bind(ctx context.Context, key types.NamespacedName) error {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	var chosen *corev1.Node
	for i := range nodes.Items {
		node := &nodes.Items[i]
		preferred := node.Name == r.Settings.PreferredNode
		if schedulable(node) && (chosen == nil || preferred || chosen.Name != r.Settings.PreferredNode && node.Name < chosen.Name) {
			chosen = node
		}
	}
	if chosen == nil {
		return nil // a Node's event will tell
	}
	unprivileged := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   key.Namespace,
			Name:        key.Name,
			Annotations: map[string]string{api.NodeUIDAnnotation: string(chosen.UID)},
		},
		Spec: corev1.PodSpec{
			NodeName:                     chosen.Name,
			Containers:                   []corev1.Container{{Name: "workload", Image: r.Settings.Image}},
			AutomountServiceAccountToken: &unprivileged,
		},
	}
	if r.Settings.Stops != "" {
		pod.Annotations[api.StopsAnnotation] = r.Settings.Stops
	}
	if r.Settings.Volume != "" {
		pod.Annotations[api.VolumeAnnotation] = r.Settings.Volume
	}
	if err := r.Client.Create(ctx, pod); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create it on Node %s: %w", chosen.Name, err)
	}
	return nil
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

// ThePod is the request for the one Pod, of whatever name.
var ThePod = reconcile.Request{}

// PodOfNode maps every Node to the one Pod.
func PodOfNode(context.Context, client.Reader, client.Object) []reconcile.Request {
	return []reconcile.Request{ThePod}
}
