package oncluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
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

// Create makes the objects of a campaign. Those that are there already stay: a follower that was
// killed is followed by another one.
func Create(ctx context.Context, c client.Client, objects []client.Object) error {
	for _, object := range objects {
		if err := c.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create the %T %s: %w", object, object.GetName(), err)
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
	// Summaries has that of each shard whose Pod is still there, by its number.
	Summaries map[int]Summary
	// Over says that nothing more comes, and Why gives the Job's own reason.
	Over bool
	Why  string
}

// Look reads how far a Job has come.
func Look(ctx context.Context, c client.Client, key client.ObjectKey) (*State, error) {
	var job batchv1.Job
	if err := c.Get(ctx, key, &job); err != nil {
		return nil, err
	}
	s := &State{Done: int(job.Status.Succeeded), Failed: int(job.Status.Failed), Summaries: make(map[int]Summary)}
	if job.Spec.Completions != nil {
		s.Of = int(*job.Spec.Completions)
	}
	s.Suspended = job.Spec.Suspend != nil && *job.Spec.Suspend
	for _, condition := range job.Status.Conditions {
		if condition.Status == corev1.ConditionTrue && (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) {
			s.Over, s.Why = true, condition.Message
		}
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabels{label: key.Name}); err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		index, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
		for _, status := range pod.Status.ContainerStatuses {
			var summary Summary
			if ended := status.State.Terminated; err == nil && ended != nil && ended.ExitCode == 0 && json.Unmarshal([]byte(ended.Message), &summary) == nil && summary.Shard == index+1 {
				s.Summaries[summary.Shard] = summary
			}
		}
	}
	return s, nil
}

// Follow looks now and then until a Job is over, through whatever time the API server is away. Said
// is called with what it sees.
func Follow(ctx context.Context, c client.Client, key client.ObjectKey, every time.Duration, said func(*State, error)) (*State, error) {
	for {
		s, err := Look(ctx, c, key)
		switch {
		case apierrors.IsNotFound(err):
			return nil, fmt.Errorf("the Job %s is gone", key)
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
		case <-time.After(every):
		}
	}
}
