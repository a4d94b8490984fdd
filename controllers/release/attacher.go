package release

import (
	"context"
	"fmt"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
)

// Storage is the storage behind a volume, as its CSI driver reaches it. Each call returns when the
// storage has done it, or won't.
type Storage interface {
	Attach(ctx context.Context, volume, node string) error
	Detach(ctx context.Context, volume, node string) error
	Fence(ctx context.Context, node string) error
	Unfence(ctx context.Context, node string) error
}

// DriverSettings are the options of whoever calls a CSI driver.
type DriverSettings struct {
	// Timeout is how long the driver may take for one call before it is called again.
	Timeout metav1.Duration `json:"timeout"`
}

// DefaultDriverSettings returns the external-attacher's.
func DefaultDriverSettings() DriverSettings {
	return DriverSettings{Timeout: metav1.Duration{Duration: 15 * time.Second}}
}

// Attacher is the external-attacher of the CSI driver. It knows nothing of Nodes or Pods: what a
// VolumeAttachment says is done.
type Attacher struct {
	Client  client.Client
	Storage Storage
}

// finalizer keeps a VolumeAttachment until its volume is detached.
const finalizer = "external-attacher/csi-fencelab-dev"

// Reconcile does one step for one VolumeAttachment.
func (r *Attacher) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	a, err := api.Get(ctx, r.Client, request.NamespacedName, &storagev1.VolumeAttachment{})
	if a == nil || err != nil || a.Spec.Attacher != api.Attacher || a.Spec.Source.PersistentVolumeName == nil {
		return reconcile.Result{}, err
	}
	volume, node := *a.Spec.Source.PersistentVolumeName, a.Spec.NodeName
	has := slices.Contains(a.Finalizers, finalizer)
	switch {
	case a.DeletionTimestamp != nil && has:
		if err = r.Storage.Detach(ctx, volume, node); err != nil {
			break
		}
		err = r.Client.Patch(ctx, a, api.RemoveFinalizer(a, finalizer))
	case a.DeletionTimestamp != nil:
	case !has: // its event brings it here again
		err = r.Client.Patch(ctx, a, api.AddFinalizer(a, finalizer))
	case !a.Status.Attached:
		if err = r.Storage.Attach(ctx, volume, node); err != nil {
			break
		}
		err = r.Client.Status().Patch(ctx, a, api.SetStatus(a, `"attached":true`))
	}
	if err = client.IgnoreNotFound(err); err != nil {
		return reconcile.Result{}, fmt.Errorf("serve the VolumeAttachment of %s to Node %s: %w", volume, node, err)
	}
	return reconcile.Result{}, nil
}
