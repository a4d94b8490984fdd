package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/cmd/store/storetest"
	"github.com/fencelab/fencelab/lab/cluster/kind"
	"github.com/fencelab/fencelab/lab/slots"
	"github.com/fencelab/fencelab/scenarios/campaign/shard"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/test/clone"
)

// nineteen are the stories of the catalogue in the campaign of the tests; the twentieth has a wrong
// controller that some of its schedules find out, and goes with the campaign.
var nineteen = []string{
	"machine-remediation/answers-are-lost", "machine-remediation/answers-are-too-late", "machine-remediation/conflicts-and-overload", "machine-remediation/crash-after-asking",
	"machine-remediation/crash-after-deleting-the-node", "machine-remediation/crash-after-each-effect", "machine-remediation/cut-off-host", "machine-remediation/frozen-cache-of-hosts",
	"machine-remediation/three-hosts", "health-check/all-at-once", "health-check/api-outage", "health-check/cordoned-node", "health-check/crash-after-marking", "health-check/flapping-node",
	"health-check/count-is-live", "health-check/mark-conflicts", "reboot-annotation/plain-power-cycle", "agents/cut-off-host-resets-itself", "deletion-hooks/cut-off-while-hooked",
}

// campaignOf writes a campaign of the first of the twenty stories, with a number of schedules in
// all.
func campaignOf(t *testing.T, stories, schedules int) (file string) {
	t.Helper()
	dir := t.TempDir()
	text := "apiVersion: fencelab.dev/v1alpha1\nkind: Campaign\nmetadata: {name: twenty, description: A try.}\nspec:\n  stories:\n    - stories\n"
	for _, story := range nineteen[:stories-1] {
		text += "    - catalog:" + story + ".yaml\n"
	}
	text += fmt.Sprintf("  searches:\n    - {strategy: random, schedules: %d}\n", schedules/stories)
	own, err := os.ReadFile("test/process/testdata/campaign/stories/stale.yaml")
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "stories"), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "stories", "stale.yaml"), own, 0o644)
	}
	file = filepath.Join(dir, "twenty.yaml")
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// TestInterruptedShard ends a shard by a signal while it plays: it ends with 6 and a blob that
// isn't whole, and goes on to the same blob as one that nothing has interrupted.
func TestInterruptedShard(t *testing.T) {
	t.Parallel()
	file := campaignOf(t, 2, 480)
	shardIn := func(dir string) *exec.Cmd {
		return exec.Command(clone.Command, "campaign", "run", file, "--shard", "1/2", "--workers", "1", "--out", dir, "--summary", filepath.Join(dir, "summary"))
	}
	read := func(dir string) []byte {
		t.Helper()
		names, _ := filepath.Glob(filepath.Join(dir, "*"+shard.Extension)) // the pattern is right
		if len(names) == 0 {
			return nil
		}
		blob, err := os.ReadFile(names[0])
		if err != nil {
			t.Fatal(err)
		}
		return blob
	}
	whole := t.TempDir()
	if said, err := shardIn(whole).CombinedOutput(); err != nil || !bytes.Contains(read(whole), []byte(`"trailer"`)) {
		t.Fatalf("without a signal it ends with %v:\n%s", err, said)
	}
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		dir := t.TempDir()
		cmd := shardIn(dir)
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); bytes.Count(read(dir), []byte(`"record"`)) < 2; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("it doesn't begin:\n%s", said.String())
			}
		}
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // its code says more
		blob := read(dir)
		if code := cmd.ProcessState.ExitCode(); code != exit.Interrupted || !strings.Contains(said.String(), "the same command goes on from") {
			t.Errorf("after %v it ends with %d, want %d:\n%s", signal, code, exit.Interrupted, said.String())
		}
		if bytes.Contains(blob, []byte(`"trailer"`)) || !bytes.HasPrefix(read(whole), blob) {
			t.Errorf("after %v its blob of %d bytes is no part of the whole one", signal, len(blob))
		}
		if _, err := os.Stat(filepath.Join(dir, "summary")); err == nil {
			t.Errorf("after %v there is a summary of what it hasn't played", signal)
		}
		if said, err := shardIn(dir).CombinedOutput(); err != nil || !bytes.Equal(read(dir), read(whole)) {
			t.Errorf("after %v it doesn't go on (%v):\n%s", signal, err, said)
		}
	}
}

// TestKilledShardGoesOnElsewhere kills a shard that keeps its blob in a store. Another machine goes
// on from what was stored, to the same blob.
func TestKilledShardGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	file := campaignOf(t, 2, 480)
	s := &storetest.Store{Bucket: "nights"}
	environment := os.Environ()
	for name, value := range s.Start(t) {
		environment = append(environment, name+"="+value)
	}
	shardIn := func(dir string, more ...string) *exec.Cmd {
		cmd := exec.Command(clone.Command, append([]string{"campaign", "run", file, "--shard", "1/2", "--workers", "1", "--out", dir}, more...)...)
		cmd.Env = environment
		return cmd
	}
	blobIn := func(objects map[string][]byte) []byte {
		for key, data := range objects {
			if strings.HasSuffix(key, shard.Extension) {
				return data
			}
		}
		return nil
	}
	whole := t.TempDir()
	if said, err := shardIn(whole).CombinedOutput(); err != nil {
		t.Fatalf("without a store it ends with %v:\n%s", err, said)
	}
	names, _ := filepath.Glob(filepath.Join(whole, "*"+shard.Extension)) // the pattern is right
	want, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	stored := make(chan bool, 100)
	s.Saw = func(key string) {
		if strings.HasSuffix(key, shard.Extension) {
			stored <- true
		}
	}
	killed := shardIn(t.TempDir(), "--store", "s3://nights/a b")
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-stored:
	case <-time.After(time.Minute):
		t.Error("nothing is stored")
	}
	_ = killed.Process.Kill()
	_ = killed.Wait() // it was killed
	part := blobIn(s.Objects())
	if !bytes.HasPrefix(want, part) || !bytes.Contains(part, []byte(`"record"`)) || len(part) == len(want) {
		t.Errorf("when it is killed, %d of %d bytes are stored", len(part), len(want))
	}
	if said, err := shardIn(t.TempDir(), "--store", "s3://nights/a b").CombinedOutput(); err != nil {
		t.Fatalf("elsewhere it ends with %v:\n%s", err, said)
	}
	if !bytes.Equal(blobIn(s.Objects()), want) {
		t.Error("what was stored in two pieces is another blob")
	}
	merge := exec.Command(clone.Command, "campaign", "merge", "s3://nights/a b", "--no-shrink", "--out", t.TempDir())
	merge.Env = environment
	if said, _ := merge.CombinedOutput(); !strings.Contains(string(said), "not played: shard 2 of 2") { // whatever it found
		t.Errorf("merging says\n%s", said)
	}
}

// onKind is a campaign that is played in a cluster of kind's.
type onKind struct {
	*testing.T
	kind *kind.Cluster
	api  client.Client
	// file is the campaign, blobs the directory of this machine that the claim leads to.
	file, blobs, kubeconfig string
	random                  *rand.Rand
}

// program is that of the image, which also follows.
const program = "bin/image/fencelab"

// schedulesVariable says how many schedules the campaign on kind has: a few thousand will do.
const schedulesVariable = "FENCELAB_CAMPAIGN_SCHEDULES"

// TestCampaignOnKind plays a campaign of 20 stories on four Pods of a real cluster: the findings,
// digests and counts equal those of two workers on this machine, also while all around it fails.
func TestCampaignOnKind(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" {
		t.Skip("it runs with make e2e")
	}
	for _, f := range kind.Preflight(t.Context()) {
		if f.Remedy != "" {
			t.Skipf("%s: %s; %s", f.Name, f.State, f.Remedy) // make e2e says aloud that it goes without
		}
	}
	self, err := filepath.Abs(program)
	if _, missing := os.Stat(program); err != nil || missing != nil {
		t.Fatalf("%v: make image builds it", errors.Join(err, missing))
	}
	schedules := 20000
	if text := os.Getenv(schedulesVariable); text != "" {
		if _, err := fmt.Sscan(text, &schedules); err != nil {
			t.Fatalf("%s=%s: %v", schedulesVariable, text, err)
		}
	}
	turn, err := slots.Machine().Take(t.Context(), t.Name(), slots.All, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(turn.Release)
	k := &onKind{T: t, file: campaignOf(t, 20, schedules), blobs: t.TempDir(), random: rand.New(rand.NewPCG(1, 0))}
	if err := os.Chmod(k.blobs, 0o777); err != nil { // Pods have a user of their own
		t.Fatal(err)
	}
	k.create()

	// On this machine, with two workers.
	here := t.TempDir()
	began := time.Now()
	k.run(exec.Command(self, "campaign", "run", k.file, "--shard", "1/1", "--workers", "2", "--out", here), exit.Held)
	local := time.Since(began)
	r, want := k.merge(self, here)
	if r.Schedules != schedules || len(r.Findings) == 0 || len(r.Missing) > 0 {
		t.Fatalf("on this machine %d of %d schedules come to %d findings, without %v", r.Schedules, schedules, len(r.Findings), r.Missing)
	}
	for _, round := range []struct {
		name    string
		shards  int
		trouble bool
	}{{"calm", 4, false}, {"trouble", 8, true}} {
		began := time.Now()
		job := k.play(self, round.shards, round.trouble)
		took := time.Since(began)
		if _, got := k.merge(self, k.blobs); want != got {
			t.Errorf("%s: the cluster came to something else:\n%s", round.name, cmp.Diff(want, got))
		}
		if _, both := k.merge(self, k.blobs, here); want != both { // jobs that differ are refused
			t.Errorf("%s: with the blobs of this machine it is something else:\n%s", round.name, cmp.Diff(want, both))
		}
		t.Logf("%s: %d schedules in %v on 4 Pods, in %v with 2 workers here: %.2f times; %d Pods failed", round.name, schedules, took.Round(time.Second), local.Round(time.Second), took.Seconds()/local.Seconds(), job.Status.Failed)
		k.vanishes(job)
		if err := os.RemoveAll(filepath.Join(k.blobs, job.Name)); err != nil {
			t.Fatal(err)
		}
	}
}

// create makes a cluster with two nodes that take Pods, the image and a claim that they share.
func (k *onKind) create() {
	k.Helper()
	var err error
	if k.kind, err = kind.Create(k.Context(), kind.Options{Workers: 2, Shared: k.blobs, Log: k.Output()}); err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() {
		if err := k.kind.Stop(); err != nil {
			k.Error(err)
		}
	})
	if err := k.kind.Load("bin/image.tar"); err != nil {
		k.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(k.kind.Kubeconfig())
	if err != nil {
		k.Fatal(err)
	}
	for _, c := range config.Clusters { // our Docker has a network of its own
		c.Server = "https://" + k.forward(strings.TrimPrefix(c.Server, "https://"))
	}
	k.kubeconfig = filepath.Join(k.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, k.kubeconfig); err != nil {
		k.Fatal(err)
	}
	rest, err := clientcmd.BuildConfigFromFlags("", k.kubeconfig)
	if err == nil {
		k.api, err = client.New(rest, client.Options{})
	}
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	for _, object := range []client.Object{
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "blobs"}, Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: kind.SharedAt}},
			ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: "blobs"},
		}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "blobs"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, VolumeName: "blobs", StorageClassName: ptr.To(""), Resources: corev1.VolumeResourceRequirements{Requests: size},
		}},
	} {
		if err == nil {
			err = k.api.Create(k.Context(), object)
		}
	}
	if err != nil {
		k.Fatal(err)
	}
}

// forward listens for what goes to the cluster's API server.
func (k *onKind) forward(server string) string {
	k.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := k.kind.Dial(context.Background(), "tcp", server)
			if err != nil {
				_ = in.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1]) // either side may end
					_ = pair[0].Close()
				}()
			}
		}
	}()
	return listener.Addr().String()
}

// run runs a command, which must end with one of these codes.
func (k *onKind) run(cmd *exec.Cmd, codes ...int) {
	k.Helper()
	if said, err := cmd.CombinedOutput(); !slices.Contains(codes, cmd.ProcessState.ExitCode()) {
		k.Fatalf("%s ends with %v, want one of %v:\n%s", cmd, err, codes, said)
	}
}

// merge merges the blobs in directories, and returns what is the same whoever played them.
func (k *onKind) merge(self string, dirs ...string) (r *shard.Result, text string) {
	k.Helper()
	out := k.TempDir()
	// A short campaign finds what never came, and a long one what did harm.
	k.run(exec.Command(self, append([]string{"campaign", "merge", "--out", out}, dirs...)...), exit.Violated, exit.Unknown)
	merged, err := report.LoadCampaign(out)
	if err != nil {
		k.Fatal(err)
	}
	data, err := json.MarshalIndent(merged.Result, "", "  ")
	if err != nil {
		k.Fatal(err)
	}
	return merged.Result, strings.ReplaceAll(string(data), out, "out") // a finding says how it is played again
}

// play plays the campaign in the cluster, in a number of shards, and returns its Job.
func (k *onKind) play(self string, shards int, trouble bool) *batchv1.Job {
	k.Helper()
	follow := func(ctx context.Context) (*exec.Cmd, *bytes.Buffer) {
		k.Helper()
		cmd, said := exec.CommandContext(ctx, self, "campaign", "run", k.file, "--on", "kubernetes", "--image", "localhost/fencelab:latest", "--claim", "blobs",
			"--shards", fmt.Sprint(shards), "--parallel", "4"), new(bytes.Buffer)
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = k.TempDir(), append(os.Environ(), "KUBECONFIG="+k.kubeconfig), said, said
		if err := cmd.Start(); err != nil {
			k.Fatal(err)
		}
		return cmd, said
	}
	ctx, stop := context.WithCancel(k.Context())
	defer stop()
	follower, said := follow(ctx)
	if trouble {
		k.kill()
		k.while("the follower is killed", func() {
			_ = follower.Process.Kill()
			_ = follower.Wait() // it was killed
			follower, said = follow(ctx)
		})
		k.while("a node is drained", k.drain)
		k.kill()
		k.while("the API server is away", func() {
			k.signal("", "STOP", "-x", "kube-apiserver")
			time.Sleep(30 * time.Second)
			k.signal("", "CONT", "-x", "kube-apiserver")
		})
		k.kill()
	}
	err := follower.Wait()
	if err != nil {
		k.Fatalf("the follower ends with %v:\n%s", err, said)
	}
	k.Logf("the follower says\n%s", said)
	if trouble && !strings.Contains(said.String(), "doesn't answer") {
		k.Errorf("the follower doesn't say that the API server was away:\n%s", said)
	}
	job := k.job()
	k.times()
	if want := fmt.Sprintf("%d of %d shards are whole", shards, shards); job == nil || !strings.Contains(said.String(), want) {
		k.Fatalf("it doesn't say %q of the Job %v:\n%s", want, job, said)
	}
	return job
}

// times logs when each Pod of the campaign was made, and when its program began and ended: what the
// cluster took for it, and what the schedules did.
func (k *onKind) times() {
	k.Helper()
	var pods corev1.PodList
	if err := k.api.List(k.Context(), &pods, client.InNamespace("default")); err != nil {
		k.Fatal(err)
	}
	for _, pod := range pods.Items {
		for _, container := range pod.Status.ContainerStatuses {
			if end := container.State.Terminated; end != nil {
				k.Logf("%s on %s: made at %s, began at %s, ended with %d at %s", pod.Name, pod.Spec.NodeName, pod.CreationTimestamp.Format(time.TimeOnly),
					end.StartedAt.Format(time.TimeOnly), end.ExitCode, end.FinishedAt.Format(time.TimeOnly))
			}
		}
	}
}

// job is the campaign's, nil if there is none.
func (k *onKind) job() *batchv1.Job {
	k.Helper()
	var jobs batchv1.JobList
	if err := k.api.List(k.Context(), &jobs); err != nil {
		k.Fatal(err)
	}
	if len(jobs.Items) == 0 {
		return nil
	}
	return &jobs.Items[0]
}

// while does something while Pods of the campaign run.
func (k *onKind) while(what string, do func()) {
	k.Helper()
	if len(k.running()) == 0 {
		k.Errorf("no Pod runs any more while %s: the campaign is too short, see %s", what, schedulesVariable)
	}
	k.Logf("now %s", what)
	do()
}

// running waits for Pods that run, and returns none if the Job is over.
func (k *onKind) running() []corev1.Pod {
	k.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(500 * time.Millisecond) {
		var pods corev1.PodList
		if err := k.api.List(k.Context(), &pods, client.InNamespace("default")); err != nil {
			k.Fatal(err)
		}
		pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil })
		job := k.job()
		if len(pods.Items) > 0 || job != nil && job.Status.CompletionTime != nil {
			return pods.Items
		}
		if time.Now().After(deadline) {
			k.Fatal("no Pod of the campaign runs")
		}
	}
}

// kill kills two Pods at random: the processes of one, as a kernel that is out of memory does, and
// the other one by the API.
func (k *onKind) kill() {
	k.Helper()
	for _, byAPI := range []bool{false, true} {
		k.while("a Pod is killed", func() {
			pods := k.running()
			if len(pods) == 0 {
				return
			}
			pod := pods[k.random.IntN(len(pods))]
			if byAPI {
				if err := client.IgnoreNotFound(k.api.Delete(k.Context(), &pod)); err != nil {
					k.Fatal(err)
				}
				return
			}
			uid := string(pod.UID)
			const script = `for p in $(pgrep -f "campaign run /campaign"); do grep -q -e "$0" -e "$1" "/proc/$p/cgroup" && kill -9 "$p"; done; true`
			if _, err := k.kind.Execute(k.Context(), pod.Spec.NodeName, "sh", "-c", script, uid, strings.ReplaceAll(uid, "-", "_")); err != nil {
				k.Fatal(err)
			}
		})
		time.Sleep(time.Second)
	}
}

// drain drains a node on which Pods run, and lets it have Pods again.
func (k *onKind) drain() {
	k.Helper()
	pods := k.running()
	if len(pods) == 0 {
		return
	}
	var node corev1.Node
	cordon := func(is bool) {
		k.Helper()
		err := k.api.Get(k.Context(), client.ObjectKey{Name: pods[0].Spec.NodeName}, &node)
		before := node.DeepCopy()
		if node.Spec.Unschedulable = is; err == nil {
			err = k.api.Patch(k.Context(), &node, client.MergeFrom(before))
		}
		if err != nil {
			k.Fatal(err)
		}
	}
	cordon(true)
	for _, pod := range pods {
		if pod.Spec.NodeName != node.Name {
			continue
		}
		if err := k.api.SubResource("eviction").Create(k.Context(), &pod, &policyv1.Eviction{}); err != nil && !apierrors.IsNotFound(err) {
			k.Fatal(err)
		}
	}
	time.Sleep(5 * time.Second)
	cordon(false)
}

// signal sends one to processes of a node.
func (k *onKind) signal(node, signal string, which ...string) {
	k.Helper()
	if _, err := k.kind.Execute(k.Context(), node, append([]string{"pkill", "-" + signal}, which...)...); err != nil {
		k.Fatal(err)
	}
}

// vanishes has the time of a Job be over, as it is a day later, and waits until nothing of the
// campaign is left in the cluster but its blobs.
func (k *onKind) vanishes(job *batchv1.Job) {
	k.Helper()
	before := job.DeepCopy()
	job.Spec.TTLSecondsAfterFinished = ptr.To(int32(1))
	if err := k.api.Patch(k.Context(), job, client.MergeFrom(before)); err != nil {
		k.Fatal(err)
	}
	var left []string
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		left = nil
		for _, list := range []client.ObjectList{&batchv1.JobList{}, &corev1.PodList{}, &corev1.ConfigMapList{}, &corev1.ServiceAccountList{}, &corev1.SecretList{}} {
			if err := k.api.List(k.Context(), list, client.InNamespace("default"), client.HasLabels{"fencelab.dev/campaign"}); err != nil {
				k.Fatal(err)
			}
			text, err := json.Marshal(list)
			if err != nil {
				k.Fatal(err)
			}
			var named struct {
				Items []struct {
					Metadata struct{ Name string }
				}
			}
			if err := json.Unmarshal(text, &named); err != nil {
				k.Fatal(err)
			}
			for _, item := range named.Items {
				left = append(left, fmt.Sprintf("%T %s", list, item.Metadata.Name))
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			k.Fatalf("these are left in the cluster: %s", left)
		}
	}
}
