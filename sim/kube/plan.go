package kube

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A plan is what one Go type needs to behave as if it went through the API
// server's encoding: compiled once per type, then run on pointers, because an
// encoding round trip costs a hundred times as much as everything else here.
type plan struct {
	typ    reflect.Type
	shape  shape
	fields []member // of a structure: its JSON fields, inlined ones flattened
	elem   *plan    // of a pointer, list or dictionary

	// equal compares two normalised values.
	equal func(a, b unsafe.Pointer) bool
	// normal rewrites a value in place to what comes back after storage: times
	// lose what their encoding drops, empty collections become nil where
	// storage can't tell them apart. Nil when the type needs nothing. It writes
	// only where something changes, so that shared values may pass through it.
	normal func(p unsafe.Pointer)
	// missing names the first field that would be sent as JSON null although it
	// is always sent, hence required. Nil when the type has none. Custom
	// resources only.
	missing func(p unsafe.Pointer) string
}

type shape uint8

const (
	leaf       shape = iota // replaced whole by a merge patch
	structure               // merged field by field
	dictionary              // merged key by key
	list                    // replaced whole
	pointer                 // as its element, absent when nil
)

// A member is one JSON field of a structure.
type member struct {
	name   string
	offset uintptr
	plan   *plan
	// dropEmpty and dropZero are the JSON options omitempty and omitzero.
	dropEmpty, dropZero bool
	// merged says that a strategic merge patch does not replace this list.
	merged bool
}

// optional reports whether controller-gen makes the field optional.
func (f *member) optional() bool { return f.dropEmpty || f.dropZero }

// sent reports whether Go's encoder writes the field of the structure at p.
func (f *member) sent(p unsafe.Pointer) bool {
	if !f.dropEmpty && !f.dropZero {
		return true
	}
	v := f.at(p)
	if f.dropZero {
		if z, ok := v.Addr().Interface().(interface{ IsZero() bool }); ok && v.Kind() != reflect.Pointer {
			if z.IsZero() {
				return false
			}
		} else if v.IsZero() {
			return false
		}
	}
	if f.dropEmpty {
		switch v.Kind() {
		case reflect.Struct:
			return true
		case reflect.Slice, reflect.Map, reflect.String:
			return v.Len() > 0
		default:
			return !v.IsZero()
		}
	}
	return true
}

// pointer returns the address of the field in the structure at p.
func (f *member) pointer(p unsafe.Pointer) unsafe.Pointer { return unsafe.Add(p, f.offset) }

// at returns the field of the structure at p as a settable value.
func (f *member) at(p unsafe.Pointer) reflect.Value {
	return reflect.NewAt(f.plan.typ, f.pointer(p)).Elem()
}

// set copies the field from one structure to another of the same type.
func (f *member) set(to, from unsafe.Pointer) { f.at(to).Set(f.at(from)) }

// planner compiles the plans of one server.
type planner struct {
	// custom selects the storage of custom resources, which is JSON; built-in
	// kinds are stored as protobuf, where empty and absent are the same.
	custom  bool
	plans   map[reflect.Type]*plan
	pending map[reflect.Type]bool
}

var (
	timeType       = reflect.TypeFor[metav1.Time]()
	microTimeType  = reflect.TypeFor[metav1.MicroTime]()
	objectMetaType = reflect.TypeFor[metav1.ObjectMeta]()
	quantityType   = reflect.TypeFor[resource.Quantity]()
	marshalerType  = reflect.TypeFor[interface{ MarshalJSON() ([]byte, error) }]()
)

func (c *planner) compile(t reflect.Type) (*plan, error) {
	if p, ok := c.plans[t]; ok {
		return p, nil
	}
	if c.pending[t] {
		return nil, fmt.Errorf("compile %v: a recursive type can't be planned", t)
	}
	c.pending[t] = true
	defer delete(c.pending, t)
	p := &plan{typ: t}
	if err := c.build(p); err != nil {
		return nil, err
	}
	c.plans[t] = p
	return p, nil
}

func (c *planner) build(p *plan) error {
	switch p.typ {
	case timeType:
		planTime(p, time.Second)
		return nil
	case microTimeType:
		planTime(p, time.Microsecond)
		return nil
	case quantityType:
		p.equal = func(a, b unsafe.Pointer) bool {
			return sameQuantity(*(*resource.Quantity)(a), *(*resource.Quantity)(b))
		}
		return nil
	}
	switch p.typ.Kind() {
	case reflect.Struct:
		return c.structure(p)
	case reflect.Pointer:
		return c.pointer(p)
	case reflect.Slice:
		return c.list(p)
	case reflect.Map:
		return c.dictionary(p)
	case reflect.String:
		p.equal = same[string]
	case reflect.Bool:
		p.equal = same[bool]
	case reflect.Int, reflect.Uint:
		p.equal = same[int]
	case reflect.Int64, reflect.Uint64:
		p.equal = same[int64]
	case reflect.Int32, reflect.Uint32:
		p.equal = same[int32]
	case reflect.Int16, reflect.Uint16:
		p.equal = same[int16]
	case reflect.Int8, reflect.Uint8:
		p.equal = same[int8]
	default:
		c.opaque(p)
	}
	return nil
}

// opaque compares by reflection what has no cheaper way.
func (c *planner) opaque(p *plan) {
	t := p.typ
	p.equal = func(a, b unsafe.Pointer) bool {
		return reflect.DeepEqual(reflect.NewAt(t, a).Elem().Interface(), reflect.NewAt(t, b).Elem().Interface())
	}
}

func same[T comparable](a, b unsafe.Pointer) bool { return *(*T)(a) == *(*T)(b) }

// sameQuantity reports whether two quantities are written alike.
func sameQuantity(x, y resource.Quantity) bool {
	format := func(f resource.Format) resource.Format { return cmp.Or(f, resource.DecimalSI) }
	return x.Cmp(y) == 0 && format(x.Format) == format(y.Format)
}

// planTime plans metav1.Time and metav1.MicroTime, both a struct around one
// time.Time. Everything is UTC: the real client answers in the machine's zone,
// which would make runs differ between machines.
func planTime(p *plan, unit time.Duration) {
	p.equal = func(a, b unsafe.Pointer) bool { return (*time.Time)(a).Equal(*(*time.Time)(b)) }
	p.normal = func(at unsafe.Pointer) {
		t := (*time.Time)(at)
		if *t != (time.Time{}) {
			if n := t.UTC().Truncate(unit); *t != n {
				*t = n
			}
		}
	}
}

func (c *planner) structure(p *plan) error {
	type part struct {
		offset uintptr
		plan   *plan
	}
	var parts, normals []part
	var checks []member
	for i := range p.typ.NumField() {
		f := p.typ.Field(i)
		if !f.IsExported() {
			c.opaque(p)
			p.shape, p.fields = leaf, nil
			return nil
		}
		sub, err := c.compile(f.Type)
		if err != nil {
			return fmt.Errorf("%v.%s: %w", p.typ, f.Name, err)
		}
		parts = append(parts, part{f.Offset, sub})
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		jf := member{
			name: name, offset: f.Offset, plan: sub,
			dropEmpty: hasOption(options, "omitempty"), dropZero: hasOption(options, "omitzero"),
			merged: strings.Contains(f.Tag.Get("patchStrategy"), "merge"),
		}
		normal := sub.normal
		if c.custom && sub.shape != structure {
			normal = customCollection(sub, jf.dropEmpty)
		}
		if normal != nil {
			normals = append(normals, part{f.Offset, &plan{normal: normal}})
		}
		switch {
		case name == "-":
		case f.Anonymous && name == "":
			for _, inner := range sub.fields {
				inner.offset += f.Offset
				p.fields = append(p.fields, inner)
			}
		default:
			if name == "" {
				jf.name = f.Name
			}
			p.fields = append(p.fields, jf)
			if c.custom && f.Type != objectMetaType {
				checks = append(checks, jf)
			}
		}
	}
	p.equal = func(a, b unsafe.Pointer) bool {
		for _, part := range parts {
			if !part.plan.equal(unsafe.Add(a, part.offset), unsafe.Add(b, part.offset)) {
				return false
			}
		}
		return true
	}
	if len(normals) > 0 {
		p.normal = func(at unsafe.Pointer) {
			for _, part := range normals {
				part.plan.normal(unsafe.Add(at, part.offset))
			}
		}
	}
	p.missing = missingIn(checks)
	p.shape = structure
	if reflect.PointerTo(p.typ).Implements(marshalerType) {
		p.shape = leaf
	}
	return nil
}

func hasOption(options, name string) bool {
	for o := range strings.SplitSeq(options, ",") {
		if o == name {
			return true
		}
	}
	return false
}

// missingIn finds, among the fields of a custom resource, one that is required
// and would be sent as null: the server prunes the null and then misses the
// field.
func missingIn(fields []member) func(unsafe.Pointer) string {
	var kept []member
	for _, f := range fields {
		nullable := f.plan.nullable()
		if (nullable && !f.optional()) || (!nullable && f.plan.missing != nil) || (nullable && f.plan.elem != nil && f.plan.elem.missing != nil) {
			kept = append(kept, f)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return func(at unsafe.Pointer) string {
		for _, f := range kept {
			v := unsafe.Add(at, f.offset)
			if !f.optional() && f.plan.null(v) {
				return f.name
			}
			if m := f.plan.missing; m != nil {
				if sub := m(v); sub != "" {
					return f.name + "." + sub
				}
			}
		}
		return ""
	}
}

// nullable reports whether a value of the type can be encoded as JSON null.
func (p *plan) nullable() bool {
	switch p.typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return true
	}
	return p.typ == timeType || p.typ == microTimeType
}

// null reports whether the value at v is encoded as JSON null.
func (p *plan) null(v unsafe.Pointer) bool {
	switch p.typ.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice:
		return *(*unsafe.Pointer)(v) == nil
	}
	return (p.typ == timeType || p.typ == microTimeType) && (*time.Time)(v).IsZero()
}

// customCollection is how a field of a custom resource is normalised: an empty
// collection is dropped when its tag says so, and a pointer to a zero time is
// null, which the server prunes.
func customCollection(p *plan, dropEmpty bool) func(unsafe.Pointer) {
	inner := p.normal
	switch p.shape {
	case list, dictionary:
		if !dropEmpty {
			return inner
		}
		isEmpty := p.empty()
		isList := p.shape == list
		return func(at unsafe.Pointer) {
			switch {
			case isEmpty(at) && isList:
				*(*sliceHeader)(at) = sliceHeader{}
			case isEmpty(at):
				*(*unsafe.Pointer)(at) = nil
			case inner != nil:
				inner(at)
			}
		}
	case pointer:
		if p.elem.typ != timeType && p.elem.typ != microTimeType {
			return inner
		}
		return func(at unsafe.Pointer) {
			if t := *(**time.Time)(at); t != nil && t.IsZero() {
				*(*unsafe.Pointer)(at) = nil
			} else if t != nil {
				inner(at)
			}
		}
	}
	return inner
}

// empty returns a test for a list or dictionary that exists but holds nothing.
func (p *plan) empty() func(unsafe.Pointer) bool {
	if p.shape == list || p.typ.Kind() == reflect.Slice {
		return func(at unsafe.Pointer) bool {
			s := *(*[]struct{})(at)
			return s != nil && len(s) == 0
		}
	}
	if p.typ.ConvertibleTo(reflect.TypeFor[map[string]string]()) {
		return func(at unsafe.Pointer) bool {
			m := *(*map[string]string)(at)
			return m != nil && len(m) == 0
		}
	}
	t := p.typ
	return func(at unsafe.Pointer) bool {
		m := reflect.NewAt(t, at).Elem()
		return !m.IsNil() && m.Len() == 0
	}
}

func (c *planner) pointer(p *plan) error {
	elem, err := c.compile(p.typ.Elem())
	if err != nil {
		return err
	}
	p.elem, p.shape = elem, pointer
	p.equal = func(a, b unsafe.Pointer) bool {
		x, y := *(*unsafe.Pointer)(a), *(*unsafe.Pointer)(b)
		if x == nil || y == nil {
			return x == y
		}
		return x == y || elem.equal(x, y)
	}
	if elem.normal != nil {
		p.normal = func(at unsafe.Pointer) {
			if x := *(*unsafe.Pointer)(at); x != nil {
				elem.normal(x)
			}
		}
	}
	if elem.missing != nil {
		p.missing = func(at unsafe.Pointer) string {
			if x := *(*unsafe.Pointer)(at); x != nil {
				return elem.missing(x)
			}
			return ""
		}
	}
	return nil
}

// sliceHeader is the memory of any slice.
type sliceHeader struct {
	data     unsafe.Pointer
	len, cap int
}

func (c *planner) list(p *plan) error {
	if p.typ.Elem().Kind() == reflect.Uint8 {
		p.equal = func(a, b unsafe.Pointer) bool {
			x, y := *(*[]byte)(a), *(*[]byte)(b)
			return bytes.Equal(x, y) && (x == nil) == (y == nil)
		}
		return nil
	}
	elem, err := c.compile(p.typ.Elem())
	if err != nil {
		return err
	}
	p.elem, p.shape = elem, list
	size := p.typ.Elem().Size()
	p.equal = func(a, b unsafe.Pointer) bool {
		x, y := (*sliceHeader)(a), (*sliceHeader)(b)
		if x.len != y.len || (x.data == nil) != (y.data == nil) {
			return false
		}
		if x.data == y.data {
			return true
		}
		for i := range uintptr(x.len) {
			if !elem.equal(unsafe.Add(x.data, i*size), unsafe.Add(y.data, i*size)) {
				return false
			}
		}
		return true
	}
	dropEmpty := !c.custom
	if dropEmpty || elem.normal != nil {
		p.normal = func(at unsafe.Pointer) {
			s := (*sliceHeader)(at)
			if dropEmpty && s.len == 0 {
				if s.data != nil {
					*s = sliceHeader{}
				}
				return
			}
			if elem.normal != nil {
				for i := range uintptr(s.len) {
					elem.normal(unsafe.Add(s.data, i*size))
				}
			}
		}
	}
	if elem.missing != nil {
		p.missing = func(at unsafe.Pointer) string {
			s := (*sliceHeader)(at)
			for i := range uintptr(s.len) {
				if sub := elem.missing(unsafe.Add(s.data, i*size)); sub != "" {
					return fmt.Sprintf("%d.%s", i, sub)
				}
			}
			return ""
		}
	}
	return nil
}

func (c *planner) dictionary(p *plan) error {
	elem, err := c.compile(p.typ.Elem())
	if err != nil {
		return err
	}
	p.elem, p.shape = elem, dictionary
	t := p.typ
	named := t.Key().Kind() == reflect.String
	if named && elem.typ.Kind() == reflect.String {
		p.equal = func(a, b unsafe.Pointer) bool {
			x, y := *(*map[string]string)(a), *(*map[string]string)(b)
			return (x == nil) == (y == nil) && maps.Equal(x, y)
		}
	} else if named && elem.typ == quantityType {
		p.equal = func(a, b unsafe.Pointer) bool {
			x, y := *(*map[string]resource.Quantity)(a), *(*map[string]resource.Quantity)(b)
			return (x == nil) == (y == nil) && maps.EqualFunc(x, y, sameQuantity)
		}
	} else {
		p.equal = func(a, b unsafe.Pointer) bool {
			x, y := reflect.NewAt(t, a).Elem(), reflect.NewAt(t, b).Elem()
			if x.Len() != y.Len() || x.IsNil() != y.IsNil() {
				return false
			}
			if x.Len() == 0 || x.UnsafePointer() == y.UnsafePointer() {
				return true
			}
			ve, we := reflect.New(t.Elem()).Elem(), reflect.New(t.Elem()).Elem()
			for it := x.MapRange(); it.Next(); {
				w := y.MapIndex(it.Key())
				if !w.IsValid() {
					return false
				}
				ve.Set(it.Value())
				we.Set(w)
				if !elem.equal(ve.Addr().UnsafePointer(), we.Addr().UnsafePointer()) {
					return false
				}
			}
			return true
		}
	}
	bytesValue := elem.typ.Kind() == reflect.Slice && elem.typ.Elem().Kind() == reflect.Uint8
	dropEmpty := !c.custom
	isEmpty := p.empty()
	if !dropEmpty && elem.normal == nil {
		return nil
	}
	p.normal = func(at unsafe.Pointer) {
		if dropEmpty && isEmpty(at) {
			*(*unsafe.Pointer)(at) = nil
			return
		}
		if elem.normal == nil && !bytesValue {
			return
		}
		m := reflect.NewAt(t, at).Elem()
		for it := m.MapRange(); it.Next(); {
			v := reflect.New(t.Elem())
			v.Elem().Set(it.Value())
			before := reflect.New(t.Elem())
			before.Elem().Set(it.Value())
			if bytesValue {
				// protobuf has no nil value in a map
				if v.Elem().IsNil() {
					m.SetMapIndex(it.Key(), reflect.MakeSlice(t.Elem(), 0, 0))
				}
				continue
			}
			elem.normal(v.UnsafePointer())
			if !elem.equal(v.UnsafePointer(), before.UnsafePointer()) {
				m.SetMapIndex(it.Key(), v.Elem())
			}
		}
	}
	return nil
}
