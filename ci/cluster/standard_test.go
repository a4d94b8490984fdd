package cluster

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestStandard shows that the standard controllers do what their stand-ins do elsewhere, and that a kubelet can join with
// nothing but the bootstrap token.
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
	for _, p := range c.standard {
		t.Logf("resident: %d has %s", p.Pid(), resident(t, p))
	}
	admin := newClient(t, c.Config())
	t.Run("a kubelet joins", func(t *testing.T) { testBootstrap(t, c) })

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
	// The StatefulSet's controller makes the Pod. Once the Node's taint is gone, which is up to its lifecycle controller, the
	// scheduler binds it.
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
}

// testBootstrap asks for the certificate of a kubelet as a kubelet does.
func testBootstrap(t *testing.T, c *Cluster) {
	joining := newClient(t, &rest.Config{Host: c.Config().Host, BearerToken: c.BootstrapToken(), TLSClientConfig: rest.TLSClientConfig{CAData: c.CA()}})
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "worker-2"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: csr(t, key, "system:node:worker-2"), SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
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
	joined := newClient(t, &rest.Config{Host: c.Config().Host, TLSClientConfig: rest.TLSClientConfig{CAData: c.CA(), CertData: request.Status.Certificate, KeyData: secret}})
	if err := joined.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-2"}}); err != nil {
		t.Errorf("registering as the Node that the certificate is for: %v", err)
	}
	if err := joined.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-3"}}); err == nil {
		t.Error("the certificate of one Node registers another")
	}
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
