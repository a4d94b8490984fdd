package workers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
	"github.com/fencelab/fencelab/sim/search/workers"
)

// role is an environment variable that gives the test binary a role.
const role = "FENCELAB_TEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "worker":
		err = workers.Serve(context.Background(), os.Stdin, os.Stdout)
	case "dying":
		// It takes the story and one batch, and dies.
		in := bufio.NewReader(os.Stdin)
		for range 2 {
			if _, err = in.ReadBytes('\n'); err != nil {
				break
			}
		}
		fmt.Fprintln(os.Stderr, "out of memory, or so")
		os.Exit(7)
	case "leaving":
		return // as if all was well
	case "coordinator":
		err = coordinate()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// crewOf starts workers that are this test binary in a role.
func crewOf(t testing.TB, n int, story *campaign.Story, as string) campaign.Pool {
	t.Helper()
	t.Setenv(role, as)
	return workers.Start(t.Context(), n, story, os.Args[0])
}

// fragile is a story in which the remediation believes whatever poweredOn says.
const fragile = `
apiVersion: fencelab.dev/v1alpha1
kind: Scenario
metadata: {name: fragile, description: A host fails twice under a controller that trusts a stale poweredOn.}
spec:
  topology:
    hosts: [{name: worker-1}, {name: worker-2}]
    workload: {host: worker-1}
    lease: 1s
  healthCheck: {unhealthyAfter: 3s, nodeStartupTimeout: 60s}
  controllers:
    - name: reboot
      settings: {pollInterval: 1s}
    - name: remediation
      overlay:
        - when: {nodeExists: true, needsRemediation: true, statusOn: false, rebootAnnotation: true}
          then: DeleteNode
    - name: healthcheck
  steps:
    - do: {cut: {host: worker-1}}
    - when: {event: node-deleted, host: worker-1}
      do: {restore: {host: worker-1}}
    - when: {event: node-ready, host: worker-1}
    - after: 1s..3s
      do: {cut: {host: worker-1}}
    - when: {event: node-deleted, host: worker-1}
      do: {restore: {host: worker-1}}
    - when: {event: node-ready, host: worker-1}
  invariants: [fenced-before-release]
`

func newSearch(strategy string, schedules int) (*sim.Simulator, *campaign.Search, error) {
	simulator, err := sim.New()
	if err != nil {
		return nil, nil, err
	}
	scenario, err := file.Load("fragile.yaml", []byte(fragile), objects.Vocabulary())
	if err != nil {
		return nil, nil, err
	}
	plan, err := scenarios.Compile(scenario, 1)
	if err != nil {
		return nil, nil, err
	}
	s, _, err := search.New(context.Background(), simulator, scenario, plan, search.Options{Strategy: strategy, Seed: 3, Schedules: schedules})
	return simulator, s, err
}

// TestWorkersMakeNoDifference: a search comes to the same with any number of workers,
// however fast each of them is, and without any; and so do the schedules that it shrinks.
func TestWorkersMakeNoDifference(t *testing.T) {
	for _, strategy := range search.Strategies() {
		t.Run(strategy, func(t *testing.T) {
			schedules := 2 * campaign.Ahead
			if strategy == "portfolio" {
				schedules *= 2 // its strategies share them
			}
			simulator, s, err := newSearch(strategy, schedules)
			if err != nil {
				t.Fatal(err)
			}
			s.Total = schedules
			alone := search.NewAlone(simulator, s.Story)
			want := s.Run(alone, nil)
			s.Shrink(alone, &want)
			if alone.Close() != nil {
				t.Fatal(alone.Close())
			}
			if want.Tried != schedules || want.Violated == 0 && strategy != "sweep" {
				t.Fatalf("%d of %d schedules were tried, and %d were violated: that compares nothing", want.Tried, schedules, want.Violated)
			}
			want.Failed = want.Failures()
			for _, n := range []int{1, 2, 5} {
				_, s, err := newSearch(strategy, schedules)
				if err != nil {
					t.Fatal(err)
				}
				s.Total = schedules
				crew := crewOf(t, n, s.Story, "worker")
				got := s.Run(crew, nil)
				s.Shrink(crew, &got)
				if err := crew.Close(); err != nil {
					t.Fatal(err)
				}
				got.Failed = got.Failures()
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%d workers (-in this process +with them):\n%s", n, diff)
				}
			}
		})
	}
}

// TestDeadWorker: a worker that dies fails the search, with its last words, and so
// does one that goes without a reason.
func TestDeadWorker(t *testing.T) {
	for as, want := range map[string]string{
		"dying":   "exit status 7\nout of memory, or so",
		"leaving": "ended before it was told to",
	} {
		t.Run(as, func(t *testing.T) {
			_, s, err := newSearch("random", 1000)
			if err != nil {
				t.Fatal(err)
			}
			crew := crewOf(t, 2, s.Story, as)
			if tally := s.Run(crew, nil); tally.Tried != 0 {
				t.Errorf("%d schedules were tried by workers that try none", tally.Tried)
			}
			if err := crew.Close(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want one that says %q", err, want)
			}
		})
	}
}

// TestInterrupt: an interrupted search has what was found so far.
func TestInterrupt(t *testing.T) {
	_, s, err := newSearch("random", 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(role, "worker")
	ctx, interrupt := context.WithCancel(t.Context())
	crew := workers.Start(ctx, 2, s.Story, os.Args[0])
	tally := s.Run(crew, func(so campaign.Tally) {
		if so.Tried == 2*campaign.Ahead {
			interrupt()
		}
	})
	if err := crew.Close(); err != nil {
		t.Error(err)
	}
	if tally.Tried < 2*campaign.Ahead || tally.Held+tally.Violated+tally.Unknown != tally.Tried {
		t.Errorf("after %d schedules the tally is %+v", 2*campaign.Ahead, tally)
	}
}

// TestWorkerStops: a worker ends when its input does, which happens when the search is
// interrupted or killed, and still says what it found in the batch that it plays.
func TestWorkerStops(t *testing.T) {
	_, s, err := newSearch("random", 1)
	if err != nil {
		t.Fatal(err)
	}
	inReader, in := io.Pipe()
	out, outWriter := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- workers.Serve(t.Context(), inReader, outWriter)
		outWriter.Close()
	}()
	to, from := json.NewEncoder(in), json.NewDecoder(out)
	endless := make([]campaign.Schedule, 1<<16)
	for i := range endless {
		endless[i] = campaign.Schedule{Number: i, Seed: uint64(i), Draw: true}
	}
	var found []campaign.Result
	for _, batch := range []any{s.Story, endless[:3], endless} {
		if err := to.Encode(batch); err != nil {
			t.Fatal(err)
		}
		if batch, ok := batch.([]campaign.Schedule); ok && len(batch) == 3 {
			if err := from.Decode(&found); err != nil || len(found) != len(batch) {
				t.Fatalf("%d results of %d schedules (%v)", len(found), len(batch), err)
			}
		}
	}
	in.Close()
	if err := from.Decode(&found); err != nil || len(found) == len(endless) {
		t.Errorf("after the end of its input the worker had %d of %d results (%v)", len(found), len(endless), err)
	}
	if err := from.Decode(&found); err != io.EOF {
		t.Errorf("after that it said: %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// coordinate runs a search that doesn't come to an end.
func coordinate() error {
	os.Setenv(role, "worker")
	_, s, err := newSearch("random", 1<<40)
	if err != nil {
		return err
	}
	crew := workers.Start(context.Background(), 2, s.Story, os.Args[0])
	s.Run(crew, func(so campaign.Tally) {
		if so.Tried == campaign.Ahead {
			fmt.Println("under way")
		}
	})
	return crew.Close()
}

// TestKilled: when the search is killed and can't say good-bye, no worker is left.
func TestKilled(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), role+"=coordinator"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := bufio.NewReader(out).ReadString('\n')
	children := childrenOf(t, cmd.Process.Pid)
	if killed := cmd.Process.Kill(); killed != nil {
		t.Fatal(killed)
	}
	if err != nil {
		t.Fatalf("it said %q: %v", said, err)
	}
	if len(children) != 2 {
		t.Fatalf("it had the children %v, want two workers", children)
	}
	cmd.Wait()
	patience := time.Now().Add(time.Minute)
	for _, pid := range children {
		for runs(pid) {
			if time.Now().After(patience) {
				t.Fatalf("worker %s still runs", pid)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func childrenOf(t *testing.T, pid int) []string {
	t.Helper()
	var found []string
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		if fields := stat(filepath.Base(process)); len(fields) > 1 && fields[1] == fmt.Sprint(pid) {
			found = append(found, filepath.Base(process))
		}
	}
	return found
}

// runs reports whether a process has not ended. A zombie has ended.
func runs(pid string) bool {
	fields := stat(pid)
	return len(fields) > 0 && fields[0] != "Z" && fields[0] != "X"
}

// stat returns what the kernel says of a process behind its name: its state, its
// parent, and more.
func stat(pid string) []string {
	data, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil
	}
	return strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
}
