package workload

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
)

// DaemonSettings are the settings of Daemons.
type DaemonSettings struct {
	// Namespace and Name are the DaemonSet's. The name of a Pod has that of its Node as well.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Image is that of a Pod's only container.
	Image string `json:"image"`
}

// DefaultDaemonSettings returns the DaemonSet default/daemon.
func DefaultDaemonSettings() DaemonSettings {
	return DaemonSettings{Namespace: metav1.NamespaceDefault, Name: "daemon", Image: "daemon"}
}

// Daemons keeps a Pod of a DaemonSet on each Node, also on one that is cordoned, tainted or not
// Ready, and makes another where it was deleted. It removes the Pod of a Node that is gone.
type Daemons struct {
	// Client writes, and reads from a cache.
	Client   client.Client
	Settings DaemonSettings
}

// NodeOf returns the request for the Node that a Pod is bound to.
func NodeOf(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
	name := obj.(*corev1.Pod).Spec.NodeName
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

// Reconcile brings the Pod of a Node into being, or removes that of a Node that was there before.
func (d *Daemons) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var node corev1.Node
	err := client.IgnoreNotFound(d.Client.Get(ctx, request.NamespacedName, &node, client.UnsafeDisableDeepCopy))
	if err == nil {
		err = d.keep(ctx, request.Name, &node)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("keep the daemon of Node %s: %w", request.Name, err)
	}
	return reconcile.Result{}, nil
}

// keep does one step for a Node, whose UID is empty if there is none.
func (d *Daemons) keep(ctx context.Context, name string, node *corev1.Node) error {
	var pod corev1.Pod
	key := types.NamespacedName{Namespace: d.Settings.Namespace, Name: d.Settings.Name + "-" + name}
	err := d.Client.Get(ctx, key, &pod, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err) && node.UID != "" && node.DeletionTimestamp == nil:
		if err = d.Client.Create(ctx, d.pod(key.Name, node)); apierrors.IsAlreadyExists(err) {
			return nil // the cache is behind
		}
		return err
	case err != nil:
		return client.IgnoreNotFound(err)
	case pod.Annotations[api.NodeUIDAnnotation] != string(node.UID):
		return client.IgnoreNotFound(d.Client.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}))
	}
	return nil
}

func (d *Daemons) pod(name string, node *corev1.Node) *corev1.Pod {
	unprivileged, controls := false, true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Settings.Namespace, Name: name,
			Annotations:     map[string]string{api.NodeUIDAnnotation: string(node.UID)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: d.Settings.Name, UID: types.UID(d.Settings.Name), Controller: &controls}},
		},
		Spec: corev1.PodSpec{
			NodeName:                     node.Name,
			Containers:                   []corev1.Container{{Name: "daemon", Image: d.Settings.Image}},
			Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			AutomountServiceAccountToken: &unprivileged,
		},
	}
}
