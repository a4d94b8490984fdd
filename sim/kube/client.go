package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// A Client is the client.Client of one process: it reads from the View and
// writes through the Gate.
//
// Cached reads are no scheduling points. Every stream lags on its own, so for each combination of
// states that reads of different kinds may see between two calls there is a schedule that delivers
// exactly those states before them, and the View has no other reader. Only one behaviour is lost:
// two reads of the same kind between two calls never see a delivery between them. A reconciler for
// which that matters reads the same cache twice without any call in between.
type Client struct {
	Reader
	view   *View
	cache  client.CacheOptions
	scheme *runtime.Scheme
}

var _ client.Client = (*Client)(nil)

// NewClient returns the client of an actor that has this View.
func NewClient(view *View, gate Gate, actor string) *Client {
	return &Client{Reader: NewReader(view.store, gate, actor), view: view, scheme: view.store.server.scheme}
}

// Cache selects the live reads, by the options of controller-runtime's client: unstructured
// objects, unless Unstructured is set, and the kinds of DisableFor.
func (c *Client) Cache(options client.CacheOptions) { c.cache = options }

// Speak gives the client the scheme of its process, if that has Go types of its own.
func (c *Client) Speak(scheme *runtime.Scheme) { c.scheme = scheme }

// live reports whether a read of an object or list goes to the server.
func (c *Client) live(obj runtime.Object) bool {
	if formOf(obj) == dynamic && !c.cache.Unstructured {
		return true
	}
	if len(c.cache.DisableFor) == 0 {
		return false
	}
	k, err := c.store.server.KindOf(obj)
	return err == nil && slices.ContainsFunc(c.cache.DisableFor, func(not client.Object) bool {
		u, err := c.store.server.KindOf(not)
		return err == nil && u.base == k.base
	})
}

// Get reads the object from the View, unless it is read live.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if c.live(obj) {
		return c.Reader.Get(ctx, key, obj, opts...)
	}
	c.peek(obj, key.Name)
	return c.view.Get(key, obj, opts...)
}

// List reads the objects from the View, unless they are read live.
func (c *Client) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if c.live(list) {
		return c.Reader.List(ctx, list, opts...)
	}
	c.peek(list, "")
	return c.view.List(list, opts...)
}

// peek reports a reading of the View.
func (c *Client) peek(obj runtime.Object, name string) {
	if c.Saw == nil {
		return
	}
	if k, err := c.store.server.KindOf(obj); err == nil && c.view.of(k).synced {
		c.Saw(Reading{k, name, c.store, c.view.of(k).next})
	}
}

// write prepares a Call that sends or names obj.
func (c *Client) write(verb Verb, obj client.Object) (*Call, error) {
	key := client.ObjectKeyFromObject(obj)
	k, err := c.kindOf(string(verb), obj, key)
	if err != nil {
		return nil, err
	}
	if !k.Namespaced {
		key.Namespace = ""
	}
	if err := checkKey(k, key, verb != Create); err != nil {
		return nil, err
	}
	return &Call{Verb: verb, Kind: k, Key: key}, nil
}

// send makes obj the object that a Call sends.
func (c *Client) send(call *Call, obj client.Object) error {
	if call.Kind.form == typed {
		call.sent = &record{obj: call.Kind.own(obj)}
	} else {
		var err error
		if call.Kind.form >= foreign { // the real client's encoder names the kind
			obj = obj.DeepCopyObject().(client.Object)
			obj.GetObjectKind().SetGroupVersionKind(call.Kind.GroupVersionKind)
		}
		if call.sent, err = c.store.content(string(call.Verb), call.Kind, call.Key, obj, call.Subresource != ""); err != nil {
			return err
		}
	}
	call.Object = call.sent.obj
	return nil
}

// Create creates the object.
func (c *Client) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	call, err := c.write(Create, obj)
	if err != nil {
		return err
	}
	if call.Kind.form == partial {
		return errors.New("cannot create using only metadata")
	}
	var o client.CreateOptions
	o.ApplyOptions(opts)
	if err := c.plain(call, o.FieldManager, o.DryRun, o.FieldValidation, o.Raw != nil); err != nil {
		return err
	}
	if err := c.send(call, obj); err != nil {
		return err
	}
	gvk := call.Kind.untyped(obj)
	if err := c.call(ctx, call); err != nil {
		return err
	}
	return call.into(obj, gvk)
}

// Update replaces the object.
func (c *Client) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	var o client.UpdateOptions
	o.ApplyOptions(opts)
	return c.update(ctx, obj, "", &o)
}

func (c *Client) update(ctx context.Context, obj client.Object, sub string, o *client.UpdateOptions) error {
	call, err := c.write(Update, obj)
	if err != nil {
		return err
	}
	if call.Kind.form == partial {
		return errors.New("cannot update using only metadata -- did you mean to patch?")
	}
	call.Subresource = sub
	if err := c.plain(call, o.FieldManager, o.DryRun, o.FieldValidation, o.Raw != nil); err != nil {
		return err
	}
	if err := c.send(call, obj); err != nil {
		return err
	}
	gvk := obj.GetObjectKind().GroupVersionKind()
	if err := c.call(ctx, call); err != nil {
		return err
	}
	return call.into(obj, gvk)
}

// Patch sends a patch of the object.
func (c *Client) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	var o client.PatchOptions
	o.ApplyOptions(opts)
	return c.patch(ctx, obj, patch, "", &o)
}

func (c *Client) patch(ctx context.Context, obj client.Object, patch client.Patch, sub string, o *client.PatchOptions) error {
	call, err := c.write(Patch, obj)
	if err != nil {
		return err
	}
	call.Subresource, call.PatchType = sub, patch.Type()
	switch applied := call.PatchType == types.ApplyYAMLPatchType; {
	case applied:
		call.Force = o.Force != nil && *o.Force
		call.by.manager = o.FieldManager
	case o.Force != nil:
		return c.store.refuse("patch", call.Kind, call.Key, "a forced patch that is not applied")
	}
	if err := c.plain(call, o.FieldManager, o.DryRun, o.FieldValidation, o.Raw != nil); err != nil {
		return err
	}
	if call.Patch, err = call.Kind.data(patch, obj); err != nil {
		return err
	}
	gvk := obj.GetObjectKind().GroupVersionKind()
	if err := c.call(ctx, call); err != nil {
		return err
	}
	return call.into(obj, gvk)
}

// Delete deletes the object.
func (c *Client) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	call, err := c.write(Delete, obj)
	if err != nil {
		return err
	}
	var o client.DeleteOptions
	o.ApplyOptions(opts)
	if o.Raw != nil {
		return c.store.refuse("delete", call.Kind, call.Key, "raw delete options")
	}
	call.DeleteOptions = o.AsDeleteOptions().DeepCopy()
	return c.call(ctx, call)
}

// plain copies the modelled options into a Call, and refuses the others.
func (c *Client) plain(call *Call, manager string, dryRun []string, validation string, raw bool) error {
	switch {
	case validation == metav1.FieldValidationStrict:
		return c.store.refuse(string(call.Verb), call.Kind, call.Key, "strict field validation")
	case raw:
		return c.store.refuse(string(call.Verb), call.Kind, call.Key, "raw options")
	}
	call.by.manager, call.by.dry = manager, len(dryRun) > 0
	return nil
}

// Apply applies a configuration.
func (c *Client) Apply(ctx context.Context, config runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	var o client.ApplyOptions
	o.ApplyOptions(opts)
	return c.apply(ctx, config, "", &o)
}

func (c *Client) apply(ctx context.Context, config runtime.ApplyConfiguration, sub string, o *client.ApplyOptions) error {
	named, err := nameOf(config)
	if err != nil {
		return err
	}
	call, err := c.write(Patch, named)
	if err != nil {
		return err
	}
	call.Subresource, call.PatchType, call.Force = sub, types.ApplyYAMLPatchType, o.Force != nil && *o.Force
	call.by.manager, call.by.dry = o.FieldManager, len(o.DryRun) > 0
	if call.Patch, err = json.Marshal(config); err != nil {
		return err
	}
	if err := c.call(ctx, call); err != nil {
		return err
	}
	if obj, ok := config.(client.Object); ok {
		return call.into(obj, named.GetObjectKind().GroupVersionKind())
	}
	answer, err := json.Marshal(call.Kind.encode(call.result))
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, config)
}

// nameOf returns an object with the kind and name of a configuration. Like the real client, it
// reads them by methods that every generated configuration has.
func nameOf(config runtime.ApplyConfiguration) (client.Object, error) {
	named := &unstructured.Unstructured{}
	switch config := config.(type) {
	case client.Object: // made of an unstructured object
		named.SetGroupVersionKind(config.GetObjectKind().GroupVersionKind())
		named.SetName(config.GetName())
		named.SetNamespace(config.GetNamespace())
	case interface {
		GetName() *string
		GetNamespace() *string
		GetKind() *string
		GetAPIVersion() *string
	}:
		named.SetAPIVersion(ptr.Deref(config.GetAPIVersion(), ""))
		named.SetKind(ptr.Deref(config.GetKind(), ""))
		named.SetName(ptr.Deref(config.GetName(), ""))
		named.SetNamespace(ptr.Deref(config.GetNamespace(), ""))
	default:
		return nil, fmt.Errorf("%T is a runtime.ApplyConfiguration but not an applyConfiguration", config) // controller-runtime's words
	}
	return named, nil
}

// DeleteAllOf lists objects and deletes one after the other, as the server does when it deletes a
// collection. Each deletion is a Call of its own, by name, so that others may write in between,
// and a crash may leave some.
func (c *Client) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	k, err := c.kindOf("deletecollection", obj, client.ObjectKey{})
	if err != nil {
		return err
	}
	var o client.DeleteAllOfOptions
	o.ApplyOptions(opts)
	key := client.ObjectKey{Namespace: o.Namespace}
	switch {
	case o.DeleteOptions.Raw != nil || o.ListOptions.Raw != nil || o.Limit > 0 || o.Continue != "":
		return c.store.refuse("deletecollection", k, key, "raw options or paging")
	case k.Namespaced && o.Namespace == "":
		// the resource has no such verb for all namespaces
		return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "delete", k.groupResource(), "", "the server does not allow this method on the requested resource", 0, true)
	}
	if !k.Namespaced {
		o.Namespace = ""
	}
	list := &Call{Verb: List, Kind: k, Key: key, listing: &listing{options: o.ListOptions}}
	if err := c.call(ctx, list); err != nil {
		return err
	}
	for _, r := range list.listing.page.found {
		call := &Call{Verb: Delete, Kind: k, Key: r.key, DeleteOptions: o.AsDeleteOptions().DeepCopy()}
		if err := c.call(ctx, call); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// Status returns the client of the status subresource.
func (c *Client) Status() client.SubResourceWriter { return c.SubResource("status") }

// SubResource returns the client of a subresource; all but status, and the eviction and the binding
// of pods, are refused.
func (c *Client) SubResource(name string) client.SubResourceClient { return subresource{c, name} }

// Scheme returns the scheme of the process.
func (c *Client) Scheme() *runtime.Scheme { return c.scheme }

// RESTMapper maps the server's kinds.
func (c *Client) RESTMapper() meta.RESTMapper { return c.store.server.mapper }

// GroupVersionKindFor returns the kind of a typed object or list.
func (c *Client) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(obj, c.Scheme())
}

// IsObjectNamespaced reports whether objects of the type live in namespaces.
func (c *Client) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	k, err := c.store.server.KindOf(obj)
	if err != nil {
		return false, err
	}
	return k.Namespaced, nil
}
