package release

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// The rounds of the pod garbage collector, and for how long a Node must be missing before its Pods
// are orphans. Both are constants of Kubernetes.
const (
	collectEvery = 20 * time.Second
	quarantine   = 40 * time.Second
)

// CollectSettings are the options of the pod garbage collector.
type CollectSettings struct {
	// LooksLive reads the Node from the API server before it deletes a Pod for its taint, as
	// kubernetes#141887 wants.
	LooksLive bool `json:"looksLive"`
}

// DefaultCollectSettings are Kubernetes' own.
func DefaultCollectSettings() CollectSettings { return CollectSettings{} }

// PodGC is the pod garbage collector. It deletes, by force, the Pods of Nodes that are gone, and
// those that are marked for deletion on a Node that is out of service and not Ready.
type PodGC struct {
	Client   client.Client
	Live     client.Reader
	Clock    clock.PassiveClock
	Settings CollectSettings

	mutex sync.Mutex
	// due is when this process looks again at a Node that it has found missing.
	due  map[string]time.Time
	next time.Time
}

// Reconcile makes a round when it is time for one.
func (r *PodGC) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	now := r.Clock.Now()
	if left := r.next.Sub(now); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	r.next = now.Add(collectEvery)
	return reconcile.Result{RequeueAfter: collectEvery}, r.round(ctx)
}

func (r *PodGC) round(ctx context.Context) error {
	var nodes corev1.NodeList
	var pods corev1.PodList
	if err := errors.Join(r.Client.List(ctx, &nodes), r.Client.List(ctx, &pods)); err != nil {
		return fmt.Errorf("list Nodes and Pods: %w", err)
	}
	there := map[string]*corev1.Node{}
	for i := range nodes.Items {
		there[nodes.Items[i].Name] = &nodes.Items[i]
	}
	over := r.quarantined(pods.Items, there)
	var failed []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		collect, err := r.collects(ctx, pod, there[pod.Spec.NodeName], over[pod.Spec.NodeName])
		if err == nil && collect {
			err = r.collect(ctx, pod)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("collect Pod %s: %w", pod.Name, err))
		}
	}
	return errors.Join(failed...)
}

// quarantined returns the Nodes whose quarantine ends with this round. A Node enters when a round
// finds a Pod of it and not the Node, again and again: the next quarantine begins with the end of
// the last one, or with the next Pod.
func (r *PodGC) quarantined(pods []corev1.Pod, there map[string]*corev1.Node) map[string]bool {
	now, due, over := r.Clock.Now(), map[string]time.Time{}, map[string]bool{}
	for i := range pods {
		if name := pods[i].Spec.NodeName; name != "" && there[name] == nil {
			due[name] = now.Add(quarantine)
		}
	}
	for name, at := range r.due { // order does not matter: each fills its own entries
		if at.After(now) {
			due[name] = at
		} else {
			over[name] = true
		}
	}
	r.due = due
	return over
}

// collects decides about a Pod and its Node, nil if there is none; over says that the Node's
// quarantine is. Only of a missing Node is the API server asked, by the Node's name.
func (r *PodGC) collects(ctx context.Context, pod *corev1.Pod, node *corev1.Node, over bool) (bool, error) {
	name := pod.Spec.NodeName
	switch {
	case name == "":
		return pod.DeletionTimestamp != nil, nil
	case node != nil:
		if pod.DeletionTimestamp == nil || api.Ready(node) || !api.OutOfService(node) {
			return false, nil
		}
		if !r.Settings.LooksLive {
			return true, nil
		}
	case !over:
		return false, nil
	}
	var live corev1.Node
	err := r.Live.Get(ctx, types.NamespacedName{Name: name}, &live)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read its Node: %w", err)
	}
	return node != nil && !api.Ready(&live) && api.OutOfService(&live), nil
}

// collect has the Pod fail, which already takes its claim to a volume away, and then deletes it by
// force. The deletion names no UID: a Pod of the same name that has come in between is deleted.
func (r *PodGC) collect(ctx context.Context, pod *corev1.Pod) error {
	if pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
		patch := `{"metadata":{"uid":` + api.Quote(string(pod.UID)) + `},"status":{"phase":"Failed"}}`
		if err := r.Client.Status().Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	gone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	return client.IgnoreNotFound(r.Client.Delete(ctx, gone, client.GracePeriodSeconds(0)))
}
