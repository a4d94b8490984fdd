package lab

import (
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
)

// watchAPI observes every version of the objects that matter. It uses plain
// watches: an informer would merge versions.
func (b *Backend) watchAPI() error {
	for _, kind := range b.kinds {
		if kind.Changes == nil && len(b.fields[kind.Name]) == 0 {
			continue
		}
		list := kind.NewList()
		if err := b.admin.List(b.ctx, list); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
		w, err := b.watchFrom(list, list.GetResourceVersion())
		if err != nil {
			return err
		}
		versions := make(map[types.UID]metav1.Object)
		for _, obj := range items(list) {
			b.observed(kind, nil, obj)
			versions[obj.GetUID()] = obj
		}
		version := list.GetResourceVersion()
		b.tasks.Go(func() {
			for w != nil {
				version = b.follow(kind, w, versions, version)
				w = b.watchAgain(list, version)
			}
		})
	}
	return nil
}

// watchFrom watches the objects of a list from a version on.
func (b *Backend) watchFrom(list client.ObjectList, version string) (watch.Interface, error) {
	w, err := b.admin.Watch(b.ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", list, err)
	}
	return w, nil
}

// watchAgain goes on from the last version that a watch told of: the API server ends those of a kind when its definition
// changes, which programs bring. Nil at the end of the run, or if versions may have been missed, and then the run has no
// verdict.
func (b *Backend) watchAgain(list client.ObjectList, version string) watch.Interface {
	if version == "" || b.ctx.Err() != nil {
		return nil
	}
	w, err := b.watchFrom(list, version)
	if err != nil && b.ctx.Err() == nil {
		b.stream.fail(fmt.Errorf("the watch of the API server ended: %w", err))
	}
	return w
}

// follow turns a watch into events until it ends, and returns the version that it came to. The lab lives for minutes, in
// which the API server forgets no version; when it says so all the same, versions were missed, the run has no verdict, and
// there is no version.
func (b *Backend) follow(kind *objects.Kind, w watch.Interface, versions map[types.UID]metav1.Object, version string) string {
	defer w.Stop()
	for e := range w.ResultChan() {
		obj, ok := e.Object.(metav1.Object)
		if !ok {
			b.stream.fail(fmt.Errorf("the watch of the API server ended: %w", apierrors.FromObject(e.Object)))
			return ""
		}
		version = obj.GetResourceVersion()
		before := versions[obj.GetUID()]
		if e.Type == watch.Deleted {
			delete(versions, obj.GetUID())
			b.versions.note(b.since(), obj.GetResourceVersion())
			if before == nil {
				before = obj
			}
			b.observed(kind, before, nil)
			continue
		}
		versions[obj.GetUID()] = obj
		b.observed(kind, before, obj)
	}
	return version
}

func (b *Backend) observed(kind *objects.Kind, before, after metav1.Object) {
	at := b.since()
	for _, obj := range [...]metav1.Object{before, after} {
		if obj != nil {
			b.versions.note(at, obj.GetResourceVersion())
		}
	}
	var events []history.Event
	now := time.Now()
	see := func(e history.Event) {
		e.At = at
		objects.Date(&e, after, now)
		events = append(events, e)
	}
	b.called.Changes(kind, before, after, see)
	b.fields.Changes(b.called, kind, before, after, see)
	object := after
	if object == nil {
		object = before
	}
	record := func(actor string) {
		b.trace.Changed(at, actor, kindOf(object)+"/"+object.GetName(), before, after)
		for _, e := range events {
			e.Actor = actor
			b.stream.put(e)
		}
	}
	if actor := manager(before, after); actor != "" {
		record(actor)
		return
	}
	release := b.stream.hold(at)
	b.tasks.Go(func() {
		defer release()
		record(b.writers.await(before, after))
	})
}

// items are the objects of a list.
func items(list client.ObjectList) []client.Object {
	slice := reflect.ValueOf(list).Elem().FieldByName("Items")
	objs := make([]client.Object, slice.Len())
	for i := range objs {
		objs[i] = slice.Index(i).Addr().Interface().(client.Object)
	}
	return objs
}
