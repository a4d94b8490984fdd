package conform

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const set = "../../" + Stories

// conformed plays the set in the simulator, after change has edited the stories, and returns the
// report and the exit code.
func conformed(t *testing.T, change func([]story), unfit func(*scenarios.Scenario) string) (r *Report, code int, said string) {
	t.Helper()
	all, err := load(set, objects.Vocabulary())
	if err != nil {
		t.Fatal(err)
	}
	change(all)
	simulator, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	s := &suite{
		console: &report.Console{Out: &out, Talk: &out, World: "sim", Dir: t.TempDir(), Program: []string{"fencelab"}},
		world:   func() play.Backend { return simulator.Evident() },
		workers: 1, unfit: unfit,
	}
	r = &Report{Fencelab: "v0.0.0", Lab: "the simulator", System: System{
		Name: "acme", Description: "A fencer of | acme's.", Release: "v1.2.3", Digest: digestOf([]byte("acme")), Files: []File{{"acme", digestOf([]byte("fencer"))}},
	}}
	if r.Results, err = s.tell(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	code = exit.Code(r.finish(s.console))
	for _, name := range []string{"conformance.json", "conformance.md"} {
		data, err := os.ReadFile(filepath.Join(s.console.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var saved Report
		if filepath.Ext(name) == ".json" && (json.Unmarshal(data, &saved) != nil || saved.Verdict != r.Verdict || len(saved.Results) != len(all)) {
			t.Errorf("%s doesn't say what came of it:\n%s", name, data)
		}
	}
	return r, code, out.String()
}

func fit(*scenarios.Scenario) string { return "" }

// TestOwnControllersConform: fencelab's own controllers hold every story, and each topic has at
// least two.
func TestOwnControllersConform(t *testing.T) {
	r, code, said := conformed(t, func([]story) {}, fit)
	if code != exit.Held || r.Verdict != invariant.Held {
		t.Errorf("it ended with %d, %s:\n%s", code, r.Verdict, said)
	}
	topics := map[string]int{}
	for _, result := range r.Results {
		topics[result.Topic]++
	}
	for _, topic := range []string{"order", "holds", "clients", "crashes", "bmcs", "partitions"} {
		if topics[topic] == 0 {
			t.Errorf("no story is about %s: %v", topic, topics)
		}
	}
	golden(t, "held.md", r.page())
}

// TestBreachIsReported: a remediation that deletes the Node first breaks a guarantee in the
// stories that can show it, and the report names it. A story in which it has no part is skipped,
// and not counted as held.
func TestBreachIsReported(t *testing.T) {
	wrong := func(all []story) {
		for _, s := range all {
			for i := range s.scenario.Spec.Controllers {
				if c := &s.scenario.Spec.Controllers[i]; c.Name == "remediation" {
					c.Overlay = []scenarios.Rule{{When: map[string]any{"nodeExists": true, "needsRemediation": true, "rebootAnnotation": true}, Then: "DeleteNode"}}
				}
			}
		}
	}
	r, code, said := conformed(t, wrong, func(s *scenarios.Scenario) string {
		if strings.HasPrefix(s.Metadata.Name, "partition") {
			return "nobody in the system has a part in it"
		}
		return ""
	})
	if code != exit.Violated || r.Counts.Violated == 0 || r.Counts.Skipped != 2 || !strings.Contains(said, "fenced-before-release: the Node of worker-1 was deleted") {
		t.Errorf("it ended with %d, %s:\n%s", code, r.Counts, said)
	}
	for _, result := range r.Results {
		if result.Verdict == invariant.Violated && result.Guarantee == "" {
			t.Errorf("%s doesn't say what was broken", result.Story)
		}
	}
}

// TestNothingToShow: neither a system without a part in any story nor an invocation that was called
// off conforms.
func TestNothingToShow(t *testing.T) {
	r, code, _ := conformed(t, func([]story) {}, func(*scenarios.Scenario) string { return "no part" })
	if code != exit.Unknown || r.Verdict != invariant.Unknown {
		t.Errorf("without a story it ended with %d, %s", code, r.Verdict)
	}
	all, err := load(set, objects.Vocabulary())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &suite{console: new(report.Console), workers: 1, unfit: fit}
	s.console.Out = new(bytes.Buffer)
	r.Results, err = s.tell(ctx, all)
	if r.judge(); err != nil || r.Verdict != invariant.Unknown || r.Counts.Unknown != len(all) {
		t.Errorf("called off it is %s: %s (%v)", r.Verdict, r.Counts, err)
	}
}

// TestReasonOfManyLines: the output of a command that failed is no cell of a table.
func TestReasonOfManyLines(t *testing.T) {
	r := &Report{Results: []Result{{Story: "cut-off-host", Verdict: invariant.Unknown, Reason: "start etcd: exit status 1\nlistening\nno space left"}}}
	table := string(r.page())
	if !strings.Contains(table, "| start etcd: exit status 1 |") || strings.Contains(table, "listening") {
		t.Errorf("the table is:\n%s", table)
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (-update rewrites it):\n%s", file, got)
	}
}
