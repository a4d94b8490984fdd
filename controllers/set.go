package controllers

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/manifests"
)

// A Module is another Go module's contribution: controllers, and the kinds that they need beside
// those of fencelab.
type Module struct {
	Controllers []Registration
	// AddToScheme registers the Go types of the kinds; nil for none. A kind that fencelab has may
	// get a type of the module's own: its controllers then work with that one.
	AddToScheme func(*runtime.Scheme) error
	// Manifests has *.yaml files with the CustomResourceDefinitions of the kinds and,
	// for the lab, the ClusterRole fencelab-NAME of each controller; nil for neither.
	Manifests fs.FS
	// Requests are the kinds of the module whose objects ask for a host to be fenced, as stories
	// have them in spec.requests. All stories are judged by them.
	Requests map[string]Request
	// Reservations say which of the kinds keep hosts for tenants, so that the guarantees judge who
	// gives those back.
	Reservations []Reservation
}

// A Reservation says how the objects of a kind keep the hosts that they stand for. A version that
// keeps its host no longer, or the end of an object that did, releases the host: from then on
// another tenant may have it.
type Reservation struct {
	// For is an empty object of the kind.
	For client.Object
	// Host is the host of the topology that an object stands for, or "".
	Host func(client.Object) string
	// Keeps reports whether an object keeps its host for a tenant.
	Keeps func(client.Object) bool
}

// Request says what the objects of a kind mean. Fences, Marks and Releases are the paths of the
// name of the host that they ask to be fenced, whose Node they find unhealthy, or where they say
// that nothing runs any more, such as spec.node. When and Done are a field and its value: with one
// they mean it, and with the other it was done, such as status.phase=Done.
type Request struct{ Fences, Marks, Releases, When, Done string }

// A Set is the controllers that a world can run: fencelab's own and those of modules,
// with all their kinds. It doesn't change and may be shared.
type Set struct {
	registrations []Registration
	modules       []Module
	definitions   []*apiextensionsv1.CustomResourceDefinition
	reservations  map[schema.GroupVersionKind]Reservation
	// schemes has one for each module: its own types, and those of the others for the rest.
	schemes []*runtime.Scheme
	// speaks has the scheme of each controller that a module has brought, and scheme is that of the
	// others.
	speaks map[string]*runtime.Scheme
	scheme *runtime.Scheme
}

// NewSet returns fencelab's controllers and those of the modules. It fails for a name
// or a kind that is there twice, and for a kind without a Go type.
func NewSet(modules ...Module) (*Set, error) {
	s := &Set{registrations: slices.Clone(registrations), modules: modules, speaks: make(map[string]*runtime.Scheme)}
	var err error
	if s.definitions, err = definitionsIn(manifests.FS); err != nil {
		return nil, err
	}
	for _, m := range modules {
		if err := s.add(m); err != nil {
			return nil, err
		}
	}
	s.scheme = s.Scheme()
	for _, own := range s.schemes {
		lay(own, s.scheme)
	}
	for _, d := range s.definitions {
		if gvk := KindOf(d); !s.scheme.Recognizes(gvk) {
			return nil, fmt.Errorf("add the kind %s: no Go type is registered for it; do so in AddToScheme", gvk)
		}
	}
	s.reservations = make(map[schema.GroupVersionKind]Reservation)
	for _, m := range modules {
		for _, r := range m.Reservations {
			if err := s.reserve(m, r); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// reserve adds a reservation by objects of one of a module's own kinds.
func (s *Set) reserve(m Module, r Reservation) error {
	if r.For == nil || r.Host == nil || r.Keeps == nil {
		return fmt.Errorf("add the reservation by a %T: it needs For, Host and Keeps", r.For)
	}
	gvk, err := apiutil.GVKForObject(r.For, s.scheme)
	if err != nil {
		return fmt.Errorf("add the reservation by a %T: %w", r.For, err)
	}
	var own []*apiextensionsv1.CustomResourceDefinition
	if m.Manifests != nil {
		if own, err = definitionsIn(m.Manifests); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(own, func(d *apiextensionsv1.CustomResourceDefinition) bool { return KindOf(d) == gvk }) {
		return fmt.Errorf("add the reservation by a %s: its module doesn't define that kind; do so in Manifests", gvk.Kind)
	}
	s.reservations[gvk] = r
	return nil
}

// Reservation returns how objects of a kind keep hosts, if they do.
func (s *Set) Reservation(gvk schema.GroupVersionKind) (r Reservation, keeps bool) {
	r, keeps = s.reservations[gvk]
	return r, keeps
}

func (s *Set) add(m Module) error {
	own, err := m.types()
	if err != nil {
		return err
	}
	s.schemes = append(s.schemes, own)
	for _, r := range m.Controllers {
		if err := r.complete(); err != nil {
			return err
		}
		if slices.ContainsFunc(s.registrations, func(o Registration) bool { return o.Name == r.Name }) {
			return fmt.Errorf("add the controller %s: one of that name exists already; choose another", r.Name)
		}
		s.registrations = append(s.registrations, r)
		s.speaks[r.Name] = own
	}
	if m.Manifests == nil {
		return nil
	}
	found, err := definitionsIn(m.Manifests)
	if err != nil {
		return err
	}
	for _, d := range found {
		if slices.ContainsFunc(s.definitions, func(o *apiextensionsv1.CustomResourceDefinition) bool {
			return o.Spec.Names.Kind == d.Spec.Names.Kind
		}) {
			return fmt.Errorf("add the kind %s: one of that name exists already; scenarios could not tell them apart. Leave out the definition of a kind that fencelab has", d.Spec.Names.Kind)
		}
		s.definitions = append(s.definitions, d)
	}
	return nil
}

// complete fills in what a registration may leave out.
func (r *Registration) complete() error {
	switch {
	case r.Place == EveryHost && (r.Name == "" || r.NewAgent == nil):
		return fmt.Errorf("add the agent %q: a registration needs Name and NewAgent", r.Name)
	case r.Place != EveryHost && (r.Name == "" || r.For == nil || (r.AllLoops() == nil) == (r.Setup == nil) || r.New != nil && r.Loops != nil):
		return fmt.Errorf("add the controller %q: a registration needs Name, For, and either New, Loops or Setup", r.Name)
	case r.Loops != nil && len(r.Watches) > 0 || slices.ContainsFunc(r.Loops, func(l Loop) bool { return l.Name == "" || l.New == nil }):
		return fmt.Errorf("add the controller %s: each of its Loops needs Name and New, and has the Watches", r.Name)
	case r.Setup != nil && len(r.Watches)+len(r.Indexes) > 0:
		return fmt.Errorf("add the controller %s: Setup sets up its watches and indexes; name their kinds in Reads", r.Name)
	case !slices.Contains([]Part{"", Power, Remediation, HealthCheck, Deletion, Tenancy}, r.Plays):
		return fmt.Errorf("add the controller %s: nobody plays %q; choose one of %s, %s, %s, %s, %s, or nothing", r.Name, r.Plays, Power, Remediation, HealthCheck, Deletion, Tenancy)
	}
	r.Place, r.Workers, r.Loops = cmp.Or(r.Place, Cluster), max(r.Workers, 1), slices.Clone(r.Loops)
	for i := range r.Loops {
		r.Loops[i].Workers = max(r.Loops[i].Workers, 1)
	}
	if r.Settings == nil {
		r.Settings = func() any { return new(struct{}) }
	}
	return nil
}

// All returns every controller, in a fixed order.
func (s *Set) All() []Registration { return slices.Clone(s.registrations) }

// Lookup returns the controller called name. Its error names the nearest one.
func (s *Set) Lookup(name string) (Registration, error) {
	var names []string
	for _, r := range s.registrations {
		if r.Name == name {
			return r, nil
		}
		names = append(names, r.Name)
	}
	return Registration{}, fmt.Errorf("there is no controller %q; %s", name, suggest(name, names))
}

// Select chooses the controller called name. Settings are JSON over its defaults; an unknown field
// is an error.
func (s *Set) Select(name string, settings json.RawMessage, overlay []Rule) (Selection, error) {
	r, err := s.Lookup(name)
	if err != nil {
		return Selection{}, err
	}
	chosen := Selection{Registration: r, Settings: r.Settings(), Overlay: overlay}
	if len(settings) > 0 {
		strict, err := kjson.UnmarshalStrict(settings, chosen.Settings)
		if err := errors.Join(append(strict, err)...); err != nil {
			return Selection{}, fmt.Errorf("read the settings of the controller %s: %w", name, err)
		}
	}
	return chosen, r.CheckOverlay(overlay)
}

// Scheme returns a new scheme with a type for each kind: fencelab's where it has one.
func (s *Set) Scheme() *runtime.Scheme {
	scheme := api.NewScheme()
	for _, own := range s.schemes {
		lay(scheme, own)
	}
	return scheme
}

// Schemes returns the schemes that the controllers of modules speak, which must not be changed.
func (s *Set) Schemes() []*runtime.Scheme { return slices.Clone(s.schemes) }

// Brought reports whether a controller is a module's, and not fencelab's own.
func (s *Set) Brought(controller string) bool { return s.speaks[controller] != nil }

// SchemeOf returns the scheme that a controller speaks, which must not be changed.
func (s *Set) SchemeOf(controller string) *runtime.Scheme {
	if own := s.speaks[controller]; own != nil {
		return own
	}
	return s.scheme
}

// types returns a scheme with what the module registers. The scheme panics at two types for a kind.
func (m Module) types() (scheme *runtime.Scheme, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("register the types of a module: %v", v)
		}
	}()
	scheme = runtime.NewScheme()
	if m.AddToScheme != nil {
		if err := m.AddToScheme(scheme); err != nil {
			return nil, fmt.Errorf("register the types of a module: %w", err)
		}
	}
	return scheme, nil
}

// lay registers in a scheme the types that another has for kinds which it lacks.
func lay(scheme, other *runtime.Scheme) {
	for _, version := range other.PrioritizedVersionsAllGroups() {
		metav1.AddToGroupVersion(scheme, version)
	}
	types := other.AllKnownTypes()
	for _, gvk := range slices.SortedFunc(maps.Keys(types), func(a, b schema.GroupVersionKind) int { return cmp.Compare(a.String(), b.String()) }) {
		if !scheme.Recognizes(gvk) {
			scheme.AddKnownTypeWithName(gvk, reflect.New(types[gvk]).Interface().(runtime.Object))
		}
	}
}

// Requests returns those of all modules, by their kinds.
func (s *Set) Requests() map[string]Request {
	all := make(map[string]Request)
	for _, m := range s.modules {
		maps.Copy(all, m.Requests)
	}
	return all
}

// Definitions returns the CustomResourceDefinitions of all kinds.
func (s *Set) Definitions() []*apiextensionsv1.CustomResourceDefinition {
	return slices.Clone(s.definitions)
}

// Manifests returns the manifests that have to be installed in a cluster.
func (s *Set) Manifests() []fs.FS {
	all := []fs.FS{manifests.FS}
	for _, m := range s.modules {
		if m.Manifests != nil {
			all = append(all, m.Manifests)
		}
	}
	return all
}

// KindOf returns the kind that a definition defines, in its only version.
func KindOf(d *apiextensionsv1.CustomResourceDefinition) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: d.Spec.Group, Version: d.Spec.Versions[0].Name, Kind: d.Spec.Names.Kind}
}

// definitionsIn reads the CustomResourceDefinitions among manifests.
func definitionsIn(files fs.FS) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var found []*apiextensionsv1.CustomResourceDefinition
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		data, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		for _, text := range strings.Split("\n"+string(data), "\n---") {
			var d apiextensionsv1.CustomResourceDefinition
			if err := yaml.Unmarshal([]byte(text), &d); err != nil {
				return fmt.Errorf("read the manifest %s: %w", path, err)
			}
			if d.Kind != reflect.TypeOf(d).Name() {
				continue
			}
			if len(d.Spec.Versions) != 1 || d.Spec.Versions[0].Schema == nil {
				return fmt.Errorf("read the manifest %s: a definition needs exactly one version, with a schema", path)
			}
			found = append(found, &d)
		}
		return nil
	})
	return found, err
}
