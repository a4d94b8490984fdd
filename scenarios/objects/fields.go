package objects

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// Fields are the fields of objects that a story asks for, and the meaning of its own kinds, by the
// kind, or the kind and its group.
type Fields map[string][]field

type field struct {
	scenarios.Field
	name string
	path *jsonpath.JSONPath
	// means is Fencing, Marking or releasing of the host that path names; empty for a field that
	// was asked for. when and done are the fields that say whether the object means it, and that it
	// was done.
	means      string
	when, done condition
}

// An object that means releasing says that nothing runs on a host any more.
const releasing = "releasing"

// condition is a field and the value that it must have; without a path it is one that never is.
type condition struct {
	path *jsonpath.JSONPath
	is   string
}

func (c *condition) holds(obj metav1.Object) bool {
	return c.path != nil && textAt(c.path, obj) == c.is
}

// conditionOf is a condition on a field, if there is one.
func conditionOf(path, is string) (c condition, err error) {
	if c.is = is; path != "" {
		c.path, err = parsePath(path)
	}
	return c, err
}

// FieldsOf returns those of a story.
func FieldsOf(spec *scenarios.Spec) (Fields, error) {
	fields := Fields{}
	for _, asked := range spec.Fields() {
		path, err := parsePath(asked.Key)
		if err != nil {
			return nil, err
		}
		kind, name, _ := strings.Cut(asked.Object, "/")
		fields[kind] = append(fields[kind], field{Field: asked, name: name, path: path})
	}
	for kind, request := range spec.Requests { // order does not matter: each by itself
		when, err := conditionOf(request.WhenField())
		if err != nil {
			return nil, err
		}
		done, err := conditionOf(request.DoneField())
		if err != nil {
			return nil, err
		}
		// Whoever marks a host and asks for it to be fenced has marked it first.
		for _, m := range [...]struct{ means, path string }{{history.Marking, request.Marks}, {history.Fencing, request.Fences}, {releasing, request.Releases}} {
			if m.path == "" {
				continue
			}
			path, err := parsePath(m.path)
			if err != nil {
				return nil, err
			}
			fields[kind] = append(fields[kind], field{path: path, means: m.means, when: when, done: done})
		}
	}
	return fields, nil
}

// Of returns the fields of a kind.
func (f Fields) Of(kind *Kind) []field {
	if len(f) == 0 || kind.GVK.Group == "" {
		return f[kind.Name]
	}
	return slices.Concat(f[kind.Name], f[kind.GVK.GroupKind().String()])
}

// parsePath reads a JSONPath as kubectl wait takes it, with or without the first dot.
func parsePath(text string) (*jsonpath.JSONPath, error) {
	path := jsonpath.New(text).AllowMissingKeys(true)
	if err := path.Parse(braced(text)); err != nil {
		return nil, fmt.Errorf("%q is not a JSONPath such as status.phase: %w", text, err)
	}
	return path, nil
}

func braced(text string) string { return "{." + strings.TrimPrefix(text, ".") + "}" }

// Changes hands over an event for each field that is asked for and has another value in
// after than in before. Either may be nil.
func (f Fields) Changes(names Names, kind *Kind, before, after metav1.Object, emit func(history.Event)) {
	for _, field := range f.Of(kind) {
		if field.means != "" {
			field.meant(names, kind, before, after, emit)
			continue
		}
		var was, is, uid string
		if before != nil && before.GetName() == field.name {
			was, uid = field.of(before), string(before.GetUID())
		}
		if after != nil && after.GetName() == field.name {
			is, uid = field.of(after), string(after.GetUID())
		}
		if was == is {
			continue
		}
		e := history.Event{Kind: history.FieldIs, Object: field.Object, UID: uid, Key: field.Key, Value: is}
		switch kind.Named {
		case scenarios.AfterHost, scenarios.AfterNode, scenarios.AfterMachine:
			e.Host = names.host(kind.Named, field.name)
		}
		emit(e)
	}
}

// meant hands over when an object begins and ceases to mean something to a host.
func (f *field) meant(names Names, kind *Kind, before, after metav1.Object, emit func(history.Event)) {
	state := func(obj metav1.Object) (host, is string) {
		if obj == nil || f.when.path != nil && !f.when.holds(obj) {
			return "", ""
		}
		name := f.of(obj)
		name = name[strings.LastIndex(name, "/")+1:]
		if host = names.host(scenarios.AfterNode, name); host == name {
			host = names.host(scenarios.AfterMachine, name)
		}
		if is = history.FencingWanted; f.done.holds(obj) {
			is = history.FencingDone
		}
		return host, is
	}
	send := func(obj metav1.Object, host, is string) {
		e := history.Event{Kind: history.FieldIs, Host: host, Object: kind.Name + "/" + obj.GetName(), UID: string(obj.GetUID()), Key: f.means, Value: is}
		if f.means == releasing {
			e.Kind, e.Key, e.Value = history.HostReleased, "", ""
		}
		emit(e)
	}
	host, was := state(before)
	now, is := state(after)
	if was == history.FencingWanted && now != host && f.means != releasing {
		send(before, host, history.FencingGone)
	}
	if now != "" && (is != was || now != host) {
		send(after, now, is)
	}
}

// of is the text of the field in an object; of several that the path finds, one after
// another. What isn't there has none.
func (f *field) of(obj metav1.Object) string { return textAt(f.path, obj) }

func textAt(path *jsonpath.JSONPath, obj metav1.Object) string {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return "" // unreachable: kinds are structs that have a JSON form
	}
	found, err := path.FindResults(content)
	if err != nil {
		return "" // of an element that isn't there
	}
	var texts []string
	for _, values := range found {
		for _, value := range values {
			texts = append(texts, textOf(value.Interface()))
		}
	}
	return strings.Join(texts, ",")
}

func textOf(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return value
	}
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value) // unreachable: it was JSON
	}
	return string(data)
}

// checkField finds what a JSONPath names and objects of the kind don't have.
func (all Kinds) checkField(kind, path string) error {
	if _, err := parsePath(path); err != nil {
		return err
	}
	parser, err := jsonpath.Parse(path, braced(path))
	if err != nil {
		return err // unreachable: it was parsed before
	}
	for _, k := range all {
		if k.Name != kind {
			continue
		}
		at := reflect.TypeOf(k.New())
		for _, node := range parser.Root.Nodes {
			list, ok := node.(*jsonpath.ListNode)
			if !ok {
				return fmt.Errorf("%q is more than a path: name a single field", path)
			}
			for _, step := range list.Nodes {
				if at = stepInto(at, step); at == nil {
					name := strings.TrimPrefix(step.String(), "NodeField: ")
					return fmt.Errorf("a %s has no field %q there", kind, name)
				}
			}
		}
	}
	return nil
}

// anything is a type of which nothing can be said.
var anything = reflect.TypeFor[any]()

// stepInto is the type that a step of a path leads to; nil if there is nothing.
func stepInto(t reflect.Type, step jsonpath.Node) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == anything || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return anything
	}
	switch step := step.(type) {
	case *jsonpath.FieldNode:
		switch t.Kind() {
		case reflect.Struct:
			return member(t, step.Value)
		case reflect.Map:
			return t.Elem()
		}
		return nil
	case *jsonpath.ArrayNode, *jsonpath.FilterNode:
		if t.Kind() == reflect.Slice {
			return t.Elem()
		}
		return nil
	default:
		return anything
	}
}

// member is the type of a field by its name in JSON.
func member(t reflect.Type, name string) reflect.Type {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name && name != "" {
			return f.Type
		}
		if tag == "" && (f.Anonymous || options == "inline") && f.Type.Kind() == reflect.Struct {
			if found := member(f.Type, name); found != nil {
				return found
			}
		}
	}
	return nil
}
