package lab

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/fakebmc/wall"
	"github.com/fencelab/fencelab/lab/door"
	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/lab/record"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
)

// TestObserversKnowWhoWrote removes annotations and deletes a Node of a real API
// server, as the user and as a controller.
func TestObserversKnowWhoWrote(t *testing.T) {
	NeedControlPlane(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	spec := &scenarios.Spec{Topology: scenarios.Topology{Hosts: []scenarios.Host{{Name: "worker-1"}}}}
	b := &Backend{set: controllers.Default(), kinds: objects.KindsOf(controllers.Default()), ctx: t.Context(), clock: wall.Clock(), plan: &scenarios.Plan{Spec: *spec}, options: Options{Shelf: &Handed}}
	b.record = record.New(b.since, b.kinds, objects.Names{}, nil)
	b.plane.door = door.New(b.record.Stream, gate.API(b.kinds))
	must(b.startControlPlane())
	t.Cleanup(func() { must(b.plane.Stop()) })
	for _, obj := range objects.Topology(spec, func(string) api.BMCDetails { return api.BMCDetails{} }, func(string) string { return "" }) {
		must(b.plane.admin.Create(t.Context(), obj))
	}
	must(b.plane.admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}))
	must(b.record.Watch(b.ctx, b.plane.admin))

	config, l := b.as("reboot"), &life{p: &proc{b: b, name: "reboot"}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &gate.Gate{Judge: l, Read: gate.API(b.kinds), Next: next, UserAgent: "reboot"}
	})
	controller, err := client.New(config, client.Options{Scheme: api.NewScheme()})
	must(err)

	const host, plain = "BareMetalHost/worker-1", api.RebootAnnotation
	user := objects.UsersOf(requests{b, t.Context()}, b.kinds, func() []client.Object { return b.plane.topology })
	for range 2 {
		must(user.Annotate(&scenarios.AnnotateOp{Object: host, Key: plain}))
		must(user.Annotate(&scenarios.AnnotateOp{Object: host, Key: plain + "/a", As: "backup"}))
		must(user.RemoveAnnotation(&scenarios.AnnotateOp{Object: host, Key: plain + "/a"}))
		var bmh api.BareMetalHost
		must(controller.Get(t.Context(), client.ObjectKey{Namespace: objects.Namespace, Name: "worker-1"}, &bmh))
		must(controller.Patch(t.Context(), &bmh, api.RemoveAnnotations(&bmh, plain)))
	}
	must(controller.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}))
	// It lets a Machine go that the user deletes, and evicts a Pod.
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: objects.Namespace, Name: "worker-1"}}
	must(controller.Patch(t.Context(), machine, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["fencelab.dev/test"]}}`))))
	must(user.Delete(&scenarios.ObjectOp{Object: "Machine/worker-1"}))
	must(controller.Patch(t.Context(), machine, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: objects.Namespace, Name: "app"},
		Spec:       corev1.PodSpec{NodeName: "worker-1", Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	must(b.plane.admin.Create(t.Context(), pod))
	must(controller.SubResource("eviction").Create(t.Context(), pod, &policyv1.Eviction{}))

	once := []string{
		"annotation-set reboot.metal3.io by user", "annotation-set reboot.metal3.io/a by user/backup",
		"annotation-removed reboot.metal3.io/a by user", "annotation-removed reboot.metal3.io by reboot",
	}
	want := slices.Concat(once, once)
	// Hosts and Nodes are watched apart from each other: on a busy machine the two events may
	// arrive in either order.
	var got []string
	by := make(map[history.Kind]string)
	_, err = b.record.Advance(t.Context(), b.since()+time.Minute, func(e history.Event) bool {
		switch e.Kind {
		case history.AnnotationSet, history.AnnotationRemoved:
			got = append(got, strings.Join([]string{string(e.Kind), e.Key, "by " + e.Actor}, " "))
		case history.NodeDeleted, history.MachineDeleted, history.PodTerminating:
			by[e.Kind] = e.Actor
		}
		return len(by) == 3 && len(got) >= len(want)
	})
	must(err)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, kind := range []history.Kind{history.NodeDeleted, history.MachineDeleted, history.PodTerminating} {
		if by[kind] != "reboot" {
			t.Errorf("%s by %q", kind, by[kind])
		}
	}
}

// TestObserversKnowOwnKinds: the lab watches a kind that a system describes and a program has
// installed. It records what the objects mean to a host, and who wrote them.
func TestObserversKnowOwnKinds(t *testing.T) {
	NeedControlPlane(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const definition = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: sicks.acme.example},
spec: {group: acme.example, scope: Cluster, names: {kind: Sick, listKind: SickList, plural: sicks, singular: sick},
versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}
`
	spec := scenarios.Spec{
		Topology: scenarios.Topology{Hosts: []scenarios.Host{{Name: "worker-1", NodeName: "n1"}}},
		Requests: map[string]scenarios.Request{"Sick.acme.example": {Fences: "spec.node", Done: "spec.phase=Done"}},
	}
	fields, err := objects.FieldsOf(&spec)
	must(err)
	b := &Backend{set: controllers.Default(), kinds: objects.KindsOf(controllers.Default()), ctx: t.Context(), clock: wall.Clock(), plan: &scenarios.Plan{Spec: spec}, options: Options{Shelf: &Handed}}
	b.record = record.New(b.since, b.kinds, objects.NamesOf(&spec.Topology, spec.HealthCheck), fields)
	b.plane.door = door.New(b.record.Stream, gate.API(b.kinds))
	must(b.startControlPlane())
	t.Cleanup(func() { must(b.plane.Stop()) })
	if err := b.adoptKinds(); err == nil || !strings.Contains(err.Error(), "a program has to install its definition") {
		t.Errorf("without the definition: %v", err)
	}
	must(b.plane.Install(b.ctx, fstest.MapFS{"crd.yaml": {Data: []byte(definition)}}))
	must(b.adoptKinds())
	must(b.record.Watch(b.ctx, b.plane.admin))

	config, l := b.as("reboot"), &life{p: &proc{b: b, name: "reboot"}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &gate.Gate{Judge: l, Read: gate.API(b.kinds), Next: next, UserAgent: "reboot"}
	})
	controller, err := client.New(config, client.Options{Scheme: api.NewScheme()})
	must(err)
	sick := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "acme.example/v1", "kind": "Sick", "metadata": map[string]any{"name": "s"}, "spec": map[string]any{"node": "n1"},
	}}
	must(controller.Create(t.Context(), sick))
	must(b.plane.admin.Patch(t.Context(), sick, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"phase":"Done"}}`))))
	must(controller.Delete(t.Context(), sick))
	must(controller.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "acme.example/v1", "kind": "Sick", "metadata": map[string]any{"name": "t"}, "spec": map[string]any{"node": "n1"},
	}}))
	want := []string{"Sick/s wanted worker-1 reboot", "Sick/s done worker-1 scenario", "Sick/t wanted worker-1 reboot"}
	var got []string
	_, err = b.record.Advance(t.Context(), b.since()+time.Minute, func(e history.Event) bool {
		if e.Kind == history.FieldIs {
			got = append(got, strings.Join([]string{e.Object, e.Value, e.Host, e.Actor}, " "))
		}
		return len(got) == len(want)
	})
	must(err)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
