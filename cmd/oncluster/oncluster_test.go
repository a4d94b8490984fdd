package oncluster_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/cmd/oncluster"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/vms/keeper"
)

func TestMain(m *testing.M) {
	keeper.Main()
	os.Exit(m.Run())
}

func options(name string) oncluster.Options {
	return oncluster.Options{
		Namespace: "default", Name: name, Image: "localhost/fencelab:latest", Claim: "blobs", Shards: 3, Parallel: 2,
		Files: map[string][]byte{"nightly.yaml": []byte("kind: Campaign"), "stories/a.yaml": []byte("kind: Scenario")}, File: "nightly.yaml",
	}
}

// TestJob: a real API server takes the objects of a campaign, as they are; whoever follows the Job
// sees what its Pods leave, also when another one has created it and while Pods come and go.
func TestJob(t *testing.T) {
	for _, f := range cluster.Preflight(t.Context(), cluster.Options{}) {
		switch {
		case f.Remedy == "":
		case os.Getenv("FENCELAB_REQUIRE_LAB") == "1":
			t.Fatalf("%s: %s; %s", f.Name, f.State, f.Remedy)
		default:
			t.Skipf("%s: %s; %s", f.Name, f.State, f.Remedy)
		}
	}
	c, err := cluster.Launch(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	api, err := client.New(c.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := options("nightly-12345678")
	for range 2 { // the second one finds all there
		objects, err := oncluster.Objects(o)
		if err == nil {
			err = oncluster.Create(t.Context(), api, objects)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	key := client.ObjectKey{Namespace: o.Namespace, Name: o.Name}
	var job batchv1.Job
	if err := api.Get(t.Context(), key, &job); err != nil {
		t.Fatal(err)
	}
	if job.Spec.Suspend != nil && *job.Spec.Suspend || *job.Spec.Completions != 3 || *job.Spec.Parallelism != 2 || *job.Spec.BackoffLimitPerIndex != 5 || len(job.Spec.PodFailurePolicy.Rules) != 2 {
		t.Errorf("the Job is %+v", job.Spec)
	}
	for _, object := range []client.Object{&corev1.ServiceAccount{}, &corev1.ConfigMap{}} {
		if err := api.Get(t.Context(), key, object); err != nil || len(object.GetOwnerReferences()) != 1 || object.GetOwnerReferences()[0].UID != job.UID {
			t.Errorf("the %T doesn't go with its Job: %v (%v)", object, object.GetOwnerReferences(), err)
		}
	}
	queued := options("queued-12345678")
	queued.Queue = "nights"
	objects, err := oncluster.Objects(queued)
	if err == nil {
		err = oncluster.Create(t.Context(), api, objects)
	}
	if err != nil {
		t.Fatal(err)
	}
	if s, err := oncluster.NewFollower(api, queued.Key()).Look(t.Context()); err != nil || !s.Suspended {
		t.Errorf("a Job with a queue is %+v (%v)", s, err)
	}
	// Pods as the Job controller makes them, and what becomes of them.
	pod := func(index int, status corev1.PodStatus) {
		t.Helper()
		p := &corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *job.Spec.Template.Spec.DeepCopy()}
		p.Namespace, p.GenerateName = o.Namespace, fmt.Sprintf("%s-%d-", o.Name, index)
		p.Labels[batchv1.JobCompletionIndexAnnotation] = fmt.Sprint(index)
		if err := api.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		p.Status = status
		if err := api.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	status := func(phase corev1.PodPhase, state corev1.ContainerState) corev1.PodStatus {
		return corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Name: "shard", State: state}}}
	}
	ended := func(code int32, message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, Reason: "Error"}}
	}
	pod(0, status(corev1.PodSucceeded, ended(2, `{"shard":1,"schedules":9}`))) // it ended before its blob was whole
	pod(0, status(corev1.PodSucceeded, ended(0, `{"shard":1,"schedules":40,"failed":2,"digest":"d","findings":["k"]}`)))
	pod(1, status(corev1.PodSucceeded, ended(0, "half a mess")))
	pod(2, status(corev1.PodSucceeded, ended(0, `{"shard":7,"schedules":40}`))) // of another index
	looked, follower := 0, oncluster.NewFollower(api, key)
	for _, test := range []struct {
		status corev1.PodStatus
		says   string
	}{
		{status(corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}), ""},
		{corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no node fits"}}}, "waits: no node fits"},
		{status(corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}), "waits: ErrImagePull: not found"},
		{corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "the node is full"}, "failed: Evicted: the node is full"},
		{status(corev1.PodFailed, ended(3, "a page\nfencelab: --out /blobs: permission denied\n")), "ended with 3: fencelab: --out /blobs: permission denied"},
		{status(corev1.PodFailed, ended(137, "")), "ended with 137: Error"},
	} {
		pod(1, test.status)
		s, err := follower.Look(t.Context())
		if err != nil || !strings.HasSuffix(s.Trouble, test.says) || (s.Trouble == "") != (test.says == "") {
			t.Errorf("of a Pod that %q it says %q (%v)", test.says, s.Trouble, err)
		}
		if err := api.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(o.Namespace), client.MatchingFields{"status.phase": string(test.status.Phase)}, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := follower.Follow(t.Context(), time.Millisecond, func(s *oncluster.State, err error) {
		if err != nil {
			t.Error(err)
		}
		if looked++; looked == 2 {
			job.Status.Succeeded = 3
			job.Status.CompletedIndexes = "0-2"
			now := metav1.Now()
			job.Status.StartTime, job.Status.CompletionTime = &now, &now
			job.Status.Conditions = []batchv1.JobCondition{
				{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: now},
				{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: now},
			}
			if err := api.Status().Update(t.Context(), &job); err != nil {
				t.Error(err)
			}
		} else if looked > 1000 {
			t.Fatal("the Job is never over")
		}
	})
	if err != nil || !s.Over || s.Done != 3 || s.Of != 3 || len(follower.Summaries) != 1 || follower.Summaries[1].Schedules != 40 || follower.Summaries[1].Findings[0] != "k" {
		t.Errorf("in the end it sees %+v and %+v (%v)", s, follower.Summaries, err)
	}
	if _, err := oncluster.NewFollower(api, client.ObjectKey{Namespace: "default", Name: "gone"}).Follow(t.Context(), time.Millisecond, nil); err == nil || !strings.Contains(err.Error(), "the Job default/gone is gone") {
		t.Errorf("a Job that isn't there: %v", err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if _, err := oncluster.NewFollower(api, key).Follow(ctx, time.Hour, nil); err == nil || !strings.Contains(err.Error(), "the same command follows it") {
		t.Errorf("an interrupted follower: %v", err)
	}
}

// TestObjects: a Pod may do nothing but play, and stories that don't fit are refused.
func TestObjects(t *testing.T) {
	o := options(oncluster.NameOf(strings.Repeat("a", 80), "123456789"))
	objects, err := oncluster.Objects(o)
	if err != nil {
		t.Fatal(err)
	}
	job := objects[2].(*batchv1.Job)
	pod := job.Spec.Template.Spec
	if len(o.Name) > 57 || !strings.HasSuffix(o.Name, "-12345678") {
		t.Errorf("the name is %s", o.Name)
	}
	security := pod.Containers[0].SecurityContext
	if *pod.AutomountServiceAccountToken || !*pod.SecurityContext.RunAsNonRoot || !*security.ReadOnlyRootFilesystem || *security.AllowPrivilegeEscalation || security.Capabilities.Drop[0] != "ALL" {
		t.Errorf("the Pod may too much: %+v", pod)
	}
	if items := pod.Volumes[0].ConfigMap.Items; len(items) != 2 || items[1].Path != "stories/a.yaml" || string(objects[1].(*corev1.ConfigMap).BinaryData[items[1].Key]) != "kind: Scenario" {
		t.Errorf("the files are %+v", items)
	}
	if spec := pod.Volumes[1].PersistentVolumeClaim; spec == nil || spec.ClaimName != "blobs" || len(pod.Containers[0].EnvFrom) > 0 {
		t.Errorf("the blobs go to %+v", pod.Volumes[1])
	}
	o.Claim, o.Store, o.Secret = "", "s3://nights/a", "keys"
	if objects, err = oncluster.Objects(o); err != nil {
		t.Fatal(err)
	}
	pod = objects[2].(*batchv1.Job).Spec.Template.Spec
	shard := pod.Containers[0]
	if at := strings.Join(shard.Args, " "); pod.Volumes[1].EmptyDir == nil || shard.EnvFrom[0].SecretRef.Name != "keys" || !strings.HasSuffix(at, " --store s3://nights/a/"+o.Name) {
		t.Errorf("with a store the Pod is %+v", pod)
	}
	o.Files["stories/large.yaml"] = make([]byte, 1<<20)
	if _, err := oncluster.Objects(o); err == nil || !strings.Contains(err.Error(), "a ConfigMap takes") {
		t.Errorf("stories of a mebibyte: %v", err)
	}
}
