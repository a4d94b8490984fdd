package remediation

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/api/fence"
)

// FenceStorage makes the host's StorageFence, UnfenceStorage has it let the host in again, and
// ForgetFence deletes it once it has.
const (
	FenceStorage   Action = "FenceStorage"
	UnfenceStorage Action = "UnfenceStorage"
	ForgetFence    Action = "ForgetFence"
)

// Fence decides like Taint, but keeps the host out of the storage before it asks for a reboot. Once
// that holds, the Node is called out of service though the host may run: it writes no more, and nor
// does any later boot. The fence ends only when the boot that had the volumes is over, by the
// answer to the request, and nothing is left on the Node that the next boot could mount. A fencing
// that has released nothing, and asked for no reboot, is taken back with its mark.
func Fence(s State) Action {
	off := s.RebootAnnotation && !s.PoweredOn()
	releasing := s.NeedsRemediation && s.NodeExists && !s.PoweredOffMark
	switch {
	case s.FenceOver:
		return ForgetFence
	case s.FenceEnding:
		return Nothing // a boot would find the storage closed
	case s.Fenced && off && (!s.NodeExists || s.Emptied && (s.Tainted || !releasing) || !releasing && !s.OwnTaint):
		return UnfenceStorage
	case s.Fenced && s.NodeExists && !s.NeedsRemediation && !s.RebootAnnotation && !s.Tainted:
		return UnfenceStorage
	case releasing && !s.Fenced && !off:
		return FenceStorage
	case releasing && s.FenceHolds && s.RebootAnnotation && !s.Tainted:
		return TaintNode
	case releasing && s.Fenced && s.Tainted && !off && s.RebootAnnotation:
		return Nothing // the host is to end before anything else does
	case releasing && s.Fenced && s.Tainted && !off:
		return AddReboot
	}
	return Taint(s)
}

// kept completes a State with the facts that Fence goes by, and the StorageFence among the facts.
func (s *State) kept(ctx context.Context, live client.Reader, f *facts) (err error) {
	f.barrier, err = api.Get(ctx, live, client.ObjectKeyFromObject(f.host), &fence.StorageFence{})
	if err != nil || f.barrier == nil {
		return err
	}
	s.Fenced = f.barrier.Spec.FenceState == fence.Fenced && f.barrier.DeletionTimestamp == nil
	s.FenceEnding = !s.Fenced
	s.FenceHolds = s.Fenced && f.barrier.Is(fence.Fenced)
	s.FenceOver = f.barrier.DeletionTimestamp == nil && f.barrier.Is(fence.Unfenced)
	return nil
}

// keepOut makes the StorageFence of the host's Node. It has the host's name, so that it is found
// when its Machine is gone, and is another object for each fencing: its status is about this one.
func (r *Reconciler) keepOut(ctx context.Context, f facts) error {
	if f.node == nil {
		return errors.New("the host's Machine has no Node") // the table never asks for it
	}
	return r.Client.Create(ctx, &fence.StorageFence{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.host.Namespace, Name: f.host.Name},
		Spec:       fence.StorageFenceSpec{Node: f.node.Name, FenceState: fence.Fenced},
	})
}

// letIn has the StorageFence that was read let the host in, or deletes it.
func (r *Reconciler) letIn(ctx context.Context, f facts, forget bool) error {
	switch {
	case f.barrier == nil:
		return errors.New("the host has no StorageFence") // the table never asks for it
	case forget:
		return r.Client.Delete(ctx, f.barrier, client.Preconditions{UID: &f.barrier.UID, ResourceVersion: &f.barrier.ResourceVersion})
	}
	return r.Client.Patch(ctx, f.barrier, api.SetSpec(f.barrier, `"fenceState":`+api.Quote(string(fence.Unfenced))))
}
