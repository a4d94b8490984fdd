package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/fakebmc/wall"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/lab/door"
	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/lab/hosts"
	"github.com/fencelab/fencelab/lab/record"
	"github.com/fencelab/fencelab/lab/runner"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/vms/keeper"
)

// Handed hands control planes on from one lab of this process to the next.
var Handed cluster.Shelf

// bench is a lab of a real control plane and a host in memory behind a BMC, whose reboot
// controller is about to be run.
func bench(t *testing.T, processes bool) (*Backend, *proc) {
	t.Helper()
	NeedControlPlane(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	plan := &scenarios.Plan{Spec: scenarios.Spec{Topology: scenarios.Topology{Hosts: []scenarios.Host{{Name: "worker-1"}}}}}
	b := &Backend{set: controllers.Default(), kinds: objects.KindsOf(controllers.Default()), plan: plan, clock: wall.Clock(), options: Options{Shelf: &Handed}}
	b.ctx, b.cancel = context.WithCancel(context.Background()) // Stop still needs it when the test has ended
	b.record = record.New(b.since, b.kinds, objects.NamesOf(&plan.Spec.Topology, plan.Spec.HealthCheck), nil)
	b.plane.door = door.New(b.record.Stream, gate.API(b.kinds))
	t.Cleanup(func() {
		if _, err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	must(b.startControlPlane())
	var err error
	b.keeper, err = keeper.Start()
	must(err)
	b.dir, err = b.keeper.TempDir("fencelab-lab")
	must(err)
	b.procs.runner = runner.InProcess{Plane: b.plane.controlPlane, Set: b.set}
	if processes {
		b.procs.runner = runner.NewChildProcesses(b.plane.controlPlane, b.plane.door, "/proc/self/exe", b.dir, b.keeper.Mark(), b.failed)
	}
	b.hosts.BMCs, err = hosts.NewBMCs(b.record.Stream, nil)
	must(err)
	b.hosts.Machines = hosts.Memory{Clock: b.clock}
	must(b.makeHosts())
	must(b.createTopology())
	must(b.record.Watch(b.ctx, b.plane.admin))
	chosen, err := controllers.Select("reboot", []byte(`{"pollInterval":"200ms","softTimeout":"1m"}`), nil)
	must(err)
	must(b.grant(chosen.Registration))
	p := &proc{b: b, name: "reboot", controller: chosen}
	b.procs.processes = append(b.procs.processes, p)
	return b, p
}

// reboot asks for a reboot, and returns the events until it is done.
func reboot(t *testing.T, b *Backend) (events []history.Event) {
	t.Helper()
	op := scenarios.Op{Annotate: &scenarios.AnnotateOp{Object: "BareMetalHost/worker-1", Key: api.RebootAnnotation}}
	if err := b.Apply(op); err != nil {
		t.Fatal(err)
	}
	return follow(t, b, func(e history.Event) bool {
		return e.Kind == history.ControllerEffect && e.Value == "bmc On worker-1"
	})
}

// follow returns the events up to the one that is the last.
func follow(t *testing.T, b *Backend, last func(history.Event) bool) (events []history.Event) {
	t.Helper()
	found := false
	_, err := b.record.Advance(t.Context(), b.since()+2*time.Minute, func(e history.Event) bool {
		events = append(events, e)
		found = found || last(e)
		return found
	})
	if err != nil || !found {
		t.Fatalf("the last event did not come: %v; there were\n%v", err, events)
	}
	return events
}

// acts are the effects, crashes and starts among events, and who commanded the BMC.
func acts(events []history.Event) (acts []string) {
	for _, e := range events {
		switch e.Kind {
		case history.ControllerStarted, history.ControllerEffect, history.ControllerCrashed, history.BMCCommand:
			acts = append(acts, fmt.Sprintf("%s %s%s by %s", e.Kind, e.Value, e.Note, e.Actor))
		}
	}
	return acts
}

// TestCrashesAreTheSame runs the reboot controller in both ways, and crashes it after each
// of its effects. It has the same effects, in the same order.
func TestCrashesAreTheSame(t *testing.T) {
	told := make(map[bool][]string)
	for _, processes := range []bool{false, true} {
		t.Run(fmt.Sprintf("processes=%t", processes), func(t *testing.T) {
			b, p := bench(t, processes)
			p.arm(&scenarios.CrashOp{Each: true, Point: scenarios.CrashAfter})
			if err := p.start(); err != nil {
				t.Fatal(err)
			}
			told[processes] = acts(reboot(t, b))
			var host api.BareMetalHost
			if err := b.plane.admin.Get(t.Context(), client.ObjectKey{Namespace: objects.Namespace, Name: "worker-1"}, &host); err != nil {
				t.Fatal(err)
			}
			if want := b.hosts.BMCs.URLs["worker-1"].Host; !strings.Contains(host.Spec.BMC.Address, want) {
				t.Errorf("the host's BMC is now at %s, and was at %s", host.Spec.BMC.Address, want)
			}
		})
	}
	if len(told) < 2 {
		t.Skip("there is nothing to compare: see why its parts were skipped")
	}
	if !slices.Equal(told[false], told[true]) {
		t.Errorf("in process:\n  %s\nas a process:\n  %s", strings.Join(told[false], "\n  "), strings.Join(told[true], "\n  "))
	}
	all := strings.Join(told[true], "\n")
	for _, want := range []string{
		"bmc-command GracefulShutdown by reboot\ncontroller-effect bmc GracefulShutdown worker-1 by reboot\ncontroller-crashed after bmc GracefulShutdown worker-1 by reboot\ncontroller-started  by reboot",
		"bmc-command On by reboot",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("the history has\n%s\nand not\n%s", all, want)
		}
	}
}

// TestPauseOfAProcess lets a controller stand still, which then does nothing about a
// request, and go on.
func TestPauseOfAProcess(t *testing.T) {
	b, p := bench(t, true)
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	follow(t, b, func(e history.Event) bool { return e.Kind == history.ControllerStarted })
	pid := p.life.incarnation.(interface{ Pid() int }).Pid()
	state := func() string {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))[0]
	}
	for _, op := range []scenarios.Op{
		{PauseController: &scenarios.ControllerOp{Controller: "reboot"}},
		{Heal: new(scenarios.HealOp)},
		{PauseController: &scenarios.ControllerOp{Controller: "reboot"}},
		{ResumeController: &scenarios.ControllerOp{Controller: "reboot"}},
	} {
		if err := b.Apply(op); err != nil {
			t.Fatal(err)
		}
		if still := state() == "T"; still != (op.PauseController != nil) {
			t.Errorf("after %s the process is in state %s", &op, state())
		}
	}
	if got := acts(reboot(t, b)); !slices.Contains(got, "controller-effect bmc On worker-1 by reboot") {
		t.Errorf("a controller that goes on does only %q", got)
	}
	p.stop()
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); !os.IsNotExist(err) {
		t.Errorf("the process outlives its controller: %v", err)
	}
	files, _ := filepath.Glob(filepath.Join(b.dir, "controller-reboot.log"))
	if logs := b.procs.runner.Logs(); len(files) != 1 || len(logs) != 1 || !strings.Contains(string(logs[0].Data), "Starting workers") {
		t.Errorf("it said %v", logs)
	}
}

// TestEndOfAProcessIsNoCrash has a controller's process end by itself: then nothing is
// certain any more.
func TestEndOfAProcessIsNoCrash(t *testing.T) {
	b, p := bench(t, true)
	p.b.procs.runner.(*runner.ChildProcesses).Executable = "/bin/false"
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	_, err := b.record.Advance(t.Context(), b.since()+time.Minute, func(history.Event) bool { return false })
	if err == nil || !strings.Contains(err.Error(), "the controller reboot: fencelab-reboot ended by itself (exit status 1)") {
		t.Errorf("the run goes on: %v", err)
	}
}

// NeedControlPlane skips a test where no control plane can be started, and fails it where the lab
// is required.
func NeedControlPlane(t *testing.T) {
	t.Helper()
	for _, f := range cluster.Preflight(t.Context(), cluster.Options{}) {
		if f.Remedy == "" {
			continue
		}
		if os.Getenv("FENCELAB_REQUIRE_LAB") == "1" {
			t.Fatalf("%s: %s; %s", f.Name, f.State, f.Remedy)
		}
		t.Skipf("%s: %s; %s", f.Name, f.State, f.Remedy)
	}
}
