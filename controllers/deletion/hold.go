package deletion

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
)

// request is the content of the annotation that holds a host off for a deletion. No two
// requests are alike, so that the answer to one is never taken for that to another.
type request struct {
	// Mode is soft where the operating system can be expected to listen.
	Mode api.RebootMode `json:"mode"`
	// Machine is the UID of the Machine that is deleted.
	Machine types.UID `json:"machine"`
	// Request is the resourceVersion of the host that the request is based on.
	Request string `json:"request"`
	// Boot is the boot that the Node told of when the request was made.
	Boot string `json:"boot,omitempty"`
	// At is when it was made, by the clock of the process that made it: one that starts
	// later knows no better.
	At metav1.MicroTime `json:"at,omitzero"`
}

// age is how old a request is at least, by this process's own clock.
type age struct {
	// content is the request's, and since a time at which it was not there yet; of what a
	// process finds when it starts, when that was.
	content string
	since   time.Time
	// looked is when the last reading began.
	looked time.Time
}

// look notes what a live reading found. What is new was not there yet when the reading
// before began.
func (a *age) look(content string, began time.Time) {
	if content != a.content {
		a.content, a.since = content, a.looked
		if a.looked.IsZero() {
			a.since = began
		}
	}
	a.looked = began
}

// requestOf is the content of the request on a host, empty without one.
func requestOf(host *api.BareMetalHost) string {
	if host == nil {
		return ""
	}
	return host.Annotations[api.DeletionRebootAnnotation]
}

// parse reads a request that another may have written: of that it takes what it
// understands.
func parse(content string) request {
	var q request
	_ = json.Unmarshal([]byte(content), &q) // is nobody's then
	return q
}

// hostUsed reports whether the host that the Machine names is its own: a host may have
// been given to another since, or taken away by a user.
func (f *facts) hostUsed() bool {
	if f.host == nil {
		return false
	}
	key, ok := consumer(f.host)
	return ok && key == client.ObjectKeyFromObject(f.machine) &&
		(f.host.Spec.ConsumerRef.UID == "" || f.host.Spec.ConsumerRef.UID == f.machine.UID)
}

// consumer is the Machine that uses a host.
func consumer(host *api.BareMetalHost) (key types.NamespacedName, ok bool) {
	ref := host.Spec.ConsumerRef
	if ref == nil || ref.Kind != "Machine" || ref.Name == "" {
		return key, false
	}
	key = types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if key.Namespace == "" {
		key.Namespace = host.Namespace
	}
	return key, true
}

// requested reports whether the host was asked to stay off for this very deletion: a
// request that an earlier Machine of the same name has left is none.
func (f *facts) requested() bool {
	content := requestOf(f.host)
	return content != "" && parse(content).Machine == f.machine.UID
}

// heldOff reports whether the host was found off by a reading that began after the
// request was there, and is kept off (seeds 000 and 002).
func (f *facts) heldOff() bool {
	return f.requested() && !f.host.Status.PoweredOn &&
		f.host.Status.Provisioning.HeldOffFor[api.DeletionRebootKey] == api.RequestID(requestOf(f.host))
}

// outdated reports whether the host may have booted since it was off in answer to the
// request: power may come back by itself right after the reading. The Node of a boot that
// got through to the API server tells of it; else only the clock does.
func (r *Reconciler) outdated(m *memory, f *facts) bool {
	content := requestOf(f.host)
	if content == "" {
		return false
	}
	q, now, within := parse(content), r.Clock.Now(), r.Settings.AnswerWithin.Duration
	return f.node != nil && q.Boot != f.node.Status.NodeInfo.BootID ||
		content == m.request.content && now.Sub(m.request.since) >= within ||
		!q.At.IsZero() && now.Sub(q.At.Time) >= within
}

// hold asks for the host to go off and stay off, or asks anew.
func (r *Reconciler) hold(ctx context.Context, f *facts) error {
	if f.host == nil {
		return errors.New("the Machine has no host") // Decide never asks for it
	}
	q := request{Mode: api.RebootHard, Machine: f.machine.UID, Request: f.host.ResourceVersion, At: metav1.NewMicroTime(r.Clock.Now().UTC())}
	if f.node != nil {
		q.Boot = f.node.Status.NodeInfo.BootID
		if ready(f.node) == corev1.ConditionTrue {
			q.Mode = api.RebootSoft
		}
	}
	content, err := json.Marshal(q)
	if err != nil {
		return err
	}
	return r.Client.Patch(ctx, f.host.DeepCopy(), api.SetAnnotation(f.host, api.DeletionRebootAnnotation, string(content)))
}

// release gives the host back, in one write: it stays off, is nobody's, and no longer held.
func (r *Reconciler) release(ctx context.Context, f *facts) error {
	if f.host == nil {
		return errors.New("the Machine has no host") // Decide never asks for it
	}
	return r.Client.Patch(ctx, f.host.DeepCopy(),
		api.RemoveAnnotationAndSetSpec(f.host, api.DeletionRebootAnnotation, `"online":false,"consumerRef":null`))
}
