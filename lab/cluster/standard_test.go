package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/lab/child"
)

// TestStandard shows that the standard controllers do what their stand-ins do elsewhere, and that a
// kubelet can join with nothing but the bootstrap token.
func TestStandard(t *testing.T) {
	o := Options{Nodes: []string{"worker-1"}, Standard: &Standard{GracePeriod: 4 * time.Second}}
	for _, f := range Preflight(t.Context(), o) {
		if f.Remedy != "" {
			t.Skipf("%s: %s; %s", f.Name, f.State, f.Remedy) // make nodes builds them, and e2e-quick does without
		}
	}
	c, err := Launch(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()
	for _, p := range []*child.Process{c.Managing.process, c.scheduler} {
		t.Logf("resident: %d has %s", p.Pid(), resident(t, p))
	}
	admin := newClient(t, c.Config())
	t.Run("a kubelet joins", func(t *testing.T) { testBootstrap(t, c) })
	t.Run("a kubelet joins by way of somebody who is attached", func(t *testing.T) { testJoin(t, c) })

	kubelet := newClient(t, c.ConfigFor("system:node:worker-1", "system:nodes"))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	if err := kubelet.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	before := node.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	node.Status.Capacity = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10"), corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	node.Status.Allocatable = node.Status.Capacity
	if err := kubelet.Status().Patch(t.Context(), node, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	set := statefulSet("exclusive")
	if err := admin.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	// The StatefulSet's controller makes the Pod. Once the Node's taint is gone, which is up to its
	// lifecycle controller, the scheduler binds it.
	await(t, "a Pod on the Node", func() error {
		var pod corev1.Pod
		if err := admin.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "exclusive-0"}, &pod); err != nil {
			return err
		}
		if pod.Spec.NodeName != "worker-1" {
			return fmt.Errorf("it is on %q", pod.Spec.NodeName)
		}
		return nil
	})
	// It has never renewed a Lease.
	await(t, "a Node that is given up", func() error {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
				return nil
			}
		}
		return fmt.Errorf("conditions are %v", node.Status.Conditions)
	})
	t.Run("outages", func(t *testing.T) { testOutages(t, c, admin) })
}

// testOutages has the parts of the cluster stop and come back.
func testOutages(t *testing.T, c *Cluster, admin client.Client) {
	// Each namespace gets an account, if kube-controller-manager is there to make it.
	served := func(name string) func() error {
		return func() error {
			return admin.Get(t.Context(), types.NamespacedName{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
		}
	}
	create := func(ctx context.Context, name string) error {
		return admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for range 2 {
		if err := c.Managing.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(c.Managing.Pause(), c.Managing.Resume()); err != nil {
		t.Errorf("what is dead stands still: %v", err)
	}
	if err := create(t.Context(), "orphan"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.PauseStore(), c.PauseStore()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := create(ctx, "unwritten"); err == nil {
		t.Error("something was written while etcd stood still")
	}
	if err := c.ResumeStore(); err != nil {
		t.Fatal(err)
	}
	await(t, "a write after etcd went on", func() error { return create(t.Context(), "written") })
	if err := served("orphan")(); !apierrors.IsNotFound(err) {
		t.Errorf("without kube-controller-manager there is an account: %v", err)
	}
	for range 2 {
		if err := c.Managing.Start(); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "an account in a namespace that was made meanwhile", served("orphan"))
}

// testBootstrap lets the kubelet of worker-2 join, which registers its Node and none other.
func testBootstrap(t *testing.T, c *Cluster) {
	joined := bootstrap(t, c, "worker-2")
	if err := joined.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-2"}}); err != nil {
		t.Errorf("registering as the Node that the certificate is for: %v", err)
	}
	if err := joined.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-4"}}); err == nil {
		t.Error("the certificate of one Node registers another")
	}
}

// testJoin lets the kubelet of worker-3 join by way of a lab that is a guest of the cluster.
func testJoin(t *testing.T, c *Cluster) {
	text, err := Kubeconfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := Attach(t.Context(), AttachOptions{Kubeconfig: file, Name: "abcdefgh", Nodes: []string{"worker-3"}, Join: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.Stop(); err != nil {
			t.Error(err)
		}
	}()
	joined, node := bootstrap(t, a, "worker-3"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-3"}}
	if err := joined.Create(t.Context(), node); err != nil || node.Labels[Label] != "abcdefgh" {
		t.Errorf("registering as the Node that the certificate is for, with the labels %v: %v", node.Labels, err)
	}
	if err := bootstrap(t, a, "worker-9").Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-9"}}); !apierrors.IsUnauthorized(err) {
		t.Errorf("the kubelet of a host that isn't this lab's: %v", err)
	}
	admin := newClient(t, c.Config())
	for name, labels := range map[string]map[string]string{"ours": {Label: "abcdefgh"}, "of-every-node": nil} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}}
		pod.Spec = corev1.PodSpec{NodeName: "worker-3", Containers: []corev1.Container{{Name: "c", Image: "none"}}}
		if err := admin.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	var pods corev1.PodList
	if err := joined.List(t.Context(), &pods, client.MatchingFields{"spec.nodeName": "worker-3"}); err != nil || len(pods.Items) != 1 || pods.Items[0].Name != "ours" {
		t.Errorf("a kubelet is to run %v: %v", pods.Items, err)
	}
	var services corev1.ServiceList
	if err := joined.List(t.Context(), &services); err != nil || len(services.Items) == 0 {
		t.Errorf("a kubelet finds the Services %v: %v", services.Items, err)
	}
	var nodes corev1.NodeList
	if err := newClient(t, a.Config()).List(t.Context(), &nodes); err != nil || len(nodes.Items) != 1 {
		t.Errorf("the lab finds the Nodes %v: %v", nodes.Items, err)
	}
}

// joinable is a cluster that kubelets can join.
type joinable interface {
	Address() string
	CA() []byte
	BootstrapToken() string
}

// bootstrap asks for the certificate of a Node's kubelet as a kubelet does, and returns the client
// that has it.
func bootstrap(t *testing.T, c joinable, name string) client.Client {
	t.Helper()
	host := "https://" + c.Address()
	joining := newClient(t, &rest.Config{Host: host, BearerToken: c.BootstrapToken(), TLSClientConfig: rest.TLSClientConfig{CAData: c.CA()}})
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: csr(t, key, "system:node:"+name), SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	if err := joining.Create(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	await(t, "a certificate", func() error {
		if err := joining.Get(t.Context(), client.ObjectKeyFromObject(request), request); err != nil {
			return err
		}
		if len(request.Status.Certificate) == 0 {
			return fmt.Errorf("conditions are %v", request.Status.Conditions)
		}
		return nil
	})
	secret, err := keyPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, &rest.Config{Host: host, TLSClientConfig: rest.TLSClientConfig{CAData: c.CA(), CertData: request.Status.Certificate, KeyData: secret}})
}

func csr(t *testing.T, key *ecdsa.PrivateKey, user string) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: user, Organization: []string{"system:nodes"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func statefulSet(name string) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
			},
		},
	}
}

// TestSameKubernetes keeps the modules with commands of Kubernetes at one version.
func TestSameKubernetes(t *testing.T) {
	pinned := regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v\S+)`)
	var versions []string
	for _, module := range []string{"controlplane", "kubernetes", "kubeadm"} {
		text, err := os.ReadFile(module + "/go.mod")
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, fmt.Sprint(pinned.FindStringSubmatch(string(text))))
	}
	if len(slices.Compact(slices.Clone(versions))) != 1 || !strings.Contains(versions[0], "v1.") {
		t.Errorf("the API server, the others and kubeadm are of %s", versions)
	}
}
