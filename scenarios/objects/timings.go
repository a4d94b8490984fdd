package objects

import (
	"time"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/healthcheck"
	"github.com/fencelab/fencelab/controllers/poisonpill"
	"github.com/fencelab/fencelab/controllers/reboot"
	"github.com/fencelab/fencelab/controllers/release"
	"github.com/fencelab/fencelab/controllers/remediation"
	"github.com/fencelab/fencelab/controllers/watchdog"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// slack is enough for the reconciles of one remediation where nothing else keeps the
// machine busy.
const slack = 2 * time.Second

// collected is how long it takes at most, in Kubernetes, until the Pods of a Node that is gone are.
const collected = time.Minute

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
			if v := spec.Topology.Workload.Volume; v != nil { // it goes when its Node is made anew
				timings.Release = collected + min(s.RecreateAfter.Duration, release.MaxWaitForUnmount) + time.Duration(v.Attach+v.Detach)
			}
			timings.Silence, timings.Hearing = s.Silence(), s.Hearing(len(spec.Topology.Hosts)-1)
			timings.Refused = true // it asks its peers after any error
			if shortest > 0 {
				timings.Brief = min(timings.Brief, s.Spare(shortest)) // or once, while peers are asked
			}
		}
		if s, ok := c.Settings.(*watchdog.Settings); ok {
			timings.Silence, timings.Hearing = s.AnswerWithin.Duration, s.Interval.Duration+s.RequestTimeout.Duration
		}
		if s, ok := c.Settings.(*remediation.Settings); ok {
			if timings.AtOnce = !s.KeepMarkUntilNodeReturns && s.Release == remediation.NodeDeletion; !timings.AtOnce {
				timings.Return = s.NodeTimeout.Duration
			}
		}
		if s, ok := c.Settings.(*healthcheck.Settings); ok {
			timings.CoolDown, timings.Guarded = s.CoolDown.Duration, s.Guard != ""
			if check := spec.HealthCheck; check != nil && !s.MissingNodeUnhealthyAtOnce {
				timings.Missing = time.Duration(check.NodeStartupTimeout)
			}
		}
		if s, ok := c.Settings.(*reboot.Settings); ok {
			timings.SoftTimeout, timings.Command = s.SoftTimeout.Duration, s.CommandInterval.Duration
			timings.Poll, timings.Answer = s.PollInterval.Duration, s.BMCTimeout.Duration
			timings.Steady, timings.Backoff = s.SteadyInterval.Duration, s.MaxBackoff.Duration
		}
	}
	timings.Freed, timings.Orphaned = freed(spec, chosen, &timings)
	return timings
}

// freed are invariant.Timings' of that name and Orphaned: what a fencer takes to release, once the
// host is off or kept out, then the cluster's own controllers, and then the storage.
func freed(spec *scenarios.Spec, chosen []controllers.Selection, t *invariant.Timings) (longest, orphaned time.Duration) {
	v := spec.Topology.Workload.Volume
	if v == nil {
		return 0, 0
	}
	var detach release.DetachSettings
	for _, c := range chosen {
		if s, ok := c.Settings.(*release.DetachSettings); ok {
			detach = *s
		}
	}
	for _, c := range chosen {
		takes, quick := time.Duration(0), true
		switch s := c.Settings.(type) {
		case *remediation.Settings:
			takes = t.Command + t.Poll + s.AnswerWithin.Duration + collected + time.Duration(v.Attach+v.Detach) + 5*slack
			quick = s.Release != remediation.NodeDeletion
		case *poisonpill.Settings:
			takes = t.Safe + t.Release + 5*slack
		default:
			continue
		}
		alone := takes
		if !detach.DetachFromDeletedNodes {
			alone += release.MaxWaitForUnmount
		}
		if orphaned = max(orphaned, alone); !quick {
			takes = alone
		}
		longest = max(longest, takes)
	}
	if detach.DisableForceDetachOnTimeout && !detach.DetachFromDeletedNodes { // until somebody makes a Node of that name
		if longest == orphaned {
			longest = 0
		}
		orphaned = 0
	}
	return longest, orphaned
}
