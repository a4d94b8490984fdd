// Package codec computes what the API server's encoding and storage make of a Go value, without
// encoding it.
package codec

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Plan describes how a Go type behaves in the API server's encoding. It is compiled once per
// type and then run on pointers, because an encoding round trip costs a hundred times as much as
// everything else here.
type Plan struct {
	Typ    reflect.Type
	Shape  Shape
	Fields []Member // of a structure: its JSON fields, inlined ones flattened
	Elem   *Plan    // of a pointer, list or dictionary

	// Equal compares two normalised values.
	Equal func(a, b unsafe.Pointer) bool
	// Normal rewrites a value in place to the form that storage returns: times lose precision, and
	// empty collections become nil where storage doesn't distinguish them from absent ones. It is
	// nil when the type needs nothing. It writes only where something changes, so that shared
	// values may pass through it.
	Normal func(p unsafe.Pointer)
	// Missing names the first field that would be sent as JSON null although it
	// is always sent, hence required. Nil when the type has none. Custom
	// resources only.
	Missing func(p unsafe.Pointer) string
}

// Shape is the way in which a merge patch treats a value.
type Shape uint8

// The shapes.

const (
	Leaf       Shape = iota // replaced whole by a merge patch
	Structure               // merged field by field
	Dictionary              // merged key by key
	List                    // replaced whole
	Pointer                 // as its element, absent when nil
)

// A Member is one JSON field of a structure.
type Member struct {
	Name   string
	offset uintptr
	Plan   *Plan
	// dropEmpty and dropZero are the JSON options omitempty and omitzero.
	dropEmpty, dropZero bool
	// Merged says that a strategic merge patch does not replace this list.
	Merged bool
}

// Optional reports whether controller-gen makes the field optional.
func (f *Member) Optional() bool { return f.dropEmpty || f.dropZero }

// Sent reports whether Go's encoder writes the field of the structure at p.
func (f *Member) Sent(p unsafe.Pointer) bool {
	if !f.dropEmpty && !f.dropZero {
		return true
	}
	v := f.At(p)
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

// Pointer returns the address of the field in the structure at p.
func (f *Member) Pointer(p unsafe.Pointer) unsafe.Pointer { return unsafe.Add(p, f.offset) }

// At returns the field of the structure at p as a settable value.
func (f *Member) At(p unsafe.Pointer) reflect.Value {
	return reflect.NewAt(f.Plan.Typ, f.Pointer(p)).Elem()
}

// Set copies the field from one structure to another of the same type.
func (f *Member) Set(to, from unsafe.Pointer) { f.At(to).Set(f.At(from)) }

// Below returns the plan of a structure's field.
func (p *Plan) Below(name string) *Plan {
	for p.Shape == Pointer {
		p = p.Elem
	}
	for i := range p.Fields {
		if p.Fields[i].Name == name {
			return p.Fields[i].Plan
		}
	}
	panic(fmt.Sprintf("codec: %v has no field %s", p.Typ, name)) // marks are made of fields
}

// Clash names the first field of another type that can't take what a value of this one is encoded
// as. Types that decode themselves are not looked into.
func (p *Plan) Clash(other *Plan) string {
	for p.Shape == Pointer {
		p = p.Elem
	}
	for other.Shape == Pointer {
		other = other.Elem
	}
	below := func(name, at string) string { return strings.TrimSuffix(name+"."+at, ".-") }
	switch {
	case p.opaqueJSON() || other.opaqueJSON():
		return ""
	case p.Shape != other.Shape || p.Shape == Leaf && jsonKind(p.Typ) != jsonKind(other.Typ):
		return "-"
	case p.Elem != nil:
		return p.Elem.Clash(other.Elem)
	}
	for _, f := range other.Fields {
		i := slices.IndexFunc(p.Fields, func(own Member) bool { return own.Name == f.Name })
		if i < 0 {
			continue
		}
		if at := p.Fields[i].Plan.Clash(f.Plan); at != "" {
			return below(f.Name, at)
		}
	}
	return ""
}

// opaqueJSON reports whether the type's structure doesn't show its JSON.
func (p *Plan) opaqueJSON() bool {
	return p.Shape == Leaf && (p.Typ.Kind() == reflect.Struct || p.Typ.Kind() == reflect.Interface || reflect.PointerTo(p.Typ).Implements(marshalerType))
}

// jsonKind is the kind of JSON value that a simple type is encoded as.
func jsonKind(t reflect.Type) reflect.Kind {
	switch {
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return reflect.Int
	case t.Kind() == reflect.Float32:
		return reflect.Float64
	}
	return t.Kind()
}

// Zero is the JSON of a value that Go would leave out.
func (p *Plan) Zero() any {
	switch p.Typ.Kind() {
	case reflect.String:
		return ""
	case reflect.Bool:
		return false
	case reflect.Slice:
		return []any{}
	case reflect.Map, reflect.Struct, reflect.Pointer:
		return map[string]any{}
	case reflect.Float32, reflect.Float64:
		return float64(0)
	}
	return int64(0)
}

// Planner compiles the plans of one server.
type Planner struct {
	// custom selects the storage of custom resources, which is JSON; built-in
	// kinds are stored as protobuf, where empty and absent are the same.
	custom  bool
	plans   map[reflect.Type]*Plan
	pending map[reflect.Type]bool
}

var (
	timeType       = reflect.TypeFor[metav1.Time]()
	microTimeType  = reflect.TypeFor[metav1.MicroTime]()
	ObjectMetaType = reflect.TypeFor[metav1.ObjectMeta]()
	quantityType   = reflect.TypeFor[resource.Quantity]()
	marshalerType  = reflect.TypeFor[interface{ MarshalJSON() ([]byte, error) }]()
)

// NewPlanner returns an empty planner for custom resources or built-in kinds.
func NewPlanner(custom bool) *Planner {
	return &Planner{custom: custom, plans: map[reflect.Type]*Plan{}, pending: map[reflect.Type]bool{}}
}

// Compile returns the plan of a type, and compiles it once. A recursive type is an error.
func (c *Planner) Compile(t reflect.Type) (*Plan, error) {
	if p, ok := c.plans[t]; ok {
		return p, nil
	}
	if c.pending[t] {
		return nil, fmt.Errorf("compile %v: a recursive type can't be planned", t)
	}
	c.pending[t] = true
	defer delete(c.pending, t)
	p := &Plan{Typ: t}
	if err := c.build(p); err != nil {
		return nil, err
	}
	c.plans[t] = p
	return p, nil
}

func (c *Planner) build(p *Plan) error {
	switch p.Typ {
	case timeType:
		planTime(p, time.Second)
		return nil
	case microTimeType:
		planTime(p, time.Microsecond)
		return nil
	case quantityType:
		p.Equal = func(a, b unsafe.Pointer) bool {
			return sameQuantity(*(*resource.Quantity)(a), *(*resource.Quantity)(b))
		}
		return nil
	}
	switch p.Typ.Kind() {
	case reflect.Struct:
		return c.structure(p)
	case reflect.Pointer:
		return c.pointer(p)
	case reflect.Slice:
		return c.list(p)
	case reflect.Map:
		return c.dictionary(p)
	case reflect.String:
		p.Equal = same[string]
	case reflect.Bool:
		p.Equal = same[bool]
	case reflect.Int, reflect.Uint:
		p.Equal = same[int]
	case reflect.Int64, reflect.Uint64:
		p.Equal = same[int64]
	case reflect.Int32, reflect.Uint32:
		p.Equal = same[int32]
	case reflect.Int16, reflect.Uint16:
		p.Equal = same[int16]
	case reflect.Int8, reflect.Uint8:
		p.Equal = same[int8]
	default:
		c.opaque(p)
	}
	return nil
}

// opaque makes a plan compare by reflection, for types without a cheaper way.
func (c *Planner) opaque(p *Plan) {
	t := p.Typ
	p.Equal = func(a, b unsafe.Pointer) bool {
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
func planTime(p *Plan, unit time.Duration) {
	p.Equal = func(a, b unsafe.Pointer) bool { return (*time.Time)(a).Equal(*(*time.Time)(b)) }
	p.Normal = func(at unsafe.Pointer) {
		t := (*time.Time)(at)
		if *t != (time.Time{}) {
			if n := t.UTC().Truncate(unit); *t != n {
				*t = n
			}
		}
	}
}

func (c *Planner) structure(p *Plan) error {
	type part struct {
		offset uintptr
		plan   *Plan
	}
	var parts, normals []part
	var checks []Member
	for i := range p.Typ.NumField() {
		f := p.Typ.Field(i)
		if !f.IsExported() {
			c.opaque(p)
			p.Shape, p.Fields = Leaf, nil
			return nil
		}
		sub, err := c.Compile(f.Type)
		if err != nil {
			return fmt.Errorf("%v.%s: %w", p.Typ, f.Name, err)
		}
		parts = append(parts, part{f.Offset, sub})
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		jf := Member{
			Name: name, offset: f.Offset, Plan: sub,
			dropEmpty: hasOption(options, "omitempty"), dropZero: hasOption(options, "omitzero"),
			Merged: strings.Contains(f.Tag.Get("patchStrategy"), "merge"),
		}
		normal := sub.Normal
		if c.custom && sub.Shape != Structure {
			normal = customCollection(sub, jf.dropEmpty)
		}
		if normal != nil {
			normals = append(normals, part{f.Offset, &Plan{Normal: normal}})
		}
		switch {
		case name == "-":
		case f.Anonymous && name == "":
			for _, inner := range sub.Fields {
				inner.offset += f.Offset
				p.Fields = append(p.Fields, inner)
			}
		default:
			if name == "" {
				jf.Name = f.Name
			}
			p.Fields = append(p.Fields, jf)
			if c.custom && f.Type != ObjectMetaType {
				checks = append(checks, jf)
			}
		}
	}
	p.Equal = func(a, b unsafe.Pointer) bool {
		for _, part := range parts {
			if !part.plan.Equal(unsafe.Add(a, part.offset), unsafe.Add(b, part.offset)) {
				return false
			}
		}
		return true
	}
	if len(normals) > 0 {
		p.Normal = func(at unsafe.Pointer) {
			for _, part := range normals {
				part.plan.Normal(unsafe.Add(at, part.offset))
			}
		}
	}
	p.Missing = missingIn(checks)
	p.Shape = Structure
	if reflect.PointerTo(p.Typ).Implements(marshalerType) {
		p.Shape = Leaf
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

// missingIn finds a required field of a custom resource that would be sent as null: the server
// prunes the null and then misses the field.
func missingIn(fields []Member) func(unsafe.Pointer) string {
	var kept []Member
	for _, f := range fields {
		nullable := f.Plan.nullable()
		if (nullable && !f.Optional()) || (!nullable && f.Plan.Missing != nil) || (nullable && f.Plan.Elem != nil && f.Plan.Elem.Missing != nil) {
			kept = append(kept, f)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return func(at unsafe.Pointer) string {
		for _, f := range kept {
			v := unsafe.Add(at, f.offset)
			if !f.Optional() && f.Plan.null(v) {
				return f.Name
			}
			if m := f.Plan.Missing; m != nil {
				if sub := m(v); sub != "" {
					return f.Name + "." + sub
				}
			}
		}
		return ""
	}
}

// nullable reports whether a value of the type can be encoded as JSON null.
func (p *Plan) nullable() bool {
	switch p.Typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return true
	}
	return p.Typ == timeType || p.Typ == microTimeType
}

// null reports whether the value at v is encoded as JSON null.
func (p *Plan) null(v unsafe.Pointer) bool {
	switch p.Typ.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice:
		return *(*unsafe.Pointer)(v) == nil
	}
	return (p.Typ == timeType || p.Typ == microTimeType) && (*time.Time)(v).IsZero()
}

// customCollection returns the normalisation of a custom resource's field. An empty collection is
// dropped when its tag says so. A pointer to a zero time is null, which the server prunes.
func customCollection(p *Plan, dropEmpty bool) func(unsafe.Pointer) {
	inner := p.Normal
	switch p.Shape {
	case List, Dictionary:
		if !dropEmpty {
			return inner
		}
		isEmpty := p.empty()
		isList := p.Shape == List
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
	case Pointer:
		if p.Elem.Typ != timeType && p.Elem.Typ != microTimeType {
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
func (p *Plan) empty() func(unsafe.Pointer) bool {
	if p.Shape == List || p.Typ.Kind() == reflect.Slice {
		return func(at unsafe.Pointer) bool {
			s := *(*[]struct{})(at)
			return s != nil && len(s) == 0
		}
	}
	if p.Typ.ConvertibleTo(reflect.TypeFor[map[string]string]()) {
		return func(at unsafe.Pointer) bool {
			m := *(*map[string]string)(at)
			return m != nil && len(m) == 0
		}
	}
	t := p.Typ
	return func(at unsafe.Pointer) bool {
		m := reflect.NewAt(t, at).Elem()
		return !m.IsNil() && m.Len() == 0
	}
}

func (c *Planner) pointer(p *Plan) error {
	elem, err := c.Compile(p.Typ.Elem())
	if err != nil {
		return err
	}
	p.Elem, p.Shape = elem, Pointer
	p.Equal = func(a, b unsafe.Pointer) bool {
		x, y := *(*unsafe.Pointer)(a), *(*unsafe.Pointer)(b)
		if x == nil || y == nil {
			return x == y
		}
		return x == y || elem.Equal(x, y)
	}
	if elem.Normal != nil {
		p.Normal = func(at unsafe.Pointer) {
			if x := *(*unsafe.Pointer)(at); x != nil {
				elem.Normal(x)
			}
		}
	}
	if elem.Missing != nil {
		p.Missing = func(at unsafe.Pointer) string {
			if x := *(*unsafe.Pointer)(at); x != nil {
				return elem.Missing(x)
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

func (c *Planner) list(p *Plan) error {
	if p.Typ.Elem().Kind() == reflect.Uint8 {
		p.Equal = func(a, b unsafe.Pointer) bool {
			x, y := *(*[]byte)(a), *(*[]byte)(b)
			return bytes.Equal(x, y) && (x == nil) == (y == nil)
		}
		return nil
	}
	elem, err := c.Compile(p.Typ.Elem())
	if err != nil {
		return err
	}
	p.Elem, p.Shape = elem, List
	size := p.Typ.Elem().Size()
	p.Equal = func(a, b unsafe.Pointer) bool {
		x, y := (*sliceHeader)(a), (*sliceHeader)(b)
		if x.len != y.len || (x.data == nil) != (y.data == nil) {
			return false
		}
		if x.data == y.data {
			return true
		}
		for i := range uintptr(x.len) {
			if !elem.Equal(unsafe.Add(x.data, i*size), unsafe.Add(y.data, i*size)) {
				return false
			}
		}
		return true
	}
	dropEmpty := !c.custom
	if dropEmpty || elem.Normal != nil {
		p.Normal = func(at unsafe.Pointer) {
			s := (*sliceHeader)(at)
			if dropEmpty && s.len == 0 {
				if s.data != nil {
					*s = sliceHeader{}
				}
				return
			}
			if elem.Normal != nil {
				for i := range uintptr(s.len) {
					elem.Normal(unsafe.Add(s.data, i*size))
				}
			}
		}
	}
	if elem.Missing != nil {
		p.Missing = func(at unsafe.Pointer) string {
			s := (*sliceHeader)(at)
			for i := range uintptr(s.len) {
				if sub := elem.Missing(unsafe.Add(s.data, i*size)); sub != "" {
					return fmt.Sprintf("%d.%s", i, sub)
				}
			}
			return ""
		}
	}
	return nil
}

func (c *Planner) dictionary(p *Plan) error {
	elem, err := c.Compile(p.Typ.Elem())
	if err != nil {
		return err
	}
	p.Elem, p.Shape = elem, Dictionary
	t := p.Typ
	named := t.Key().Kind() == reflect.String
	if named && elem.Typ.Kind() == reflect.String {
		p.Equal = func(a, b unsafe.Pointer) bool {
			x, y := *(*map[string]string)(a), *(*map[string]string)(b)
			return (x == nil) == (y == nil) && maps.Equal(x, y)
		}
	} else if named && elem.Typ == quantityType {
		p.Equal = func(a, b unsafe.Pointer) bool {
			x, y := *(*map[string]resource.Quantity)(a), *(*map[string]resource.Quantity)(b)
			return (x == nil) == (y == nil) && maps.EqualFunc(x, y, sameQuantity)
		}
	} else {
		p.Equal = func(a, b unsafe.Pointer) bool {
			x, y := reflect.NewAt(t, a).Elem(), reflect.NewAt(t, b).Elem()
			if x.Len() != y.Len() || x.IsNil() != y.IsNil() {
				return false
			}
			if x.Len() == 0 || x.UnsafePointer() == y.UnsafePointer() {
				return true
			}
			ve, we := reflect.New(t.Elem()).Elem(), reflect.New(t.Elem()).Elem()
			for it := x.MapRange(); it.Next(); { // order does not matter: each key is compared by itself
				w := y.MapIndex(it.Key())
				if !w.IsValid() {
					return false
				}
				ve.Set(it.Value())
				we.Set(w)
				if !elem.Equal(ve.Addr().UnsafePointer(), we.Addr().UnsafePointer()) {
					return false
				}
			}
			return true
		}
	}
	bytesValue := elem.Typ.Kind() == reflect.Slice && elem.Typ.Elem().Kind() == reflect.Uint8
	dropEmpty := !c.custom
	isEmpty := p.empty()
	if !dropEmpty && elem.Normal == nil {
		return nil
	}
	p.Normal = func(at unsafe.Pointer) {
		if dropEmpty && isEmpty(at) {
			*(*unsafe.Pointer)(at) = nil
			return
		}
		if elem.Normal == nil && !bytesValue {
			return
		}
		m := reflect.NewAt(t, at).Elem()
		for it := m.MapRange(); it.Next(); { // order does not matter: each value is made normal by itself
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
			elem.Normal(v.UnsafePointer())
			if !elem.Equal(v.UnsafePointer(), before.UnsafePointer()) {
				m.SetMapIndex(it.Key(), v.Elem())
			}
		}
	}
	return nil
}
