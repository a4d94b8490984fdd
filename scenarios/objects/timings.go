package objects

import (
	"time"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/healthcheck"
	"github.com/fencelab/fencelab/controllers/poisonpill"
	"github.com/fencelab/fencelab/controllers/reboot"
	"github.com/fencelab/fencelab/controllers/remediation"
	"github.com/fencelab/fencelab/controllers/watchdog"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// slack is enough for the reconciles of one remediation where nothing else keeps the
// machine busy.
const slack = 2 * time.Second

// Timings returns the durations by which guarantees with a time in them are judged: those of the
// topology's hosts, and the power controller's settings.
func Timings(spec *scenarios.Spec, chosen []controllers.Selection) invariant.Timings {
	t := spec.Topology.Timings
	timings := invariant.Timings{Boot: time.Duration(t.Boot), SoftOff: time.Duration(t.SoftOff), HardOff: time.Duration(t.HardOff), Slack: slack}
	for i := range kinds {
		timings.Kinds = append(timings.Kinds, kinds[i].GVK.Kind)
		if kinds[i].Obstacle {
			timings.Obstacles = append(timings.Obstacles, kinds[i].GVK.Kind)
		}
	}
	var longest, shortest time.Duration // of the hosts' watchdogs
	for _, h := range spec.Topology.Hosts {
		dog := time.Duration(h.Watchdog)
		longest = max(longest, dog)
		if dog > 0 && (shortest == 0 || dog < shortest) {
			shortest = dog
		}
	}
	timings.Watchdog, timings.Brief = longest, shortest/3 // it is fed three times
	timings.Faults = make(map[string]invariant.Fault)
	// order does not matter: each fills its own key
	for name, bends := range BendsOf(spec) {
		timings.Faults[name] = bends.fault
	}
	for _, c := range chosen {
		if c.StandIn() {
			timings.StandIns = append(timings.StandIns, c.Name)
		}
		if s, ok := c.Settings.(*poisonpill.Settings); ok {
			timings.Safe = s.Safe(len(spec.Topology.Hosts)-1, longest)
			timings.Release = time.Duration(spec.Topology.PodGC)
			timings.Silence, timings.Hearing = s.Silence(), s.Hearing(len(spec.Topology.Hosts)-1)
			timings.Refused = true // it asks its peers after any error
			if shortest > 0 {
				timings.Brief = min(timings.Brief, s.Spare(shortest)) // or once, while peers are asked
			}
		}
		if s, ok := c.Settings.(*watchdog.Settings); ok {
			timings.Silence, timings.Hearing = s.AnswerWithin.Duration, s.Interval.Duration+s.RequestTimeout.Duration
		}
		if s, ok := c.Settings.(*remediation.Settings); ok && s.KeepMarkUntilNodeReturns {
			timings.Return = s.NodeTimeout.Duration
		}
		if s, ok := c.Settings.(*healthcheck.Settings); ok {
			timings.CoolDown = s.CoolDown.Duration
			if check := spec.HealthCheck; check != nil && !s.MissingNodeUnhealthyAtOnce {
				timings.Missing = time.Duration(check.NodeStartupTimeout)
			}
		}
		if s, ok := c.Settings.(*reboot.Settings); ok {
			timings.SoftTimeout, timings.Command = s.SoftTimeout.Duration, s.CommandInterval.Duration
			timings.Poll = s.PollInterval.Duration
			timings.Steady, timings.Backoff = s.SteadyInterval.Duration, s.MaxBackoff.Duration
		}
	}
	return timings
}
