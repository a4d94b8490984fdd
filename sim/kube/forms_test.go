package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/sim/kube"
)

func metadataOf(obj client.Object) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(kindOf(obj).GroupVersionKind)
	return m
}

func unstructuredOf(obj client.Object) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kindOf(obj).GroupVersionKind)
	return u
}

// TestFormsLagApart: a process that watches a kind and its metadata has two informers, each of
// which may know of changes that the other lacks.
func TestFormsLagApart(t *testing.T) {
	store := newStore()
	must(store.Create("setup", newHost("h")))
	whole, meta := kindOf(&api.BareMetalHost{}), must(server.KindOf(metadataOf(&api.BareMetalHost{})))
	if meta == whole || meta.Base() != whole {
		t.Fatalf("the kind of metadata is %p of %p, that of hosts %p", meta, meta.Base(), whole)
	}
	view := kube.NewView(store, whole, meta)
	for _, k := range []*kube.Kind{whole, meta} {
		view.Relist(k)
	}
	c := kube.NewClient(view, plainGate{}, "x")
	key := client.ObjectKey{Namespace: "default", Name: "h"}
	label := func(value string) {
		must(store.Patch("user", whole, key, false, "application/merge-patch+json", []byte(`{"metadata":{"labels":{"l":"`+value+`"}}}`)))
	}
	label("1")
	change := view.Deliver(meta)
	if _, ok := change.New.(*metav1.PartialObjectMetadata); !ok || change.Kind != meta {
		t.Errorf("a handler of metadata is handed a %T of %v", change.New, change.Kind)
	}
	host, m := &api.BareMetalHost{}, metadataOf(&api.BareMetalHost{})
	check(c.Get(ctx, key, host))
	check(c.Get(ctx, key, m))
	if host.Labels["l"] != "" || m.Labels["l"] != "1" || m.Kind != "BareMetalHost" {
		t.Errorf("the host has the label %q, its metadata, as %s, %q; only they are up to date", host.Labels["l"], m.Kind, m.Labels["l"])
	}
	check(store.Delete("user", whole, key, nil))
	if change = view.Deliver(meta); change.Old == nil || change.New == nil {
		t.Errorf("the deletion of a host with a finalizer is shown as %v", change)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(m.GroupVersionKind())
	check(c.List(ctx, list, client.MatchingLabels{"l": "1"}))
	if len(list.Items) != 1 || list.Items[0].DeletionTimestamp == nil {
		t.Errorf("the cache has %v", list.Items)
	}
}

// TestUncached: unstructured objects are read live unless a client asks otherwise,
// and so is every kind that it excludes.
func TestUncached(t *testing.T) {
	store := newStore()
	must(store.Create("setup", newHost("h")))
	hosts, key := kindOf(&api.BareMetalHost{}), client.ObjectKey{Namespace: "default", Name: "h"}
	dynamic := must(server.KindOf(unstructuredOf(&api.BareMetalHost{})))
	view := kube.NewView(store, hosts, dynamic)
	view.Relist(hosts)
	view.Relist(dynamic)
	must(store.Patch("user", hosts, key, false, "application/merge-patch+json", []byte(`{"spec":{"online":false}}`)))
	for _, tc := range []struct {
		name                  string
		options               client.CacheOptions
		typed, isUnstructured bool // whether the read is up to date
	}{
		{"by default", client.CacheOptions{}, false, true},
		{"with cached unstructured objects", client.CacheOptions{Unstructured: true}, false, false},
		{"without hosts", client.CacheOptions{Unstructured: true, DisableFor: []client.Object{&api.BareMetalHost{}}}, true, true},
	} {
		c := kube.NewClient(view, plainGate{}, "x")
		c.Cache(tc.options)
		host, u := &api.BareMetalHost{}, unstructuredOf(&api.BareMetalHost{})
		check(c.Get(ctx, key, host))
		check(c.Get(ctx, key, u))
		online, _, _ := unstructured.NestedBool(u.Object, "spec", "online")
		if host.Spec.Online == tc.typed || online == tc.isUnstructured {
			t.Errorf("%s: typed online %t, unstructured online %t", tc.name, host.Spec.Online, online)
		}
	}
}

// TestPagesOfThePast: the pages of a list show one state, until the server has
// forgotten it.
func TestPagesOfThePast(t *testing.T) {
	now := epoch
	store := kube.NewStore(server, func() time.Time { return now }, nil)
	for _, name := range []string{"a", "b", "c"} {
		must(store.Create("setup", newNode(name)))
	}
	live := kube.NewReader(store, plainGate{}, "x")
	names := func(list *corev1.NodeList) (names string) {
		for _, n := range list.Items {
			names += n.Name
		}
		return names
	}
	var first, second corev1.NodeList
	check(live.List(ctx, &first, client.Limit(2)))
	if names(&first) != "ab" || first.RemainingItemCount == nil || *first.RemainingItemCount != 1 {
		t.Fatalf("the first page has %s and says that %v remain", names(&first), first.RemainingItemCount)
	}
	check(store.Delete("user", kindOf(&corev1.Node{}), client.ObjectKey{Name: "c"}, nil))
	must(store.Create("user", newNode("d")))
	check(live.List(ctx, &second, client.Limit(2), client.Continue(first.Continue)))
	if names(&second) != "c" || second.ResourceVersion != first.ResourceVersion || second.Continue != "" {
		t.Errorf("the second page has %s of %s, the first one was of %s", names(&second), second.ResourceVersion, first.ResourceVersion)
	}
	now = now.Add(6 * time.Minute)
	err := live.List(ctx, &second, client.Limit(2), client.Continue(first.Continue))
	if !apierrors.IsResourceExpired(err) {
		t.Fatalf("after six minutes: %v", err)
	}
	var status apierrors.APIStatus
	errors.As(err, &status)
	check(live.List(ctx, &second, client.Continue(status.Status().Continue)))
	if names(&second) != "d" {
		t.Errorf("the list that goes on inconsistently has %s", names(&second))
	}
}

// betweenGate lets somebody write before the n-th call.
type betweenGate struct {
	calls []string
	at    int
	write func()
}

func (g *betweenGate) Call(_ context.Context, c *kube.Call) error {
	g.calls = append(g.calls, c.String())
	if len(g.calls) == g.at {
		g.write()
	}
	return c.Execute()
}

// TestDeleteAllOfIsNoTransaction: others write between its deletions.
func TestDeleteAllOfIsNoTransaction(t *testing.T) {
	store := newStore()
	for _, name := range []string{"a", "b", "c"} {
		must(store.Create("setup", newNode(name)))
	}
	nodes := kindOf(&corev1.Node{})
	gate := &betweenGate{at: 3, write: func() {
		check(store.Delete("user", nodes, client.ObjectKey{Name: "b"}, nil))
		must(store.Create("user", newNode("d")))
	}}
	c := kube.NewClient(kube.NewView(store), gate, "x")
	if err := c.DeleteAllOf(ctx, &corev1.Node{}); err != nil {
		t.Fatal(err)
	}
	want := []string{"list Node /", "delete Node /a", "delete Node /b", "delete Node /c"}
	if !slices.Equal(gate.calls, want) {
		t.Errorf("calls %q, want %q", gate.calls, want)
	}
	if left := store.List(nodes, ""); len(left) != 1 || left[0].GetName() != "d" {
		t.Errorf("left are %v", left)
	}
}

// TestManagedFieldsByTheServersClock: the library dates entries by the machine's
// clock, which no run may see.
func TestManagedFieldsByTheServersClock(t *testing.T) {
	now := epoch
	store := kube.NewStore(server, func() time.Time { return now }, nil)
	must(store.Create("early", newNode("n")))
	now = now.Add(time.Minute)
	c := kube.NewClient(kube.NewView(store), plainGate{}, "late")
	node := applycorev1.Node("n").WithLabels(map[string]string{"l": "1"})
	check(c.Apply(ctx, node, client.FieldOwner("m")))
	if node.ResourceVersion == nil || *node.ResourceVersion == "" {
		t.Error("the configuration does not show the answer")
	}
	now = now.Add(time.Minute)
	stored := must(store.Get(kindOf(&corev1.Node{}), client.ObjectKey{Name: "n"}))
	updated := stored.DeepCopyObject().(*corev1.Node)
	updated.Spec.Unschedulable = true
	check(c.Update(ctx, updated))
	var got []string
	for _, e := range updated.ManagedFields {
		got = append(got, e.Manager+" "+string(e.Operation)+" "+e.Time.Sub(epoch).String())
	}
	if want := []string{"m Apply 1m0s", "early Update 0s", "late Update 2m0s"}; !slices.Equal(got, want) {
		t.Errorf("managed fields %q, want %q", got, want)
	}
}

// TestSelectableFields: a definition says by which fields its objects can be
// selected.
func TestSelectableFields(t *testing.T) {
	resource := kube.CustomResource{
		GroupVersionKind: api.GroupVersion.WithKind("BareMetalHost"), Plural: "baremetalhosts", Status: true,
		Selectable: []string{"spec.online", "spec.consumerRef.name"},
		Schema:     &apiextensionsv1.JSONSchemaProps{Type: "object"},
	}
	server, err := kube.NewServer(api.NewScheme(), nil, []kube.CustomResource{resource})
	if err != nil {
		t.Fatal(err)
	}
	store := kube.NewStore(server, func() time.Time { return epoch }, nil)
	lonely := newHost("lonely")
	lonely.Spec.ConsumerRef = nil
	must(store.Create("setup", lonely))
	must(store.Create("setup", newHost("used")))
	live := kube.NewReader(store, plainGate{}, "x")
	for selector, want := range map[string]string{"spec.consumerRef.name=used": "used", "spec.consumerRef.name=": "lonely", "spec.online=true": "lonely used", "spec.online!=true": ""} {
		field, value, _ := strings.Cut(selector, "=")
		var list api.BareMetalHostList
		matching := client.ListOption(client.MatchingFields{strings.TrimSuffix(field, "!"): value})
		if strings.HasSuffix(field, "!") {
			matching = client.MatchingFieldsSelector{Selector: must(fields.ParseSelector(selector))}
		}
		check(live.List(ctx, &list, matching))
		var names []string
		for _, h := range list.Items {
			names = append(names, h.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s selects %q, want %q", selector, got, want)
		}
	}
	resource.Selectable = []string{"spec.nothing"}
	if _, err := kube.NewServer(api.NewScheme(), nil, []kube.CustomResource{resource}); err == nil || !strings.Contains(err.Error(), "no field nothing") {
		t.Errorf("a field that isn't there: %v", err)
	}
}

// TestUnstructuredRoundTrip: what was stored without a field is read without it.
func TestUnstructuredRoundTrip(t *testing.T) {
	store := newStore()
	c := kube.NewClient(kube.NewView(store), plainGate{}, "x")
	sent := unstructuredOf(&api.BareMetalHost{})
	check(json.Unmarshal([]byte(`{"apiVersion":"metal3.io/v1alpha1","kind":"BareMetalHost","metadata":{"name":"h","namespace":"default"},"spec":{"online":true,"bmc":{"address":""},"unknown":1}}`), &sent.Object))
	check(c.Create(ctx, sent))
	got := unstructuredOf(&api.BareMetalHost{})
	check(c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "h"}, got))
	text := string(must(json.Marshal(map[string]any{"spec": got.Object["spec"], "status": got.Object["status"]})))
	if want := `{"spec":{"bmc":{"address":""},"online":true},"status":null}`; text != want {
		t.Errorf("read %s, want %s", text, want)
	}
	var kinds []schema.GroupVersionKind
	for _, obj := range []client.Object{sent, got} {
		kinds = append(kinds, must(c.GroupVersionKindFor(obj)))
	}
	if kinds[0] != kinds[1] || kinds[0].Kind != "BareMetalHost" {
		t.Errorf("kinds %v", kinds)
	}
}
