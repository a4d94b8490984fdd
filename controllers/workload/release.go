package workload

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
)

// Releaser deletes the Pod when the Node that it was bound to is gone, and any other Pod when no
// Node of the name is there. All fields must be set.
type Releaser struct {
	// Client writes, and reads from a cache.
	Client client.Client
	// Live reads from the API server: only there can one be sure that a Node is gone.
	Live     client.Reader
	Clock    clock.PassiveClock
	Settings Settings

	// missing is since when there has been no Node for the Pods with these UIDs.
	missing map[types.UID]time.Time
}

// Reconcile deletes a Pod, or asks to look again when the quarantine is over.
func (r *Releaser) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if r.Settings.Volume != "" {
		return reconcile.Result{}, nil
	}
	var pod corev1.Pod
	err := r.Client.Get(ctx, request.NamespacedName, &pod, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) || err == nil && pod.Spec.NodeName == "" {
		return reconcile.Result{}, nil
	}
	var again time.Duration
	if err == nil {
		again, err = r.release(ctx, &pod)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("release Pod %s: %w", request, err)
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// release deletes the Pod unless its Node is there, or has not been gone for long enough: then it
// returns when to look again.
func (r *Releaser) release(ctx context.Context, pod *corev1.Pod) (again time.Duration, err error) {
	gone, err := r.gone(ctx, r.Client, pod)
	switch {
	case err != nil:
		return 0, err
	case !gone:
		delete(r.missing, pod.UID)
		return 0, nil
	case r.missing == nil:
		r.missing = make(map[types.UID]time.Time)
	}
	since, known := r.missing[pod.UID]
	if !known {
		since = r.Clock.Now()
		r.missing[pod.UID] = since
	}
	if left := r.Settings.Quarantine.Duration - r.Clock.Now().Sub(since); left > 0 {
		return left, nil
	}
	if gone, err = r.gone(ctx, r.Live, pod); err != nil || !gone {
		return 0, err
	}
	err = r.Client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	return 0, client.IgnoreNotFound(err)
}

// gone reports whether the Pod's Node is gone, even if a Node of the same name exists; with a
// quarantine any of that name counts, as it does for a Pod that somebody else has bound.
func (r *Releaser) gone(ctx context.Context, reader client.Reader, pod *corev1.Pod) (bool, error) {
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
	uid, bound := pod.Annotations[api.NodeUIDAnnotation]
	return bound && uid != string(node.UID), nil
}
