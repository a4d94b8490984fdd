package clusterapi

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fencelab/fencelab/fencetest"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/leads"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const catalog = "../../../scenarios/catalog/"

func TestMain(m *testing.M) {
	time.Local = time.UTC // Cluster API's messages have times in them
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// machines has Cluster API's Machine controller play in the place of fencelab's.
func machines() []fencetest.Option {
	return []fencetest.Option{fencetest.With(Module()), fencetest.Instead("deletion", Machines), fencetest.Settle(30 * time.Second)}
}

// healthChecks has Cluster API's MachineHealthCheck controller play in the place of
// fencelab's.
func healthChecks() []fencetest.Option {
	return []fencetest.Option{fencetest.With(Module()), fencetest.Instead("healthcheck", HealthChecks), fencetest.Settle(30 * time.Second)}
}

// TestDeterministic: the same story has the same history, however Go schedules the
// controller's goroutines.
func TestDeterministic(t *testing.T) {
	first := ""
	for i := range 20 {
		outcome := fencetest.Play(t, catalog+"deletion-hooks/pre-drain-hook.yaml", machines()...)[0]
		if verdict, why := outcome.Verdict(); verdict != invariant.Held {
			t.Fatalf("%s: %s", verdict, why)
		}
		digest := outcome.History.Digest()
		if i == 0 {
			first = digest
		} else if digest != first {
			t.Fatalf("run %d has the digest %s, and the first one %s", i+1, digest, first)
		}
	}
}

// TestDeletionHooks: what becomes of fencelab's stories of hooks with Cluster API's
// controller in them. README.md says why where it differs.
func TestDeletionHooks(t *testing.T) {
	judge(t, "deletion-hooks", machines())
}

// TestHealthChecks: what becomes of fencelab's stories of health checks with Cluster API's in
// them. README.md says why where it differs.
func TestHealthChecks(t *testing.T) {
	judge(t, "health-check", healthChecks())
}

// TestRemediation: what Cluster API's health check asks for is done, to the end.
func TestRemediation(t *testing.T) {
	for _, story := range []string{"cut-off-host", "second-host-waits", "user-asks-for-a-remediation"} {
		t.Run(story, func(t *testing.T) {
			fencetest.Run(t, "stories/"+story+".yaml", fencetest.With(Module()), fencetest.Settle(30*time.Second))
		})
	}
}

// TestRandom: whatever is late, fails or crashes, no guarantee is broken, and schedules that
// are played twice have the same history.
func TestRandom(t *testing.T) {
	file := catalog + "deletion-hooks/pre-terminate-hook.yaml"
	if broken := fencetest.Broken(t, file, append(machines(), fencetest.Strategy("random", 100))...); len(broken) > 0 {
		t.Errorf("%q are broken", broken)
	}
}

// known are the leads that Cluster API's controllers give, each read.
var known = []leads.Accepted{
	{Lead: "only change HostMachine", Why: "a Machine of Cluster API has an infrastructure object, whose owner and pause it writes"},
	{Lead: "only delete HostMachine", Why: "the infrastructure object of the Machine goes with it"},
	{Lead: "only create HostRemediation", Why: "it asks for a remediation by an object of its own, and the stand-in for the provider sets the mark"},
	{Lead: "only delete HostRemediation", Why: "the request goes when the Node is well"},
	{Lead: "only change HostRemediation", Why: "it makes the Machine the request's owner"},
	{Lead: "only change MachineHealthCheck", Why: "it writes its counts into the status"},
	{Lead: "only change Machine", Why: "it writes the condition HealthCheckSucceeded"},
	{Lead: "more change Machine", Why: "it writes conditions at every reconcile, whether they change or not"},
	{Lead: "more change Node", Why: "it writes the Node's labels, annotations and cordon anew at every reconcile"},
	{Lead: "only controller-warning", Why: "it warns that more Machines are unhealthy than it may remediate"},
	{Lead: "never deletion-phase DeletingNode", Why: "it deletes the Node in the phase of the infrastructure"},
	{Lead: "later deletion-phase WaitingForInfrastructureDeletion", Why: "a drain is looked at again every 20 s"},
	{Lead: "later deletion-phase WaitingForPreTerminateHook", Why: "a drain is looked at again every 20 s"},
	{Lead: "longer Machine in deletion", Why: "a drain is looked at again every 20 s"},
	{Lead: "longer Node cordoned", Why: "a drain is looked at again every 20 s"},
	{Lead: "later annotation-set host.metal3.io/external-remediation", Why: "it looks every 15 s, and not when a pause ends"},
	{Lead: "never controller-error", Why: "it deletes a Node whatever its version, so that the kubelet's last write is no conflict"},
}

// TestLeads: Cluster API's controllers do nothing else that fencelab's own don't in the same
// stories.
func TestLeads(t *testing.T) {
	for dir, of := range map[string]struct {
		options []fencetest.Option
		stories []string
	}{
		"deletion-hooks": {machines(), []string{"both-points", "budget-blocks-the-drain", "daemons-stay", "drain-of-many-pods", "hook-set-again"}},
		"health-check":   {healthChecks(), []string{"paused-machine", "all-at-once"}},
	} {
		for _, story := range of.stories {
			t.Run(story, func(t *testing.T) {
				fencetest.Run(t, catalog+dir+"/"+story+".yaml", append(of.options, fencetest.NoLeads(known...))...)
			})
		}
	}
}

// judge plays the stories of a directory, and compares what comes of them with a golden
// file.
func judge(t *testing.T, dir string, options []fencetest.Option) {
	t.Helper()
	files, err := filepath.Glob(catalog + dir + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("find the stories of %s: %v", dir, err)
	}
	var table strings.Builder
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "overlay:") {
			continue // it makes fencelab's controller wrong
		}
		if dir == "health-check" && strings.Contains(string(data), "kind: BareMetalHost}") {
			continue // it is about what the health check has in its cache of hosts: Cluster API's has none
		}
		if dir == "deletion-hooks" && strings.Contains(string(data), "kind: Node}") {
			continue // it is about fencelab's cache of Nodes: Cluster API has one of its own for each cluster
		}
		if strings.Contains(string(data), "controller/deletion") {
			continue // it cuts a link of fencelab's controller by name
		}
		if strings.Contains(string(data), "- name: daemons\n") {
			continue // its Pods come back, and Cluster API's drain evicts them, for it finds no DaemonSet
		}
		t.Run(name, func(t *testing.T) {
			for _, outcome := range fencetest.Play(t, file, options...) {
				verdict, why := outcome.Verdict()
				line := fmt.Sprintf("%-40s %s", outcome.Plan.Metadata.Name, verdict)
				if verdict != invariant.Held {
					line += ": " + why
				}
				fmt.Fprintln(&table, line)
			}
		})
	}
	golden := filepath.Join("testdata", dir+".txt")
	if *update {
		if err := os.WriteFile(golden, []byte(table.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if table.String() != string(want) {
		t.Errorf("what comes of the stories of %s differs from %s (-update rewrites it):\n%s", dir, golden, table.String())
	}
}
