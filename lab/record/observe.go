package record

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
)

// Watch observes every version of the objects that matter. It uses plain
// watches: an informer would merge versions.
func (r *Record) Watch(ctx context.Context, from client.WithWatch) error {
	o := observer{r, ctx, from}
	for _, kind := range r.kinds {
		if kind.Changes == nil && len(r.fields.Of(kind)) == 0 {
			continue
		}
		list := kind.NewList()
		if err := from.List(ctx, list); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
		w, err := o.watchFrom(list, list.GetResourceVersion())
		if err != nil {
			return err
		}
		versions := make(map[types.UID]metav1.Object)
		for _, obj := range objects.Items(list) {
			o.observed(kind, nil, obj)
			versions[obj.GetUID()] = obj
		}
		version := list.GetResourceVersion()
		r.tasks.Go(func() {
			for w != nil {
				version = o.follow(kind, w, versions, version)
				w = o.watchAgain(list, version)
			}
		})
	}
	return nil
}

// observer is the record's eye on the API server.
type observer struct {
	*Record
	ctx  context.Context
	from client.WithWatch
}

// watchFrom watches the objects of a list from a version on.
func (o observer) watchFrom(list client.ObjectList, version string) (watch.Interface, error) {
	w, err := o.from.Watch(o.ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", list, err)
	}
	return w, nil
}

// watchAgain goes on from the last version that a watch delivered: the API server ends watches of
// a kind when its definition changes, and programs bring definitions. It returns nil at the end of
// the run, or if versions may have been missed; then the run has no verdict.
func (o observer) watchAgain(list client.ObjectList, version string) watch.Interface {
	if version == "" || o.ctx.Err() != nil {
		return nil
	}
	w, err := o.watchFrom(list, version)
	if err != nil && o.ctx.Err() == nil {
		o.Fail(fmt.Errorf("the watch of the API server ended: %w", err))
	}
	return w
}

// follow turns a watch into events until it ends, and returns the version that it came to. The lab
// lives for minutes, in which the API server forgets no version; when it says so all the same,
// versions were missed, the run has no verdict, and there is no version.
func (o observer) follow(kind *objects.Kind, w watch.Interface, versions map[types.UID]metav1.Object, version string) string {
	defer w.Stop()
	for e := range w.ResultChan() {
		obj, ok := e.Object.(metav1.Object)
		if !ok {
			o.Fail(fmt.Errorf("the watch of the API server ended: %w", apierrors.FromObject(e.Object)))
			return ""
		}
		version = obj.GetResourceVersion()
		before := versions[obj.GetUID()]
		if e.Type == watch.Deleted {
			delete(versions, obj.GetUID())
			o.Versions.note(o.Since(), obj.GetResourceVersion())
			if before == nil {
				before = obj
			}
			o.observed(kind, before, nil)
			continue
		}
		versions[obj.GetUID()] = obj
		o.observed(kind, before, obj)
	}
	return version
}

func (o observer) observed(kind *objects.Kind, before, after metav1.Object) {
	at := o.Since()
	for _, obj := range [...]metav1.Object{before, after} {
		if obj != nil {
			o.Versions.note(at, obj.GetResourceVersion())
		}
	}
	var events []history.Event
	now := time.Now()
	see := func(e history.Event) {
		e.At = at
		objects.Date(&e, after, now)
		events = append(events, e)
	}
	o.names.Changes(kind, before, after, see)
	o.fields.Changes(o.names, kind, before, after, see)
	object := after
	if object == nil {
		object = before
	}
	record := func(actor string) {
		o.Trace.Changed(at, actor, kindOf(object)+"/"+object.GetName(), before, after)
		for _, e := range events {
			e.Actor = actor
			o.Put(e)
		}
	}
	if actor := manager(before, after); actor != "" {
		record(actor)
		return
	}
	release := o.hold(at)
	o.tasks.Go(func() {
		defer release()
		actor := o.Writers.await(before, after)
		if actor == "" && after == nil {
			actor = collector(before)
		}
		record(actor)
	})
}
