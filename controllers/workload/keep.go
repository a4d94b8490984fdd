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

// Keeper creates the Pod whenever there is none. Its name ensures that it is alone.
type Keeper struct {
	// Client writes, and reads from a cache.
	Client   client.Client
	Settings Settings
}

// Reconcile does one step. The empty request is for the Pod of the settings.
func (k *Keeper) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := k.Settings.key()
	if request != (reconcile.Request{}) && request.NamespacedName != key {
		return reconcile.Result{}, nil
	}
	err := k.Client.Get(ctx, key, &corev1.Pod{}, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		err = k.Client.Create(ctx, k.pod())
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return reconcile.Result{}, fmt.Errorf("keep Pod %s: %w", key, err)
	}
	return reconcile.Result{}, nil
}

func (k *Keeper) pod() *corev1.Pod {
	unprivileged := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.Settings.Namespace, Name: k.Settings.Name},
		Spec: corev1.PodSpec{
			Containers:                   []corev1.Container{{Name: "workload", Image: k.Settings.Image}},
			AutomountServiceAccountToken: &unprivileged,
		},
	}
	for key, value := range map[string]string{api.StopsAnnotation: k.Settings.Stops, api.VolumeAnnotation: k.Settings.Volume} { // order does not matter: each is set
		if value != "" {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
		}
	}
	return pod
}
