package deletion

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/api/hold"
)

// holdKey is that of the request which holds a host off for a deletion.
var holdKey = hold.NewKey(api.DeletionRebootKey)

// hostUsed reports whether the host that the Machine names is its own: a host may have
// been given to another since, or taken away by a user.
func (f *facts) hostUsed() bool {
	if f.host == nil {
		return false
	}
	key, ok := api.Consumer(f.host)
	return ok && key == client.ObjectKeyFromObject(f.machine) &&
		(f.host.Spec.ConsumerRef.UID == "" || f.host.Spec.ConsumerRef.UID == f.machine.UID)
}

// requested reports whether the host was asked to stay off for this very deletion: a
// request that an earlier Machine of the same name has left is none.
func (f *facts) requested() bool {
	content := holdKey.Content(f.host)
	return content != "" && hold.Parse(content).Machine == f.machine.UID
}

// heldOff reports whether the host is known to be off in answer to that.
func (f *facts) heldOff() bool {
	return f.requested() && !f.host.Status.PoweredOn && holdKey.Answered(f.host)
}

// outdated reports whether the host may have booted since.
func (r *Reconciler) outdated(m *memory, f *facts) bool {
	return m.request.Outdated(holdKey.Content(f.host), f.node, r.Clock.Now(), r.Settings.AnswerWithin.Duration)
}

// hold asks for the host to go off and stay off, or asks anew.
func (r *Reconciler) hold(ctx context.Context, f *facts) error {
	// The mode is soft where the operating system can be expected to listen.
	mode := api.RebootHard
	if f.node != nil && ready(f.node) == corev1.ConditionTrue {
		mode = api.RebootSoft
	}
	ask, err := holdKey.Ask(f.host, f.node, hold.Request{Mode: mode, Machine: f.machine.UID, At: metav1.NewMicroTime(r.Clock.Now().UTC())})
	if err != nil {
		return err
	}
	return r.Client.Patch(ctx, f.host.DeepCopy(), ask)
}

// letGo takes the request back from a host that is the Machine's no more.
func (r *Reconciler) letGo(ctx context.Context, f *facts) error {
	return r.Client.Patch(ctx, f.host.DeepCopy(), api.RemoveAnnotations(f.host, holdKey.Annotation()))
}

// release gives the host back, in one write: it stays off, is nobody's, and no longer held.
func (r *Reconciler) release(ctx context.Context, f *facts) error {
	return r.Client.Patch(ctx, f.host.DeepCopy(),
		api.RemoveAnnotationAndSetSpec(f.host, holdKey.Annotation(), `"online":false,"consumerRef":null`))
}
