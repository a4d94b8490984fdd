package cluster

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/lab/child"
	"github.com/fencelab/fencelab/vms/keeper"
)

const ownerVariable = "CLUSTER_TEST_OWNER"

// standing marks an owner whose cluster waits on a shelf.
const standing = "standing still"

func TestMain(m *testing.M) {
	keeper.Main()
	if of := os.Getenv(ownerVariable); of != "" {
		own(of == standing)
	}
	os.Exit(m.Run())
}

// own is the process that gets killed: it launches a cluster, says where, and holds it, or has it
// stand on a shelf.
func own(still bool) {
	var shelf Shelf
	c, err := shelf.Launch(context.Background(), Options{})
	if err == nil && still {
		err = c.Stop()
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(c.dir)
	select {}
}

// needBinaries skips a test that can't run here, unless the environment says that it must.
func needBinaries(t *testing.T) {
	t.Helper()
	for _, f := range Preflight(t.Context(), Options{}) {
		if f.Remedy == "" {
			continue
		}
		if os.Getenv("FENCELAB_REQUIRE_LAB") == "1" {
			t.Fatalf("%s: %s; %s", f.Name, f.State, f.Remedy)
		}
		t.Skipf("%s: %s; %s", f.Name, f.State, f.Remedy)
	}
}

// processesOf returns the processes whose temporary directory is dir: those that a cluster started.
func processesOf(t *testing.T, dir string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil || len(files) == 0 {
		t.Fatalf("list processes: %v", err)
	}
	for _, file := range files {
		// A process that is gone or a zombie has no environment.
		if environ, err := os.ReadFile(file); err == nil && strings.Contains("\x00"+string(environ), "\x00TMPDIR="+dir+"\x00") {
			found = append(found, filepath.Dir(file))
		}
	}
	return found
}

func expectNothingLeft(t *testing.T, dir string) {
	t.Helper()
	if found := processesOf(t, dir); len(found) > 0 {
		t.Errorf("processes are left: %v", found)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("directory %s is left (stat: %v)", dir, err)
	}
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCluster(t *testing.T) {
	needBinaries(t)
	begin := time.Now()
	c, err := Launch(t.Context(), Options{Nodes: []string{"worker-1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ready after %d ms; resident: etcd %s, kube-apiserver %s",
		time.Since(begin).Milliseconds(), resident(t, c.etcd), resident(t, c.apiServer))
	stopped := false
	defer func() {
		if !stopped {
			c.Stop()
		}
	}()
	if len(processesOf(t, c.dir)) != 2 {
		t.Fatal("this test doesn't see the two processes of a running cluster, so it couldn't see those that are left")
	}

	admin := newClient(t, c.Config())
	t.Run("administrator", func(t *testing.T) {
		for _, name := range []string{"worker-1", "worker-2", "worker-3"} {
			if err := admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
				t.Fatal(err)
			}
		}
		var nodes corev1.NodeList
		if err := admin.List(t.Context(), &nodes); err != nil || len(nodes.Items) != 3 {
			t.Fatalf("%d Nodes, want 3 (%v)", len(nodes.Items), err)
		}
	})

	t.Run("RBAC confines users", func(t *testing.T) {
		mallory := newClient(t, c.ConfigFor("mallory", "visitors"))
		err := mallory.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"mallory"`) {
			t.Fatalf("deleting a Node as mallory: %v, want forbidden", err)
		}
		if err := c.Install(t.Context(), os.DirFS("testdata/roles")); err != nil {
			t.Fatal(err)
		}
		// The authorizer learns of the binding through a watch.
		await(t, "a read as mallory", func() error {
			return mallory.Get(t.Context(), types.NamespacedName{Name: "worker-1"}, new(corev1.Node))
		})
	})

	byToken := &rest.Config{
		Host: c.Config().Host, BearerToken: c.NodeToken("worker-1"), TLSClientConfig: rest.TLSClientConfig{CAData: c.CA()},
	}
	for how, config := range map[string]*rest.Config{
		"token": byToken, "certificate": c.ConfigFor("system:node:worker-1", "system:nodes"),
	} {
		t.Run("NodeRestriction confines a kubelet with a "+how, func(t *testing.T) {
			kubelet := newClient(t, config)
			label := client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"how":%q}}}`, how))
			own := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
			if err := kubelet.Patch(t.Context(), own, label); err != nil {
				t.Errorf("labelling its own Node: %v", err)
			}
			other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-2"}}
			if err := kubelet.Patch(t.Context(), other, label); !apierrors.IsForbidden(err) {
				t.Errorf("labelling another Node: %v, want forbidden", err)
			}
		})
	}
	if token := c.NodeToken("worker-2"); token != "" {
		t.Errorf("a Node that wasn't listed has the token %q", token)
	}

	t.Run("Install", func(t *testing.T) { testInstall(t, c, admin) })
	t.Run("Pause", func(t *testing.T) { testPause(t, c) })

	dir := c.dir
	begin, stopped = time.Now(), true
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	t.Logf("stopped after %d ms", time.Since(begin).Milliseconds())
	if err := c.Stop(); err != nil {
		t.Errorf("second stop: %v", err)
	}
	expectNothingLeft(t, dir)
}

func testInstall(t *testing.T, c *Cluster, admin client.Client) {
	manifests := os.DirFS("testdata/install")
	for range 2 { // the second time changes nothing
		if err := c.Install(t.Context(), manifests); err != nil {
			t.Fatal(err)
		}
	}
	gauge := &unstructured.Unstructured{}
	gauge.SetGroupVersionKind(schema.GroupVersionKind{Group: "test.fencelab.dev", Version: "v1", Kind: "Gauge"})
	if err := admin.Get(t.Context(), types.NamespacedName{Namespace: "meters", Name: "steam"}, gauge); err != nil {
		t.Fatal(err)
	}
	if limit, _, err := unstructured.NestedInt64(gauge.Object, "spec", "limit"); limit != 7 {
		t.Errorf("limit is %v (%v), want 7", limit, err)
	}
	// The policy takes effect once the API server's watch has delivered it and its binding.
	await(t, "a refusal by the ValidatingAdmissionPolicy", func() error {
		over := gauge.DeepCopy()
		unstructured.SetNestedField(over.Object, int64(101), "spec", "limit")
		err := admin.Update(t.Context(), over, client.DryRunAll)
		if err != nil && strings.Contains(err.Error(), "no gauge goes beyond 100") {
			return nil
		}
		return fmt.Errorf("a limit of 101: %v", err)
	})
	bare := fstest.MapFS{"x.yaml": {Data: []byte("{apiVersion: v1, kind: ServiceAccount, metadata: {name: meter}}")}}
	if err := c.Install(t.Context(), bare); err != nil {
		t.Fatal(err)
	}
	if err := admin.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "meter"}, &corev1.ServiceAccount{}); err != nil {
		t.Errorf("an object that says nothing of its namespace: %v", err)
	}
	unknown := fstest.MapFS{"x.yaml": {Data: []byte("{apiVersion: nowhere.dev/v1, kind: Nothing, metadata: {name: x}}")}}
	if err := c.Install(t.Context(), unknown); err == nil || !strings.Contains(err.Error(), "x.yaml, document 1") {
		t.Errorf("an unknown kind: %v, want an error that names file and document", err)
	}
}

func testPause(t *testing.T, c *Cluster) {
	httpClient, err := rest.HTTPClientFor(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	httpClient.Timeout = 200 * time.Millisecond
	url := c.Config().Host + "/readyz"
	for range 2 {
		if err := c.Pause(); err != nil {
			t.Fatal(err)
		}
	}
	_, err = httpClient.Get(url)
	if timeout, ok := err.(interface{ Timeout() bool }); !ok || !timeout.Timeout() {
		t.Errorf("a paused API server answered: %v", err)
	}
	if err := c.Resume(); err != nil {
		t.Fatal(err)
	}
	httpClient.Timeout = time.Minute
	if err := child.AwaitAnswer(t.Context(), httpClient, url, c.apiServer); err != nil {
		t.Errorf("a resumed API server: %v", err)
	}
	// Stop has to work on a paused one, too.
	if err := c.Pause(); err != nil {
		t.Fatal(err)
	}
}

func TestNothingOutlivesAKilledOwner(t *testing.T) {
	needBinaries(t)
	for _, how := range []string{"running", standing} {
		t.Run(how, func(t *testing.T) { killOwner(t, how) })
	}
}

func killOwner(t *testing.T, how string) {
	owner := exec.Command("/proc/self/exe")
	owner.Env = append(os.Environ(), ownerVariable+"="+how)
	stdout, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	// The keeper inherits its owner's stderr, so this pipe ends when both are gone.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	owner.Stderr = w
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	dir := strings.TrimSpace(line)
	if err != nil || !filepath.IsAbs(dir) {
		t.Fatalf("owner said %q: %v", line, err)
	}
	if found := processesOf(t, dir); len(found) != 2 {
		t.Errorf("the owner runs %d processes, want 2", len(found))
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	owner.Wait()
	if said, _ := io.ReadAll(r); len(said) > 0 {
		t.Errorf("the keeper said %q", said)
	}
	expectNothingLeft(t, dir)
}

// fakeBin makes a directory of shell scripts that stand for the two commands.
func fakeBin(t *testing.T, etcd, apiServer string) string {
	t.Helper()
	bin := t.TempDir()
	for name, script := range map[string]string{"etcd": etcd, "kube-apiserver": apiServer} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}

func TestLaunchErrors(t *testing.T) {
	const block = "exec sleep 1000"
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	tests := []struct {
		name string
		ctx  context.Context
		bin  string
		want []string
	}{
		{"etcd ends", t.Context(), fakeBin(t, "echo first; echo 'disk is full' >&2; exit 3", block),
			[]string{"etcd ended by itself (exit status 3)", "first\ndisk is full"}},
		{"kube-apiserver ends", t.Context(), fakeBin(t, block, "seq 1000; exit 0"),
			[]string{"kube-apiserver ended by itself (exit status 0)", "971\n972", "999\n1000"}},
		{"canceled", canceled, fakeBin(t, block, block), []string{"/readyz", "context canceled"}},
		{"no binaries", t.Context(), t.TempDir(), []string{"etcd: no such file", "lab/cluster/build.sh"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, err := Launch(test.ctx, Options{Bin: test.bin})
			if err == nil {
				c.Stop()
				t.Fatal("launched")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
			if strings.Contains(err.Error(), "\n970\n") {
				t.Errorf("more than the last lines:\n%v", err)
			}
		})
	}
}

// A control plane that failed during a run must not pass for one that was stopped.
func TestStopTellsWhatEndedBefore(t *testing.T) {
	c := new(Cluster)
	var err error
	if c.keeper, err = keeper.Start(); err != nil {
		t.Fatal(err)
	}
	if c.dir, err = c.keeper.TempDir("fencelab-cluster-test"); err != nil {
		t.Fatal(err)
	}
	bin := fakeBin(t, "exec sleep 1000", "echo 'out of memory'; exit 9")
	if c.etcd, err = c.start(bin, "etcd", nil); err != nil {
		t.Fatal(err)
	}
	if c.apiServer, err = c.start(bin, "kube-apiserver", nil); err != nil {
		t.Fatal(err)
	}
	<-c.apiServer.Exited()
	err = c.Stop()
	if err == nil || !strings.Contains(err.Error(), "kube-apiserver ended by itself (exit status 9)") ||
		!strings.Contains(err.Error(), "out of memory") || strings.Contains(err.Error(), "etcd ended") {
		t.Errorf("stop: %v", err)
	}
	expectNothingLeft(t, c.dir)
}

// await repeats an attempt that succeeds once a watch within the API server has caught up.
func await(t *testing.T, what string, attempt func() error) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := attempt()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func resident(t *testing.T, p *child.Process) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	line, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(line)
}
