package objects

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/api/fence"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// kinds is the one table of the kinds of objects that both worlds have, beside those of
// modules: built-in ones first, in the order of a run's first events. What a
// CustomResourceDefinition says is taken from there, and so has no place here.
var kinds = []Kind{
	{
		GVK: corev1.SchemeGroupVersion.WithKind("Node"), Resource: "nodes", Status: true,
		Kind:    scenarios.Kind{Named: scenarios.AfterNode, Annotated: true, Changed: true, Made: true, Unmade: true},
		Changes: changes(node), NamesNode: true, Dumped: true,
	},
	{
		GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Resource: "pods", Namespaced: true, Status: true,
		Kind:    scenarios.Kind{Changed: true, Made: true},
		Changes: changes(pod), NamesNode: true, Dumped: true,
	},
	{GVK: corev1.SchemeGroupVersion.WithKind("Secret"), Resource: "secrets", Namespaced: true},
	{GVK: coordinationv1.SchemeGroupVersion.WithKind("Lease"), Resource: "leases", Namespaced: true, Kind: scenarios.Kind{Heartbeat: true}},
	{
		GVK: policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), Resource: "poddisruptionbudgets", Namespaced: true, Status: true,
		Kind:    scenarios.Kind{Changed: true, Made: true, Obstacle: true},
		Changes: silent, // a Pod that passes over it has an event
		Dumped:  true,
	},
	{
		GVK: storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"), Resource: "volumeattachments", Status: true,
		Kind:    scenarios.Kind{Changed: true, Made: true, Obstacle: true},
		Changes: changes(attachment), NamesNode: true, Dumped: true,
	},
	{
		GVK: api.GroupVersion.WithKind("BareMetalHost"),
		Kind: scenarios.Kind{
			Named: scenarios.AfterHost, Annotated: true, Changed: true, Made: true,
			Fixed: map[string]string{"bmc": "no BMC answers at another address: move it there with moveBMC"},
		},
		Changes: changes(host), Dumped: true,
	},
	{
		GVK:     clusterv1.GroupVersion.WithKind("Machine"),
		Kind:    scenarios.Kind{Named: scenarios.AfterMachine, Annotated: true, Changed: true, Made: true},
		Changes: changes(machine), Dumped: true,
	},
	{
		GVK:     clusterv1.GroupVersion.WithKind("MachineHealthCheck"),
		Kind:    scenarios.Kind{Named: scenarios.AfterCluster, Changed: true, Made: true},
		Changes: silent, // its event takes the Machines that it selects, too
		Dumped:  true,
	},
	{GVK: fence.GroupVersion.WithKind("NodeFence"), Changes: changes(nodeFence), NamesNode: true, Dumped: true},
	{
		GVK:     fence.GroupVersion.WithKind("StorageFence"),
		Kind:    scenarios.Kind{Changed: true, Made: true},
		Changes: changes(storageFence), NamesNode: true, Dumped: true,
	},
}

// foreign is the default treatment of a kind that a module has brought.
var foreign = Kind{Kind: scenarios.Kind{Annotated: true, Changed: true, Made: true}, Dumped: true, Foreign: true}

// Kind is a kind of API objects: where the API server has it, and who does what with it.
type Kind struct {
	scenarios.Kind

	GVK schema.GroupVersionKind
	// Resource is its name in URLs.
	Resource string
	// Namespaced says that its objects are in a namespace, Status that their status is
	// written by itself.
	Namespaced, Status bool
	// Definition is the CustomResourceDefinition that adds it; nil if it is built in.
	Definition *apiextensionsv1.CustomResourceDefinition
	// Changes hands over the events that stand for what became different between two
	// versions; nil for a kind that no guarantee looks at. See [Names.Changes].
	Changes func(before, after metav1.Object, emit func(history.Event))
	// NamesNode says that Changes has the name of a Node as the host of its events.
	NamesNode bool
	// Foreign says that a module has brought it: no guarantee looks at it, but where a story says
	// what of it is a request.
	Foreign bool
	// Dumped has the last state of its objects among the artifacts of a run.
	Dumped bool

	scheme *runtime.Scheme
	typ    reflect.Type
}

// silent are the changes of a kind that is watched, and whose events depend on others as well.
func silent(_, _ metav1.Object, _ func(history.Event)) {}

// changes adapts a function on the versions of one type, which emits events for their differences.
func changes[T metav1.Object](of func(before, after T, emit func(history.Event))) func(before, after metav1.Object, emit func(history.Event)) {
	return func(before, after metav1.Object, emit func(history.Event)) {
		b, _ := before.(T)
		a, _ := after.(T)
		of(b, a, emit)
	}
}

// New returns an empty object of the kind.
func (k *Kind) New() client.Object {
	if k.scheme == nil {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(k.GVK)
		return obj
	}
	return instance[client.Object](k.scheme, k.GVK)
}

// NewList returns an empty list of the kind.
func (k *Kind) NewList() client.ObjectList {
	gvk := k.GVK.GroupVersion().WithKind(k.GVK.Kind + "List")
	if k.scheme == nil {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		return list
	}
	return instance[client.ObjectList](k.scheme, gvk)
}

// Adopt returns the kinds and those that a story describes and a program has installed, as the API
// server maps them: they have no Go type here.
func (all Kinds) Adopt(spec *scenarios.Spec, from meta.RESTMapper) (Kinds, error) {
	adopted := slices.Clone(all)
	for _, name := range slices.Sorted(maps.Keys(spec.Requests)) {
		group := schema.ParseGroupKind(name)
		if !scenarios.IsGrouped(name) || slices.ContainsFunc(all, func(k *Kind) bool { return k.GVK.GroupKind() == group }) {
			continue
		}
		m, err := from.RESTMapping(group)
		if err != nil {
			return nil, fmt.Errorf("find the kind %s of spec.requests: %w; a program has to install its definition", name, err)
		}
		adopted = append(adopted, &Kind{
			Kind: scenarios.Kind{Name: group.Kind, Custom: true}, GVK: m.GroupVersionKind, Resource: m.Resource.Resource,
			Namespaced: m.Scope.Name() == meta.RESTScopeNameNamespace, Dumped: true, Foreign: true,
		})
	}
	return adopted, nil
}

func instance[T any](scheme *runtime.Scheme, gvk schema.GroupVersionKind) T {
	obj, err := scheme.New(gvk)
	if err != nil {
		panic(fmt.Sprintf("make a %s: %v", gvk, err)) // unreachable: a test makes all, and NewSet wants a type for those of modules
	}
	return obj.(T)
}

// Kinds are all kinds of a world. They don't change and may be shared.
type Kinds []*Kind

// KindsOf returns fencelab's kinds, and those of the modules of a set.
func KindsOf(set *controllers.Set) Kinds {
	scheme := set.Scheme()
	definitions := make(map[schema.GroupVersionKind]*apiextensionsv1.CustomResourceDefinition)
	rest := set.Definitions()
	for _, d := range rest {
		definitions[controllers.KindOf(d)] = d
	}
	var all Kinds
	add := func(k Kind, d *apiextensionsv1.CustomResourceDefinition) {
		if d != nil {
			k.GVK, k.Definition, k.Custom = controllers.KindOf(d), d, true
			k.Resource, k.Namespaced = d.Spec.Names.Plural, d.Spec.Scope == apiextensionsv1.NamespaceScoped
			v := &d.Spec.Versions[0]
			k.Status = v.Subresources != nil && v.Subresources.Status != nil
			delete(definitions, k.GVK)
		}
		k.Name, k.scheme = k.GVK.Kind, scheme
		k.typ = reflect.TypeOf(k.New())
		all = append(all, &k)
	}
	for _, k := range kinds {
		add(k, definitions[k.GVK])
	}
	for _, d := range rest {
		if definitions[controllers.KindOf(d)] == nil {
			continue
		}
		k := foreign
		if r, keeps := set.Reservation(controllers.KindOf(d)); keeps {
			k.Changes = changes(reservation(d.Spec.Names.Kind, r))
		}
		add(k, d)
	}
	return all
}

// Vocabulary returns the kinds as scenarios know them.
func (all Kinds) Vocabulary() []scenarios.Kind {
	var known []scenarios.Kind
	for _, k := range all {
		known = append(known, k.Kind)
	}
	return known
}

// Resource returns the kind of a resource in URLs, or nil.
func (all Kinds) Resource(group, resource string) *Kind {
	for _, k := range all {
		if k.Resource == resource && k.GVK.Group == group {
			return k
		}
	}
	return nil
}

// Of returns the kind of a typed object.
func (all Kinds) Of(obj client.Object) (*Kind, error) {
	for _, k := range all {
		if reflect.TypeOf(obj) == k.typ {
			return k, nil
		}
	}
	return nil, fmt.Errorf("find the kind of a %T: no row of the table has it", obj)
}

// Find returns the kind of a name and an empty object of it, by what a scenario calls it:
// Node/worker-1. Users must be able to change it.
func (all Kinds) Find(object string) (*Kind, client.Object, error) {
	kind, name, _ := strings.Cut(object, "/")
	for _, k := range all {
		if k.Name != kind || !k.Changed && !k.Made {
			continue
		}
		obj := k.New()
		obj.SetName(name)
		if k.Namespaced {
			obj.SetNamespace(Namespace)
		}
		return k, obj, nil
	}
	return nil, nil, fmt.Errorf("find %s: users do not change objects of this kind", object)
}

// checkPatch finds fields that the kind doesn't have, and values that don't fit.
func (all Kinds) checkPatch(kind string, merge json.RawMessage) error {
	_, obj, err := all.Find(kind)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(merge, obj)
	if err := errors.Join(append(strict, err)...); err != nil {
		return fmt.Errorf("a %s does not accept it: %w", kind, err)
	}
	return nil
}

// Create returns the kind of the object that a user creates, and the object: one of the topology,
// or one with the content that the operation gives. A BareMetalHost that is given no BMC has that
// of its host.
func (all Kinds) Create(op *scenarios.CreateOp, topology []client.Object) (*Kind, client.Object, error) {
	kind, named, err := all.Find(op.Object)
	if err != nil {
		return nil, nil, err
	}
	if len(op.With) > 0 {
		name, namespace := named.GetName(), named.GetNamespace()
		if err := json.Unmarshal(op.With, named); err != nil {
			return nil, nil, fmt.Errorf("create %s: %w", op.Object, err)
		}
		named.SetName(name)
		named.SetNamespace(namespace)
	}
	for _, obj := range topology {
		if reflect.TypeOf(obj) != kind.typ || client.ObjectKeyFromObject(obj) != client.ObjectKeyFromObject(named) {
			continue
		}
		if len(op.With) == 0 {
			return kind, obj, nil
		}
		// Where its BMC is, and what opens it, no story knows.
		if host, ok := named.(*api.BareMetalHost); ok && host.Spec.BMC == (api.BMCDetails{}) {
			host.Spec.BMC = obj.(*api.BareMetalHost).Spec.BMC
		}
	}
	if len(op.With) > 0 {
		return kind, named, nil
	}
	return nil, nil, fmt.Errorf("the topology has no %s", op.Object)
}

// Items are the objects of a list.
func Items(list client.ObjectList) []client.Object {
	slice := reflect.ValueOf(list).Elem().FieldByName("Items")
	objs := make([]client.Object, slice.Len())
	for i := range objs {
		objs[i] = slice.Index(i).Addr().Interface().(client.Object)
	}
	return objs
}
