package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// definition is that of a custom resource.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, listKind: ThingList, plural: things, singular: thing}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object}}
`

func thing(kind string) client.Object {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("example.com/v1")
	u.SetKind(kind)
	u.SetNamespace(metav1.NamespaceDefault)
	u.SetName("a")
	return u
}

// TestShelf: the next control plane of a kind is the one that was stopped, as if it were new; one
// of which that can't be said ends, whatever the reason.
func TestShelf(t *testing.T) {
	needBinaries(t)
	var shelf Shelf
	defer shelf.Close()
	var said string
	options := Options{
		Nodes: []string{"worker-1"}, Manifests: []fs.FS{fstest.MapFS{"things.yaml": {Data: []byte(definition)}}},
		Log: func(format string, args ...any) { said += fmt.Sprintf(format, args...) + "\n" },
	}
	var dirs []string
	launch := func() *Cluster {
		t.Helper()
		said = ""
		c, err := shelf.Launch(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		if len(dirs) == 0 || dirs[len(dirs)-1] != c.dir {
			dirs = append(dirs, c.dir)
		}
		return c
	}
	first := launch()
	fresh := first.original
	if fresh == nil {
		t.Fatal("a new control plane goes on writing of its own accord")
	}
	old, token := connected(t, first), first.NodeToken("worker-1")
	leave(t, first)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	if processes, at := shelf.Holds(); len(processes) != 2 || len(at) != 1 || !standStill(t, processes) {
		t.Errorf("on the shelf are the processes %v of %v, not two that stand still", processes, at)
	}

	second := launch()
	if second.apiServer.Pid() != first.apiServer.Pid() || said != "" {
		t.Fatalf("the second control plane isn't the first: %s", said)
	}
	if now, err := second.versions(t.Context()); err != nil || !maps.Equal(now, fresh) {
		t.Errorf("it has %d keys, new it had %d (%v)", len(now), len(fresh), err)
	}
	if answer := old(); answer != http.StatusUnauthorized {
		t.Errorf("an administrator of the first life is answered %d on the connection that it had, want %d", answer, http.StatusUnauthorized)
	}
	if second.NodeToken("worker-1") != token {
		t.Error("a kubelet's token isn't the one that the API server knows")
	}
	leave(t, second) // what is created was not there before
	if err := second.Stop(); err != nil {
		t.Fatal(err)
	}
	// It fits no other need.
	for _, other := range []Options{{Nodes: []string{"worker-2"}, Manifests: options.Manifests}, {Bin: "/elsewhere", Manifests: options.Manifests}, {}} {
		if other.Bin == "" {
			other.Bin = DefaultBin()
		}
		if kind, err := kindOf(&other); err != nil || shelf.take(kind, other.Nodes) != nil {
			t.Errorf("what is on the shelf fits %+v, too (%v)", other, err)
		}
	}
	c := launch()
	admin := newClient(t, c.Config())
	for _, harm := range harms {
		t.Run(harm.name, func(t *testing.T) {
			if err := harm.do(t.Context(), c, admin); err != nil {
				t.Fatal(err)
			}
			if err := c.empty(t.Context()); err == nil || !strings.Contains(err.Error(), harm.says) {
				t.Errorf("to be empty it needs no more than %v, want %s", err, harm.says)
			}
			var err error
			if c.original, err = c.settled(t.Context()); err != nil { // for the next
				t.Fatal(err)
			}
		})
	}
	if err := admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "another"}}); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	last := launch()
	if last.dir == c.dir || !strings.Contains(said, "/registry/namespaces/another was made") {
		t.Errorf("it is handed on again: %t; it says %q", last.dir == c.dir, said)
	}
	if err := errors.Join(last.Pause(), last.Resume()); err != nil {
		t.Fatal(err)
	}
	if shelf.keep(last) {
		t.Error("one that stood still in its life is kept")
	}
	last.disturbed = false
	if err := last.apiServer.Kill(); err != nil {
		t.Fatal(err)
	}
	<-last.apiServer.Exited()
	if err := last.Stop(); err == nil || !strings.Contains(err.Error(), "kube-apiserver ended by itself") {
		t.Errorf("stop one whose server was killed: %v", err)
	}
	for _, dir := range dirs {
		expectNothingLeft(t, dir)
	}
}

// harms lists damages to a control plane. says is the reason why it is then not handed on.
var harms = []struct {
	name, says string
	do         func(context.Context, *Cluster, client.Client) error
}{
	{"a Namespace", "/registry/namespaces/other was made", func(ctx context.Context, _ *Cluster, admin client.Client) error {
		return admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	}},
	{"what was there is changed", "/registry/clusterroles/view is not what it was", func(ctx context.Context, _ *Cluster, admin client.Client) error {
		var role rbacv1.ClusterRole
		if err := admin.Get(ctx, client.ObjectKey{Name: "view"}, &role); err != nil {
			return err
		}
		role.Labels["changed"] = "true"
		return admin.Update(ctx, &role)
	}},
	{"what was there is deleted", "/registry/clusterroles/view is not what it was", func(ctx context.Context, _ *Cluster, admin client.Client) error {
		return admin.Delete(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}})
	}},
	{"a definition", "was made", func(ctx context.Context, c *Cluster, _ client.Client) error {
		return c.Install(ctx, fstest.MapFS{"more.yaml": {Data: []byte(strings.NewReplacer("Thing", "Other", "thing", "other").Replace(definition))}})
	}},
}

// leave makes objects of all sorts that a lab leaves.
func leave(t *testing.T, c *Cluster) {
	t.Helper()
	admin, meta := newClient(t, c.Config()), metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "a"}
	for _, obj := range []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}},
		&corev1.Secret{ObjectMeta: meta}, &corev1.ConfigMap{ObjectMeta: meta}, &coordinationv1.Lease{ObjectMeta: meta},
		&corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "worker-1", Containers: []corev1.Container{{Name: "a", Image: "a"}}}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		thing("Thing"),
	} {
		if err := admin.Create(t.Context(), obj); err != nil {
			t.Fatalf("create %T: %v", obj, err)
		}
	}
	// A kubelet with its token may read its Node: the authorizer has seen it in this life.
	kubelet := newClient(t, &rest.Config{Host: c.Config().Host, TLSClientConfig: rest.TLSClientConfig{CAData: c.CA()}, BearerToken: c.NodeToken("worker-1")})
	if err := kubelet.Get(t.Context(), client.ObjectKey{Name: "worker-1"}, &corev1.Node{}); err != nil {
		t.Errorf("a kubelet reads its Node: %v", err)
	}
	if err := kubelet.Delete(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "a"}}); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet deletes a role: %v, want forbidden", err)
	}
}

// connected returns what asks the API server on a connection that is open already, and what it is
// answered.
func connected(t *testing.T, c *Cluster) func() int {
	t.Helper()
	asking, err := rest.HTTPClientFor(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	ask := func() int {
		answer, err := asking.Get(c.Config().Host + "/api/v1/namespaces/default")
		if err != nil {
			t.Error(err)
			return 0
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	if got := ask(); got != http.StatusOK {
		t.Fatalf("an administrator is answered %d", got)
	}
	return ask
}

func standStill(t *testing.T, processes []int) bool {
	t.Helper()
	for _, pid := range processes {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		if _, rest, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(rest, "T ") {
			return false
		}
	}
	return true
}
