package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Verb is what a Call asks of the API server.
type Verb string

// The verbs. Get and List are live reads; cached reads are not Calls.
const (
	Get    Verb = "get"
	List   Verb = "list"
	Create Verb = "create"
	Update Verb = "update"
	Patch  Verb = "patch"
	Delete Verb = "delete"
)

// A Call is one request to the API server, made by an actor and not yet
// performed. It holds copies: the caller may change its objects while a delayed
// Call still waits.
type Call struct {
	Actor string
	Verb  Verb
	Kind  *Kind
	// Key has no name in a List, and for a Create with generateName.
	Key client.ObjectKey
	// Subresource is empty or "status".
	Subresource string
	// Object is what a Create or Update sends; don't modify it.
	Object client.Object
	// PatchType and Patch are what a Patch sends.
	PatchType types.PatchType
	Patch     []byte
	// DeleteOptions are those of a Delete, never nil there.
	DeleteOptions *metav1.DeleteOptions

	store    *Store
	list     client.ListOptions
	result   client.Object
	results  []client.Object
	revision int64
	done     bool
	// share hands the result out without a copy.
	share bool
}

func (c *Call) String() string {
	sub := ""
	if c.Subresource != "" {
		sub = "/" + c.Subresource
	}
	return fmt.Sprintf("%s %s%s %s", c.Verb, c.Kind.Kind, sub, c.Key)
}

// Writes reports whether performing the Call may change the Store.
func (c *Call) Writes() bool { return c.Verb != Get && c.Verb != List }

// Refuse returns the error of an API server that doesn't perform the Call, with an
// HTTP status of 403, 404, 409, 429 or 500. A 404 is that of a whole resource that
// isn't served, as while its CustomResourceDefinition is being replaced.
func (c *Call) Refuse(code int) error {
	gr := c.Kind.groupResource()
	switch code {
	case http.StatusForbidden:
		return apierrors.NewForbidden(gr, c.Key.Name, errors.New("the simulated role was taken away"))
	case http.StatusNotFound:
		return apierrors.NewGenericServerResponse(code, string(c.Verb), gr, c.Key.Name, "the server could not find the requested resource", 0, true)
	case http.StatusConflict:
		return apierrors.NewConflict(gr, c.Key.Name, errors.New("the simulated storage was changed meanwhile"))
	case http.StatusTooManyRequests:
		return apierrors.NewTooManyRequests("the simulated API server has too many requests, please try again later", 1)
	default:
		return apierrors.NewInternalError(errors.New("the simulated storage failed"))
	}
}

// Execute performs the Call on the Store as it is now and returns the API
// server's error. It panics when it is called twice.
func (c *Call) Execute() error {
	if c.done {
		panic(fmt.Sprintf("kube: %s by %s was executed twice", c, c.Actor))
	}
	c.done = true
	var err error
	switch c.Verb {
	case Get:
		c.result, err = c.store.Get(c.Kind, c.Key)
	case List:
		c.results = c.store.list(c.Kind, &c.list)
		c.revision = c.store.revision
	case Create:
		c.result, err = c.store.create(c.Actor, c.Kind, c.Object)
	case Update:
		c.result, err = c.store.replace(c.Actor, c.Kind, c.Object, c.Subresource != "")
	case Patch:
		c.result, err = c.store.Patch(c.Actor, c.Kind, c.Key, c.Subresource != "", c.PatchType, c.Patch)
	case Delete:
		err = c.store.Delete(c.Actor, c.Kind, c.Key, c.DeleteOptions)
	}
	return err
}

// A Gate decides when and whether a Call happens. Call usually returns what
// c.Execute returns; it may wait before or after, return an error of its own
// without executing or in spite of having executed, or never return (by
// panicking) because the process crashed. It may keep a Call and execute it
// later, as a request that was still under way when its client gave up.
type Gate interface {
	Call(c *Call) error
}

// A Client is the client.Client of one process: it reads from the View and
// writes through the Gate.
//
// Cached reads are no scheduling points. Every stream lags on its own, so for
// each combination of states that reads of different kinds may see between two
// calls there is a schedule that delivers exactly those states before them; and
// nobody but the process reads its View. What is lost is one thing: two reads of
// the same kind between two calls never see a delivery between them. A reconciler
// for which that matters reads the same cache twice without any call in between.
type Client struct {
	Reader
	view *View
}

var _ client.Client = (*Client)(nil)

// A Reader makes live reads, through the Gate: what controller-runtime calls the
// API reader.
type Reader struct {
	store *Store
	gate  Gate
	actor string
}

var _ client.Reader = Reader{}

// NewReader returns the live reader of an actor.
func NewReader(store *Store, gate Gate, actor string) Reader { return Reader{store, gate, actor} }

// NewClient returns the client of an actor that has this View.
func NewClient(view *View, gate Gate, actor string) *Client {
	return &Client{Reader: NewReader(view.store, gate, actor), view: view}
}

func (r Reader) call(ctx context.Context, c *Call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.Actor, c.store = r.actor, r.store
	return r.gate.Call(c)
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
	return c.into(obj, schema.GroupVersionKind{})
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
	if o.Limit > 0 || o.Continue != "" || o.Raw != nil {
		return r.store.refuse("list", k, key, "paging or raw list options")
	}
	if err := r.store.checkFields(k, o.FieldSelector); err != nil {
		return err
	}
	c := &Call{Verb: List, Kind: k, Key: key, list: o}
	if err := r.call(ctx, c); err != nil {
		return err
	}
	if !c.done {
		return errors.New("list " + k.Resource + ": the gate answered without executing the call")
	}
	// protobuf, which built-in kinds travel in, has no kind in the items of a list
	k.copyList(list, c.results, k.Custom, shares(o.UnsafeDisableDeepCopy))
	list.SetContinue("")
	list.SetResourceVersion(formatRevision(c.revision))
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

// into hands the answer to the caller's object. The real client keeps the
// object's own kind and version on updates and leaves them empty elsewhere.
func (c *Call) into(obj client.Object, gvk schema.GroupVersionKind) error {
	if c.result == nil {
		return fmt.Errorf("%s: the gate answered without executing the call", c)
	}
	c.Kind.handOut(obj, c.result, c.share)
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return nil
}

// Get reads the object from the View.
func (c *Client) Get(_ context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.view.Get(key, obj, opts...)
}

// List reads the objects from the View.
func (c *Client) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.view.List(list, opts...)
}

// write prepares a Call that sends obj or names it.
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

// Create creates the object.
func (c *Client) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	call, err := c.write(Create, obj)
	if err != nil {
		return err
	}
	var o client.CreateOptions
	o.ApplyOptions(opts)
	if err := c.plain(call, o.DryRun, o.FieldValidation, o.Raw != nil); err != nil {
		return err
	}
	call.Object = call.Kind.own(obj)
	if err := c.call(ctx, call); err != nil {
		return err
	}
	return call.into(obj, schema.GroupVersionKind{})
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
	call.Subresource = sub
	if err := c.plain(call, o.DryRun, o.FieldValidation, o.Raw != nil); err != nil {
		return err
	}
	call.Object = call.Kind.own(obj)
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
	if o.Force != nil {
		return c.store.refuse("patch", call.Kind, call.Key, "a forced patch")
	}
	if err := c.plain(call, o.DryRun, o.FieldValidation, o.Raw != nil); err != nil {
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

// plain refuses the options that change what the server does.
func (c *Client) plain(call *Call, dryRun []string, validation string, raw bool) error {
	switch {
	case len(dryRun) > 0:
		return c.store.refuse(string(call.Verb), call.Kind, call.Key, "a dry run")
	case validation == metav1.FieldValidationStrict:
		return c.store.refuse(string(call.Verb), call.Kind, call.Key, "strict field validation")
	case raw:
		return c.store.refuse(string(call.Verb), call.Kind, call.Key, "raw options")
	}
	return nil
}

// Apply is refused: server-side apply needs managed fields.
func (c *Client) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return c.store.refuse("apply", &Kind{}, client.ObjectKey{}, "server-side apply")
}

// DeleteAllOf is refused: it is many deletions, each of which the simulator
// would have to schedule.
func (c *Client) DeleteAllOf(_ context.Context, obj client.Object, _ ...client.DeleteAllOfOption) error {
	k, err := c.kindOf("deletecollection", obj, client.ObjectKey{})
	if err != nil {
		return err
	}
	return c.store.refuse("deletecollection", k, client.ObjectKey{}, "deleting a collection")
}

// Status returns the client of the status subresource.
func (c *Client) Status() client.SubResourceWriter { return c.SubResource("status") }

// SubResource returns the client of a subresource; all but status are refused.
func (c *Client) SubResource(name string) client.SubResourceClient { return subresource{c, name} }

// Scheme returns the scheme of the server's kinds.
func (c *Client) Scheme() *runtime.Scheme { return c.store.server.scheme }

// RESTMapper maps the server's kinds.
func (c *Client) RESTMapper() meta.RESTMapper { return c.store.server.mapper }

// GroupVersionKindFor returns the kind of a typed object or list.
func (c *Client) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	gvks, _, err := c.Scheme().ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	if len(gvks) != 1 {
		return schema.GroupVersionKind{}, fmt.Errorf("find the kind of %T: the scheme has %d", obj, len(gvks))
	}
	return gvks[0], nil
}

// IsObjectNamespaced reports whether objects of the type live in namespaces.
func (c *Client) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	k, err := c.store.server.KindOf(obj)
	if err != nil {
		return false, err
	}
	return k.Namespaced, nil
}

type subresource struct {
	*Client
	name string
}

func (s subresource) refuse(verb string, obj client.Object) error {
	k, err := s.kindOf(verb, obj, client.ObjectKeyFromObject(obj))
	if err != nil {
		return err
	}
	return s.store.refuse(verb, k, client.ObjectKeyFromObject(obj), "the subresource %s", s.name)
}

func (s subresource) Get(_ context.Context, obj, _ client.Object, _ ...client.SubResourceGetOption) error {
	return s.refuse("get", obj)
}

func (s subresource) Create(_ context.Context, obj, _ client.Object, _ ...client.SubResourceCreateOption) error {
	return s.refuse("create", obj)
}

func (s subresource) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return s.store.refuse("apply", &Kind{}, client.ObjectKey{}, "server-side apply")
}

func (s subresource) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	var o client.SubResourceUpdateOptions
	o.ApplyOptions(opts)
	if s.name != "status" || o.SubResourceBody != nil {
		return s.refuse("update", obj)
	}
	return s.update(ctx, obj, s.name, &o.UpdateOptions)
}

func (s subresource) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	var o client.SubResourcePatchOptions
	o.ApplyOptions(opts)
	if s.name != "status" || o.SubResourceBody != nil {
		return s.refuse("patch", obj)
	}
	return s.patch(ctx, obj, patch, s.name, &o.PatchOptions)
}

// list returns what a live List with these options selects.
func (s *Store) list(k *Kind, o *client.ListOptions) []client.Object {
	var found []client.Object
	for _, r := range s.tables[k.index] {
		if selected(r, o) && (o.FieldSelector == nil || o.FieldSelector.Matches(selectable(k, r))) {
			found = append(found, r.obj)
		}
	}
	return found
}

// selectable returns the fields that the server lets a List select by.
func selectable(k *Kind, r *record) fields.Set {
	set := fields.Set{"metadata.name": r.key.Name}
	if k.Namespaced {
		set["metadata.namespace"] = r.key.Namespace
	}
	if pod, ok := r.obj.(*corev1.Pod); ok {
		maps.Copy(set, fields.Set{"spec.nodeName": pod.Spec.NodeName, "status.phase": string(pod.Status.Phase)})
	}
	return set
}

// checkFields refuses selectors by fields that selectable doesn't have.
func (s *Store) checkFields(k *Kind, sel fields.Selector) error {
	if sel == nil {
		return nil
	}
	known := selectable(k, &record{obj: k.New()})
	for _, r := range sel.Requirements() {
		if _, ok := known[r.Field]; !ok || r.Operator == selection.NotEquals {
			return s.refuse("list", k, client.ObjectKey{}, "the field selector %s", sel)
		}
	}
	return nil
}
