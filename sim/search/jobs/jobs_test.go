package jobs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign/shard"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search/jobs"
)

// role is an environment variable that makes the test binary a worker.
const role = "FENCELAB_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "worker":
		if err := jobs.Serve(context.Background(), os.Stdin, os.Stdout, time.Now); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "dying":
		fmt.Fprintln(os.Stderr, "out of memory, or so")
		os.Exit(7)
	}
}

// text is a campaign of a story with a wrong remediation that some schedules find out, of one whose
// default schedule breaks a guarantee, and of one that expects that.
const text = `apiVersion: fencelab.dev/v1alpha1
kind: Campaign
metadata: {name: test, description: A try.}
spec:
  stories: [.]
  searches:
    - {strategy: orders, schedules: 70}
    - {strategy: random, schedules: 45, seeds: [1, 2]}
    - {strategy: coverage, schedules: 45}
`

const story = `apiVersion: fencelab.dev/v1alpha1
kind: Scenario
metadata: {name: %s, description: A host fails under a controller that trusts a stale poweredOn.}
spec:
  topology:
    hosts: [{name: worker-1}, {name: worker-2}]
    workload: {host: worker-1}
    lease: 1s
  healthCheck: {unhealthyAfter: 3s, nodeStartupTimeout: 60s}
  controllers:
    - {name: reboot, settings: {pollInterval: 1s}}
    - name: remediation
      overlay: [{when: %s, then: DeleteNode}]
    - name: healthcheck
  steps:
    - do: {cut: {host: worker-1}}
    - {when: {event: node-deleted, host: worker-1}, do: {restore: {host: worker-1}}}
    - when: {event: node-ready, host: worker-1}
    - {after: 1s..3s, do: {cut: {host: worker-1}}}
    - {when: {event: node-deleted, host: worker-1}, do: {restore: {host: worker-1}}}
    - when: {event: node-ready, host: worker-1}
  invariants: [fenced-before-release]
`

const (
	stale = "{nodeExists: true, needsRemediation: true, statusOn: false, rebootAnnotation: true}"
	rash  = "{nodeExists: true, needsRemediation: true}"
)

// survey has a crew of n workers find out what the campaign comes to.
func survey(t *testing.T, ctx context.Context, n int, as string) (*jobs.Campaign, error) {
	t.Helper()
	t.Setenv(role, as)
	dir := t.TempDir()
	for name, data := range map[string]string{
		"test.yaml": text, "fragile.yaml": fmt.Sprintf(story, "fragile", stale), "broken.yaml": fmt.Sprintf(story, "broken", rash),
		"expected.yaml": fmt.Sprintf(story, "expected", rash) + "  expect: {violated: fenced-before-release}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	vocabulary := objects.Vocabulary()
	vocabulary.Worlds = []scenarios.Capabilities{sim.Capabilities}
	campaign, stories, err := file.LoadCampaign(filepath.Join(dir, "test.yaml"), vocabulary)
	if err != nil {
		t.Fatal(err)
	}
	crew := jobs.Start(ctx, n, os.Args[0])
	t.Cleanup(crew.Close)
	return crew.Survey(ctx, campaign, stories, nil, false, nil)
}

// play plays what is left of a shard, and returns the blob.
func play(t *testing.T, ctx context.Context, c *jobs.Campaign, dir string, i, n int, done func(int, int)) (string, error) {
	t.Helper()
	w, err := shard.Open(dir, c.Outline, i, n)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Play(ctx, w, done)
	if closed := w.Close(); closed != nil || (w.Trailer != nil) != (err == nil) {
		t.Fatalf("the trailer is %v (%v, %v)", w.Trailer, err, closed)
	}
	return w.Name, err
}

func merged(t *testing.T, blobs ...string) *shard.Result {
	t.Helper()
	m := shard.NewMerger()
	for _, name := range blobs {
		data, err := os.ReadFile(name)
		if err == nil {
			err = m.Add(name, bytes.NewReader(data))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := m.Result()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCampaign: a campaign comes to the same in one piece and in two, the first of which was
// interrupted, with one worker and with three.
func TestCampaign(t *testing.T) {
	one, err := survey(t, t.Context(), 1, "worker")
	if err != nil {
		t.Fatal(err)
	}
	// A search is cut only if its strategy learns nothing.
	for i, s := range one.Searches {
		n := 0
		for _, j := range one.Jobs {
			if j.Search == i {
				n++
			}
		}
		if s.Whole != (s.Strategy == "coverage" && !s.Default) || s.Whole && n != 1 || s.All > 40 && !s.Whole && n < 2 {
			t.Errorf("%s of %s is cut into %d jobs (whole: %v)", s.Strategy, s.Story, n, s.Whole)
		}
	}
	// Shards are as heavy as the schedules that they play, and not as the default one is.
	weights := make(map[string]int)
	for _, s := range one.Searches {
		if s.Story == "fragile" {
			weights[s.Strategy] = s.Weight
		}
	}
	if weights["random"] <= weights["orders"] {
		t.Errorf("the weights are %v; schedules with dozens of deviations are heavier than those with one", weights)
	}
	dir := t.TempDir()
	blob, err := play(t, t.Context(), one, dir, 1, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	whole := merged(t, blob)
	// Of broken and expected the default schedule alone is played.
	if want := 70 + 45 + 45 + 45 + 1 + 1; whole.Schedules != want || whole.All != want {
		t.Errorf("%d of %d schedules were played, want %d", whole.Schedules, whole.All, want)
	}
	stories := make(map[string]int)
	for _, f := range whole.Findings {
		stories[f.Story] += f.Count
	}
	if stories["broken"] != 1 || stories["expected"] != 0 || stories["fragile"] == 0 {
		t.Errorf("schedules that failed, by story: %v", stories)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	three, err := survey(t, ctx, 3, "worker")
	if err != nil {
		t.Fatal(err)
	}
	jobs := 0
	count := func(int, int) { jobs++ }
	if _, err := play(t, ctx, three, dir, 1, 2, func(int, int) {
		jobs++
		interrupt() // at most two more are under way
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted shard ends with %v", err)
	}
	if three, err = survey(t, t.Context(), 3, "worker"); err != nil {
		t.Fatal(err)
	}
	var blobs []string
	for i := range 2 {
		blob, err := play(t, t.Context(), three, dir, 2-i, 2, count)
		if err != nil {
			t.Fatal(err)
		}
		blobs = append(blobs, blob)
	}
	if jobs != len(one.Jobs) {
		t.Errorf("%d jobs were played, want %d", jobs, len(one.Jobs))
	}
	wanted, _ := json.MarshalIndent(whole, "", " ")
	got, _ := json.MarshalIndent(merged(t, blobs...), "", " ")
	if diff := cmp.Diff(string(wanted), string(got)); diff != "" {
		t.Errorf("two shards (-in one piece +merged):\n%s", diff)
	}
}

// TestDead: a worker that dies ends the campaign, with its last words.
func TestDead(t *testing.T) {
	if _, err := survey(t, t.Context(), 2, "dying"); err == nil || !bytes.Contains([]byte(err.Error()), []byte("exit status 7")) || !bytes.Contains([]byte(err.Error()), []byte("out of memory, or so")) {
		t.Errorf("it ends with %v", err)
	}
}
