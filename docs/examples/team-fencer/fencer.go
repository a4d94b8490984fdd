// Package teamfencer is a small fencing controller as a team might write it, with a
// kind of its own, and shows how such a module is tested with fencelab. Begin with
// README.md.
package teamfencer

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// Module describes the fencer to fencelab. With a giveUp of 0 it never gives up.
func Module(giveUp time.Duration) controllers.Module {
	return controllers.Module{
		AddToScheme: AddToScheme,
		Manifests:   manifests,
		Controllers: []controllers.Registration{{
			Name:  "fencer",
			For:   &FenceRequest{},
			Plays: controllers.Remediation,
			New: func(d controllers.Deps) (reconcile.Reconciler, error) {
				return &Fencer{Client: d.Client, Live: d.Live, Clock: d.Clock, GiveUp: giveUp}, nil
			},
		}},
	}
}

// Patient is the fencer that waits for as long as it takes, for fencelab --module.
func Patient() controllers.Module { return Module(0) }

// Impatient is its first version.
func Impatient() controllers.Module { return Module(20 * time.Second) }

const (
	// key is the fencer's own reboot annotation, which holds a host off.
	key        = "team-fencer"
	annotation = api.RebootAnnotation + "/" + key
	// poll is how often it looks whether the host is off.
	poll = time.Second
)

// Fencer fences hosts: it has a host powered off, deletes its Node, and lets the host
// boot again. It does one thing at a time and remembers it in the request's status.
type Fencer struct {
	Client client.Client
	Live   client.Reader
	Clock  clock.PassiveClock
	// GiveUp is how long to wait for the power-off before the Node is deleted anyway,
	// so that the workload can move. 0 is for as long as it takes.
	GiveUp time.Duration
}

// Reconcile takes the next step of one request.
func (f *Fencer) Reconcile(ctx context.Context, key reconcile.Request) (reconcile.Result, error) {
	var request FenceRequest
	if err := f.Live.Get(ctx, key.NamespacedName, &request); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var host api.BareMetalHost
	if err := f.Live.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: request.Spec.Host}, &host); err != nil {
		return reconcile.Result{}, fmt.Errorf("read the host: %w", err)
	}
	now := f.Clock.Now()
	status := request.Status
	switch {
	case status.Done:
		return reconcile.Result{}, nil
	case status.RequestedAt == nil:
		var node corev1.Node
		if err := f.Live.Get(ctx, client.ObjectKey{Name: request.Spec.Host}, &node); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("read the Node: %w", err)
		}
		return f.remember(ctx, &request, func(s *FenceRequestStatus) {
			s.NodeUID, s.RequestedAt = node.UID, &metav1.Time{Time: now}
		})
	case status.NodeDeleted:
		if err := f.annotate(ctx, &host, nil); err != nil {
			return reconcile.Result{}, err
		}
		return f.remember(ctx, &request, func(s *FenceRequestStatus) { s.Done = true })
	}
	content := fmt.Sprintf(`{"mode":"hard","request":%q}`, request.UID)
	if host.Annotations[annotation] != content {
		return reconcile.Result{RequeueAfter: poll}, f.annotate(ctx, &host, &content)
	}
	gaveUp := f.GiveUp > 0 && now.Sub(status.RequestedAt.Time) > f.GiveUp
	if !off(&host, content) && !gaveUp {
		return reconcile.Result{RequeueAfter: poll}, nil
	}
	var node corev1.Node
	err := f.Live.Get(ctx, client.ObjectKey{Name: request.Spec.Host}, &node)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read the Node: %w", err)
	}
	if err == nil && node.UID == status.NodeUID { // another one of that name is none of ours
		if err := f.Client.Delete(ctx, &node, client.Preconditions{UID: &node.UID}); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("delete the Node: %w", err)
		}
	}
	return f.remember(ctx, &request, func(s *FenceRequestStatus) { s.NodeDeleted = true })
}

// off reports whether the host was seen off in answer to this very request.
func off(host *api.BareMetalHost, content string) bool {
	return !host.Status.PoweredOn && host.Status.Provisioning.HeldOffFor[key] == api.RequestID(content)
}

// remember writes the status, and has the request looked at again.
func (f *Fencer) remember(ctx context.Context, request *FenceRequest, change func(*FenceRequestStatus)) (reconcile.Result, error) {
	change(&request.Status)
	if err := f.Client.Status().Update(ctx, request); err != nil {
		return reconcile.Result{}, fmt.Errorf("write the status: %w", err)
	}
	return reconcile.Result{RequeueAfter: time.Millisecond}, nil
}

// annotate sets or, with nil, removes the fencer's annotation.
func (f *Fencer) annotate(ctx context.Context, host *api.BareMetalHost, value *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotation: value}}})
	if err != nil {
		return err
	}
	if err := f.Client.Patch(ctx, host, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("write the reboot annotation: %w", err)
	}
	return nil
}
