package kubetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/sim/kube"
	"github.com/fencelab/fencelab/vms/keeper"
)

var (
	record = flag.Bool("update", false, "record the transcripts of the real server")
	count  = flag.Int("sequences", 80, "`number` of generated sequences to run on both servers")
	first  = flag.Uint64("seed", 0, "`seed` of the first generated sequence")
)

// length is the number of requests in a generated sequence.
const length = 25

func TestMain(m *testing.M) {
	keeper.Main()
	log.SetLogger(logr.Discard()) // the client logs the server's warnings
	os.Exit(m.Run())
}

// prefix is the start of every object's name: it must not be part of any other
// word in an answer.
const prefix = "kubetest"

// onStore runs the sequence on a new Store.
func onStore(sequence []Op, fault func(*kube.Store, *kube.Call)) (Transcript, error) {
	c := newStoreClient()
	c.fault = fault
	return Run(context.Background(), c, prefix, sequence, unmodelled)
}

// TestEveryBuiltinIsCompared: every modelled kind is also compared with the real server.
func TestEveryBuiltinIsCompared(t *testing.T) {
	for _, gvk := range kube.Builtin() {
		if !slices.Contains(Kinds(), gvk.Kind) {
			t.Errorf("%s is modelled, and no generated sequence uses it: add it to the kinds of kubetest", gvk)
		}
	}
}

func unmodelled(err error) bool {
	var u *kube.Unmodelled
	return errors.As(err, &u)
}

// modelled runs the sequence on a new Store without those requests that it
// refuses as not modelled, and returns what remains of the sequence.
func modelled(sequence []Op) ([]Op, Transcript, error) {
	for {
		transcript, err := onStore(sequence, nil)
		if !unmodelled(err) {
			return sequence, transcript, err
		}
		var at *OpError
		if !errors.As(err, &at) {
			return sequence, transcript, err
		}
		sequence = slices.Delete(slices.Clone(sequence), at.Index, at.Index+1)
	}
}

const transcripts = "testdata/sequences.txt"

// recorded returns the transcripts of the real server, by name of the sequence.
func recorded(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(transcripts)
	if err != nil {
		t.Fatalf("%v; run the tests of this package with -update where kube-apiserver is", err)
	}
	byName := map[string]string{}
	for _, part := range strings.Split(string(data), "\n== ")[1:] {
		name, rest, _ := strings.Cut(part, " ==\n")
		_, transcript, _ := strings.Cut(rest, "\n")
		byName[name] = strings.TrimRight(transcript, "\n") + "\n"
	}
	return byName
}

func writeTranscripts(t *testing.T, real func([]Op) Transcript) {
	t.Helper()
	var b strings.Builder
	b.WriteString("What kube-apiserver answers to the sequences of  Recorded by go test -update.\n")
	for _, s := range Sequences() {
		fmt.Fprintf(&b, "\n== %s ==\n# %s\n%s", s.Name, s.Fact, real(s.Ops))
	}
	if err := os.WriteFile(transcripts, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestStore compares the Store with the recorded answers of the real server.
func TestStore(t *testing.T) {
	if *record {
		t.Skip("the transcripts are being recorded")
	}
	want := recorded(t)
	for _, s := range Sequences() {
		t.Run(s.Name, func(t *testing.T) {
			got, err := onStore(s.Ops, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.Split(want[s.Name], "\n"), strings.Split(got.String(), "\n")); d != "" {
				t.Errorf("%s\nthe real server (-) and the store (+) differ:\n%s", s.Fact, d)
			}
		})
	}
}

// TestRealServer compares the Store and the recorded transcripts with a real server.
func TestRealServer(t *testing.T) {
	c := realClient(t)
	runs := 0
	real := func(t *testing.T, sequence []Op) Transcript {
		t.Helper()
		runs++
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		transcript, err := Run(ctx, c, fmt.Sprintf("%s%d", prefix, runs), sequence, func(error) bool { return false })
		if err != nil {
			t.Fatal(err)
		}
		return transcript
	}
	if *record {
		writeTranscripts(t, func(sequence []Op) Transcript { return real(t, sequence) })
	}
	t.Run("recorded", func(t *testing.T) {
		want := recorded(t)
		for _, s := range Sequences() {
			if d := cmp.Diff(strings.Split(want[s.Name], "\n"), strings.Split(real(t, s.Ops).String(), "\n")); d != "" {
				t.Errorf("%s: recorded (-) and this server (+) differ; record again with -update:\n%s", s.Name, d)
			}
		}
	})
	t.Run("generated", func(t *testing.T) {
		differs := func(sequence []Op) (*string, []Op) {
			sequence, sim, err := modelled(sequence)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(real(t, sequence), sim); d != "" {
				return &d, sequence
			}
			return nil, sequence
		}
		for seed := *first; seed < *first+uint64(*count); seed++ {
			d, sequence := differs(Generate(seed, length))
			if d == nil {
				continue
			}
			whole, was := sequence, d
			sequence = Shrink(sequence, func(s []Op) bool { d, _ := differs(s); return d != nil })
			d, _ = differs(sequence)
			if d == nil {
				t.Fatalf("seed %d: the real server (-) and the store (+) differed once, and did not again, on\n%s\n%s", seed, text(whole), *was)
			}
			t.Errorf("seed %d: the real server (-) and the store (+) differ on\n%s\n%s", seed, text(sequence), *d)
		}
	})
}

func text(sequence []Op) string {
	var lines []string
	for _, op := range sequence {
		lines = append(lines, "  "+op.String())
	}
	return strings.Join(lines, "\n")
}

// realClient starts a control plane with the CRD of the hosts and returns a
// client of it.
func realClient(t *testing.T) client.WithWatch {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := cluster.Launch(ctx, cluster.Options{})
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("FENCELAB_REQUIRE_LAB") != "1" {
		t.Skipf("no real server to compare with: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Install(ctx, os.DirFS("../../../controllers/manifests/crds")); err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(c.Config())
	config.QPS = -1
	config.UserAgent = "conformance" // of which the server makes the name of the field manager
	real, err := client.NewWithWatch(config, client.Options{Scheme: api.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	return real
}

// mutants are wrong servers. Each has to be caught.
var mutants = []struct {
	name  string
	fault func(*kube.Store, *kube.Call)
}{
	{"deletes whatever the UID", func(_ *kube.Store, c *kube.Call) {
		if c.Verb == kube.Delete && c.DeleteOptions.Preconditions != nil {
			c.DeleteOptions.Preconditions.UID = nil
		}
	}},
	{"deletes whatever the version", func(_ *kube.Store, c *kube.Call) {
		if c.Verb == kube.Delete && c.DeleteOptions.Preconditions != nil {
			c.DeleteOptions.Preconditions.ResourceVersion = nil
		}
	}},
	{"updates whatever the UID", func(_ *kube.Store, c *kube.Call) {
		if c.Verb == kube.Update {
			c.Object.SetUID("")
		}
	}},
	{"updates whatever the version", func(s *kube.Store, c *kube.Call) {
		if c.Verb != kube.Update {
			return
		}
		if current, err := s.Get(c.Kind, c.Key); err == nil {
			c.Object.SetResourceVersion(current.GetResourceVersion())
		}
	}},
	{"ignores the lock of a patch", func(_ *kube.Store, c *kube.Call) {
		c.Patch = []byte(strings.ReplaceAll(string(c.Patch), `"resourceVersion":`, `"ignored":`))
	}},
	{"has no status subresource", func(_ *kube.Store, c *kube.Call) { c.Subresource = "" }},
	{"deletes in spite of finalizers", func(s *kube.Store, c *kube.Call) {
		if current, err := s.Get(c.Kind, c.Key); c.Verb == kube.Delete && err == nil && len(current.GetFinalizers()) > 0 {
			_, _ = s.Patch("mutant", c.Kind, c.Key, false, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		}
	}},
	{"writes no-ops", func(s *kube.Store, c *kube.Call) {
		if c.Verb != kube.Patch {
			return
		}
		for _, value := range []string{`"x"`, "null"} {
			_, _ = s.Patch("mutant", c.Kind, c.Key, false, "application/merge-patch+json", []byte(`{"metadata":{"annotations":{"mutant":`+value+`}}}`))
		}
	}},
	{"applies whatever others manage", func(_ *kube.Store, c *kube.Call) { c.Force = true }},
	{"merges what is applied", func(_ *kube.Store, c *kube.Call) {
		if c.PatchType == "application/apply-patch+yaml" {
			c.PatchType = "application/merge-patch+json"
		}
	}},
	{"deletes pods at once", func(_ *kube.Store, c *kube.Call) {
		if c.Verb == kube.Delete {
			now := int64(0)
			c.DeleteOptions.GracePeriodSeconds = &now
		}
	}},
}

// TestMutants proves that the suite bites: each wrong server gives another
// transcript than the recorded one of some sequence, and the generator finds it
// on its own and shrinks it to a few requests.
func TestMutants(t *testing.T) {
	want := recorded(t)
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			caught := 0
			for _, s := range Sequences() {
				if got, err := onStore(s.Ops, m.fault); err != nil || got.String() != want[s.Name] {
					caught++
				}
			}
			if caught == 0 {
				t.Error("no recorded sequence shows it")
			}
			fails := func(sequence []Op) bool {
				sequence, right, err := modelled(sequence)
				if err != nil {
					t.Fatal(err)
				}
				wrong, err := onStore(sequence, m.fault)
				return err != nil || wrong.String() != right.String()
			}
			const budget = 100
			for seed := range uint64(budget) {
				sequence := Generate(seed, length)
				if !fails(sequence) {
					continue
				}
				const most = 4
				if shrunk := Shrink(sequence, fails); len(shrunk) > most {
					t.Errorf("seed %d was shrunk to %d requests only:\n%s", seed, len(shrunk), text(shrunk))
				}
				return
			}
			t.Errorf("none of %d generated sequences shows it", budget)
		})
	}
}
