package kube

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/fencelab/fencelab/sim/kube/codec"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mergeFrom is the private type of the patches that client.MergeFrom makes.
// Their Data method encodes both objects whole, which costs as much as all the
// rest of an episode; data finds the same difference in the typed objects.
var mergeFrom = reflect.TypeOf(client.MergeFrom(&corev1.Node{}))

// data returns the body that patch sends for obj.
func (k *Kind) data(patch client.Patch, obj client.Object) ([]byte, error) {
	if k.form != typed || reflect.TypeOf(patch) != mergeFrom || patch.Type() != types.MergePatchType {
		return patch.Data(obj)
	}
	from, ok := private(patch, "from").(client.Object)
	opts, known := private(patch, "opts").(client.MergeFromOptions)
	if !ok || !known || reflect.TypeOf(from).Elem() != k.typ || opts.OptimisticLock && from.GetResourceVersion() == "" {
		return patch.Data(obj)
	}
	if opts.OptimisticLock {
		version := from.GetResourceVersion()
		from, obj = k.shallow(from), k.shallow(obj)
		metaOf(from).ResourceVersion, metaOf(obj).ResourceVersion = "", version
	}
	var d difference
	if err := d.structure(k.plan, reflect.ValueOf(from).UnsafePointer(), reflect.ValueOf(obj).UnsafePointer()); err != nil {
		return nil, err
	}
	return d, nil
}

// private reads an unexported field of the structure that v points to, or
// returns nil when there is none.
func private(v any, name string) any {
	f := reflect.ValueOf(v).Elem().FieldByName(name)
	if !f.IsValid() {
		return nil
	}
	return reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem().Interface()
}

// A difference is a JSON merge patch under construction.
type difference []byte

// structure appends an object with the differences that turn a into b.
func (d *difference) structure(plan *codec.Plan, a, b unsafe.Pointer) error {
	*d = append(*d, '{')
	start := len(*d)
	for i := range plan.Fields {
		f := &plan.Fields[i]
		x, y := f.Pointer(a), f.Pointer(b)
		if f.Plan.Equal(x, y) {
			continue
		}
		before, after := f.Sent(a), f.Sent(b)
		if !before && !after {
			continue
		}
		rollback := len(*d)
		d.name(f.Name, rollback > start)
		changed := true
		var err error
		switch {
		case !after:
			*d = append(*d, "null"...)
		case !before:
			err = d.encode(f.Plan, y)
		default:
			changed, err = d.value(f.Plan, x, y)
		}
		if err != nil {
			return err
		}
		if !changed {
			*d = (*d)[:rollback]
		}
	}
	*d = append(*d, '}')
	return nil
}

func (d *difference) name(name string, more bool) {
	if more {
		*d = append(*d, ',')
	}
	quoted, _ := json.Marshal(name) // a string can always be encoded
	*d = append(append(*d, quoted...), ':')
}

// value appends the difference that turns the value at x into the one at y, and reports whether
// there is any.
func (d *difference) value(plan *codec.Plan, x, y unsafe.Pointer) (bool, error) {
	switch plan.Shape {
	case codec.Pointer:
		p, q := *(*unsafe.Pointer)(x), *(*unsafe.Pointer)(y)
		if plan.Elem.Shape == codec.Structure && p != nil && q != nil {
			return d.value(plan.Elem, p, q)
		}
	case codec.Structure:
		size := len(*d)
		if err := d.structure(plan, x, y); err != nil {
			return false, err
		}
		return len(*d) > size+len("{}"), nil
	case codec.Dictionary:
		v, w := reflect.NewAt(plan.Typ, x).Elem(), reflect.NewAt(plan.Typ, y).Elem()
		if !v.IsNil() && !w.IsNil() {
			return d.dictionary(plan, v, w)
		}
	}
	var was difference
	if err := was.encode(plan, x); err != nil {
		return false, err
	}
	size := len(*d)
	err := d.encode(plan, y)
	return string((*d)[size:]) != string(was), err
}

func (d *difference) encode(plan *codec.Plan, p unsafe.Pointer) error {
	data, err := json.Marshal(reflect.NewAt(plan.Typ, p).Interface())
	*d = append(*d, data...)
	return err
}

func (d *difference) dictionary(plan *codec.Plan, v, w reflect.Value) (bool, error) {
	var keys []reflect.Value
	for it := v.MapRange(); it.Next(); { // order does not matter: sorted below
		if !w.MapIndex(it.Key()).IsValid() {
			keys = append(keys, it.Key())
		}
	}
	for it := w.MapRange(); it.Next(); { // order does not matter: sorted below
		keys = append(keys, it.Key())
	}
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	*d = append(*d, '{')
	start := len(*d)
	for _, key := range keys {
		rollback := len(*d)
		d.name(key.String(), rollback > start)
		was, is := v.MapIndex(key), w.MapIndex(key)
		changed := true
		var err error
		switch {
		case !is.IsValid():
			*d = append(*d, "null"...)
		case !was.IsValid():
			err = d.encode(plan.Elem, addressable(is))
		default:
			changed, err = d.value(plan.Elem, addressable(was), addressable(is))
		}
		if err != nil {
			return false, err
		}
		if !changed {
			*d = (*d)[:rollback]
		}
	}
	changed := len(*d) > start
	*d = append(*d, '}')
	return changed, nil
}

// addressable returns a pointer to a copy of a map's value.
func addressable(v reflect.Value) unsafe.Pointer {
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	return p.UnsafePointer()
}
