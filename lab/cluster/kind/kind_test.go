package kind

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fencelab/fencelab/vms/keeper"
)

const ownerVariable = "KIND_TEST_OWNER"

// TestMain also is a process that has a cluster, and is killed.
func TestMain(m *testing.M) {
	keeper.Main()
	if os.Getenv(ownerVariable) != "" {
		if err := own(); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		select {}
	}
	os.Exit(m.Run())
}

// own makes a cluster, and looks at what is in it.
func own() error {
	c, err := Create(context.Background(), Options{GracePeriod: 4 * time.Second, Log: os.Stderr})
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return err
	}
	config.Dial = c.Dial
	there, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	leases, err := there.CoordinationV1().Leases(metav1.NamespaceSystem).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	fmt.Print(keeper.Name())
	for _, l := range leases.Items {
		if l.Name == "kube-controller-manager" || l.Name == "kube-scheduler" {
			fmt.Print(" ", l.Name)
		}
	}
	nodes, err := there.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range nodes.Items {
		fmt.Print(" ", strings.TrimPrefix(n.Name, name()), " unschedulable=", n.Spec.Unschedulable)
	}
	pods, err := there.CoreV1().Pods(metav1.NamespaceSystem).List(context.Background(), metav1.ListOptions{LabelSelector: "component=kube-controller-manager"})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		fmt.Print(" grace=", strings.Contains(strings.Join(p.Spec.Containers[0].Command, " "), "--node-monitor-grace-period=4s"))
	}
	fmt.Println()
	return nil
}

// TestNothingOutlivesAKilledOwner kills the process that made a cluster, in which all was as it
// should be.
func TestNothingOutlivesAKilledOwner(t *testing.T) {
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" {
		t.Skip("it runs with make e2e")
	}
	for _, f := range Preflight(t.Context()) {
		if f.Remedy != "" {
			t.Skipf("%s: %s; %s", f.Name, f.State, f.Remedy) // make e2e says aloud that it goes without
		}
	}
	owner := exec.Command("/proc/self/exe")
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	process, facts, _ := strings.Cut(strings.TrimSpace(line), " ")
	if err != nil || !keeper.IsName(process) {
		t.Fatalf("the owner says %q: %v", line, err)
	}
	if want := "kube-controller-manager kube-scheduler -control-plane unschedulable=true grace=true"; facts != want {
		t.Errorf("the cluster has %q, want %q", facts, want)
	}
	if len(remains(t, process)) < 2 {
		t.Errorf("a cluster that runs has %q only", remains(t, process))
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // it was killed
	for deadline := time.Now().Add(time.Minute); len(remains(t, process)) > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("a minute after its owner was killed, there are %q", remains(t, process))
		}
	}
	if err := Sweep(t.Context(), process); err != nil {
		t.Errorf("there is nothing left to sweep: %v", err)
	}
}

// remains are the processes, directories, cgroups and containers of a process's cluster.
func remains(t *testing.T, process string) (found []string) {
	t.Helper()
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the patterns are good ones
	for _, file := range lines {
		text, _ := os.ReadFile(file) // it may have ended meanwhile
		if strings.Contains(string(text), process) {
			found = append(found, strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	for _, pattern := range []string{os.TempDir() + "/*-" + process + "-*", "/sys/fs/cgroup/fencelab-" + process, "/sys/fs/cgroup/*/fencelab-" + process} {
		paths, _ := filepath.Glob(pattern)
		found = append(found, paths...)
	}
	if e, err := findEngine(t.Context()); err == nil && e != nil {
		names, err := e.run(t.Context(), "ps", "--all", "--format", "{{.Names}}", "--filter", "name="+process)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, strings.Fields(names)...)
	}
	return found
}
