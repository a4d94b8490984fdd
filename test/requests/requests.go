// Package requests is a module with a request object of its own: a watcher of Leases makes
// FenceRequests, and a fencer carries them out. Both find out by themselves, without the marks of a
// health check.
package requests

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing/fstest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
)

// FenceRequest asks for a host to be fenced.
type FenceRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   FenceRequestSpec   `json:"spec"`
	Status FenceRequestStatus `json:"status,omitempty"`
}

// FenceRequestSpec names the Node, and which of that name.
type FenceRequestSpec struct {
	Node string    `json:"node"`
	UID  types.UID `json:"uid,omitempty"`
}

// FenceRequestStatus is how far it has come: Released when the Node is deleted, and Done.
type FenceRequestStatus struct {
	Phase string `json:"phase,omitempty"`
}

// FenceRequestList is a list of them.
type FenceRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FenceRequest `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (r *FenceRequest) DeepCopyObject() runtime.Object {
	c := *r
	r.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *FenceRequestList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = nil
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*FenceRequest))
	}
	return &c
}

const definition = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: fencerequests.acme.example},
spec: {group: acme.example, scope: Namespaced, names: {kind: FenceRequest, listKind: FenceRequestList, plural: fencerequests, singular: fencerequest},
versions: [{name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, required: [spec], properties: {
metadata: {type: object}, spec: {type: object, required: [node], properties: {node: {type: string}, uid: {type: string}}},
status: {type: object, properties: {phase: {type: string}}}}}}}]}}
`

// Mistakes choose a fencer that is wrong.
type Mistakes struct {
	// Forgets to note that the Node is gone before it lets go of the host.
	Forgets bool
	// Hurries says that the request is done as soon as the host was asked to go off.
	Hurries bool
	// Trusts has the watcher go by what its cache knows of the Lease, which may be old news.
	Trusts bool
	// Uncordons makes the Node schedulable once it is back, whoever has cordoned it.
	Uncordons bool
	// Minds has the watcher wait until the Node isn't Ready, which is no mistake.
	Minds bool
}

// Module has both controllers.
func Module(wrong Mistakes) controllers.Module {
	gv := schema.GroupVersion{Group: "acme.example", Version: "v1"}
	return controllers.Module{
		AddToScheme: func(scheme *runtime.Scheme) error {
			scheme.AddKnownTypes(gv, &FenceRequest{}, &FenceRequestList{})
			metav1.AddToGroupVersion(scheme, gv)
			return nil
		},
		Manifests: fstest.MapFS{"crd.yaml": {Data: []byte(definition)}},
		Requests:  map[string]controllers.Request{"FenceRequest": {Fences: "spec.node", Done: "status.phase=Done"}},
		Controllers: []controllers.Registration{
			{Name: "watcher", For: &coordinationv1.Lease{}, Plays: controllers.HealthCheck, New: func(d controllers.Deps) (reconcile.Reconciler, error) {
				w := &watcher{d.Client, d.Live, d.Live, d.Clock, wrong.Minds}
				if wrong.Trusts {
					w.leases = d.Client
				}
				return w, nil
			}},
			{Name: "fencer", For: &FenceRequest{}, Plays: controllers.Remediation, New: func(d controllers.Deps) (reconcile.Reconciler, error) {
				return &fencer{d.Client, d.Live, wrong}, nil
			}},
		},
	}
}

// silence is how old a Lease is before its host is fenced.
const silence = 10 * time.Second

type watcher struct {
	client client.Client
	live   client.Reader
	leases client.Reader
	clock  clock.PassiveClock
	minds  bool
}

// Reconcile looks at one Lease.
func (w *watcher) Reconcile(ctx context.Context, key reconcile.Request) (reconcile.Result, error) {
	var lease coordinationv1.Lease
	if err := w.leases.Get(ctx, key.NamespacedName, &lease); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if lease.Spec.RenewTime == nil {
		return reconcile.Result{}, nil
	}
	if left := silence - w.clock.Since(lease.Spec.RenewTime.Time); left > 0 {
		return reconcile.Result{RequeueAfter: left + time.Millisecond}, nil
	}
	var node corev1.Node
	if err := w.live.Get(ctx, client.ObjectKey{Name: lease.Name}, &node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	ready := func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	if w.minds && slices.ContainsFunc(node.Status.Conditions, ready) {
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	// Its name is the Node's UID: whatever comes late, there is one for each.
	request := &FenceRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: string(node.UID)}, Spec: FenceRequestSpec{Node: node.Name, UID: node.UID}}
	if err := w.client.Create(ctx, request); err != nil && !apierrors.IsAlreadyExists(err) {
		return reconcile.Result{}, fmt.Errorf("ask for %s to be fenced: %w", node.Name, err)
	}
	return reconcile.Result{}, nil
}

// key is the fencer's own reboot annotation.
const key = "acme"

type fencer struct {
	client client.Client
	live   client.Reader
	wrong  Mistakes
}

// Reconcile takes the next step of one request.
func (f *fencer) Reconcile(ctx context.Context, name reconcile.Request) (reconcile.Result, error) {
	var request FenceRequest
	if err := f.live.Get(ctx, name.NamespacedName, &request); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var host api.BareMetalHost
	if err := f.live.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: request.Spec.Node}, &host); err != nil {
		return reconcile.Result{}, err
	}
	content := fmt.Sprintf(`{"mode":"hard","request":%q}`, request.UID)
	asked, again := host.Annotations[api.RebootAnnotation+"/"+key] == content, reconcile.Result{RequeueAfter: time.Second}
	switch {
	case request.Status.Phase == "Done":
		return reconcile.Result{}, nil
	case request.Status.Phase == "Released":
		if err := f.annotate(ctx, &host, nil); err != nil {
			return reconcile.Result{}, err
		}
		if f.wrong.Uncordons {
			var node corev1.Node
			switch err := f.live.Get(ctx, client.ObjectKey{Name: request.Spec.Node}, &node); {
			case client.IgnoreNotFound(err) != nil:
				return reconcile.Result{}, err
			case err != nil || !node.Spec.Unschedulable:
				return again, nil
			}
			node.Spec.Unschedulable = false
			if err := f.client.Update(ctx, &node); err != nil {
				return reconcile.Result{}, err
			}
		}
		return reconcile.Result{}, f.phase(ctx, &request, "Done")
	case !asked:
		return again, f.annotate(ctx, &host, &content)
	case f.wrong.Hurries:
		return reconcile.Result{}, f.phase(ctx, &request, "Done")
	case host.Status.PoweredOn || host.Status.Provisioning.HeldOffFor[key] != api.RequestID(content):
		return again, nil
	}
	var node corev1.Node
	err := f.live.Get(ctx, client.ObjectKey{Name: request.Spec.Node}, &node)
	if err == nil && node.UID == request.Spec.UID { // another one of that name is none of ours
		err = f.client.Delete(ctx, &node, client.Preconditions{UID: &node.UID})
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("delete the Node: %w", err)
	}
	if !f.wrong.Forgets {
		return again, f.phase(ctx, &request, "Released")
	}
	if err := f.annotate(ctx, &host, nil); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, f.phase(ctx, &request, "Done")
}

func (f *fencer) phase(ctx context.Context, request *FenceRequest, phase string) error {
	request.Status.Phase = phase
	return f.client.Status().Update(ctx, request)
}

// annotate sets or, with nil, removes the annotation that holds the host off.
func (f *fencer) annotate(ctx context.Context, host *api.BareMetalHost, value *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{api.RebootAnnotation + "/" + key: value}}})
	if err != nil {
		return err
	}
	return f.client.Patch(ctx, host, client.RawPatch(types.MergePatchType, patch))
}
