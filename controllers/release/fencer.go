package release

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/api/fence"
)

// Fencer carries out StorageFences, as the controller of csi-addons carries out NetworkFences: it
// does what the state says, whatever runs on the host, and says what came of it. Its finalizer
// keeps a StorageFence until it has seen that it goes, and nothing else: that lets no host in.
type Fencer struct {
	Client  client.Client
	Storage Storage
}

// fenceFinalizer is on every StorageFence that was carried out once.
const fenceFinalizer = "fencelab.dev/storage-fence"

// Reconcile does one step for one StorageFence.
func (r *Fencer) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	f, err := api.Get(ctx, r.Client, request.NamespacedName, &fence.StorageFence{})
	if f == nil || err != nil {
		return reconcile.Result{}, err
	}
	has := slices.Contains(f.Finalizers, fenceFinalizer)
	switch {
	case f.DeletionTimestamp != nil && has:
		err = r.Client.Patch(ctx, f, api.RemoveFinalizer(f, fenceFinalizer))
	case f.DeletionTimestamp != nil, f.Is(f.Spec.FenceState):
	case !has: // its event brings it here again
		err = r.Client.Patch(ctx, f, api.AddFinalizer(f, fenceFinalizer))
	default:
		err = r.carryOut(ctx, f)
	}
	if err = client.IgnoreNotFound(err); err != nil {
		return reconcile.Result{}, fmt.Errorf("carry out the StorageFence %s of Node %s: %w", request, f.Spec.Node, err)
	}
	return reconcile.Result{}, nil
}

func (r *Fencer) carryOut(ctx context.Context, f *fence.StorageFence) error {
	do, result, message := r.Storage.Fence, fence.Succeeded, f.Spec.FenceState.Message()
	if f.Spec.FenceState == fence.Unfenced {
		do = r.Storage.Unfence
	}
	failed := do(ctx, f.Spec.Node)
	if failed != nil {
		result, message = fence.Failed, failed.Error()
	}
	if f.Status.Result != result || f.Status.Message != message {
		if err := r.Client.Status().Patch(ctx, f, api.SetStatus(f, `"result":`+api.Quote(string(result))+`,"message":`+api.Quote(message))); err != nil {
			return err
		}
	}
	return failed
}
