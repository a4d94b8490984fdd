package oncluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func sorted(files map[string][]byte) []string { return slices.Sorted(maps.Keys(files)) }

// Connect reaches the cluster of the current context, and returns the namespace, or the context's
// if there is none.
func Connect(namespace string) (client.Client, string, error) {
	at := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
	config, err := at.ClientConfig()
	if err == nil && namespace == "" {
		namespace, _, err = at.Namespace()
	}
	var cluster client.Client
	if err == nil {
		cluster, err = client.New(config, client.Options{Scheme: scheme.Scheme})
	}
	if err != nil {
		return nil, "", fmt.Errorf("reach the cluster of the current context: %w", err)
	}
	return cluster, namespace, nil
}

// Create makes the objects of a campaign, of which the last is its Job. Those that are there
// already stay: a follower that was killed is followed by another one. The others go with the Job.
func Create(ctx context.Context, c client.Client, objects []client.Object) error {
	for _, object := range objects {
		err := c.Create(ctx, object)
		if apierrors.IsAlreadyExists(err) {
			err = c.Get(ctx, client.ObjectKeyFromObject(object), object)
		}
		if err != nil {
			return fmt.Errorf("create the %T %s: %w", object, object.GetName(), err)
		}
	}
	job := objects[len(objects)-1]
	for _, object := range objects[:len(objects)-1] {
		before := object.DeepCopyObject().(client.Object)
		object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Name: job.GetName(), UID: job.GetUID()}})
		if err := c.Patch(ctx, object, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("have the %T %s removed with its Job: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// Summary goes into a shard's termination message, of which Kubernetes keeps up to 4 KiB.
type Summary struct {
	Shard     int    `json:"shard"`
	Schedules int    `json:"schedules"`
	Failed    int    `json:"failed"`
	Digest    string `json:"digest"`
	// Findings are the keys of what failed, as far as there is room.
	Findings []string `json:"findings,omitempty"`
}

// Room is how many findings a summary names.
const Room = 100

// State is how far a Job has come.
type State struct {
	Done, Failed, Of int
	Suspended        bool
	// Over says that nothing more comes, and Why gives the Job's own reason.
	Over bool
	Why  string
	// Trouble says of a Pod that has newly failed, or that can't start while none runs, why.
	Trouble string
}

// Follower follows the Job of a campaign.
type Follower struct {
	// Summaries has that of each shard whose Pod was still there when it was whole, by its number.
	Summaries map[int]Summary

	cluster client.Client
	key     client.ObjectKey
	// asked are the indexes whose Pods were looked at.
	asked map[int]bool
	// failed is how many Pods had failed at the last look.
	failed int
}

// NewFollower returns one that has seen nothing yet.
func NewFollower(c client.Client, key client.ObjectKey) *Follower {
	return &Follower{Summaries: make(map[int]Summary), cluster: c, key: key, asked: make(map[int]bool)}
}

// atOnce is how many indexes are asked for in a request. Each is asked for once: in a large Job all
// its Pods are tens of megabytes.
const atOnce = 100

// Look reads how far the Job has come.
func (f *Follower) Look(ctx context.Context) (*State, error) {
	var job batchv1.Job
	if err := f.cluster.Get(ctx, f.key, &job); err != nil {
		return nil, err
	}
	s := &State{Done: int(job.Status.Succeeded), Failed: int(job.Status.Failed)}
	if job.Spec.Completions != nil {
		s.Of = int(*job.Spec.Completions)
	}
	s.Suspended = job.Spec.Suspend != nil && *job.Spec.Suspend
	for _, condition := range job.Status.Conditions {
		if condition.Status == corev1.ConditionTrue && (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) {
			s.Over, s.Why = true, condition.Message
		}
	}
	whole := slices.DeleteFunc(indexes(job.Status.CompletedIndexes), func(i int) bool { return f.asked[i] })
	for some := range slices.Chunk(whole, atOnce) {
		if err := f.summarize(ctx, some); err != nil {
			return nil, err
		}
	}
	if idle := s.Done == 0 && ptr.Deref(job.Status.Ready, 0) == 0 && !s.Suspended; s.Failed > f.failed || idle {
		if err := f.trouble(ctx, s); err != nil {
			return nil, err
		}
	}
	f.failed = s.Failed
	return s, nil
}

// trouble asks a few Pods that neither run nor have succeeded what is wrong.
func (f *Follower) trouble(ctx context.Context, s *State) error {
	var pods corev1.PodList
	neither := fields.AndSelectors(fields.OneTermNotEqualSelector("status.phase", string(corev1.PodRunning)), fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)))
	err := f.cluster.List(ctx, &pods, client.InNamespace(f.key.Namespace), client.MatchingLabels{label: f.key.Name}, client.MatchingFieldsSelector{Selector: neither}, client.Limit(atOnce))
	if err != nil {
		return err
	}
	newest := func(a, b corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) }
	for _, pod := range slices.SortedStableFunc(slices.Values(pods.Items), newest) {
		if what := wrong(&pod.Status); what != "" {
			s.Trouble = fmt.Sprintf("Pod %s %s", pod.Name, what)
			return nil
		}
	}
	return nil
}

// wrong says what is wrong with a Pod in its kubelet's or the scheduler's words, "" if nothing is.
func wrong(status *corev1.PodStatus) string {
	for _, c := range status.ContainerStatuses {
		if ended := c.State.Terminated; ended != nil && ended.ExitCode != 0 {
			lines := strings.Split(strings.TrimSpace(ended.Message), "\n") // the last is the error
			return strings.TrimSuffix(fmt.Sprintf("ended with %d: %s", ended.ExitCode, cmp.Or(lines[len(lines)-1], ended.Reason)), ": ")
		}
		// A Pod whose containers are being made has nothing to say but that.
		if waits := c.State.Waiting; waits != nil && waits.Message != "" {
			return fmt.Sprintf("waits: %s: %s", waits.Reason, waits.Message)
		}
	}
	if status.Phase == corev1.PodFailed {
		return strings.TrimSuffix(fmt.Sprintf("failed: %s: %s", status.Reason, status.Message), ": ")
	}
	for _, c := range status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "waits: " + c.Message
		}
	}
	return ""
}

// summarize reads what the Pods of indexes that are whole have left.
func (f *Follower) summarize(ctx context.Context, some []int) error {
	names := make([]string, len(some))
	for i, index := range some {
		names[i] = strconv.Itoa(index)
	}
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{
		MatchLabels:      map[string]string{label: f.key.Name},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: batchv1.JobCompletionIndexAnnotation, Operator: metav1.LabelSelectorOpIn, Values: names}},
	})
	if err != nil {
		return err
	}
	var pods corev1.PodList
	if err := f.cluster.List(ctx, &pods, client.InNamespace(f.key.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return err
	}
	for _, pod := range pods.Items {
		for _, status := range pod.Status.ContainerStatuses {
			var summary Summary
			if ended := status.State.Terminated; ended != nil && ended.ExitCode == 0 && json.Unmarshal([]byte(ended.Message), &summary) == nil && strconv.Itoa(summary.Shard-1) == pod.Labels[batchv1.JobCompletionIndexAnnotation] {
				f.Summaries[summary.Shard] = summary
			}
		}
	}
	for _, index := range some {
		f.asked[index] = true
	}
	return nil
}

// indexes reads a list such as 0-2,5. What is no number is none: the API server writes it.
func indexes(list string) (all []int) {
	for part := range strings.SplitSeq(list, ",") {
		from, to, many := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if many && err == nil {
			last, err = strconv.Atoi(to)
		}
		for i := first; err == nil && i <= last; i++ {
			all = append(all, i)
		}
	}
	return all
}

// Follow looks now and then until the Job is over, through whatever time the API server is away:
// often at first, so that short campaigns don't end much later, and then at the given interval.
// Said is called with what it sees.
func (f *Follower) Follow(ctx context.Context, every time.Duration, said func(*State, error)) (*State, error) {
	for began := time.Now(); ; {
		asking, done := context.WithTimeout(ctx, patience)
		s, err := f.Look(asking)
		done()
		switch {
		case apierrors.IsNotFound(err):
			return nil, fmt.Errorf("the Job %s is gone", f.key)
		case ctx.Err() != nil:
			return nil, errors.New("interrupted; the Job goes on, and the same command follows it")
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			return nil, err
		}
		said(s, err)
		if err == nil && s.Over {
			return s, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(every, time.Second/2+time.Since(began)/20)):
		}
	}
}

// patience bounds a look: an API server that hangs says nothing.
const patience = 15 * time.Second
