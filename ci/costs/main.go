// Command costs measures what a campaign comes to on many Pods, without playing it. A real API
// server, Job controller and scheduler make the Pods of its Job on one node whose kubelet has each
// end at once with a summary, while fencelab follows. And it makes the blobs of many shards out of
// one, and has them merged.
//
//	go run ./ci/costs -pods 10,1000,10000
//	go run ./ci/costs -blob blobs/nightly-1-of-1.blob -shards 40,1000,10000
//
// It needs bin/fencelab, and for the Pods what a lab with --cluster standard needs.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/fencelab/fencelab/cmd/oncluster"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/vms/keeper"
)

func main() {
	keeper.Main() // does not return in the process that cleans up after us
	pods := flag.String("pods", "", "how many Pods, as a list; each number is a Job of its own")
	blob := flag.String("blob", "", "blob of a whole campaign, of which those of many shards are made")
	shards := flag.String("shards", "40,1000,10000", "how many shards, as a list")
	flag.Parse()
	if err := run(*pods, *blob, *shards); err != nil {
		fmt.Fprintln(os.Stderr, "costs:", err)
		os.Exit(1)
	}
}

func run(pods, blob, shards string) error {
	k, err := keeper.Start()
	if err != nil {
		return err
	}
	err = each(pods, func(n int) error { return in(k, func(dir string) error { return job(dir, n) }) })
	if err == nil && blob != "" {
		err = each(shards, func(n int) error { return in(k, func(dir string) error { return merge(dir, blob, n) }) })
	}
	return errors.Join(err, k.Close())
}

func each(list string, do func(n int) error) error {
	for text := range strings.SplitSeq(list, ",") {
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err == nil {
			err = do(n)
		}
		if err != nil {
			return fmt.Errorf("with %s: %w", text, err)
		}
	}
	return nil
}

// in does something in a directory that is gone afterwards, also if we are killed.
func in(k *keeper.Keeper, do func(dir string) error) error {
	dir, err := k.TempDir("fencelab-costs")
	if err != nil {
		return err
	}
	return errors.Join(do(dir), os.RemoveAll(dir))
}

const (
	program  = "bin/fencelab"
	node     = "crowd"
	campaign = "apiVersion: fencelab.dev/v1alpha1\nkind: Campaign\nmetadata: {name: costs, description: No Pod plays it.}\nspec:\n  stories: [catalog:reboot-annotation/plain-power-cycle.yaml]\n  searches: [{strategy: random, schedules: 1000}]\n"
)

// job has fencelab make a Job with n Pods at once and follow it, and prints what that took.
func job(dir string, n int) error {
	ctx, fail := context.WithCancelCause(context.Background())
	defer fail(nil)
	c, err := cluster.Launch(ctx, cluster.Options{Standard: &cluster.Standard{Throttled: true}})
	if err != nil {
		return err
	}
	defer func() { _ = c.Stop() }() // the keeper sees to it
	config := c.Config()
	config.QPS = -1 // nothing that this program asks for is measured
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := crowded(ctx, api, n); err != nil {
		return err
	}
	kubeconfig, err := cluster.Kubeconfig(c.Config())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "kubeconfig"), kubeconfig, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "costs.yaml"), []byte(campaign), 0o600)
	}
	if err != nil {
		return err
	}
	before, err := requests(ctx, api)
	if err != nil {
		return err
	}
	began := time.Now()
	var first, last atomic.Pointer[time.Time]
	err = kubelet(ctx, api, fail, func() {
		now := time.Now()
		first.CompareAndSwap(nil, &now)
		last.Store(&now)
	})
	if err != nil {
		return err
	}
	follower := exec.CommandContext(ctx, program, "campaign", "run", filepath.Join(dir, "costs.yaml"), "--on", "kubernetes", "--store", "s3://nowhere", "--secret", "none", "--shards", strconv.Itoa(n))
	follower.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "kubeconfig"))
	said, err := follower.CombinedOutput()
	if err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("the follower ends with %w:\n%s", err, said))
	}
	took := time.Since(began)
	after, err := requests(ctx, api)
	if err != nil {
		return err
	}
	fmt.Printf("%d Pods: the first after %s, the last after %s, the follower done after %s, with at most %d MB\n",
		n, first.Load().Sub(began).Round(100*time.Millisecond), last.Load().Sub(began).Round(100*time.Millisecond), took.Round(time.Second), resident(follower.ProcessState))
	var rows []string
	for _, what := range slices.Sorted(maps.Keys(after)) {
		if more := after[what] - before[what]; more > n/20 {
			rows = append(rows, fmt.Sprintf("%s %d (%.2f a Pod)", what, more, float64(more)/float64(n)))
		}
	}
	fmt.Printf("  requests: %s\n  %s\n", strings.Join(rows, ", "), bytes.ReplaceAll(bytes.TrimSpace(said), []byte("\n"), []byte("\n  ")))
	return nil
}

// crowded makes a node with room for all, and keeps it alive.
func crowded(ctx context.Context, api kubernetes.Interface, n int) error {
	room := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(n), resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(int64(n)<<30, resource.BinarySI), corev1.ResourcePods: *resource.NewQuantity(int64(n), resource.DecimalSI)}
	is, err := api.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	is.Status = corev1.NodeStatus{Capacity: room, Allocatable: room, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}}
	if _, err := api.CoreV1().Nodes().UpdateStatus(ctx, is, metav1.UpdateOptions{}); err != nil {
		return err
	}
	leases := api.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(node), LeaseDurationSeconds: ptr.To(int32(40)), RenewTime: ptr.To(metav1.NowMicro())}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	go func() {
		for ; ctx.Err() == nil; time.Sleep(10 * time.Second) {
			lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
			if renewed, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err == nil {
				lease = renewed
			}
		}
	}()
	return nil
}

// kubelet has each Pod end well as soon as it has a node, with a summary. It calls made when a Pod
// was made, and fail with what goes wrong later.
func kubelet(ctx context.Context, api kubernetes.Interface, fail context.CancelCauseFunc, made func()) error {
	end := func(object any) {
		pod := object.(*corev1.Pod)
		if pod.Spec.NodeName == "" || pod.Status.Phase != corev1.PodPending {
			return
		}
		index, err := strconv.Atoi(pod.Labels[batchv1.JobCompletionIndexAnnotation])
		var summary, text []byte
		if err == nil {
			summary, err = json.Marshal(oncluster.Summary{Shard: index + 1, Schedules: 1000, Digest: "0123456789abcdef", Findings: []string{"0123456789", "abcdefabcd"}})
		}
		if err == nil {
			text, err = json.Marshal(map[string]any{"status": corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{
				Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: string(summary), FinishedAt: metav1.Now()}},
			}}}})
		}
		if err == nil {
			_, err = api.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, text, metav1.PatchOptions{}, "status")
		}
		if err != nil && ctx.Err() == nil {
			fail(fmt.Errorf("end Pod %s: %w", pod.Name, err))
		}
	}
	// An informer: the API server cuts off a plain watch that falls behind.
	pods := informers.NewSharedInformerFactory(api, 0).Core().V1().Pods().Informer()
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			made()
			end(object)
		},
		UpdateFunc: func(_, object any) { end(object) },
	})
	go pods.RunWithContext(ctx)
	return err
}

var counted = regexp.MustCompile(`^apiserver_request_total\{.*resource="([^"]*)".*subresource="([^"]*)".*verb="([^"]*)".*\} (\S+)$`)

// requests are how many requests the server had, by what they wanted.
func requests(ctx context.Context, api kubernetes.Interface) (map[string]int, error) {
	text, err := api.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	all := make(map[string]int)
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
		if m := counted.FindStringSubmatch(in.Text()); m != nil && m[3] != "WATCH" && m[1] != "leases" {
			n, err := strconv.ParseFloat(m[4], 64)
			if err != nil {
				return nil, err
			}
			all[strings.TrimSuffix(m[3]+" "+m[1]+"/"+m[2], "/")] += int(n)
		}
	}
	return all, nil
}

// resident is how much memory a process had at most, in megabytes.
func resident(p *os.ProcessState) int64 { return p.SysUsage().(*syscall.Rusage).Maxrss >> 10 }

// merge makes the blobs of n shards, each of them like the blob of a whole campaign, and has them
// merged.
func merge(dir, blob string, n int) error {
	text, err := os.ReadFile(blob)
	if err != nil {
		return err
	}
	size := 0
	for i := range n {
		again, err := repeated(text, i, n)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.blob", i+1)), again, 0o600)
		}
		if err != nil {
			return err
		}
		size += len(again)
	}
	merging := exec.Command(program, "campaign", "merge", dir, "--no-shrink", "--out", filepath.Join(dir, "report"))
	began := time.Now()
	said, err := merging.CombinedOutput()
	if code := merging.ProcessState.ExitCode(); code < 0 || code > 2 { // whatever was found
		return fmt.Errorf("merging ends with %w:\n%s", err, said)
	}
	fmt.Printf("%d blobs of %.1f MB: merged in %s, %s of a core, with at most %d MB\n  %s\n", n, float64(size)/1e6, time.Since(began).Round(100*time.Millisecond),
		(merging.ProcessState.UserTime() + merging.ProcessState.SystemTime()).Round(100*time.Millisecond), resident(merging.ProcessState), bytes.TrimSpace(bytes.SplitN(bytes.TrimSpace(said), []byte("\n"), 2)[0]))
	return nil
}

// repeated is a blob as that of the i-th of n shards, from 0, with jobs of its own.
func repeated(blob []byte, i, n int) ([]byte, error) {
	var again []byte
	jobs := 0.0
	for text := range bytes.Lines(blob) {
		var line map[string]map[string]any
		from := json.NewDecoder(bytes.NewReader(text))
		from.UseNumber()
		number := bytes.HasPrefix(text, []byte(`{"number"`))
		if !number { // a search stays as it is
			if err := from.Decode(&line); err != nil {
				return nil, fmt.Errorf("read the blob: %w", err)
			}
		}
		shift := func(of map[string]any, names ...string) {
			for _, name := range names {
				was, _ := of[name].(json.Number).Float64() // it is one
				of[name] = int(was + float64(i)*jobs)
			}
		}
		switch {
		case number:
		case line["header"] != nil:
			h := line["header"]
			jobs, _ = h["jobs"].(json.Number).Float64() // it is one
			shift(h, "from", "to")
			all, _ := h["schedules"].(json.Number).Float64() // it is one
			h["shard"], h["of"], h["jobs"], h["schedules"] = i+1, n, int(jobs)*n, int(all)*n
		case line["record"] != nil:
			shift(line["record"], "index")
		case line["trailer"] != nil:
			sum := sha256.Sum256(again)
			line["trailer"]["digest"] = hex.EncodeToString(sum[:])
		}
		if !number {
			changed, err := json.Marshal(line)
			if err != nil {
				return nil, err
			}
			text = append(changed, '\n')
		}
		again = append(again, text...)
	}
	return again, nil
}
