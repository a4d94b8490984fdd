package deletion

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A round of evictions gives one turn to each Pod that is there when it begins. One that is
// refused is asked for again in the next round, when all others had their turn, however
// many they are. One that comes later waits for that as well: a scheduler that doesn't know
// of the cordon yet, or a Pod that tolerates it, brings back whatever is evicted, as fast as
// it goes.
type round struct {
	began time.Time
	// waiting are the Pods that had no turn yet.
	waiting map[types.UID]bool
	// refused says why Pods could not be evicted when they had their last turn.
	refused map[types.UID]string
}

// after is the round that follows this one.
func (o *round) after(pods []*corev1.Pod, began time.Time) round {
	n := round{began: began, waiting: map[types.UID]bool{}, refused: map[types.UID]string{}}
	for _, pod := range pods {
		n.waiting[pod.UID] = true
		if why, ok := o.refused[pod.UID]; ok {
			n.refused[pod.UID] = why
		}
	}
	return n
}

// next is the Pod whose turn it is, nil if all had theirs.
func (o *round) next(pods []*corev1.Pod) *corev1.Pod {
	for _, pod := range pods {
		if o.waiting[pod.UID] {
			return pod
		}
	}
	return nil
}

// stays reports whether a Pod is none of a drain's: one of a DaemonSet would come back at
// once, and one that the kubelet runs from a file is only shown by the API server.
func stays(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet" && strings.HasPrefix(owner.APIVersion, "apps/")
}

// evict asks the API server to evict a Pod, which it refuses where a budget protects it.
// The Pod has its own grace period, also on a Node out of reach: should that come back,
// its processes are given the time that they were promised.
func (r *Reconciler) evict(ctx context.Context, m *memory, pod *corev1.Pod) error {
	if pod == nil {
		return errors.New("there is no Pod to evict") // Decide never asks for it
	}
	delete(m.round.waiting, pod.UID)
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	}
	err := r.Client.SubResource("eviction").Create(ctx, pod.DeepCopy(), eviction)
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		delete(m.round.refused, pod.UID)
		return client.IgnoreNotFound(err)
	case apierrors.IsTooManyRequests(err):
		m.round.refused[pod.UID] = reasonOf(err)
		return nil
	}
	m.round.refused[pod.UID] = err.Error()
	return fmt.Errorf("evict Pod %s: %w", client.ObjectKeyFromObject(pod), err)
}

// reasonOf is what the API server says of a refusal, with the budget's name where it does.
func reasonOf(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil && len(status.Status().Details.Causes) > 0 {
		return status.Status().Details.Causes[0].Message
	}
	return err.Error()
}
