package objects

import (
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/play"
)

// API is a world's API server as the users of a scenario reach it. Each request is by one of
// them, about an object that scenarios call name.
type API interface {
	// Takes reports whether it takes writes now.
	Takes() bool
	// Names returns the names of a kind's objects that have some labels, in the topology's
	// namespace.
	Names(kind *Kind, labels map[string]string) ([]string, error)
	// Merge changes an object by a merge patch, or its status. A strict one is refused if it has
	// fields that the definition of the kind hasn't.
	Merge(by, name string, obj client.Object, patch []byte, status, strict bool) error
	// Delete deletes an object.
	Delete(by, name string, obj client.Object) error
	// Create makes an object, unless it is there, and writes its status if that is asked for.
	Create(by string, kind *Kind, obj client.Object, status bool) error
}

// Users do what the users of a scenario do to objects: these operations of [scenarios.World] are
// the same in every world.
type Users struct {
	api      API
	kinds    Kinds
	topology func() []client.Object
}

// UsersOf returns the users of a world with these kinds. Scenarios create objects again from its
// topology.
func UsersOf(api API, kinds Kinds, topology func() []client.Object) Users {
	return Users{api, kinds, topology}
}

// Annotate sets an annotation.
func (u Users) Annotate(op *scenarios.AnnotateOp) error { return u.annotate(op, &op.Value) }

// RemoveAnnotation removes one.
func (u Users) RemoveAnnotation(op *scenarios.AnnotateOp) error { return u.annotate(op, nil) }

func (u Users) annotate(op *scenarios.AnnotateOp, value *string) error {
	return u.change(op.Selection(), op.As, map[string]any{"metadata": map[string]any{"annotations": map[string]any{op.Key: value}}})
}

// SetOnline says whether a host is wanted on.
func (u Users) SetOnline(op *scenarios.OnlineOp) error {
	return u.change(scenarios.Selection{Object: "BareMetalHost/" + op.Host}, op.As, map[string]any{"spec": map[string]any{"online": op.Online}})
}

func (u Users) change(which scenarios.Selection, as string, change map[string]any) error {
	data, err := json.Marshal(change)
	if err != nil {
		return err
	}
	return u.Patch(&scenarios.PatchOp{Object: which.Object, Kind: which.Kind, Labels: which.Labels, Merge: data, As: as})
}

// Patch changes objects, and their status through the subresource.
func (u Users) Patch(op *scenarios.PatchOp) error {
	object, status, err := op.Split()
	if err != nil {
		return err
	}
	return u.each(op.Selection(), func(name string, obj client.Object) (err error) {
		if object != nil {
			err = u.api.Merge(op.By(), name, obj, object, false, op.Foreign)
		}
		if err == nil && status != nil {
			err = u.api.Merge(op.By(), name, obj, status, true, op.Foreign)
		}
		return err
	})
}

// Delete deletes objects. An object that is already gone was deleted by others.
func (u Users) Delete(op *scenarios.ObjectOp) error {
	return u.each(op.Selection(), func(name string, obj client.Object) error {
		return client.IgnoreNotFound(u.api.Delete(op.By(), name, obj))
	})
}

// Create makes an object, unless it is there.
func (u Users) Create(op *scenarios.CreateOp) error {
	kind, obj, err := u.kinds.Create(op, u.topology())
	if err == nil {
		err = u.writable()
	}
	if err != nil {
		return err
	}
	return u.api.Create(op.By(), kind, obj, kind.Status && (!kind.Custom || op.SaysStatus()))
}

// each does something to every object that is meant, one after the other. What isn't there in
// this schedule, or in a state in which the API server refuses it, may be otherwise in another.
func (u Users) each(which scenarios.Selection, do func(name string, obj client.Object) error) error {
	if err := u.writable(); err != nil {
		return err
	}
	names := []string{which.Object}
	if which.Object == "" {
		kind, _, err := u.kinds.Find(which.Kind)
		if err == nil {
			names, err = u.api.Names(kind, which.Labels)
		}
		if err != nil {
			return fmt.Errorf("find %s: %w", which, err)
		}
		if len(names) == 0 {
			return &play.Ineffective{Reason: which.String() + ": there is none"}
		}
		for i := range names {
			names[i] = which.Kind + "/" + names[i]
		}
	}
	for _, name := range names {
		_, obj, err := u.kinds.Find(name)
		if err == nil {
			err = do(name, obj)
		}
		if apierrors.IsNotFound(err) {
			return &play.Ineffective{Reason: err.Error(), Missing: true}
		}
		if apierrors.IsInvalid(err) { // as a new finalizer on an object that is being deleted
			return &play.Ineffective{Reason: err.Error()}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (u Users) writable() error {
	if u.api.Takes() {
		return nil
	}
	return &play.Ineffective{Reason: "the API server is away, or cannot write"}
}
