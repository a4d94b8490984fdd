package lab

import (
	"context"
	"fmt"
	"reflect"

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
		w, err := b.admin.Watch(b.ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
		if err != nil {
			return fmt.Errorf("watch %T: %w", list, err)
		}
		versions := make(map[types.UID]metav1.Object)
		for _, obj := range items(list) {
			b.observed(kind, nil, obj)
			versions[obj.GetUID()] = obj
		}
		b.tasks.Go(func() { b.follow(b.ctx, kind, w, versions) })
	}
	return nil
}

// follow turns a watch into events. The lab lives for minutes, in which the API
// server ends no watch and forgets no version; when one ends all the same,
// versions were missed, and the run has no verdict.
func (b *Backend) follow(ctx context.Context, kind *objects.Kind, w watch.Interface, versions map[types.UID]metav1.Object) {
	defer w.Stop()
	for e := range w.ResultChan() {
		obj, ok := e.Object.(metav1.Object)
		if !ok {
			b.stream.fail(fmt.Errorf("the watch of the API server ended with %v", e.Object))
			return
		}
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
	if ctx.Err() == nil {
		b.stream.fail(fmt.Errorf("the watch of the API server ended"))
	}
}

func (b *Backend) observed(kind *objects.Kind, before, after metav1.Object) {
	at := b.since()
	for _, obj := range [...]metav1.Object{before, after} {
		if obj != nil {
			b.versions.note(at, obj.GetResourceVersion())
		}
	}
	var events []history.Event
	see := func(e history.Event) {
		e.At = at
		events = append(events, e)
	}
	b.nodes.Changes(kind, before, after, see)
	b.fields.Changes(b.nodes, kind, before, after, see)
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
	b.tasks.Go(func() { record(b.writers.await(before, after)) })
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
