package kube_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/sim/kube"
)

var ctx = context.Background()

func node(name string, labels ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, l := range labels {
		n.Labels = map[string]string{l: ""}
	}
	return n
}

func pod(name, nodeName string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "c", Image: "c:1"}}},
	}
}

// describe writes changes down as handlers see them.
func describe(changes []kube.Change) string {
	var lines []string
	for _, c := range changes {
		version := func(o client.Object) string {
			if o == nil {
				return "-"
			}
			return o.GetResourceVersion()
		}
		line := fmt.Sprintf("%s %s>%s", c.Key.Name, version(c.Old), version(c.New))
		if c.Tombstone {
			line += " tombstone"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, ", ")
}

func TestViewLagsByKind(t *testing.T) {
	store := newStore()
	nodes, pods := kindOf(&corev1.Node{}), kindOf(&corev1.Pod{})
	view := kube.NewView(store, nodes, pods)
	view.Relist(nodes)
	view.Relist(pods)
	must(store.Create("x", node("a")))    // 2
	must(store.Create("x", pod("p", ""))) // 3
	must(store.Create("x", node("b")))    // 4
	check(store.Delete("x", nodes, client.ObjectKey{Name: "a"}, nil))

	var got corev1.Node
	if err := view.Get(client.ObjectKey{Name: "a"}, &got); !apierrors.IsNotFound(err) {
		t.Fatalf("before any delivery: %v", err)
	} else if !strings.Contains(err.Error(), `Node "a" not found`) {
		t.Errorf("the cache names the kind, not the resource: %v", err)
	}
	if view.Lag(nodes) != 3 || view.Lag(pods) != 1 {
		t.Errorf("lag %d and %d, want 3 and 1", view.Lag(nodes), view.Lag(pods))
	}
	if c := view.Next(nodes); c.Key.Name != "a" || view.Lag(nodes) != 3 {
		t.Errorf("Next moved the view or showed %v", c.Key)
	}
	view.Deliver(nodes)
	if err := view.Get(client.ObjectKey{Name: "a", Namespace: "ignored"}, &got); err != nil {
		t.Fatal(err)
	}
	if got.Kind != "Node" || got.ResourceVersion != "2" {
		t.Errorf("got %s at %s", got.Kind, got.ResourceVersion)
	}
	var changes []kube.Change
	for view.Pending(nodes) {
		changes = append(changes, view.Deliver(nodes))
	}
	// the deletion carries its own version
	if d := describe(changes); d != "b ->4, a 5>-" {
		t.Errorf("delivered %s", d)
	}
	if !view.Pending(pods) {
		t.Error("delivering Nodes has moved the pods")
	}
}

func TestRelistLosesWhatHappenedInBetween(t *testing.T) {
	store := newStore()
	nodes := kindOf(&corev1.Node{})
	for _, name := range []string{"c", "a", "b"} {
		must(store.Create("x", node(name))) // c 2, a 3, b 4
	}
	view := kube.NewView(store, nodes)
	if d := describe(view.Relist(nodes)); d != "a ->3, b ->4, c ->2" {
		t.Errorf("first list: %s", d)
	}
	if d := describe(view.Relist(nodes)); d != "" {
		t.Errorf("an unchanged list is news: %s", d)
	}
	check(store.Delete("x", nodes, client.ObjectKey{Name: "a"}, nil)) // 5
	must(store.Create("x", node("a", "new")))                         // 6
	check(store.Delete("x", nodes, client.ObjectKey{Name: "b"}, nil)) // 7
	must(store.Create("x", node("d")))                                // 8
	check(store.Delete("x", nodes, client.ObjectKey{Name: "d"}, nil)) // 9
	view.Deliver(nodes)
	if d := describe(view.Relist(nodes)); d != "a ->6, b 4>- tombstone" {
		t.Errorf("list after a gap: %s", d)
	}
	if view.Pending(nodes) {
		t.Error("a list leaves nothing pending")
	}
	must(store.Create("x", node("e")))
	if d := describe([]kube.Change{view.Deliver(nodes)}); d != "e ->10" {
		t.Errorf("after the list: %s", d)
	}
}

func TestCachedList(t *testing.T) {
	store := newStore()
	nodes, pods, hosts := kindOf(&corev1.Node{}), kindOf(&corev1.Pod{}), kindOf(&api.BareMetalHost{})
	for _, obj := range []client.Object{node("b", "x"), node("a"), node("c", "x"), pod("p", "a"), pod("q", "b")} {
		must(store.Create("x", obj))
	}
	view := kube.NewView(store, nodes, pods, hosts)
	view.Index(pods, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} })
	for _, k := range []*kube.Kind{nodes, pods} {
		view.Relist(k)
	}
	names := func(list client.ObjectList, opts ...client.ListOption) string {
		if err := view.List(list, opts...); err != nil {
			return err.Error()
		}
		var names []string
		switch list := list.(type) {
		case *corev1.NodeList:
			for _, n := range list.Items {
				names = append(names, n.Kind+"/"+n.Name)
			}
		case *corev1.PodList:
			for _, p := range list.Items {
				names = append(names, p.Kind+"/"+p.Name)
			}
		}
		return strings.Join(names, " ")
	}
	for _, test := range []struct {
		what string
		list client.ObjectList
		opts []client.ListOption
		want string
	}{
		{"all, in the order of names", &corev1.NodeList{}, nil, "Node/a Node/b Node/c"},
		{"by label", &corev1.NodeList{}, []client.ListOption{client.HasLabels{"x"}}, "Node/b Node/c"},
		{"limited", &corev1.NodeList{}, []client.ListOption{client.Limit(2)}, "Node/a Node/b"},
		{"by index", &corev1.PodList{}, []client.ListOption{client.MatchingFields{"spec.nodeName": "b"}}, "Pod/q"},
		{"in another namespace", &corev1.PodList{}, []client.ListOption{client.InNamespace("kube-system")}, ""},
		{"without an index", &corev1.PodList{}, []client.ListOption{client.MatchingFields{"status.phase": "Running"}}, "Index with name field:status.phase does not exist"},
		{"continued", &corev1.PodList{}, []client.ListOption{client.Continue("x")}, "continue list option is not supported by the cache"},
		{"before the cache has synced", &api.BareMetalHostList{}, nil, "list BareMetalHost /: a cached read before the cache has synced is not modelled by the simulated API server"},
		{"of a kind that isn't watched", &corev1.SecretList{}, nil, "list Secret /: a cached read of a kind that the process doesn't watch (add it to Reads, or read it from Live) is not modelled by the simulated API server"},
	} {
		if got := names(test.list, test.opts...); got != test.want {
			t.Errorf("%s: got %q, want %q", test.what, got, test.want)
		}
	}
}

// TestNothingIsSharedWithCallers changes everything that callers get and gave,
// and expects the server not to notice.
func TestNothingIsSharedWithCallers(t *testing.T) {
	store := newStore()
	hosts := kindOf(&api.BareMetalHost{})
	view := kube.NewView(store, hosts)
	view.Relist(hosts)
	c := kube.NewClient(view, plainGate{}, "x")
	live := kube.NewReader(store, plainGate{}, "x")
	key := client.ObjectKey{Namespace: "default", Name: "h"}
	spoil := func(h *api.BareMetalHost) {
		h.Annotations["a"] = "spoilt"
		h.Finalizers[0] = "spoilt"
		h.Spec.ConsumerRef.Name = "spoilt"
	}
	host := newHost("h")
	check(c.Create(ctx, host))
	spoil(host)
	check(live.Get(ctx, key, host))
	spoil(host)
	view.Deliver(hosts)
	check(c.Get(ctx, key, host))
	from := host.DeepCopy()
	host.Annotations["b"] = "c"
	check(c.Patch(ctx, host, client.MergeFrom(from)))
	spoil(host)
	check(live.Get(ctx, key, host))
	check(c.Update(ctx, host))
	spoil(host)
	var list api.BareMetalHostList
	check(c.List(ctx, &list))
	spoil(&list.Items[0])
	check(live.List(ctx, &list))
	spoil(&list.Items[0])
	for view.Pending(hosts) {
		view.Deliver(hosts)
	}
	for name, read := range map[string]func() error{
		"the server": func() error { return live.Get(ctx, key, host) },
		"the view":   func() error { return c.Get(ctx, key, host) },
	} {
		check(read())
		if host.Annotations["a"] != "b" || host.Annotations["b"] != "c" || host.Finalizers[0] != "baremetalhost.metal3.io" || host.Spec.ConsumerRef.Name != "h" {
			t.Errorf("%s shares memory with a caller: %+v", name, host)
		}
	}
}

// A faultyGate answers with an error of its own, before or after the call.
type faultyGate struct {
	after, before error
	kept          *kube.Call
}

func (g *faultyGate) Call(_ context.Context, c *kube.Call) error {
	g.kept = c
	if g.before != nil {
		return g.before
	}
	if err := c.Execute(); err != nil {
		return err
	}
	return g.after
}

func TestGate(t *testing.T) {
	lost := errors.New("connection lost")
	store := newStore()
	hosts := kindOf(&api.BareMetalHost{})
	key := client.ObjectKey{Namespace: "default", Name: "h"}
	gate := &faultyGate{}
	c := kube.NewClient(kube.NewView(store), gate, "x")
	check(c.Create(ctx, newHost("h")))
	stored := func() *api.BareMetalHost { return must(store.Get(hosts, key)).(*api.BareMetalHost) }

	host := stored().DeepCopy()
	host.Spec.Online = false
	gate.after = lost
	if err := c.Update(ctx, host); !errors.Is(err, lost) {
		t.Fatalf("lost answer: %v", err)
	}
	if stored().Spec.Online || host.ResourceVersion == stored().ResourceVersion {
		t.Error("an answer that was lost is committed, but the caller's object is as it was")
	}

	gate.after, gate.before = nil, lost
	host = stored().DeepCopy()
	host.Spec.BootMACAddress = "delayed"
	if err := c.Update(ctx, host); !errors.Is(err, lost) {
		t.Fatalf("lost request: %v", err)
	}
	host.Spec.BootMACAddress = "changed after the caller gave up"
	if err := gate.kept.Execute(); err != nil {
		t.Fatal(err)
	}
	if got := stored().Spec.BootMACAddress; got != "delayed" {
		t.Errorf("a delayed request wrote %q", got)
	}

	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	gate.kept = nil
	if err := c.Update(cancelled, host); !errors.Is(err, context.Canceled) || gate.kept != nil {
		t.Errorf("with a cancelled context: %v, %v", err, gate.kept)
	}
}

// TestRefusals lists requests that are refused as not modelled, each of which
// the Store remembers.
func TestRefusals(t *testing.T) {
	host, node := newHost("h"), node("n")
	for name, request := range map[string]func(*kube.Client) error{
		"an apply to a kind without a schema": func(c *kube.Client) error {
			return c.Patch(ctx, host, client.RawPatch("application/apply-patch+yaml", []byte(`{}`)))
		},
		"foreground": func(c *kube.Client) error {
			return c.Delete(ctx, host, client.PropagationPolicy(metav1.DeletePropagationForeground))
		},
		"scale":    func(c *kube.Client) error { return c.SubResource("scale").Update(ctx, host) },
		"eviction": func(c *kube.Client) error { return c.SubResource("eviction").Create(ctx, host, host) },
		"managed fields": func(c *kube.Client) error {
			h := host.DeepCopy()
			h.Name = "i"
			h.ManagedFields = []metav1.ManagedFieldsEntry{{}}
			return c.Create(ctx, h)
		},
		"garbage collection": func(c *kube.Client) error {
			h := host.DeepCopy()
			h.Name = "i"
			h.Finalizers = []string{"foregroundDeletion"}
			return c.Create(ctx, h)
		},
		"volumes": func(c *kube.Client) error {
			p := pod("p", "n")
			p.Spec.Volumes = []corev1.Volume{{Name: "v"}}
			return c.Create(ctx, p)
		},
		"an apply to a pod": func(c *kube.Client) error {
			return c.Apply(ctx, applycorev1.Pod("p", "default"), client.FieldOwner("m"))
		},
		"null in a map": func(c *kube.Client) error {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"k": nil}}}
			u.SetName("s")
			u.SetNamespace("default")
			return c.Create(ctx, u)
		},
		"an unstructured object of a kind that isn't served": func(c *kube.Client) error {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
			return c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "m"}, u)
		},
		"cached metadata that isn't watched": func(c *kube.Client) error {
			m := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
			return c.Get(ctx, client.ObjectKey{Name: "n"}, m)
		},
		"raw list options": func(c *kube.Client) error {
			return c.Reader.List(ctx, &corev1.NodeList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}})
		},
		"an unknown type": func(c *kube.Client) error {
			return c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore()
			must(store.Create("setup", newHost("h")))
			must(store.Create("setup", node.DeepCopy()))
			before := store.Revision()
			err := request(kube.NewClient(kube.NewView(store), plainGate{}, "x"))
			var refused *kube.Unmodelled
			if !errors.As(err, &refused) {
				t.Fatalf("got %v, want Unmodelled", err)
			}
			if store.Refusal() != refused {
				t.Errorf("the store remembers %v", store.Refusal())
			}
			if store.Revision() != before {
				t.Error("a refused request has changed something")
			}
		})
	}
}

func TestNewServerRefusesWhatItDoesNotKnow(t *testing.T) {
	_, err := kube.NewServer(api.NewScheme(), []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Service")}, nil)
	if err == nil || !strings.Contains(err.Error(), "not modelled") {
		t.Errorf("got %v", err)
	}
}

// TestUncopiedReads: a reader that asks for no copies gets the cache's own objects, and any other
// may change its copies as it likes.
func TestUncopiedReads(t *testing.T) {
	server, err := kube.NewServer(api.NewScheme(), []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Node")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	store := kube.NewStore(server, func() time.Time { return time.Unix(0, 0) }, nil)
	if _, err := store.Create("test", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "1"}}}); err != nil {
		t.Fatal(err)
	}
	view := kube.NewView(store, server.Kinds()...)
	view.Relist(server.Kinds()[0])
	get := func(opts ...client.GetOption) *corev1.Node {
		t.Helper()
		var node corev1.Node
		if err := view.Get(client.ObjectKey{Name: "n"}, &node, opts...); err != nil {
			t.Fatal(err)
		}
		return &node
	}
	list := func(opts ...client.ListOption) *corev1.Node {
		t.Helper()
		var nodes corev1.NodeList
		if err := view.List(&nodes, opts...); err != nil || len(nodes.Items) != 1 {
			t.Fatalf("list: %v, %d items", err, len(nodes.Items))
		}
		return &nodes.Items[0]
	}
	shared := func(a, b *corev1.Node) bool {
		return reflect.ValueOf(a.Labels).UnsafePointer() == reflect.ValueOf(b.Labels).UnsafePointer()
	}
	cached := get(client.UnsafeDisableDeepCopy)
	if !shared(cached, get(client.UnsafeDisableDeepCopy)) || !shared(cached, list(client.UnsafeDisableDeepCopy)) {
		t.Error("a read without copies was copied")
	}
	for _, node := range []*corev1.Node{get(), list()} {
		if shared(cached, node) {
			t.Error("a copy shares its labels with the cache")
		}
		node.Labels["a"] = "2"
	}
	if got := get().Labels["a"]; got != "1" {
		t.Errorf("the cache was changed through a copy: a=%s", got)
	}
	changed := get()
	changed.Labels["a"] = "3"
	if _, err := store.Update("test", changed); err != nil {
		t.Fatal(err)
	}
	if got := list(client.UnsafeDisableDeepCopy).Labels["a"]; got != "1" {
		t.Errorf("a list shows a change that was not delivered: a=%s", got)
	}
	view.Deliver(server.Kinds()[0])
	if got := list(client.UnsafeDisableDeepCopy).Labels["a"]; got != "3" {
		t.Errorf("a list doesn't show a change that was delivered: a=%s", got)
	}
	// The slice of a list belongs to whoever has it, as that of a real cache does.
	list(client.UnsafeDisableDeepCopy).Name = "another"
	if got := list(client.UnsafeDisableDeepCopy).Name; got == "another" {
		t.Error("the cache was changed through the items of a list without copies")
	}
	view.ShareLists()
	if first := list(client.UnsafeDisableDeepCopy); list(client.UnsafeDisableDeepCopy) != first {
		t.Error("a list that may be shared was made anew")
	}
}

// TestRelistAsOf lists from a server that is behind: the state of then, and what
// has changed since is still to come; a View is never taken back.
func TestRelistAsOf(t *testing.T) {
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	server, err := kube.NewServer(api.NewScheme(), []schema.GroupVersionKind{{Version: "v1", Kind: "Node"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	store := kube.NewStore(server, func() time.Time { return clock }, nil)
	kind := server.Kinds()[0]
	begin := clock
	for _, name := range []string{"a", "b", "c"} {
		clock = clock.Add(time.Second)
		if _, err := store.Create("test", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	clock = clock.Add(time.Second)
	if err := store.Delete("test", kind, client.ObjectKey{Name: "a"}, nil); err != nil {
		t.Fatal(err)
	}
	names := func(v *kube.View) (names string) {
		var nodes corev1.NodeList
		if err := v.List(&nodes); err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes.Items {
			names += n.Name
		}
		return names
	}
	for _, c := range []struct {
		after time.Duration
		names string
		lag   int
	}{{0, "", 4}, {time.Second, "a", 3}, {2500 * time.Millisecond, "ab", 2}, {3 * time.Second, "abc", 1}, {time.Hour, "bc", 0}} {
		v := kube.NewView(store, kind)
		found := v.RelistAsOf(kind, begin.Add(c.after))
		if got := names(v); got != c.names || v.Lag(kind) != c.lag || len(found) != len(c.names) {
			t.Errorf("as of %s it shows %q and lacks %d changes, with %d for its handlers; want %q and %d", c.after, got, v.Lag(kind), len(found), c.names, c.lag)
		}
		for v.Pending(kind) {
			v.Deliver(kind)
		}
		if got := names(v); got != "bc" {
			t.Errorf("as of %s, and then up to date, it shows %q", c.after, got)
		}
		if found := v.RelistAsOf(kind, begin); len(found) > 0 || names(v) != "bc" {
			t.Errorf("it was taken back to %q", names(v))
		}
	}
}
