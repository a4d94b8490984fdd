package kube

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Reader makes live reads through the Gate. In controller-runtime it is called the API reader.
type Reader struct {
	store *Store
	gate  Gate
	actor string
	// Saw, which may be nil, is given each reading, also of a cache behind it.
	Saw func(Reading)
}

// Reading is a read of an object, or of all objects of a kind if Name is empty: from what a server
// or a View shows after the first changes of the kind.
type Reading struct {
	Kind  *Kind
	Name  string
	store *Store
	shown int
}

// Unseen returns the changes of the kind since those that the reading shows. They are shared.
func (r Reading) Unseen() []Change { return r.store.logs[r.Kind.index][r.shown:] }

var _ client.Reader = Reader{}

// NewReader returns the live reader of an actor.
func NewReader(store *Store, gate Gate, actor string) Reader {
	return Reader{store: store, gate: gate, actor: actor}
}

func (r Reader) call(ctx context.Context, c *Call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.Actor, c.store = r.actor, r.store
	if c.by.manager == "" && c.PatchType != types.ApplyYAMLPatchType { // which must name one
		c.by.manager = r.actor
	}
	err := r.gate.Call(ctx, c)
	if r.Saw != nil && !c.Writes() && c.done && (err == nil || apierrors.IsNotFound(err)) {
		r.Saw(Reading{c.Kind, c.Key.Name, r.store, c.shown})
	}
	return err
}

// Get reads the object from the server.
func (r Reader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	k, err := r.kindOf("get", obj, key)
	if err != nil {
		return err
	}
	share := uncopied(opts)
	if !share && len(opts) > 0 {
		var o client.GetOptions
		o.ApplyOptions(opts)
		if o.Raw != nil && *o.Raw != (metav1.GetOptions{}) {
			return r.store.refuse("get", k, key, "raw get options")
		}
	}
	if !k.Namespaced {
		key.Namespace = ""
	}
	if err := checkKey(k, key, true); err != nil {
		return err
	}
	c := &Call{Verb: Get, Kind: k, Key: key}
	if err := r.call(ctx, c); err != nil {
		return err
	}
	c.share = share
	return c.into(obj, k.untyped(obj))
}

// List reads the objects from the server.
func (r Reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	key := client.ObjectKey{Namespace: o.Namespace}
	k, err := r.kindOf("list", list, key)
	if err != nil {
		return err
	}
	if o.Raw != nil {
		return r.store.refuse("list", k, key, "raw list options")
	}
	c := &Call{Verb: List, Kind: k, Key: key, listing: &listing{options: o}}
	if err := r.call(ctx, c); err != nil {
		return err
	}
	if !c.done {
		return errors.New("list " + k.Resource + ": the gate answered without executing the call")
	}
	if k.form == typed {
		// protobuf, which built-in kinds travel in, has no kind in the items of a list
		k.copyList(list, c.listing.page.found, k.Custom, shares(o.UnsafeDisableDeepCopy))
	} else if err := k.showList(list, c.listing.page.found, false); err != nil {
		return err
	}
	list.SetContinue(c.listing.page.next)
	list.SetRemainingItemCount(c.listing.page.remaining)
	list.SetResourceVersion(formatRevision(c.listing.page.revision))
	return nil
}

func (r Reader) kindOf(verb string, obj runtime.Object, key client.ObjectKey) (*Kind, error) {
	return r.store.kindOf(verb, obj, key)
}

// checkKey makes the checks that the REST client makes before it sends.
func checkKey(k *Kind, key client.ObjectKey, named bool) error {
	switch {
	case k.Namespaced && key.Namespace == "" && named:
		return errors.New("an empty namespace may not be set when a resource name is provided")
	case k.Namespaced && key.Namespace == "":
		return errors.New("an empty namespace may not be set during creation")
	case named && key.Name == "":
		return errors.New("resource name may not be empty")
	}
	return nil
}

// into copies the answer into the caller's object. Like the real client, it keeps the object's own
// kind and version on updates and leaves them empty elsewhere.
func (c *Call) into(obj client.Object, gvk schema.GroupVersionKind) error {
	if c.result == nil {
		return fmt.Errorf("%s: the gate answered without executing the call", c)
	}
	c.Kind.show(obj, c.result, c.share)
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return nil
}

// untyped returns the kind and version that obj has after a read or a creation. As with a real
// client, a typed object loses both, and any other keeps its own.
func (k *Kind) untyped(obj client.Object) schema.GroupVersionKind {
	if k.form.isTyped() {
		return schema.GroupVersionKind{}
	}
	return obj.GetObjectKind().GroupVersionKind()
}
