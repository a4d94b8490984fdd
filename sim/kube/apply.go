package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/applyconfigurations"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	smd "sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/yaml"
)

// Managed fields are computed by the real server's own code. That costs a hundred times as much as
// a write costs here, and hardly any controller applies. So each record keeps only its writer, and
// the managed fields of an object are computed from its log when somebody first applies to it.
// From then on they are updated with every write, and shown.

// managers are the field managers of a kind: of the main resource and of its status.
type managers struct {
	main, status func() (*managedfields.FieldManager, error)
	// object converts a record for the field manager; the object is typed if the kind is built in.
	// For nil it returns an object without content.
	object func(*record) runtime.Object
}

func (m *managers) of(status bool) (*managedfields.FieldManager, error) {
	if status {
		return m.status()
	}
	return m.main()
}

// builtinTypes is the schema of the built-in kinds. It takes a while to read.
var builtinTypes = sync.OnceValue(func() managedfields.TypeConverter {
	return applyconfigurations.NewTypeConverter(clientscheme.Scheme)
})

// builtinManagers returns the managers of a built-in kind. A request to its status, if it has one,
// can't change the spec.
func builtinManagers(k *Kind) *managers {
	of := func(subresource, reset string) func() (*managedfields.FieldManager, error) {
		return sync.OnceValues(func() (*managedfields.FieldManager, error) {
			scheme := clientscheme.Scheme
			return managedfields.NewDefaultFieldManager(builtinTypes(), runtime.UnsafeObjectConvertor(scheme), scheme, scheme,
				k.GroupVersionKind, k.GroupVersion(), subresource, k.resetting(reset))
		})
	}
	main := ""
	if k.Status {
		main = "status"
	}
	return &managers{
		main: of("", main), status: of("status", "spec"),
		object: func(r *record) runtime.Object {
			obj := k.New()
			if r != nil {
				obj = r.obj.DeepCopyObject().(client.Object)
			}
			obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
			return obj
		},
	}
}

// customManagers returns the managers of a kind with a structural schema.
func customManagers(k *Kind, props *apiextensionsv1.JSONSchemaProps) *managers {
	types := sync.OnceValues(func() (managedfields.TypeConverter, error) { return structural(k, props) })
	of := func(subresource string, reset ...string) func() (*managedfields.FieldManager, error) {
		return sync.OnceValues(func() (*managedfields.FieldManager, error) {
			converter, err := types()
			if err != nil {
				return nil, err
			}
			return managedfields.NewDefaultCRDFieldManager(converter, unconverted{}, unconverted{}, unconverted{},
				k.GroupVersionKind, k.GroupVersion(), subresource, k.resetting(reset...))
		})
	}
	main := ""
	if k.Status {
		main = "status"
	}
	return &managers{
		main: of("", main), status: of("status", "metadata", "spec"),
		object: func(r *record) runtime.Object {
			obj := &unstructured.Unstructured{Object: map[string]any{}}
			if r != nil {
				obj.Object = k.encode(r)
			}
			obj.SetGroupVersionKind(k.GroupVersionKind)
			return obj
		},
	}
}

// resetting returns filters for the fields that the server doesn't accept from a request.
func (k *Kind) resetting(names ...string) map[fieldpath.APIVersion]fieldpath.Filter {
	set := fieldpath.NewSet()
	for _, name := range names {
		if name != "" {
			set.Insert(fieldpath.MakePathOrDie(name))
		}
	}
	return fieldpath.NewExcludeFilterSetMap(map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(k.GroupVersion().String()): set})
}

// structural makes a type from a schema, with the server's own schema of metadata.
func structural(k *Kind, props *apiextensionsv1.JSONSchemaProps) (managedfields.TypeConverter, error) {
	data, err := json.Marshal(props)
	if err != nil {
		return nil, err
	}
	var root spec.Schema
	if err := json.Unmarshal(data, &root); err != nil {
		return nil, fmt.Errorf("read the schema of %v: %w", k.GroupVersionKind, err)
	}
	text := *spec.StringProperty()
	if root.Properties == nil {
		root.Properties = map[string]spec.Schema{}
	}
	root.Properties["kind"], root.Properties["apiVersion"] = text, text
	root.Properties["metadata"] = *spec.RefSchema("#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
	name := k.GroupVersionKind.String()
	own, err := schemaconv.ToSchemaFromOpenAPI(map[string]*spec.Schema{name: &root}, false)
	if err != nil {
		return nil, fmt.Errorf("read the schema of %v: %w", k.GroupVersionKind, err)
	}
	known, err := builtinTypes().ObjectToTyped(&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}})
	if err != nil {
		return nil, fmt.Errorf("read the schema of metadata: %w", err)
	}
	all := own.Types
	for _, t := range known.Schema().Types {
		if !slices.ContainsFunc(own.Types, func(o smdschema.TypeDef) bool { return o.Name == t.Name }) {
			all = append(all, t)
		}
	}
	parser := smd.Parser{Schema: smdschema.Schema{Types: all}}
	return oneType{parser.Type(name)}, nil
}

// oneType converts unstructured objects of one kind.
type oneType struct{ smd.ParseableType }

func (t oneType) ObjectToTyped(obj runtime.Object, opts ...smd.ValidationOptions) (*smd.TypedValue, error) {
	return t.FromUnstructured(obj.(*unstructured.Unstructured).Object, opts...)
}

func (oneType) TypedToObject(v *smd.TypedValue) (runtime.Object, error) {
	content, ok := v.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the value of an object is a %T", v.AsValue().Unstructured())
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// unconverted replaces the conversion and defaulting that a server with several versions performs.
type unconverted struct{}

func (unconverted) Convert(_, _, _ any) error { panic("kube: there is one version of each kind") }
func (unconverted) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}
func (unconverted) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
func (unconverted) Default(runtime.Object) {}
func (unconverted) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(kind)
	return obj, nil
}

// ManagedFields returns the field managers of a stored object, as a real server would show them
// with the object.
func (s *Store) ManagedFields(k *Kind, key client.ObjectKey) ([]metav1.ManagedFieldsEntry, error) {
	r, err := s.get(k, key)
	if err != nil {
		return nil, err
	}
	return s.managed(k.base, r)
}

// managed returns the managed fields of a stored record: its own, or those computed from its log.
func (s *Store) managed(k *Kind, r *record) ([]metav1.ManagedFieldsEntry, error) {
	if r.tracked {
		return metaOf(r.obj).ManagedFields, nil
	}
	if k.managers == nil {
		return nil, s.refuse("apply", k, r.key, "the managed fields of this kind")
	}
	var entries []metav1.ManagedFieldsEntry
	var live *record
	for _, c := range s.logs[k.index] {
		if c.Key != r.key {
			continue
		}
		if c.Old == nil || c.New == nil {
			entries, live = nil, nil
		}
		if c.New == nil {
			continue
		}
		if c.record.manager != "" {
			var err error
			if entries, err = k.managers.updated(live, entries, c.record, metav1.NewTime(c.At)); err != nil {
				return nil, err
			}
		}
		live = c.record
	}
	return entries, nil
}

// updated returns the managed fields after a write other than an apply.
func (m *managers) updated(live *record, had []metav1.ManagedFieldsEntry, rec *record, at metav1.Time) ([]metav1.ManagedFieldsEntry, error) {
	manager, err := m.of(rec.status)
	if err != nil {
		return nil, err
	}
	if rec.sent != nil {
		rec = &record{key: rec.key, obj: rec.sent, manager: rec.manager}
	}
	before, after := m.object(live), m.object(rec)
	setManaged(before, had)
	setManaged(after, nil)
	done, err := manager.Update(before, after, rec.manager)
	if err != nil {
		return nil, fmt.Errorf("update the managed fields of %s: %w", rec.key, err)
	}
	return dated(managedOf(done), had, at), nil
}

func managedOf(obj runtime.Object) []metav1.ManagedFieldsEntry {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		panic(err) // all that is stored has metadata
	}
	return accessor.GetManagedFields()
}

func setManaged(obj runtime.Object, entries []metav1.ManagedFieldsEntry) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	accessor.SetManagedFields(entries)
}

// dated replaces the machine's time in entries that the library has just dated with the server's
// time, and sorts them accordingly.
func dated(entries, had []metav1.ManagedFieldsEntry, at metav1.Time) []metav1.ManagedFieldsEntry {
	at = metav1.NewTime(at.UTC().Truncate(time.Second))
	for i := range entries {
		e := &entries[i]
		if e.Time == nil {
			continue // whoever applies what is so already is given no time
		}
		kept := slices.ContainsFunc(had, func(h metav1.ManagedFieldsEntry) bool {
			return h.Manager == e.Manager && h.Operation == e.Operation && h.APIVersion == e.APIVersion && h.Subresource == e.Subresource && h.Time.Equal(e.Time)
		})
		t := at
		if kept {
			t = metav1.NewTime(e.Time.UTC())
		}
		e.Time = &t
	}
	slices.SortStableFunc(entries, func(a, b metav1.ManagedFieldsEntry) int {
		return cmp.Or(cmp.Compare(a.Operation, b.Operation), timeOf(a).Compare(timeOf(b)), cmp.Compare(a.Manager, b.Manager),
			cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Subresource, b.Subresource))
	})
	return entries
}

func timeOf(e metav1.ManagedFieldsEntry) time.Time {
	if e.Time == nil {
		return time.Time{}
	}
	return e.Time.Time
}

// apply performs a PATCH with an apply configuration, which creates a missing object.
func (s *Store) apply(by author, k *Kind, key client.ObjectKey, data []byte, force bool) (*record, error) {
	if k.managers == nil {
		return nil, s.refuse("apply", k, key, "server-side apply to this kind")
	}
	if by.manager == "" {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "PatchOptions"}, "", field.ErrorList{
			field.Required(field.NewPath("fieldManager"), "is required for apply patch"),
		})
	}
	config := &unstructured.Unstructured{Object: map[string]any{}}
	if err := yaml.Unmarshal(data, &config.Object); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
	}
	by.applied = true
	current := s.tables[k.index].get(key)
	next := func(current *record) (*record, error) { return s.applied(by, k, key, current, config, force) }
	if current == nil && !by.status {
		rec, err := next(nil)
		if err != nil {
			return nil, err
		}
		if uid := metaOf(rec.obj).UID; uid != "" {
			return nil, s.conflict(k, key, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
		}
		if metaOf(rec.obj).ResourceVersion != "" {
			return nil, s.refuse("apply", k, key, "a resourceVersion in a configuration of what isn't there")
		}
		return s.create(by, k, rec)
	}
	return s.update(by, k, key, "patch", nil, next)
}

// applied returns the object after a configuration was applied; current may be nil.
func (s *Store) applied(by author, k *Kind, key client.ObjectKey, current *record, config *unstructured.Unstructured, force bool) (*record, error) {
	manager, err := k.managers.of(by.status)
	if err != nil {
		return nil, err
	}
	live := k.managers.object(current)
	var had []metav1.ManagedFieldsEntry
	if current != nil {
		if had, err = s.managed(k.base, current); err != nil {
			return nil, err
		}
	}
	setManaged(live, had)
	done, err := manager.Apply(live, config, by.manager, force)
	if err != nil {
		return nil, internalError(err)
	}
	entries := dated(managedOf(done), had, s.timestamp())
	setManaged(done, nil)
	var rec *record
	if k.Custom {
		data, err := json.Marshal(done)
		if err != nil {
			return nil, err
		}
		if rec, err = s.decode(k, key, data, by.status); err != nil {
			return nil, s.patchError(k, &record{key: key}, err)
		}
	} else {
		rec = &record{key: key, obj: k.own(done.(client.Object))}
	}
	metaOf(rec.obj).ManagedFields = entries
	return rec, s.named(k, rec, key)
}

// sameEntry compares everything but the time.
func sameEntry(a, b metav1.ManagedFieldsEntry) bool {
	return a.Manager == b.Manager && a.Operation == b.Operation && a.APIVersion == b.APIVersion && a.Subresource == b.Subresource &&
		a.FieldsV1 != nil && b.FieldsV1 != nil && a.FieldsV1.Equal(*b.FieldsV1)
}

// manage sets the managed fields of a record that is about to replace another one, if the object
// shows any.
func (s *Store) manage(by author, k *Kind, verb string, rec, current *record) error {
	m, old := metaOf(rec.obj), metaOf(current.obj)
	rec.tracked = by.applied || current.tracked
	if !rec.tracked && len(m.ManagedFields) == 0 {
		return nil
	}
	same := func() bool { return k.same(rec.obj, current.obj) && slices.Equal(rec.sparse, current.sparse) }
	if by.applied {
		entries := m.ManagedFields
		m.ManagedFields = old.ManagedFields
		had, err := s.managed(k.base, current)
		if err != nil || same() && slices.EqualFunc(entries, had, sameEntry) {
			return err // at most a time would change
		}
		m.ManagedFields = entries
		return nil
	}
	if m.ManagedFields != nil && !slices.EqualFunc(m.ManagedFields, old.ManagedFields, sameEntry) {
		return s.refuse(verb, k, rec.key, "a change of metadata.managedFields")
	}
	m.ManagedFields = old.ManagedFields
	if same() {
		return nil
	}
	rec.manager, rec.status = by.manager, by.status
	entries, err := k.managers.updated(current, slices.Clone(old.ManagedFields), rec, s.timestamp())
	if err != nil {
		return err
	}
	m.ManagedFields = entries
	return nil
}
