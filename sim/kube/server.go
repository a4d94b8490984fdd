// Package kube is the Kubernetes API of the deterministic simulator: a
// revisioned in-memory API server and the lagging caches that controllers read.
//
// A Server holds what depends only on the kinds: it is built once and shared. A Store is one
// cluster's objects and their change log; a run has one. A View is the informer cache of one
// process: it lags behind the log, kind by kind, and moves only on request. A Client is given to a
// reconciler: reads come from its View, and writes go to the Store through a Gate, where the
// simulator delays, fails or crashes them.
//
// Objects are typed, immutable once stored and shared by pointer between the
// Store, its log and all Views; copies are made only where a caller could hold
// on to one. Nothing is encoded on the way, so what an encoding would change
// (times, empty collections) is changed by a plan compiled per type.
//
// The behaviour is that of kube-apiserver 1.36 with its default admission plugins; package
// kubetest compares the two. Anything that is not modelled is refused with Unmodelled, never
// approximated. The absence of some things can't be noticed: namespaces (every namespace exists);
// the managed fields of an object before somebody applies to it (they are computed then); what the
// schema of a CustomResourceDefinition says beyond types and required fields (defaults, patterns,
// rules; a field counts as required when its Go tag has neither omitempty nor omitzero, as in
// controller-gen); the expiry of Events; and the garbage collector, which deletes what an owner
// leaves: it is a controller, and neither this server nor the lab's runs it.
package kube

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/fencelab/fencelab/sim/kube/codec"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A CustomResource declares a kind that comes from a CustomResourceDefinition. The server treats
// it by its generic rules.
type CustomResource struct {
	schema.GroupVersionKind
	// Plural is the resource name, in lower case.
	Plural        string
	ClusterScoped bool
	// Status says that status is a subresource.
	Status bool
	// Selectable lists the fields, such as spec.nodeName, by which a List can select in addition
	// to name and namespace.
	Selectable []string
	// Schema is the definition's structural schema. Without it no configuration can be applied.
	Schema *apiextensionsv1.JSONSchemaProps
}

// Defined returns the resource of a CustomResourceDefinition, in its first version.
func Defined(d *apiextensionsv1.CustomResourceDefinition) CustomResource {
	v := &d.Spec.Versions[0]
	c := CustomResource{
		GroupVersionKind: schema.GroupVersionKind{Group: d.Spec.Group, Version: v.Name, Kind: d.Spec.Names.Kind},
		Plural:           d.Spec.Names.Plural,
		ClusterScoped:    d.Spec.Scope == apiextensionsv1.ClusterScoped,
		Status:           v.Subresources != nil && v.Subresources.Status != nil,
	}
	if v.Schema != nil {
		c.Schema = v.Schema.OpenAPIV3Schema
	}
	for _, f := range v.SelectableFields {
		c.Selectable = append(c.Selectable, strings.TrimPrefix(f.JSONPath, "."))
	}
	return c
}

// A Kind is one kind of a Server; it identifies the kind everywhere in this
// package.
type Kind struct {
	schema.GroupVersionKind
	// Resource is the plural, as in URLs and errors.
	Resource   string
	Namespaced bool
	// Custom says that the kind comes from a CustomResourceDefinition.
	Custom bool
	// Status says that the kind has a status subresource.
	Status bool

	index int
	// form, base and seen hold the forms in which readers see the kind. slot is the index of its
	// stream in a View.
	form form
	base *Kind
	seen []*Kind
	slot int
	// as is the type in which clients see objects: typ, or a foreign one, of which normal is the
	// plan's.
	as     reflect.Type
	normal func(unsafe.Pointer)

	typ      reflect.Type // of the structure, not the pointer
	listType reflect.Type
	items    []int // the index of the list's field Items
	plan     *codec.Plan
	strategy strategy
	// selectable are further fields, beside name and namespace, that a List can select by.
	selectable []selectable
	// managers track the managers of fields; nil for a kind that can't be applied.
	managers *managers
	// status and content are the fields of the structure beside TypeMeta and
	// ObjectMeta; status is among content.
	status  *codec.Member
	content []codec.Member
}

func (k *Kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// New returns an empty object of the kind.
func (k *Kind) New() client.Object { return reflect.New(k.typ).Interface().(client.Object) }

// A Server is the set of kinds that Stores can hold. It is immutable and may be
// shared between goroutines.
type Server struct {
	scheme *runtime.Scheme
	mapper meta.RESTMapper
	kinds  []*Kind
	byType map[uintptr]*Kind // object and list types, by identity
}

// NewServer compiles the kinds. builtin names kinds that kube-apiserver itself
// serves; it fails for one whose behaviour isn't modelled, and for a type that
// the scheme lacks. others are the schemes of clients that may have other Go types for the kinds.
func NewServer(scheme *runtime.Scheme, builtin []schema.GroupVersionKind, custom []CustomResource, others ...*runtime.Scheme) (*Server, error) {
	s := &Server{scheme: scheme, byType: map[uintptr]*Kind{}}
	var versions []schema.GroupVersion
	builtinPlans, customPlans := codec.NewPlanner(false), codec.NewPlanner(true)
	for _, gvk := range builtin {
		b, ok := builtins[gvk]
		if !ok {
			return nil, fmt.Errorf("serve %v: the behaviour of this built-in kind is not modelled", gvk)
		}
		k := &Kind{
			GroupVersionKind: gvk, Resource: b.resource, Namespaced: b.namespaced, Status: b.status, strategy: b.strategy,
			selectable: builtinFields[gvk.Kind],
		}
		if !b.unappliable {
			k.managers = builtinManagers(k)
		}
		if err := s.add(k, builtinPlans); err != nil {
			return nil, err
		}
		versions = append(versions, gvk.GroupVersion())
	}
	for _, c := range custom {
		k := &Kind{
			GroupVersionKind: c.GroupVersionKind, Resource: c.Plural, Namespaced: !c.ClusterScoped,
			Custom: true, Status: c.Status, strategy: customStrategy,
		}
		if err := s.add(k, customPlans); err != nil {
			return nil, err
		}
		if c.Schema != nil {
			k.managers = customManagers(k, c.Schema)
		}
		if err := k.selectBy(c.Selectable); err != nil {
			return nil, fmt.Errorf("serve %v: %w", k.GroupVersionKind, err)
		}
		versions = append(versions, c.GroupVersion())
	}
	for _, k := range s.kinds {
		k.others(len(s.kinds))
	}
	for _, other := range others {
		if err := s.foreign(other); err != nil {
			return nil, err
		}
	}
	mapper := meta.NewDefaultRESTMapper(versions)
	for _, k := range s.kinds {
		scope := meta.RESTScopeRoot
		if k.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		plural := k.GroupVersion().WithResource(k.Resource)
		mapper.AddSpecific(k.GroupVersionKind, plural, plural, scope)
		mapper.Add(k.GroupVersion().WithKind(k.Kind+"List"), scope) // as a mapper of discovery does
	}
	s.mapper = mapper
	return s, nil
}

func (s *Server) add(k *Kind, plans *codec.Planner) error {
	obj, err := s.scheme.New(k.GroupVersionKind)
	if err != nil {
		return fmt.Errorf("serve %v: %w; register its type first", k.GroupVersionKind, err)
	}
	list, err := s.scheme.New(k.GroupVersion().WithKind(k.Kind + "List"))
	if err != nil {
		return fmt.Errorf("serve %v: %w; register its list type first", k.GroupVersionKind, err)
	}
	k.typ, k.listType = reflect.TypeOf(obj).Elem(), reflect.TypeOf(list).Elem()
	k.as = k.typ
	if k.items, err = itemsOf(k.GroupVersionKind, k.typ, k.listType); err != nil {
		return err
	}
	if k.plan, err = plans.Compile(k.typ); err != nil {
		return fmt.Errorf("serve %v: %w", k.GroupVersionKind, err)
	}
	for i := range k.plan.Fields {
		f := &k.plan.Fields[i]
		switch f.Name {
		case "kind", "apiVersion", "metadata":
			continue
		case "status":
			k.status = f
		}
		k.content = append(k.content, *f)
	}
	if k.Status && k.status == nil {
		return fmt.Errorf("serve %v: %v has no field status", k.GroupVersionKind, k.typ)
	}
	k.index = len(s.kinds)
	s.kinds = append(s.kinds, k)
	s.byType[identity(k.typ)], s.byType[identity(k.listType)] = k, k
	return nil
}

// itemsOf returns the index of a list's field Items.
func itemsOf(gvk schema.GroupVersionKind, typ, listType reflect.Type) ([]int, error) {
	if items, ok := listType.FieldByName("Items"); ok && items.Type == reflect.SliceOf(typ) {
		return items.Index, nil
	}
	return nil, fmt.Errorf("serve %v: %v has no Items of type []%v; register the list type of that", gvk, listType, typ)
}

// Kinds returns all kinds, in the order of their declaration.
func (s *Server) Kinds() []*Kind { return slices.Clone(s.kinds) }

// kindOfType returns the kind of a typed object or list, or nil.
func (s *Server) kindOfType(obj runtime.Object) *Kind {
	if t := reflect.TypeOf(obj); t != nil && t.Kind() == reflect.Pointer {
		return s.byType[identity(t.Elem())]
	}
	return nil
}

// identity returns the address of a type's only description. As a map key it halves the time of
// the lookup that every read makes.
func identity(t reflect.Type) uintptr { return reflect.ValueOf(t).Pointer() }

// metaOf returns the metadata of a typed object without the interface calls of
// meta.Accessor.
func metaOf(obj client.Object) *metav1.ObjectMeta {
	return obj.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
}

// shallow copies the structure of an object; everything below it is shared.
func (k *Kind) shallow(obj client.Object) client.Object {
	c := reflect.New(k.typ)
	c.Elem().Set(reflect.ValueOf(obj).Elem())
	return c.Interface().(client.Object)
}

// setStatus gives obj the status of from, shared.
func (k *Kind) setStatus(obj, from client.Object) {
	k.status.Set(reflect.ValueOf(obj).UnsafePointer(), reflect.ValueOf(from).UnsafePointer())
}

// dropStatus empties the status of obj.
func (k *Kind) dropStatus(obj client.Object) {
	k.status.At(reflect.ValueOf(obj).UnsafePointer()).SetZero()
}

// sentStatus reports whether Go would encode the status of obj.
func (k *Kind) sentStatus(obj client.Object) bool {
	return k.status.Sent(reflect.ValueOf(obj).UnsafePointer())
}

// missing names a required field that obj would send as null, if any.
func (k *Kind) missing(obj client.Object) string {
	if k.plan.Missing == nil {
		return ""
	}
	return k.plan.Missing(reflect.ValueOf(obj).UnsafePointer())
}

// sameContent compares everything but the metadata.
func (k *Kind) sameContent(a, b client.Object) bool {
	x, y := reflect.ValueOf(a).UnsafePointer(), reflect.ValueOf(b).UnsafePointer()
	for i := range k.content {
		f := &k.content[i]
		if !f.Plan.Equal(f.Pointer(x), f.Pointer(y)) {
			return false
		}
	}
	return true
}

func (k *Kind) same(a, b client.Object) bool {
	return k.plan.Equal(reflect.ValueOf(a).UnsafePointer(), reflect.ValueOf(b).UnsafePointer())
}

func (k *Kind) normalise(obj client.Object) {
	if k.plan.Normal != nil {
		k.plan.Normal(reflect.ValueOf(obj).UnsafePointer())
	}
}

// handOut makes dst a copy of a stored object. The copy is deep unless share is set: with
// client.UnsafeDisableDeepCopy the caller has promised to change nothing.
func (k *Kind) handOut(dst, src client.Object, share bool) {
	if !share {
		src = src.DeepCopyObject().(client.Object)
	}
	reflect.ValueOf(dst).Elem().Set(reflect.ValueOf(src).Elem())
}

// shares reports whether a reader asked not to get copies.
func shares(option *bool) bool { return option != nil && *option }

// uncopied is shares for a single object, without the options' allocations in the
// usual cases.
func uncopied(opts []client.GetOption) bool {
	switch {
	case len(opts) == 0:
		return false
	case len(opts) == 1 && opts[0] == client.GetOption(client.UnsafeDisableDeepCopy):
		return true
	}
	var o client.GetOptions
	o.ApplyOptions(opts)
	return shares(o.UnsafeDisableDeepCopy)
}

// copyList makes the items of list copies of stored objects, as handOut does. kinds says that they
// keep their kind and version.
func (k *Kind) copyList(list client.ObjectList, found []*record, kinds, share bool) (items reflect.Value) {
	items = reflect.MakeSlice(reflect.SliceOf(k.as), len(found), len(found))
	for i, r := range found {
		item := items.Index(i).Addr().Interface().(client.Object)
		k.show(item, r, share)
		if !kinds {
			item.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		}
	}
	k.setItems(list, items)
	return items
}

func (k *Kind) setItems(list client.ObjectList, items reflect.Value) {
	reflect.ValueOf(list).Elem().FieldByIndex(k.items).Set(items)
}
