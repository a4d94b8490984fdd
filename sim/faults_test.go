package sim_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/guarantee"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/sim"
)

// faulty returns the simulator's scenarios of BMCs that misbehave.
func faulty(t *testing.T) (all []*scenarios.Scenario) {
	t.Helper()
	files, _ := filepath.Glob("../scenarios/catalog/bmc-faults/*.yaml") // the pattern is a good one
	for _, file := range files {
		s := scenario(t, strings.TrimSuffix(filepath.Base(file), ".yaml"))
		if len(s.Spec.Worlds) == 0 || slices.Contains(s.Spec.Worlds, "sim") {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		t.Fatal("the catalog has no faults of BMCs")
	}
	return all
}

// TestFaultsMatter plays the stories of BMCs that misbehave: each fault bends
// something, and each story notices when one of its faults never comes.
func TestFaultsMatter(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	compile := func(story *scenarios.Scenario) *scenarios.Plan {
		t.Helper()
		plan, err := scenarios.Compile(story, 1)
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	for _, story := range faulty(t) {
		outcome := playOn(t, s, compile(story))
		for i, step := range story.Spec.Steps {
			if step.Do == nil || step.Do.AddFault == nil {
				continue
			}
			fault := step.Do.AddFault
			bent := slices.ContainsFunc(outcome.History.Events(), func(e history.Event) bool {
				return e.Kind == history.BMCFault && slices.ContainsFunc(strings.Split(e.Value, ","), func(rule string) bool {
					name, _, _ := strings.Cut(rule, "/") // of a preset's rule
					return name == fault.Name
				})
			})
			if !bent {
				t.Errorf("%s: the fault %s bends nothing", story.Metadata.Name, fault.Name)
			}

			var rule fakebmc.Rule
			if err := json.Unmarshal(fault.Rule, &rule); err != nil {
				t.Fatal(err)
			}
			rule.When.From, rule.When.Until = fakebmc.Duration(300*24*time.Hour), 0
			late := *fault
			if late.Rule, err = json.Marshal(rule); err != nil {
				t.Fatal(err)
			}
			without := *story
			without.Spec.Steps = slices.Clone(story.Spec.Steps)
			without.Spec.Steps[i].Do = &scenarios.Op{AddFault: &late}
			if playOn(t, s, compile(&without)).Meets() == "" {
				t.Errorf("%s comes out as it says also when the fault %s never comes", story.Metadata.Name, fault.Name)
			}
		}
	}
}

// TestOwnResets plays the stories in which a BMC resets its host by itself. In the history that is
// a command like any other, before its consequences, and in the BMC's own name.
func TestOwnResets(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		story, client string
		reset         fakebmc.ResetType
		then          history.Kind // what comes of it next; empty when nothing may
	}{
		{"bmc-second-master", fakebmc.ClientBMC, fakebmc.ResetOn, history.PowerOn},                 // auto
		{"bmc-second-master-late", fakebmc.ClientBMC, fakebmc.ResetOn, ""},                         // of a host that is on
		{"bmc-powering-off-while-running", fakebmc.ClientBMC, fakebmc.ResetForceOff, "boot-ended"}, // transition
		{"bmc-reset-twice", fakebmc.ClientBMC, fakebmc.ResetForceOff, "boot-ended"},                // duplicate
		{"bmc-ac-loss", fakebmc.ClientRestore, fakebmc.ResetOn, history.PowerOn},
		{"bmc-openbmc-restart-powers-on", fakebmc.ClientRestore, fakebmc.ResetOn, history.PowerOn},
	} {
		plan, err := scenarios.Compile(scenario(t, c.story), 1)
		if err != nil {
			t.Fatal(err)
		}
		events := playOn(t, s, plan).History.Events()
		at := slices.IndexFunc(events, func(e history.Event) bool {
			return e.Kind == history.BMCCommand && e.Host == "worker-1" && e.Actor == c.client && e.Value == string(c.reset)
		})
		if at < 0 {
			t.Errorf("%s: no %s by %s", c.story, c.reset, c.client)
			continue
		}
		next := slices.IndexFunc(events[at:], func(e history.Event) bool { return e.Host == "worker-1" && e.Kind.Layer() == history.World })
		switch {
		case c.then == "" && next >= 0:
			t.Errorf("%s: after %s comes %s", c.story, events[at], events[at+next])
		case c.then != "" && (next < 0 || events[at+next].Kind != c.then || events[at+next].At-events[at].At > time.Second):
			t.Errorf("%s: after %s comes not %s", c.story, events[at], c.then)
		}
	}
}

// TestVerdictsRestOnFacts judges each story anew without the events of the BMCs' requests and
// deeds: what BMCs do unasked is not requested, and excuses no controller.
func TestVerdictsRestOnFacts(t *testing.T) {
	s, err := sim.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, story := range faulty(t) {
		plan, err := scenarios.Compile(story, 1)
		if err != nil {
			t.Fatal(err)
		}
		outcome := playOn(t, s, plan)
		params := invariant.Params{Timings: outcome.Timings}
		for _, host := range plan.Spec.Topology.Hosts {
			params.Hosts = append(params.Hosts, host.Name)
		}
		judge := func(heed func(history.Event) bool) []invariant.Result {
			panel := invariant.NewPanel(guarantee.All(), nil, params)
			for _, e := range outcome.History.Events() {
				if heed(e) {
					panel.Observe(&e)
				}
			}
			return panel.Results(true)
		}
		all := judge(func(history.Event) bool { return true })
		facts := judge(func(e history.Event) bool { return e.Kind.Layer() != history.BMC })
		for i := range all {
			if a, b := all[i], facts[i]; a.Verdict != b.Verdict || a.Reason != b.Reason || a.Judged != b.Judged {
				t.Errorf("%s: %s is %s (%s), and without the BMCs' commands %s (%s)", story.Metadata.Name, a.Invariant, a.Verdict, a.Reason, b.Verdict, b.Reason)
			}
		}
	}
}
