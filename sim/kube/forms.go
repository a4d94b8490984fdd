package kube

import (
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/sim/kube/codec"
)

// A form is the Go representation in which a reader sees a kind's objects. The server stores one
// form only. A cache has a separate stream for each form, like the separate informers of
// controller-runtime, and these don't lag alike.
type form uint8

const (
	typed form = iota
	dynamic
	partial
	foreign // and those after it: the Go types that others have for the kind
)

// isTyped reports whether the form is a Go type, the server's or another's.
func (f form) isTyped() bool { return f == typed || f >= foreign }

// in returns the kind in another form. It is a Kind of its own, with the Base of
// the typed one.
func (k *Kind) in(f form) *Kind {
	return k.base.seen[f]
}

// Base returns the kind as the Store has it: typed.
func (k *Kind) Base() *Kind { return k.base }

// String names the kind, and its form if that isn't the typed one.
func (k *Kind) String() string {
	return k.Kind + [...]string{typed: "", dynamic: ".unstructured", partial: ".metadata", foreign: ""}[min(k.form, foreign)]
}

// others makes the kind's further forms. n is the number of kinds of the server.
func (k *Kind) others(n int) {
	k.base, k.slot, k.seen = k, k.index, []*Kind{k}
	for f := dynamic; f < foreign; f++ {
		k.another(n)
	}
}

// another makes the next form.
func (k *Kind) another(n int) *Kind {
	seen, f := *k, len(k.seen)
	seen.form, seen.slot = form(f), f*n+k.index
	k.seen = append(k.seen, &seen)
	return &seen
}

// foreign adds a form for each Go type that a scheme has in place of the server's. Objects of it
// are encoded and decoded, as on their way to a real server: what the type lacks, a patch leaves as
// it is and an update removes.
func (s *Server) foreign(scheme *runtime.Scheme) error {
	types := scheme.AllKnownTypes()
	for _, k := range s.kinds {
		typ, listType := types[k.GroupVersionKind], types[listKind(k.GroupVersionKind)]
		if typ == nil || s.byType[identity(typ)] != nil {
			continue
		}
		items, err := itemsOf(k.GroupVersionKind, typ, listType)
		if err != nil {
			return err
		}
		// Times are in UTC: those of a real client are in the machine's zone.
		plan, err := codec.NewPlanner(k.Custom).Compile(typ)
		if err != nil {
			return fmt.Errorf("serve %v as %v: %w", k.GroupVersionKind, typ, err)
		}
		if at := k.plan.Clash(plan); at != "" {
			return fmt.Errorf("serve %v as %v: .%s can't be read into that type", k.GroupVersionKind, typ, at)
		}
		f := k.another(len(s.kinds))
		f.as, f.items, f.normal = typ, items, plan.Normal
		s.byType[identity(typ)], s.byType[identity(listType)] = f, f
	}
	return nil
}

// formOf returns the form of an object or list, by its type.
func formOf(obj runtime.Object) form {
	switch obj.(type) {
	case runtime.Unstructured:
		return dynamic
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return partial
	}
	return typed
}

// KindOf returns the kind of an object or list, in the form given by its Go type.
func (s *Server) KindOf(obj runtime.Object) (*Kind, error) {
	if k := s.kindOfType(obj); k != nil {
		return k, nil
	}
	f := formOf(obj)
	if f == typed {
		return nil, fmt.Errorf("find the kind of %T: this server doesn't serve it; declare it in NewServer", obj)
	}
	gvk := obj.GetObjectKind().GroupVersionKind()
	for _, k := range s.kinds {
		if k.GroupVersionKind == gvk || k.GroupVersion() == gvk.GroupVersion() && k.Kind+"List" == gvk.Kind {
			return k.in(f), nil
		}
	}
	return nil, fmt.Errorf("find the kind of %T: this server doesn't serve %v; declare it in NewServer", obj, gvk)
}

// show makes dst, which has the form of k, a copy of a stored object. It gets the kind and version
// of the stored object, but in metadata form those of metadata.
func (k *Kind) show(dst client.Object, r *record, share bool) {
	switch k.form {
	case typed:
		k.handOut(dst, r.obj, share)
	case dynamic:
		dst.(runtime.Unstructured).SetUnstructuredContent(k.encode(r))
	case partial:
		*dst.(*metav1.PartialObjectMetadata) = metav1.PartialObjectMetadata{
			TypeMeta: partialType, ObjectMeta: *metaOf(r.obj).DeepCopy(),
		}
	default:
		v := reflect.ValueOf(dst)
		v.Elem().SetZero()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(k.encode(r), dst); err != nil {
			panic(fmt.Sprintf("kube: show %s %s as %T: %v", k.Kind, r.key, dst, err)) // it is a type that decodes itself
		}
		if k.normal != nil {
			k.normal(v.UnsafePointer())
		}
	}
}

var partialType = metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "PartialObjectMetadata"}

// seenAs returns a stored object in the form of k, for a handler of changes.
func (k *Kind) seenAs(r *record) client.Object {
	switch k.form {
	case dynamic:
		obj := &unstructured.Unstructured{}
		k.show(obj, r, false)
		return obj
	case partial:
		obj := &metav1.PartialObjectMetadata{}
		k.show(obj, r, false)
		obj.SetGroupVersionKind(k.GroupVersionKind)
		return obj
	case typed:
		return r.obj
	}
	obj := reflect.New(k.as).Interface().(client.Object)
	k.show(obj, r, false)
	return obj
}

// showList is show for the items of a list that isn't typed. A cached read keeps the list's own
// kind.
func (k *Kind) showList(list client.ObjectList, found []*record, cached bool) error {
	gvk := k.GroupVersionKind
	switch list := list.(type) {
	case *metav1.PartialObjectMetadataList:
		list.Items = make([]metav1.PartialObjectMetadata, len(found))
		for i, r := range found {
			k.show(&list.Items[i], r, false)
			list.Items[i].SetGroupVersionKind(gvk)
		}
	case *unstructured.UnstructuredList:
		list.Items = make([]unstructured.Unstructured, len(found))
		for i, r := range found {
			k.show(&list.Items[i], r, false)
		}
		if !cached {
			list.SetGroupVersionKind(listKind(gvk))
		}
	default:
		if k.form < foreign {
			return fmt.Errorf("list %s: %T is no list that can be filled", k.Resource, list)
		}
		k.copyList(list, found, cached || k.Custom, false)
	}
	return nil
}

func listKind(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	return gvk.GroupVersion().WithKind(strings.TrimSuffix(gvk.Kind, "List") + "List")
}
