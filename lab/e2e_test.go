package lab_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/lab"
	"github.com/fencelab/fencelab/lab/container"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/backendtest"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/page"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/vms/keeper"
)

// TestMain lets the test binary be what it has to be: a keeper, fencelab's command
// controllers, as far as the tests of its processes need it, or the tests.
func TestMain(m *testing.M) {
	container.Main()
	keeper.Main()
	if len(os.Args) > 1 && os.Args[1] == "controllers" {
		if err := runControllers(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if err := shelf.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// shelf is that of all tests of this process.
var shelf = &lab.Handed

func runControllers(args []string) error {
	var options controllers.Options
	if err := controllers.Add(failing); err != nil {
		return err
	}
	if err := options.Flags().Parse(args); err != nil {
		return err
	}
	if err := options.Complete(os.Stderr); err != nil {
		return err
	}
	return controllers.Run(context.Background(), options)
}

// TestBackend holds the lab against the contract of all worlds.
func TestBackend(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCELAB_E2E") == "quick" {
		t.Skip("not part of the quick run")
	}
	requireLab(t)
	// The parts of a lab know nothing of one another, so each is in one of the two.
	models := asProcesses()
	models.Hosts = lab.Model
	for name, o := range map[string]lab.Options{"guests and controllers in process": {}, "models and controllers as processes": models} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backendtest.Run(t, o.Capabilities(), func(t testing.TB) play.Backend {
				own := o
				own.Log, own.Shelf = t.Output(), shelf
				return lab.New(own)
			})
		})
	}
}

func compile(t require, name string) *scenarios.Plan {
	t.Helper()
	scenario, err := load(filepath.Join(catalog, name))
	if err != nil {
		t.Fatalf("%v", err)
	}
	if path := os.Getenv("FENCELAB_SYSTEM"); path != "" {
		if !filepath.IsAbs(path) {
			path = filepath.Join("..", path) // as the Makefile's user names it
		}
		system, err := file.LoadSystem(path, objects.Vocabulary())
		if err != nil {
			t.Fatalf("%v", err)
		}
		if err := system.Takes(&scenario.Spec); err != nil {
			t.Skipf("%v", err)
		}
	}
	plan, err := scenarios.Compile(scenario, 1)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return plan
}

// load reads a scenario: FILE, or FILE#NAME if the file has a matrix.
func load(path string) (*scenarios.Scenario, error) {
	file, name, _ := strings.Cut(path, "#")
	cells, err := cellsOf(file)
	for _, scenario := range cells {
		if name == "" && len(cells) == 1 || scenario.Metadata.Name == name {
			return scenario, nil
		}
	}
	return nil, cmp.Or(err, fmt.Errorf("load %s: which cell of its matrix?", path))
}

func cellsOf(path string) ([]*scenarios.Scenario, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return file.LoadCells(path, data, objects.Vocabulary(), nil)
}

// require holds the methods that testing.T and Ginkgo have in common.
type require interface {
	Helper()
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// TestLab plays the catalogue's stories on a real API server and virtual machines.
// FENCELAB_E2E=quick takes only those that every change has to pass; FENCELAB_E2E=all takes every
// story that the lab can play, which takes three hours more; and nodes takes those on real nodes.
// FENCELAB_REQUIRE_LAB=1 turns a machine that can't run a lab into a failure.
func TestLab(t *testing.T) {
	requireLab(t)
	RegisterFailHandler(Fail)
	if !RunSpecs(t, "fencelab lab") {
		t.Log(strings.Join(failures, "\n\n")) // again, at the end: that much of a log is kept
	}
}

// failures collects the messages of the specs that failed.
var failures []string

var _ = ReportAfterEach(func(report SpecReport) {
	if report.Failed() {
		failures = append(failures, report.FullText()+":\n"+report.FailureMessage())
	}
})

// requireLab skips a test where no lab can run, or was not asked for.
func requireLab(t *testing.T) {
	t.Helper()
	if os.Getenv("FENCELAB_E2E") == "" && os.Getenv("FENCELAB_REQUIRE_LAB") == "" {
		t.Skip("the lab's scenarios run with make e2e")
	}
	if err := wrongPart(); err != nil {
		t.Fatal(err)
	}
	if err := lab.Check(t.Context(), chosen()); err != nil {
		if os.Getenv("FENCELAB_REQUIRE_LAB") == "" {
			t.Skip(err)
		}
		t.Fatal(err)
	}
}

const catalog = "../scenarios/catalog"

// full is left out of the quick run, onDemand runs only with all, and nodes also when nothing else
// does.
var full, onDemand, nodes = Label("full"), Label("on demand"), Label("nodes")

var _ = Describe("the lab", func() {
	BeforeEach(func() {
		labels := CurrentSpecReport().Labels()
		switch which := os.Getenv("FENCELAB_E2E"); {
		case which == "quick" && (slices.Contains(labels, full[0]) || slices.Contains(labels, onDemand[0])):
			Skip("not part of the quick run")
		case which == "nodes" && !slices.Contains(labels, nodes[0]):
			Skip("not on real nodes")
		case which != "all" && which != "nodes" && slices.Contains(labels, onDemand[0]):
			Skip("make e2e-all tells it, or make e2e-nodes")
		}
	})

	DescribeTable("tells the story", func(ctx SpecContext, file string) { tell(ctx, file) },
		Entry("of a plain power cycle", "reboot-annotation/plain-power-cycle.yaml"),
		Entry("of a stuck soft shutdown", full, "reboot-annotation/stuck-soft-shutdown.yaml"),
		Entry("of a host that is cut off", "machine-remediation/cut-off-host.yaml"),
		Entry("of a host that is cut off, a second time", full, "machine-remediation/cut-off-host.yaml"),
		Entry("of controllers that crash after each of their effects", full, "machine-remediation/crash-after-each-effect.yaml"),
		Entry("of a BMC that cannot be reached", full, "machine-remediation/unreachable-bmc.yaml"),
		Entry("of a host that is cut off and resets itself", full, "agents/cut-off-host-resets-itself.yaml"),
		Entry("of an agent that dies for too long", full, "agents/silent-agent-resets-its-host.yaml"),
		Entry("of an agent that feeds whatever it hears", full, "agents/wrong-feeds-a-cut-off-host.yaml"),
		Entry("of an agent that dies while its host is cut off", full, "agents/cut-off-host-loses-its-agent.yaml"),
		Entry("of survivors that release a cut-off host", full, "poison-pill/survivors-release-a-cut-off-host.yaml"),
		Entry("of a peer that says unhealthy", full, "poison-pill/unhealthy-says-a-peer.yaml"),
		Entry("of a Machine whose deletion hooks hold up", full, "deletion-hooks/both-points.yaml"),
	)

	DescribeTable("catches the wrong controller", func(ctx SpecContext, file string) { tell(ctx, file) },
		Entry("that deletes the Node before the power-off", "machine-remediation/wrong-deletes-node-before-power-off.yaml"),
		Entry("that powers on before the Node is deleted", full, "machine-remediation/wrong-powers-on-before-node-deleted.yaml"),
		Entry("that trusts a stale poweredOn", full, "machine-remediation/wrong-trusts-stale-powered-on.yaml"),
		Entry("that has a hard request wait for a soft shutdown", full, "reboot-annotation/wrong-soft-first-always.yaml"),
		Entry("that feeds a host which is fenced", full, "poison-pill/wrong-feeds-when-fenced.yaml"),
		Entry("that leaves the watchdog out of the safe time", full, "poison-pill/wrong-leaves-out-reset.yaml"),
		Entry("that drains although a hook forbids it", full, "deletion-hooks/wrong-drains-despite-the-hook.yaml"),
	)

	DescribeTable("tells the story with controllers that are processes of their own", func(ctx SpecContext, file string) { tellWith(ctx, file, asProcesses()) },
		Entry("of a plain power cycle", "reboot-annotation/plain-power-cycle.yaml"),
		Entry("of controllers that crash after each of their effects", full, "machine-remediation/crash-after-each-effect.yaml"),
		Entry("of the one that deletes the Node before the power-off", full, "machine-remediation/wrong-deletes-node-before-power-off.yaml"),
		Entry("of a BMC that cannot be reached", full, "machine-remediation/unreachable-bmc.yaml"),
		Entry("of a BMC whose answer is lost", full, "bmc-faults/bmc-lost-answer.yaml"),
	)

	DescribeTable("tells the story with the standard controllers of Kubernetes", onDemand, func(ctx SpecContext, file string) {
		tellWith(ctx, file, lab.Options{Cluster: lab.Standard})
	},
		Entry("of a plain power cycle", "reboot-annotation/plain-power-cycle.yaml"),
		Entry("of a host that is cut off", "machine-remediation/cut-off-host.yaml"),
	)

	DescribeTable("tells the story of a volume, of model hosts", func(ctx SpecContext, file string) {
		o := chosen()
		o.Hosts = lab.Model
		tellWith(ctx, file, o)
	},
		Entry("of a Node that is made anew", full, "release/node-is-made-anew-by-a-user.yaml"),
	)

	DescribeTable("tells the story of a volume with the standard controllers of Kubernetes, of model hosts", onDemand, func(ctx SpecContext, file string) {
		tellWith(ctx, file, lab.Options{Cluster: lab.Standard, Hosts: lab.Model})
	}, each("release/node-is-made-anew-by-a-user", "release/fence-of-the-storage-is-taken-back"))

	DescribeTable("tells the story in a cluster of kind's", tellInKind,
		Entry("of a plain power cycle, of model hosts", full, "reboot-annotation/plain-power-cycle.yaml", lab.Model),
		Entry("of a host that is cut off, of model hosts", onDemand, "machine-remediation/cut-off-host.yaml", lab.Model),
		Entry("of a host that is cut off", onDemand, "machine-remediation/cut-off-host.yaml", lab.Guest),
		Entry("of the one that deletes the Node before the power-off", onDemand, "machine-remediation/wrong-deletes-node-before-power-off.yaml", lab.Guest),
		Entry("of controllers that crash after each of their effects, of model hosts", onDemand, "machine-remediation/crash-after-each-effect.yaml", lab.Model),
		Entry("of a stuck soft shutdown", onDemand, "reboot-annotation/stuck-soft-shutdown.yaml", lab.Guest),
	)

	DescribeTable("tells the story on real nodes", nodes, func(ctx SpecContext, file string) {
		tellWith(ctx, file, lab.Options{Hosts: lab.Node})
	},
		Entry("of a plain power cycle", full, "reboot-annotation/plain-power-cycle.yaml"),
		each(
			"reboot-annotation/stuck-soft-shutdown", "reboot-annotation/hold-hard", "reboot-annotation/two-clients", "reboot-annotation/etcd-outage-during-the-reboot",
			"machine-remediation/pods-are-collected-late", "machine-remediation/crash-after-each-effect", "machine-remediation/unreachable-bmc",
			"machine-remediation/wrong-deletes-node-before-power-off", "machine-remediation/wrong-trusts-stale-powered-on",
			"health-check/flapping-node", "health-check/second-failure-during-the-recovery",
			"deletion-hooks/both-points", "deletion-hooks/wrong-drains-despite-the-hook",
			"health-check/controller-manager-dies", "health-check/full-disk", "machine-remediation/kernel-panics",
			"agents/cut-off-host-resets-itself", "agents/silent-agent-resets-its-host", "agents/wrong-feeds-a-cut-off-host",
			"agents/hung-host-is-reset", "agents/poor-link",
			"poison-pill/pods-are-released-before-the-node-returns", "poison-pill/cut-off-say-the-peers",
			"poison-pill/wrong-feeds-when-fenced", "poison-pill/wrong-leaves-out-reset",
			"release/node-is-made-anew-by-a-user",
		))

	DescribeTable("tells the story on real nodes in a cluster of kind's", nodes, func(ctx SpecContext, file string) {
		tellInKind(ctx, file, lab.Node)
	}, each(
		"reboot-annotation/plain-power-cycle", "reboot-annotation/stuck-soft-shutdown", "reboot-annotation/two-clients",
		"machine-remediation/pods-are-collected-late", "machine-remediation/crash-after-each-effect", "machine-remediation/wrong-deletes-node-before-power-off",
		"health-check/flapping-node", "deletion-hooks/both-points",
		"agents/cut-off-host-resets-itself", "poison-pill/pods-are-released-before-the-node-returns",
	))

	DescribeTable("tells the story on real nodes behind an Ironic", nodes, func(ctx SpecContext, file string) {
		tellWith(ctx, file, lab.Options{Hosts: lab.Node, Power: lab.Ironic})
	}, each(
		"reboot-annotation/plain-power-cycle", "machine-remediation/pods-are-collected-late", "machine-remediation/crash-after-each-effect",
		"machine-remediation/wrong-deletes-node-before-power-off", "ironic/lock-held-by-a-soft-off", "ironic/conductor-killed-during-the-power-off",
	))

	DescribeTable("tells the story of an Ironic that owns the BMCs, of model hosts", func(ctx SpecContext, file string) {
		o := chosen()
		o.Hosts, o.Power = lab.Model, lab.Ironic
		tellWith(ctx, file, o)
	},
		Entry("of a plain power cycle", onDemand, "reboot-annotation/plain-power-cycle.yaml"),
		Entry("of a host that is cut off", full, "machine-remediation/cut-off-host.yaml"),
		Entry("of controllers that crash after each of their effects", onDemand, "machine-remediation/crash-after-each-effect.yaml"),
		Entry("of the one that deletes the Node before the power-off", onDemand, "machine-remediation/wrong-deletes-node-before-power-off.yaml"),
		Entry("of a host that powers off slowly", onDemand, "ironic/powering-off-is-not-off.yaml"),
		Entry("of the one that trusts Ironic's record", onDemand, "ironic/wrong-trusts-the-record.yaml"),
		Entry("of a conductor that is killed", full, "ironic/conductor-killed-during-the-power-off.yaml"),
		Entry("of the lock of a soft power-off", onDemand, "ironic/lock-held-by-a-soft-off.yaml"),
		Entry("of a synchronization that undoes an off", onDemand, "ironic/synchronization-undoes-a-foreign-off.yaml"),
		Entry("of a BMC that hangs", onDemand, "ironic/bmc-hangs.yaml"),
	)

	DescribeTable("tells the story of an Ironic, of guests", func(ctx SpecContext, file string) { tell(ctx, file) },
		Entry("of the lock of a soft power-off", onDemand, "ironic/lock-held-by-a-soft-off.yaml"),
		Entry("of a conductor that is killed", onDemand, "ironic/conductor-killed-during-the-power-off.yaml"),
	)

	DescribeTable("tells the story of the seeds", func(ctx SpecContext, file string) { tell(ctx, file) },
		Entry("of the one who waits for another's hold", full, "regression/old-pending-answers-new-request.yaml"),
		Entry("of a reboot controller that is away", full, "regression/old-pending-controller-down.yaml"),
		others())

	DescribeTable("tells the story of a BMC that misbehaves", func(ctx SpecContext, name string) { tell(ctx, "bmc-faults/"+name+".yaml") },
		faults())

	AfterEach(func() {
		Expect(leftovers()).To(BeEmpty(), "a lab leaves nothing behind")
	})
})

// everyRun lists the few faults of BMCs that every full run has. They threaten in ways that
// differ: an off is reported before it happens, or accepted and never happens; the guest hangs; a
// BMC that restarts lets a held host boot; the answer to the off is lost; another host goes off.
var everyRun = []string{
	"bmc-off-too-early", "bmc-off-ignored", "bmc-guest-hangs", "bmc-openbmc-restart-powers-on", "bmc-lost-answer", "bmc-wrong-host",
}

// TestModelHosts plays stories of hosts that are models, for which a machine needs nothing but a
// control plane.
func TestModelHosts(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" || os.Getenv("FENCELAB_E2E") == "quick" {
		t.Skip("it runs with make e2e")
	}
	o := lab.Options{Hosts: lab.Model, Log: t.Output(), Shelf: shelf}
	if err := lab.Check(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"machine-remediation/cut-off-host.yaml", "machine-remediation/wrong-deletes-node-before-power-off.yaml"} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			plan := compile(t, file)
			plan.Spec.Limits.Step = scenarios.Duration(15 * time.Second) // a story that is stuck says what it waits for
			outcome, err := play.Run(t.Context(), plan, lab.New(o), nil)
			if err != nil {
				t.Fatal(err)
			}
			save(t, outcome)
			if mismatch := outcome.Meets(); mismatch != "" {
				t.Errorf("%s\n\n%s", mismatch, report.Brief(outcome, "", ""))
			}
		})
	}
}

// TestDeviationsAtGates holds the right controllers against a schedule that has one of each: an
// effect, what reaches a cache, a read and a crash. All are taken. One that never comes makes the
// run diverge.
func TestDeviationsAtGates(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" || os.Getenv("FENCELAB_E2E") == "quick" {
		t.Skip("it runs with make e2e")
	}
	o := lab.Options{Hosts: lab.Model, Log: t.Output(), Shelf: shelf}
	if err := lab.Check(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	plan := compile(t, "machine-remediation/cut-off-host.yaml").With([]scenarios.Deviation{
		{Step: "remediation/delete Node/worker-1/1", Delay: scenarios.Duration(2 * time.Second)},
		{Step: "remediation/deliver node-deleted Node/worker-1/1", Delay: scenarios.Duration(time.Second), Fault: scenarios.FaultRelist},
		{Step: "remediation/get Node/worker-1/1.1", Fault: scenarios.FaultErrorBefore},
		{Step: "remediation/patch BareMetalHost/worker-1/2", Delay: scenarios.Duration(5 * time.Second), Fault: scenarios.FaultCrashStale},
		{Step: "remediation/patch BareMetalHost/worker-1/99", Fault: scenarios.FaultCrashAfter},
	})
	outcome, err := play.Run(t.Context(), plan, lab.New(o), nil)
	if err != nil {
		t.Fatal(err)
	}
	save(t, outcome)
	verdict, reason := outcome.VerdictOfSchedule()
	if taken := outcome.Injected.Deviations; verdict != "held" || taken.Took != 4 || taken.Of != 5 {
		t.Errorf("%s: %s, with %s deviations taken\n\n%s", verdict, reason, taken, report.Brief(outcome, "", ""))
	}
	if word, reason := outcome.Reproduces(nil); word != play.Diverged || !strings.Contains(reason, "worker-1/99") {
		t.Errorf("it is %s: %s", word, reason)
	}
}

// TestOutageIsForEverybody: while the API server is away for the kubelets, it is away for
// kube-controller-manager too, which would otherwise give their Nodes up.
func TestOutageIsForEverybody(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" || os.Getenv("FENCELAB_E2E") == "quick" {
		t.Skip("it runs with make e2e")
	}
	o := lab.Options{Cluster: lab.Standard, Hosts: lab.Model, Log: t.Output()}
	if err := lab.Check(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	plan := compile(t, "health-check/api-outage.yaml")
	back, over := &plan.Spec.Steps[1], &plan.Spec.Steps[2]
	back.After, over.After = scenarios.Span{Min: 15 * time.Second, Max: 15 * time.Second}, scenarios.Span{Min: 5 * time.Second, Max: 5 * time.Second}
	outcome, err := play.Run(t.Context(), plan, lab.New(o), nil)
	if err != nil {
		t.Fatal(err)
	}
	save(t, outcome)
	if verdict, reason := outcome.VerdictOfSchedule(); verdict != "held" {
		t.Errorf("%s: %s\n\n%s", verdict, reason, report.Brief(outcome, "", ""))
	}
	isAway, gaveUp := false, 0
	for _, e := range outcome.History.Events() {
		switch {
		case e.Kind == history.OpApplied:
			isAway = !isAway
		case e.Kind == history.NodeNotReady && isAway:
			t.Errorf("during the outage: %s", e)
		case e.Kind == history.NodeNotReady:
			gaveUp++
		}
	}
	if gaveUp == 0 {
		t.Error("no Node was given up after the outage either: could kubelets renew their Leases?")
	}
}

// TestStoppedEtcdIsNoStall: a scenario that stops etcd doesn't make the lab say that it gets too
// little of its machine, which would excuse those whom the outage is to try.
func TestStoppedEtcdIsNoStall(t *testing.T) {
	t.Parallel()
	if os.Getenv("FENCELAB_REQUIRE_LAB") == "" || os.Getenv("FENCELAB_E2E") == "quick" {
		t.Skip("it runs with make e2e")
	}
	o := lab.Options{Cluster: lab.Standard, Hosts: lab.Model, Log: t.Output()}
	if err := lab.Check(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	plan := compile(t, "reboot-annotation/etcd-outage-during-the-reboot.yaml")
	outcome, err := play.Run(t.Context(), plan, lab.New(o), nil)
	if err != nil {
		t.Fatal(err)
	}
	save(t, outcome)
	if mismatch := outcome.Meets(); mismatch != "" {
		t.Errorf("%s\n\n%s", mismatch, report.Brief(outcome, "", ""))
	}
	for _, e := range outcome.History.Events() {
		// A machine that is busy may stall for a while, too.
		if long, err := time.ParseDuration(e.Value); e.Kind == history.LabRecovered && (err != nil || long > 20*time.Second) {
			t.Errorf("%s: as long as etcd stood still", e)
		}
	}
}

// save leaves what a story that is no spec has shown, among the results of make e2e; elsewhere its
// history in the log.
func save(t *testing.T, outcome *play.Outcome) {
	t.Helper()
	results := os.Getenv("FENCELAB_OUT")
	if results == "" {
		for _, e := range outcome.History.Events() {
			t.Log(e)
		}
		return
	}
	dir := filepath.Join(results, directoryOf(t.Name()))
	if err := report.Save(outcome, dir, ""); err != nil {
		t.Error(err)
	}
	verdict, _ := outcome.VerdictOfSchedule()
	t.Attr("verdict", string(verdict))
	t.Attr("artifacts", fromRoot(dir))
}

// faults has an entry for each scenario of a BMC's fault that the lab can play.
func faults() (entries []TableEntry) {
	for _, name := range everyRun {
		entries = append(entries, Entry(name, full, name))
	}
	for _, file := range told("bmc-faults") {
		if name := strings.TrimSuffix(filepath.Base(file), ".yaml"); !slices.Contains(everyRun, name) {
			entries = append(entries, Entry(name, onDemand, name))
		}
	}
	return entries
}

// each has an entry, on demand, for each of some scenarios. Those of agents run alone: their
// watchdogs are as quick on a host that is emulated on a busy core as on any, and their feeders
// are not.
func each(scenarios ...string) (entries []TableEntry) {
	for _, name := range scenarios {
		args := []any{onDemand, name + ".yaml"}
		if folder := filepath.Dir(name); folder == "agents" || folder == "poison-pill" {
			args = append(args, Serial)
		}
		entries = append(entries, Entry("of "+filepath.Base(name), args...))
	}
	return entries
}

// others has an entry for each story of the seeds that the lab can play.
func others() (entries []TableEntry) {
	for _, folder := range []string{"reboot-annotation", "machine-remediation", "health-check", "deletion-hooks", "poison-pill", "regression"} {
		for _, file := range told(folder) {
			entries = append(entries, Entry(strings.TrimSuffix(filepath.Base(file), ".yaml"), onDemand, file))
		}
	}
	return entries
}

// told lists the scenarios of a folder of the catalogue that the lab can play.
func told(folder string) (files []string) {
	paths, _ := filepath.Glob(filepath.Join(catalog, folder, "*.yaml")) // the pattern is a good one
	for _, path := range paths {
		file := filepath.Join(folder, filepath.Base(path))
		cells, err := cellsOf(path)
		if err != nil {
			files = append(files, file) // it fails when it is played
		}
		for _, scenario := range cells {
			switch worlds := scenario.Spec.Worlds; {
			case len(worlds) > 0 && !slices.Contains(worlds, "lab"):
			case len(cells) == 1:
				files = append(files, file)
			default:
				files = append(files, file+"#"+scenario.Metadata.Name)
			}
		}
	}
	return files
}

// asProcesses are options of a lab whose controllers are fencelab's own command.
func asProcesses() lab.Options {
	o := chosen()
	o.Processes, o.Executable = true, built()
	return o
}

// chosen are options with the parts of the lab that CLUSTER=, HOSTS=, POWER= and CONTROLLERS= of
// the Makefile choose.
func chosen() (o lab.Options) {
	for _, part := range lab.Parts {
		if value := os.Getenv("FENCELAB_" + strings.ToUpper(part.Flag)); value != "" {
			o.Choose(part.Flag, value)
		}
	}
	if o.Processes {
		o.Executable = built()
	}
	return o
}

// built is the program that a controller's process runs: make e2e builds it.
func built() string {
	executable, err := filepath.Abs("../bin/fencelab")
	if err != nil {
		panic(err) // no working directory
	}
	return executable
}

// wrongPart says which choice of a part there is not.
func wrongPart() error {
	for _, part := range lab.Parts {
		if value := os.Getenv("FENCELAB_" + strings.ToUpper(part.Flag)); value != "" && !slices.Contains(part.Of, value) {
			return fmt.Errorf("%s=%s: choose %s", strings.ToUpper(part.Flag), value, strings.Join(part.Of, ", "))
		}
	}
	return nil
}

// decides reports whether one of the story's controllers is known to decide in the cluster:
// what agents decide stays in the guests.
func decides(plan *scenarios.Plan) bool {
	known := objects.Vocabulary().Controllers
	return slices.ContainsFunc(plan.Spec.Controllers, func(c scenarios.Controller) bool {
		return c.Program == nil && len(known[c.Name].Actions) > 0 && !known[c.Name].EveryHost
	})
}

// tell plays a scenario and checks its expectations.
func tell(ctx context.Context, file string) {
	GinkgoHelper()
	tellWith(ctx, file, chosen())
}

// tellInKind does so in a cluster of kind's. make e2e says aloud when the image of its node can't
// be built.
func tellInKind(ctx SpecContext, file, hosts string) {
	GinkgoHelper()
	o := lab.Options{Cluster: lab.Kind, Hosts: hosts}
	if err := lab.Check(ctx, o); err != nil {
		Skip(err.Error())
	}
	tellWith(ctx, file, o)
}

func tellWith(ctx context.Context, file string, o lab.Options) {
	GinkgoHelper()
	o.Log = GinkgoWriter
	plan := compile(GinkgoT(), file)
	outcome := playIn(ctx, plan, o)
	if why := outcome.TooSlow(); why != "" && outcome.Meets() != "" {
		AddReportEntry("repeated", outcome.Meets()+"; the machine was too slow: "+why)
		fmt.Printf("%s is told once more, alone: %s\n", plan.Metadata.Name, why)
		o.Alone = true
		outcome = playIn(ctx, plan, o)
	}
	verdict, _ := outcome.Verdict()
	AddReportEntry("verdict", string(verdict))
	for _, want := range []string{page.Trace, page.Lines} {
		i := slices.IndexFunc(outcome.Artifacts, func(a play.Artifact) bool { return a.Name == want && len(a.Data) > 0 })
		Expect(i).To(BeNumerically(">=", 0), want+" is evidence")
		if decided := bytes.Contains(outcome.Artifacts[i].Data, []byte(`"what":"decided"`)); want == page.Trace {
			Expect(decided).To(Equal(!o.Processes && decides(plan)), "decisions of controllers in this process are known")
		}
	}
	mismatch, results := outcome.Meets(), os.Getenv("FENCELAB_OUT")
	if mismatch == "" && results == "" {
		return
	}
	dir := filepath.Join("../out", fmt.Sprintf("%s-lab-%s", plan.Metadata.Name, plan.ID()))
	if results != "" {
		dir = filepath.Join(results, directoryOf(CurrentSpecReport().FullText()))
	}
	replay := "bin/fencelab replay --backend lab" + flagsOf(o) + " " + fromRoot(filepath.Join(dir, "plan.txt"))
	Expect(report.Save(outcome, dir, replay)).To(Succeed())
	AddReportEntry("artifacts", fromRoot(dir))
	if mismatch != "" {
		Fail(mismatch + "\n\n" + report.Brief(outcome, fromRoot(dir), replay))
	}
}

// playIn plays a story in a lab of its own.
func playIn(ctx context.Context, plan *scenarios.Plan, o lab.Options) *play.Outcome {
	GinkgoHelper()
	began := time.Now()
	o.Shelf = shelf
	outcome, err := play.Run(ctx, plan, lab.New(o), nil)
	if unsupported := new(play.Unsupported); o.Hosts == lab.Model && errors.As(err, &unsupported) {
		Skip(err.Error())
	}
	Expect(err).NotTo(HaveOccurred())
	verdict, _ := outcome.Verdict()
	// Not into the report: whoever waits for the run wants to see it now.
	fmt.Printf("%-9s %-40s wall time %s\n  %s\n", verdict, plan.Metadata.Name, time.Since(began).Round(100*time.Millisecond), strings.Join(report.Elapsed(outcome), "\n  "))
	return outcome
}

// directoryOf is the name of the directory of a spec.
func directoryOf(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }), "-")
}

// fromRoot is a path as a user at the root of the repository names it.
func fromRoot(path string) string {
	root, err := filepath.Abs("..")
	if err != nil {
		return path
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	if below, err := filepath.Rel(root, absolute); err == nil {
		return below
	}
	return path
}

// flagsOf returns the flags of fencelab that choose the same parts.
func flagsOf(o lab.Options) (flags string) {
	for _, part := range []struct{ flag, value string }{{"cluster", o.Cluster}, {"hosts", o.Hosts}, {"power", o.Power}} {
		if part.value != "" {
			flags += " --" + part.flag + " " + part.value
		}
	}
	if o.Processes {
		flags += " --controllers " + lab.AsProcess
	}
	return flags
}

// leftovers are our child processes, but for the keepers, which wait for our end, and our
// directories, but for that of the embedded hypervisor, which no process can leave. What stands on
// the shelf is none.
func leftovers() []string {
	var left []string
	waiting, theirs := shelf.Holds()
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		data, _ := os.ReadFile(file) // it may have ended meanwhile
		_, rest, found := bytes.Cut(data, []byte(") "))
		var state string
		var parent int
		if !found {
			continue
		}
		if _, err := fmt.Sscanf(string(rest), "%s %d", &state, &parent); err != nil || parent != os.Getpid() {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if !bytes.Contains(command, []byte("keeper")) && !slices.Contains(waiting, pid) {
			left = append(left, string(bytes.ReplaceAll(command, []byte{0}, []byte(" "))))
		}
	}
	directories, _ := filepath.Glob(filepath.Join(os.TempDir(), "*-"+keeper.Name()+"-*"))
	return append(left, slices.DeleteFunc(directories, func(dir string) bool {
		return strings.HasPrefix(filepath.Base(dir), "fencelab-vms-") || slices.Contains(theirs, dir)
	})...)
}
