package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/fencelab/fencelab/sim/kube/codec"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"
)

// applyMerge applies a JSON merge patch (RFC 7386) to a copy of the current
// record. The copy shares with the record whatever the patch doesn't touch.
//
// The result has the typed content that encoding the object, merging and
// decoding would give: unknown fields are pruned, as decoding or a structural
// schema does.
func (s *Store) applyMerge(k *Kind, current *record, data []byte, status, strategic bool) (*record, error) {
	patch, err := decodePatch(data)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	for _, fixed := range [][2]string{{"kind", k.Kind}, {"apiVersion", k.GroupVersion().String()}} {
		name, want := fixed[0], fixed[1]
		raw, ok := patch[name]
		if !ok {
			continue
		}
		var got string
		if err := json.Unmarshal(raw, &got); err != nil || got != want {
			return nil, s.refuse("patch", k, current.key, "a patch that sets %s to %s", name, raw)
		}
		delete(patch, name)
	}
	if why := k.strategy.unpatchable; why != nil {
		if what := why(current.obj, patch); what != "" {
			return nil, s.refuse("patch", k, current.key, "%s", what)
		}
	}
	if err := s.dropIgnored(k, current.key, current.obj, patch, status, false); err != nil {
		return nil, err
	}
	rec := &record{key: current.key, obj: k.shallow(current.obj)}
	m := merge{custom: k.Custom, strategic: strategic}
	if k.Custom {
		m.sparse = map[string]bool{}
		for _, mark := range current.sparse {
			m.sparse[mark] = true
		}
	}
	if err := m.structure(k.plan, reflect.ValueOf(rec.obj).UnsafePointer(), patch, "", false); err != nil {
		if _, ok := err.(*notEquivalent); ok && strategic {
			return s.applyJSON(k, current, types.StrategicMergePatchType, data, status)
		}
		return nil, s.patchError(k, current, err)
	}
	m.into(rec)
	if err := s.named(k, rec, current.key); err != nil {
		return nil, err
	}
	k.normalise(rec.obj)
	return rec, nil
}

// patchError turns an error of merging into the server's answer.
func (s *Store) patchError(k *Kind, current *record, err error) error {
	switch err := err.(type) {
	case *notEquivalent:
		return s.refuse("patch", k, current.key, "%s", err.what)
	case *mismatch:
		if k.Custom {
			return s.refuse("patch", k, current.key, "a value of the wrong type at %s", err.path)
		}
		return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), "", err.path+": "+err.why)})
	}
	return err
}

// dropIgnored removes from a request the part that it can't write: the status, or everything
// except the status. Neither the server nor its validation looks at that part. Only the field
// manager does: when a type in it is wrong, it forgets everything it knows, which is a write.
func (s *Store) dropIgnored(k *Kind, key client.ObjectKey, obj client.Object, patch map[string]json.RawMessage, status, whole bool) error {
	if !k.Custom || !k.Status {
		return nil
	}
	ignored := map[string]json.RawMessage{}
	for name, raw := range patch { // order does not matter: it only splits the map
		if name != "metadata" && (name == "status") != status {
			ignored[name] = raw
			delete(patch, name)
		}
	}
	if len(ignored) == 0 {
		return nil
	}
	scratch := merge{custom: true, whole: whole, sparse: map[string]bool{}}
	if err := scratch.structure(k.plan, reflect.ValueOf(k.shallow(obj)).UnsafePointer(), ignored, "", false); err != nil {
		return err
	}
	if e := scratch.invalid; e != nil && !e.required {
		return s.refuse("patch", k, key, "a value of the wrong type in the ignored field %s", e.path)
	}
	return nil
}

func sortedMarks(sparse map[string]bool) []string {
	if len(sparse) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(sparse))
}

// A mismatch is a value of the wrong JSON type, or a required field that isn't
// there after the patch.
type mismatch struct {
	path, why string
	required  bool
}

func (e *mismatch) Error() string { return e.path + ": " + e.why }

// notEquivalent is a patch whose outcome isn't modelled.
type notEquivalent struct{ what string }

func (e *notEquivalent) Error() string { return e.what }

// members splits one JSON object, one level deep. The last member of a name counts. The data must
// be valid JSON: see decodePatch.
func members(data []byte) (map[string]json.RawMessage, error) {
	data = bytes.TrimSpace(data)
	if !isObject(data) {
		return nil, fmt.Errorf("a patch must be a JSON object, not %s", data)
	}
	m := make(map[string]json.RawMessage)
	name, begin, depth := "", 1, 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			end := i + 1
			for ; data[end] != '"'; end++ {
				if data[end] == '\\' {
					end++
				}
			}
			i = end
		case '{', '[':
			if depth++; depth == 1 {
				begin = i + 1
			}
		case ':':
			if depth == 1 {
				plain, ok := plainString(bytes.TrimSpace(data[begin:i]))
				if name = plain; !ok {
					if err := json.Unmarshal(data[begin:i], &name); err != nil {
						return nil, err
					}
				}
				begin = i + 1
			}
		case ',', '}', ']':
			if depth == 1 {
				if raw := bytes.TrimSpace(data[begin:i]); len(raw) > 0 {
					m[name] = raw
				}
				begin = i + 1
			}
			if data[i] != ',' {
				depth--
			}
		}
	}
	return m, nil
}

// decodePatch is members for data that came from outside.
func decodePatch(data []byte) (map[string]json.RawMessage, error) {
	if !json.Valid(data) {
		var any json.RawMessage
		return nil, json.Unmarshal(data, &any) // it says what is wrong
	}
	return members(data)
}

// plainString decodes a JSON string that stands for itself, as most do: ASCII without an escape.
func plainString(raw []byte) (s string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	for _, c := range raw[1 : len(raw)-1] {
		if c == '\\' || c >= utf8.RuneSelf {
			return "", false
		}
	}
	return string(raw[1 : len(raw)-1]), true
}

func isNull(raw json.RawMessage) bool   { return bytes.Equal(raw, []byte("null")) }
func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

// merge is one merge patch being applied.
type merge struct {
	custom, strategic bool
	// whole says that the patch is a whole object, in which null is a value.
	whole bool
	// sparse are the marks of the record (see record.sparse).
	sparse map[string]bool
	// invalid is the first mismatch in the content of a custom resource: there
	// a patch is merged without regard to types, and validated after all other
	// checks.
	invalid *mismatch
}

// structure merges into the structure at p. fresh says that the structure was absent before, so
// that its fields are absent unless the patch sets them.
func (m *merge) structure(plan *codec.Plan, p unsafe.Pointer, patch map[string]json.RawMessage, path string, fresh bool) error {
	if err := m.directive(patch); err != nil {
		return err
	}
	for i := range plan.Fields {
		f := &plan.Fields[i]
		raw, ok := patch[f.Name]
		if !ok && !fresh {
			continue
		}
		at := path
		if m.custom {
			if at != "" {
				at += "."
			}
			at += f.Name
		}
		var err error
		switch {
		case !ok || isNull(raw):
			err = m.remove(f, p, at)
		default:
			err = m.set(f, p, raw, at, fresh)
		}
		if e, ok := err.(*mismatch); ok && m.marked(at) {
			if m.invalid == nil {
				m.invalid = e
			}
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// directive refuses the instructions that a strategic merge patch may hold.
func (m *merge) directive(patch map[string]json.RawMessage) error {
	if m.strategic {
		for _, name := range slices.Sorted(maps.Keys(patch)) {
			if strings.HasPrefix(name, "$") {
				return &notEquivalent{"the strategic merge patch directive " + name}
			}
		}
	}
	return nil
}

// marked reports whether marks are kept for a path. Metadata has none: the
// server decodes it into its Go type.
func (m *merge) marked(path string) bool { return m.custom && !strings.HasPrefix(path, "metadata") }

func (m *merge) unmark(path string) {
	for mark := range m.sparse { // order does not matter: it only deletes
		if mark[1:] == path || strings.HasPrefix(mark[1:], path+".") {
			delete(m.sparse, mark)
		}
	}
}

func (m *merge) remove(f *codec.Member, p unsafe.Pointer, path string) error {
	if f.Plan.Typ == codec.ObjectMetaType {
		return &notEquivalent{"a patch that removes metadata"}
	}
	f.At(p).SetZero()
	if !m.marked(path) {
		return nil
	}
	m.unmark(path)
	if !f.Sent(p) {
		return nil
	}
	if !f.Optional() && strings.Contains(path, ".") {
		return &mismatch{path, "Required value", true}
	}
	m.sparse["-"+path] = true
	return nil
}

func (m *merge) set(f *codec.Member, p unsafe.Pointer, raw json.RawMessage, path string, fresh bool) error {
	marked := m.marked(path)
	present := !fresh && f.Sent(p)
	if marked && len(m.sparse) > 0 {
		present = present && !m.sparse["-"+path] || m.sparse["+"+path]
	}
	if !present {
		f.At(p).SetZero()
	}
	if marked {
		delete(m.sparse, "-"+path)
		delete(m.sparse, "+"+path)
	}
	if err := m.value(f.Plan, f.Pointer(p), raw, path, marked && !present, f.Merged); err != nil {
		return err
	}
	if marked && !f.Sent(p) {
		m.sparse["+"+path] = true
	}
	return nil
}

// value merges raw, which isn't null, into the value at p.
func (m *merge) value(plan *codec.Plan, p unsafe.Pointer, raw json.RawMessage, path string, fresh, merged bool) error {
	switch plan.Shape {
	case codec.Pointer:
		if plan.Elem.Shape != codec.Structure {
			break
		}
		old := reflect.NewAt(plan.Typ, p).Elem()
		elem := reflect.New(plan.Elem.Typ)
		if !old.IsNil() {
			elem.Elem().Set(old.Elem())
		} else {
			fresh = m.marked(path)
		}
		old.Set(elem)
		return m.value(plan.Elem, elem.UnsafePointer(), raw, path, fresh, false)
	case codec.Structure:
		if !isObject(raw) {
			return &mismatch{path: path, why: "must be an object"}
		}
		patch, err := members(raw)
		if err != nil {
			return &mismatch{path: path, why: err.Error()}
		}
		return m.structure(plan, p, patch, path, fresh)
	case codec.Dictionary:
		return m.dictionary(plan, p, raw, path)
	case codec.List:
		if m.strategic && merged {
			return &notEquivalent{"a strategic merge patch of the list " + path}
		}
	}
	if plan.Typ.Kind() == reflect.String && plan.Typ.NumMethod() == 0 && reflect.PointerTo(plan.Typ).NumMethod() == 0 {
		if s, ok := plainString(raw); ok {
			*(*string)(p) = s
			return nil
		}
	}
	decoded := reflect.New(plan.Typ)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, decoded.Interface()); err != nil {
		return &mismatch{path: path, why: err.Error()}
	}
	if m.marked(path) && plan.Shape == codec.List && plan.Elem.Shape != codec.Leaf {
		if err := sameJSON(raw, decoded.Interface(), path); err != nil {
			return err
		}
	}
	reflect.NewAt(plan.Typ, p).Elem().Set(decoded.Elem())
	return nil
}

// sameJSON refuses a list whose elements leave out what Go would write, or the
// reverse: there are no marks for the inside of a list.
func sameJSON(raw json.RawMessage, typed any, path string) error {
	again, err := json.Marshal(typed)
	if err != nil || bytes.Equal(raw, again) {
		return err
	}
	var x, y any
	if err := json.Unmarshal(raw, &x); err != nil {
		return err
	}
	if err := json.Unmarshal(again, &y); err != nil {
		return err
	}
	if !reflect.DeepEqual(x, y) {
		return &notEquivalent{fmt.Sprintf("a list at %s that Go would encode otherwise", path)}
	}
	return nil
}

func (m *merge) dictionary(plan *codec.Plan, p unsafe.Pointer, raw json.RawMessage, path string) error {
	if !isObject(raw) {
		return &mismatch{path: path, why: "must be an object"}
	}
	patch, err := members(raw)
	if err != nil {
		return &mismatch{path: path, why: err.Error()}
	}
	old := reflect.NewAt(plan.Typ, p).Elem()
	merged := reflect.MakeMapWithSize(plan.Typ, old.Len()+len(patch))
	for it := old.MapRange(); it.Next(); { // order does not matter: it is copied into a map
		merged.SetMapIndex(it.Key(), it.Value())
	}
	if err := m.directive(patch); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		raw := patch[name]
		key := reflect.ValueOf(name).Convert(plan.Typ.Key())
		if isNull(raw) {
			if m.whole {
				return &notEquivalent{"null in the map " + path}
			}
			merged.SetMapIndex(key, reflect.Value{})
			continue
		}
		value := reflect.New(plan.Typ.Elem())
		if was := merged.MapIndex(key); was.IsValid() {
			value.Elem().Set(was)
		}
		if m.marked(path) && plan.Elem.Shape == codec.Structure {
			return &notEquivalent{"a patch inside the map " + path}
		}
		if err := m.value(plan.Elem, value.UnsafePointer(), raw, path+"."+name, false, false); err != nil {
			return err
		}
		merged.SetMapIndex(key, value.Elem())
	}
	old.Set(merged)
	return nil
}
