package cluster

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// gauges are manifests with a namespace of their own.
func gauges(t *testing.T) fs.FS {
	t.Helper()
	text, err := os.ReadFile("testdata/install/a-gauge.yaml")
	if err != nil {
		t.Fatal(err)
	}
	limit, err := os.ReadFile("testdata/install/policy/limit.yaml")
	if err != nil {
		t.Fatal(err)
	}
	more, err := os.ReadFile("testdata/install/gauges.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text = append(append(text, "\n---\n"...), more...)
	theirs := strings.ReplaceAll(string(text), "namespace: meters", "namespace: default")
	return fstest.MapFS{"gauges.yaml": {Data: []byte(theirs)}, "limit.yaml": {Data: limit}}
}

func gauge(name string) *unstructured.Unstructured {
	g := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"limit": int64(1)}}}
	g.SetGroupVersionKind(schema.GroupVersionKind{Group: "test.fencelab.dev", Version: "v1", Kind: "Gauge"})
	g.SetNamespace("default")
	g.SetName(name)
	return g
}

// census returns the UIDs and versions of all objects in a cluster of the kinds that the test is
// about.
func census(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for _, kind := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "Node"}, {Version: "v1", Kind: "Namespace"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"},
		{Group: "test.fencelab.dev", Version: "v1", Kind: "Gauge"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := c.List(t.Context(), list); err != nil && kind.Kind != "Gauge" {
			t.Fatal(err)
		}
		for _, obj := range list.Items {
			version := obj.GetResourceVersion()
			if kind.Kind == "CustomResourceDefinition" {
				version = "" // its status is the server's
			}
			found[kind.Kind+"/"+obj.GetNamespace()+"/"+obj.GetName()] = string(obj.GetUID()) + " " + version
		}
	}
	return found
}

// TestAttach attaches to a cluster that has objects of its owner in it.
func TestAttach(t *testing.T) {
	needBinaries(t)
	c, err := Launch(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	somebody := newClient(t, c.Config())
	for _, obj := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "theirs"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}},
	} {
		if err := somebody.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	text, err := Kubeconfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	o := AttachOptions{Kubeconfig: file, Name: "abcdefgh", Nodes: []string{"worker-1"}, Manifests: []fs.FS{gauges(t)}}
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	o.Objects = []client.Object{node}

	t.Run("refuses what is in the way, all of it", func(t *testing.T) {
		if err := somebody.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "visitor"}}); err != nil {
			t.Fatal(err)
		}
		before := census(t, somebody)
		wrong := o
		wrong.Objects = []client.Object{&corev1.Node{TypeMeta: node.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}}
		wrong.Manifests = append(wrong.Manifests, fstest.MapFS{"role.yaml": {Data: []byte("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: visitor}\n")}})
		_, err := Attach(t.Context(), wrong)
		for _, want := range []string{"nothing was changed", "ClusterRole /visitor exists already, and role.yaml, document 1 would create it", "Node /theirs exists already"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("attached: %v; want %q", err, want)
			}
		}
		if diff := difference(before, census(t, somebody)); diff != "" {
			t.Errorf("a refusal changed %s", diff)
		}
	})

	before := census(t, somebody)
	a, err := Attach(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Install(t.Context(), gauges(t)); err != nil {
		t.Fatal(err)
	}
	ours := newClient(t, a.Config())

	t.Run("knows its users, and no others", func(t *testing.T) {
		kubelet := a.Config()
		kubelet.CertData, kubelet.KeyData, kubelet.BearerToken = nil, nil, a.NodeToken("worker-1")
		made := node.DeepCopy()
		if err := newClient(t, kubelet).Create(t.Context(), made); err != nil || made.Labels[Label] != "abcdefgh" {
			t.Errorf("a kubelet makes its Node, with the labels %v: %v", made.Labels, err)
		}
		if err := newClient(t, kubelet).Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-2"}}); !apierrors.IsForbidden(err) {
			t.Errorf("a kubelet makes the Node of another: %v", err)
		}
		kubelet.BearerToken = "guessed"
		if _, err := kubernetes.NewForConfigOrDie(kubelet).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("somebody with a guessed token: %v", err)
		}
		visitor := newClient(t, a.ConfigFor("fencelab:visitor"))
		if err := visitor.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}}); !apierrors.IsForbidden(err) {
			t.Errorf("a user without a role: %v", err)
		}
		escalating := a.ConfigFor("fencelab:visitor")
		escalating.Impersonate.UserName, escalating.Impersonate.Groups = administrator, []string{"system:masters"}
		if err := newClient(t, escalating).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}}); !apierrors.IsForbidden(err) {
			t.Errorf("a user without a role who impersonates: %v", err)
		}
	})

	t.Run("sees and touches only what is its own", func(t *testing.T) {
		var nodes corev1.NodeList
		if err := ours.List(t.Context(), &nodes); err != nil || len(nodes.Items) != 1 || nodes.Items[0].Name != "worker-1" {
			t.Errorf("the Nodes are %v: %v", nodes.Items, err)
		}
		theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "theirs"}}
		merge := client.RawPatch(types.MergePatchType, []byte(`{"data": {"ours": "too"}}`))
		changed := theirs.DeepCopy()
		changed.Data = map[string]string{"ours": "too"}
		for what, err := range map[string]error{
			"patch": ours.Patch(t.Context(), theirs.DeepCopy(), merge), "update": ours.Update(t.Context(), changed), "delete": ours.Delete(t.Context(), theirs),
			"delete the Node": ours.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}),
			"taint the Node's status": ours.Status().Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}},
				client.RawPatch(types.MergePatchType, []byte(`{"status": {"phase": "Pending"}}`))),
		} {
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "was not made by this lab") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := ours.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace("default")); err != nil {
			t.Error(err)
		}
		var there corev1.ConfigMap
		if err := somebody.Get(t.Context(), client.ObjectKeyFromObject(theirs), &there); err != nil {
			t.Errorf("deleting all of ours: %v", err)
		}
	})

	t.Run("keeps its label, and its policies to itself", func(t *testing.T) {
		mine := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "mine", Finalizers: []string{"fencelab.dev/never"}}}
		if err := ours.Create(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
		mine.Labels = nil
		if err := ours.Update(t.Context(), mine); err != nil || mine.Labels[Label] != "abcdefgh" {
			t.Errorf("an update without labels leaves %v: %v", mine.Labels, err)
		}
		tooMuch := func(name string) *unstructured.Unstructured {
			g := gauge(name)
			g.Object["spec"] = map[string]any{"limit": int64(101)}
			return g
		}
		for end := time.Now().Add(establishTimeout); ; <-time.After(50 * time.Millisecond) { // a policy takes a moment
			err := ours.Create(t.Context(), tooMuch("ours"))
			if apierrors.IsInvalid(err) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the policy doesn't hold for what is ours: %v", err)
			}
			if err == nil {
				err = ours.Delete(t.Context(), gauge("ours"))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := somebody.Create(t.Context(), tooMuch("theirs")); err != nil {
			t.Errorf("the policy holds for what is not ours: %v", err)
		} else if err := somebody.Delete(t.Context(), gauge("theirs")); err != nil {
			t.Error(err)
		}
	})

	t.Run("says whose is what a killed one has left", func(t *testing.T) {
		other := o
		other.Name = "hgfedcba"
		if _, err := Attach(t.Context(), other); err == nil || !strings.Contains(err.Error(), "Node /worker-1 belongs to the lab abcdefgh: if that lab is gone, run fencelab lab down --kubeconfig "+file+" abcdefgh") {
			t.Errorf("attached: %v", err)
		}
	})

	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	if diff := difference(before, census(t, somebody)); diff != "" {
		t.Errorf("what was before and is afterwards differs:%s", diff)
	}

	t.Run("uses definitions that are there", func(t *testing.T) {
		if err := c.Install(t.Context(), gauges(t)); err != nil {
			t.Fatal(err)
		}
		definition, err := os.ReadFile("testdata/install/gauges.yaml")
		if err != nil {
			t.Fatal(err)
		}
		only := fstest.MapFS{"gauges.yaml": {Data: definition}}
		wrong := fstest.MapFS{"gauges.yaml": {Data: []byte(strings.ReplaceAll(string(only["gauges.yaml"].Data), "name: v1\n", "name: v2\n"))}}
		o := AttachOptions{Kubeconfig: file, Name: "abcdefgh", Manifests: []fs.FS{wrong}}
		if _, err := Attach(t.Context(), o); err == nil || !strings.Contains(err.Error(), "gauges.test.fencelab.dev exists already, and serves v1 but not v2") {
			t.Errorf("attached: %v", err)
		}
		if err := somebody.Delete(t.Context(), gauge("steam")); err != nil {
			t.Fatal(err)
		}
		before := census(t, somebody)
		o.Manifests = []fs.FS{only}
		a, err := Attach(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Install(t.Context(), only); err != nil {
			t.Error(err)
		}
		if err := Release(t.Context(), file, "abcdefgh"); err != nil {
			t.Error(err)
		}
		if err := a.Stop(); err != nil {
			t.Error(err)
		}
		if diff := difference(before, census(t, somebody)); diff != "" {
			t.Errorf("what was before and is afterwards differs:%s", diff)
		}
	})
}

func difference(before, after map[string]string) (diff string) {
	for name, was := range before {
		if after[name] != was {
			diff += "\n" + name + " was " + was + " and is " + after[name]
		}
	}
	for name := range after {
		if _, was := before[name]; !was {
			diff += "\n" + name + " is new"
		}
	}
	return diff
}
