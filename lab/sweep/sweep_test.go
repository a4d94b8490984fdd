package sweep

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim"
)

// simulated is a world of the simulator that plays a lab: it has said which deeds passed, and one
// of them, if it is in the plan, is made to deviate by a wrong controller.
type simulated struct {
	play.Backend
	deeds []scenarios.Deed
	plays func(plan *scenarios.Plan) (*scenarios.Plan, error)
}

func (s *simulated) Deeds() []scenarios.Deed { return s.deeds }

func (s *simulated) Start(ctx context.Context, plan *scenarios.Plan) (t invariant.Timings, err error) {
	played, err := s.plays(plan)
	if err != nil {
		return t, err
	}
	return s.Backend.Start(ctx, played)
}

const catalog = "../../scenarios/catalog/"

func compile(t *testing.T, path string) *scenarios.Plan {
	t.Helper()
	all, err := file.LoadFiles([]string{catalog + path}, objects.Vocabulary(), nil)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := scenarios.Compile(all[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// deeds is a recording: deeds of a controller under test, of a stand-in, and many reads.
var deeds = []scenarios.Deed{
	{Actor: "remediation", Does: "get Node/worker-1", N: 1},
	{Actor: "remediation", Does: "get Node/worker-1", N: 2},
	{Actor: "remediation", Does: "get Node/worker-1", N: 3},
	{Actor: "remediation", Does: "patch BareMetalHost/worker-1", N: 1},
	{Actor: "reboot", Does: "bmc ForceOff worker-1", N: 1},
	{Actor: "remediation", Does: "deliver node-deleted Node/worker-1", N: 1},
	{Actor: "workload", Does: "delete Pod/exclusive", N: 1},
}

// TestSingles: effects come first, commands before others, then deliveries, then reads; a BMC
// ignores commands only; stand-ins are left alone.
func TestSingles(t *testing.T) {
	plan := compile(t, "machine-remediation/cut-off-host.yaml")
	singles := Singles(underTest(plan, deeds))
	var steps, ignored []string
	for _, d := range singles {
		if !slices.Contains(steps, d.Step) {
			steps = append(steps, d.Step)
		}
		if d.Fault == scenarios.FaultIgnore {
			ignored = append(ignored, d.Step)
		}
	}
	want := []string{
		"reboot/bmc ForceOff worker-1/1", "remediation/patch BareMetalHost/worker-1/1", "remediation/deliver node-deleted Node/worker-1/1",
		"remediation/get Node/worker-1/0.1", "remediation/get Node/worker-1/0.2",
	}
	if !slices.Equal(steps, want) || !slices.Equal(ignored, want[:1]) {
		t.Errorf("the steps are %q, ignored are %q; want %q", steps, ignored, want)
	}
	plan.Spec.Controllers[0].Program = &scenarios.Program{Command: []string{"it"}}
	for _, d := range underTest(plan, deeds) {
		if d.Actor != plan.Spec.Controllers[0].Name {
			t.Errorf("beside the program, %s is tried", d)
		}
	}
}

// TestSinglesOfHostsThatAreAlike: all of one host's come first, and what is done to another alone
// with them.
func TestSinglesOfHostsThatAreAlike(t *testing.T) {
	var steps []string
	for _, d := range Singles([]scenarios.Deed{
		{Actor: "operator", Does: "get BareMetalHost/worker-1", N: 1},
		{Actor: "operator", Does: "patch BareMetalHost/worker-1", N: 1},
		{Actor: "operator", Does: "patch BareMetalHost/worker-2", N: 1},
		{Actor: "operator", Does: "bmc ForceOff worker-2", N: 1},
		{Actor: "operator", Does: "bmc ForceOff worker-1", N: 1},
		{Actor: "operator", Does: "bmc On worker-1", N: 1},
		{Actor: "operator", Does: "patch BareMetalHost/worker-1", N: 2},
	}) {
		if !slices.Contains(steps, d.Step) {
			steps = append(steps, d.Step)
		}
	}
	want := []string{
		"operator/bmc ForceOff worker-2/1", "operator/bmc On worker-1/1", "operator/patch BareMetalHost/worker-1/1",
		"operator/patch BareMetalHost/worker-1/2", "operator/get BareMetalHost/worker-1/0.1",
		"operator/bmc ForceOff worker-1/1", "operator/patch BareMetalHost/worker-2/1",
	}
	if !slices.Equal(steps, want) {
		t.Errorf("the steps are\n%q\nwant\n%q", steps, want)
	}
}

// TestASweepFindsAndGoesOn: one deviation breaks a guarantee, is named, and comes again; a sweep
// that is run once more plays nothing again but that. A world that fails to start is tried again.
func TestASweepFindsAndGoesOn(t *testing.T) {
	plan := compile(t, "machine-remediation/cut-off-host.yaml")
	wrong := compile(t, "machine-remediation/wrong-deletes-node-before-power-off.yaml")
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	var started atomic.Int32
	failed := false
	world := func(bool) World {
		return &simulated{s.Backend(), deeds, func(p *scenarios.Plan) (*scenarios.Plan, error) {
			started.Add(1)
			if len(p.Deviations) == 0 {
				return p, nil
			}
			if !failed {
				failed = true
				return nil, errors.New("it is too slow")
			}
			if d := p.Deviations[0]; d.Step == "reboot/bmc ForceOff worker-1/1" && d.Fault == scenarios.FaultIgnore {
				return wrong, nil
			}
			return p.With(nil), nil
		}}
	}
	var out, talk bytes.Buffer
	to := &report.Console{Out: &out, Talk: &talk, World: "lab", Dir: t.TempDir()}
	run := func() int {
		t.Helper()
		started.Store(0)
		out.Reset()
		code, err := Run(t.Context(), &campaign.Session{World: to.World, To: to}, plan, world, Options{Schedules: 14, Workers: 1, Again: 3, Dir: to.Dir})
		if err != nil || code != exit.Violated {
			t.Errorf("it ended with %d, %v:\n%s", code, err, out.String())
		}
		for _, want := range []string{"14 of 32 single deviations from 5 deeds: 13 held, 1 violated", "reboot/bmc ForceOff worker-1/1 ignore", "always: it came again 3 of 3 times"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("it didn't say %q:\n%s", want, out.String())
			}
		}
		return int(started.Load())
	}
	if n := run(); n != 1+1+14+3 {
		t.Errorf("%d worlds were started", n)
	}
	if n := run(); n != 1+3 {
		t.Errorf("the second time, %d worlds were started", n)
	}
	if files, _ := filepath.Glob(filepath.Join(to.Dir, "sweep-*.jsonl")); len(files) != 1 {
		t.Errorf("what was found is kept in %q", files)
	}
}

// TestAWorldThatNeverStarts ends the sweep.
func TestAWorldThatNeverStarts(t *testing.T) {
	plan := compile(t, "machine-remediation/cut-off-host.yaml")
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	world := func(bool) World {
		return &simulated{s.Backend(), deeds, func(p *scenarios.Plan) (*scenarios.Plan, error) {
			if len(p.Deviations) > 0 {
				return nil, errors.New("there is no room")
			}
			return p, nil
		}}
	}
	var out bytes.Buffer
	to := &report.Console{Out: &out, Talk: &out, World: "lab"}
	_, err = Run(t.Context(), &campaign.Session{World: to.World, To: to}, plan, world, Options{Workers: 1})
	if exit.Code(err) != exit.Internal || !strings.Contains(err.Error(), "there is no room") {
		t.Errorf("it ended with %v:\n%s", err, out.String())
	}
}
