package file

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"go.yaml.in/yaml/v3"
)

// decode fills the struct that into points to from the whole document.
func (d *document) decode(into any) {
	decoder{doc: d, strict: true}.value(d.root, reflect.ValueOf(into).Elem(), "")
}

// decodeForeign fills a struct of another package from the field at path, and
// reports whether that went well. The struct's fields can all be left out.
func (d *document) decodeForeign(path string, into any) bool {
	n := d.nodes[path]
	if n == nil {
		return false
	}
	decoder{doc: d}.value(n, reflect.ValueOf(into).Elem(), path)
	return !d.broken(path)
}

// decoder copies a tree into Go values by their json tags.
type decoder struct {
	doc *document
	// strict asks for every field without omitempty or omitzero, and for
	// something in every list that could be left out.
	strict bool
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func (d decoder) value(n *yaml.Node, v reflect.Value, path string) {
	if refused(n) {
		return
	}
	switch pointer := reflect.PointerTo(v.Type()); {
	case pointer.Implements(jsonUnmarshaler):
		d.json(n, v, path)
		if length, ok := v.Interface().(interface{ Seconds() float64 }); ok && length.Seconds() < 0 {
			d.doc.bad(path, "must not be negative")
		}
		return
	case pointer.Implements(textUnmarshaler):
		d.text(n, v, path)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), path)
	case reflect.Struct:
		d.structure(n, v, path)
	case reflect.Map:
		d.mapping(n, v, path)
	case reflect.Slice:
		d.list(n, v, path)
	case reflect.Interface:
		d.json(n, v, path)
	default:
		d.scalar(n, v, path)
	}
}

// json hands a subtree as JSON to a type that reads that.
func (d decoder) json(n *yaml.Node, v reflect.Value, path string) {
	data, ok := d.canonical(n, path)
	if !ok {
		return
	}
	err := json.Unmarshal(data, v.Addr().Interface())
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mismatch):
		if _, length := v.Interface().(interface{ Seconds() float64 }); length && decimal.MatchString(n.Value) {
			d.doc.bad(path, "%s is not a duration: write it with its unit, such as 20s", n.Value)
			return
		}
		// The type reads what it writes.
		example, _ := json.Marshal(reflect.Zero(v.Type()).Interface()) // "" will do
		d.doc.bad(path, "%s where a value such as %s is expected", describe(n), example)
	case err != nil:
		if _, is := v.Interface().(interface{ Seconds() float64 }); is && n.Kind == yaml.ScalarNode {
			if _, better := scenarios.ParseDuration(n.Value); better != nil {
				err = better // a setting's, which is of a type of Kubernetes'
			}
		}
		d.doc.bad(path, "%s", phrase.OneLine(err))
	}
}

func (d decoder) text(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode {
		d.doc.bad(path, "%s where text is expected", describe(n))
		return
	}
	err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Value))
	switch {
	case err != nil:
		d.doc.bad(path, "%s", phrase.OneLine(err))
	case !isText(n):
		d.doc.bad(path, "%s where text is expected: put it in quotes, or add the unit", describe(n))
	}
}

func (d decoder) structure(n *yaml.Node, v reflect.Value, path string) {
	fields := fieldsOf(v.Type())
	if n.Kind != yaml.MappingNode {
		d.doc.bad(path, "%s where fields are expected%s", describe(n), d.asField(n, fields))
		return
	}
	names := make([]string, len(fields))
	byName := map[string]field{}
	for i, f := range fields {
		names[i], byName[f.name] = f.name, f
	}
	var meant []string // by the unknown fields
	for key, value := range entries(n) {
		f, known := byName[key.Value]
		if !known {
			text := unknown("field", key.Value, names)
			if place, known := placeOf(key.Value, path); known && !strings.HasSuffix(text, "?") {
				text = fmt.Sprintf("unknown field %s: it belongs in %s", phrase.Quote(key.Value), place)
			}
			meant = append(meant, text)
			d.doc.report(key.Line, key.Column, join(path, key.Value), text)
			continue
		}
		at := join(path, f.name)
		if d.strict && f.optional && len(value.Content) == 0 && (f.typ.Kind() == reflect.Slice && value.Kind == yaml.SequenceNode || f.typ.Kind() == reflect.Map && value.Kind == yaml.MappingNode) {
			d.doc.bad(at, "is empty: leave it out")
			continue
		}
		d.value(value, v.FieldByIndex(f.index), at)
		if d.strict && f.optional && f.typ == reflect.TypeFor[scenarios.Duration]() && v.FieldByIndex(f.index).IsZero() && !d.doc.broken(at) {
			d.doc.bad(at, "must be longer than 0s, or left out")
		}
	}
	for _, f := range fields {
		if d.strict && !f.optional && d.doc.nodes[join(path, f.name)] == nil && !mentions(meant, f.name) {
			d.doc.bad(join(path, f.name), "is missing")
		}
	}
}

// spaceless is a field whose colon has no space behind it, which is text to YAML.
var spaceless = regexp.MustCompile(`^[A-Za-z]+:[^\s/]`)

// asField suggests how to write a text as a field where fields are expected, or returns "" if what
// was meant isn't plain. A bare name becomes the first field, since the structs of a scenario begin
// with their name.
func (d decoder) asField(n *yaml.Node, fields []field) string {
	first := 0
	for first < len(fields) && fields[first].typ.Kind() == reflect.Struct {
		first++
	}
	switch {
	case n.Kind != yaml.ScalarNode || !isText(n) || first == len(fields):
		return ""
	case spaceless.MatchString(n.Value):
		return ": put a space after the colon"
	case slices.ContainsFunc(fields, func(f field) bool { return f.name == n.Value }):
		return fmt.Sprintf(": write {%s: …}", n.Value)
	case phrase.Quote(n.Value) != `"`+n.Value+`"`:
		return ""
	case d.strict && fields[first].typ.Kind() == reflect.String:
		return fmt.Sprintf(": write {%s: %s}", fields[first].name, n.Value)
	}
	return ""
}

// mentions reports whether an unknown field was meant to be this one, which then isn't missing too.
func mentions(texts []string, name string) bool {
	for _, text := range texts {
		if strings.HasSuffix(text, fmt.Sprintf("did you mean %q?", name)) {
			return true
		}
	}
	return false
}

func (d decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.doc.bad(path, "%s where names and values are expected", describe(n))
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for key, value := range entries(n) {
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(value, item, join(path, key.Value))
		v.SetMapIndex(reflect.ValueOf(key.Value).Convert(v.Type().Key()), item)
	}
}

func (d decoder) list(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.doc.bad(path, "%s where a list is expected", describe(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		d.value(item, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
}

// decimal matches whole numbers: not in octal, not with underscores.
var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

func (d decoder) scalar(n *yaml.Node, v reflect.Value, path string) {
	var err error
	switch kind := v.Kind(); {
	case kind == reflect.String:
		if n.Kind != yaml.ScalarNode || !isText(n) {
			hint := ""
			if n.Kind == yaml.ScalarNode {
				hint = ": put it in quotes"
			}
			d.doc.bad(path, "%s where text is expected%s", describe(n), hint)
			return
		}
		v.SetString(n.Value)
	case kind == reflect.Bool:
		if n.ShortTag() != "!!bool" {
			d.doc.bad(path, "%s where true or false is expected", describe(n))
			return
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case v.CanInt() || v.CanUint():
		if n.Kind != yaml.ScalarNode || isText(n) || !decimal.MatchString(n.Value) {
			d.doc.bad(path, "%s where a plain whole number is expected", describe(n))
			return
		}
		if v.CanInt() {
			var x int64
			if x, err = strconv.ParseInt(n.Value, 10, v.Type().Bits()); err == nil {
				v.SetInt(x)
			}
		} else {
			var x uint64
			if x, err = strconv.ParseUint(n.Value, 10, v.Type().Bits()); err == nil {
				v.SetUint(x)
			}
		}
		if err != nil {
			d.doc.bad(path, "%s is out of range", phrase.Shorten(n.Value))
		}
	case v.CanFloat():
		x, ok := number(n)
		if !ok {
			d.doc.bad(path, "%s where a number is expected", describe(n))
			return
		}
		v.SetFloat(x)
	default:
		d.doc.bad(path, "cannot be set in a file")
	}
}

// canonical renders a subtree as JSON: compact, keys sorted, each number in one
// spelling.
func (d decoder) canonical(n *yaml.Node, path string) (data []byte, ok bool) {
	ok = true
	bad := func(path, text string) {
		d.doc.bad(path, "%s", text)
		ok = false
	}
	var plain func(n *yaml.Node, path string) any
	plain = func(n *yaml.Node, path string) any {
		switch {
		case isNull(n) && !d.doc.broken(path):
			return nil
		case refused(n):
			ok = false
			return nil
		case n.Kind == yaml.MappingNode:
			object := map[string]any{}
			for key, value := range entries(n) {
				object[key.Value] = plain(value, join(path, key.Value))
			}
			return object
		case n.Kind == yaml.SequenceNode:
			list := []any{}
			for i, item := range n.Content {
				list = append(list, plain(item, fmt.Sprintf("%s[%d]", path, i)))
			}
			return list
		case isText(n):
			return n.Value
		case n.ShortTag() == "!!bool":
			return strings.EqualFold(n.Value, "true")
		case decimal.MatchString(n.Value):
			if x, err := strconv.ParseInt(n.Value, 10, 64); err == nil {
				return x
			}
			if x, err := strconv.ParseUint(n.Value, 10, 64); err == nil {
				return x
			}
		}
		x, isNumber := number(n)
		if !isNumber {
			bad(path, fmt.Sprintf("%s is neither text nor a plain number: put it in quotes, or write it in decimal", describe(n)))
		}
		return x
	}
	value := plain(n, path)
	if !ok {
		return nil, false
	}
	data, err := json.Marshal(value)
	if err != nil { // unreachable: plain makes what Marshal takes
		bad(path, err.Error())
	}
	return data, ok
}

// floating matches numbers as JSON writes them, plus a sign.
var floating = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

func number(n *yaml.Node) (float64, bool) {
	if n.Kind != yaml.ScalarNode || isText(n) || !floating.MatchString(n.Value) {
		return 0, false
	}
	x, err := strconv.ParseFloat(n.Value, 64)
	if x == 0 {
		x = 0 // -0 is 0
	}
	return x, err == nil && !math.IsInf(x, 0)
}

// entries yields the keys and values of a mapping that are sound and come first.
func entries(n *yaml.Node) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode || !isText(key) || key.Value == "<<" || seen[key.Value] {
				continue // inspect has reported it
			}
			seen[key.Value] = true
			if !yield(key, n.Content[i+1]) {
				return
			}
		}
	}
}

// field is a field of a struct as JSON sees it.
type field struct {
	name     string
	index    []int
	typ      reflect.Type
	optional bool
}

// fieldsOf lists the fields of a struct, those of embedded structs included.
func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			for _, inner := range fieldsOf(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				fields = append(fields, inner)
			}
			continue
		case !f.IsExported() || name == "-":
			continue
		case name == "":
			name = f.Name
		}
		fields = append(fields, field{
			name: name, index: []int{i}, typ: f.Type,
			optional: strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero"),
		})
	}
	return fields
}

// refused reports whether inspect has said all there is to say about a node.
func refused(n *yaml.Node) bool {
	return n.Kind == yaml.AliasNode || n.Style&yaml.TaggedStyle != 0 || isNull(n)
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// isText reports whether a scalar is text. So is, to us, what YAML takes for a
// point in time, and << where it is no key.
func isText(n *yaml.Node) bool {
	tag := n.ShortTag()
	return tag == "!!str" || tag == "!!timestamp" || tag == "!!merge"
}

// describe says what a node is, for errors.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "fields"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind != yaml.ScalarNode:
		return "an alias"
	case isText(n):
		return "the text " + phrase.Quote(n.Value)
	case n.ShortTag() == "!!null":
		return "nothing"
	case n.ShortTag() == "!!bool":
		return n.Value
	default:
		return "the number " + phrase.Shorten(n.Value)
	}
}
