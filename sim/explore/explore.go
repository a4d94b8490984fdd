// Package explore searches the schedules of a scenario for one that breaks a
// guarantee. A schedule is the default one with deviations; strategies differ in
// which deviations they try.
package explore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/sim"
)

// Delays are how late a single step is made: later than its neighbours, than a few
// calls and what comes of them, than a power-off, than a poll, than a boot, and later
// than a whole remediation.
var Delays = []time.Duration{
	10 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond, time.Second, 15 * time.Second, 90 * time.Second,
}

// lateness is how late, or how old, a fault makes something that has an extent.
var lateness = Delays[3:]

// relistAfter is for how long a watch is broken before its cache lists anew.
const relistAfter = 15 * time.Second

// Steps plays the plan and returns the steps of its story, in the order in which
// they were scheduled.
func Steps(ctx context.Context, s *sim.Simulator, plan *scenarios.Plan) ([]sim.Step, *scenarios.Outcome, error) {
	var steps []sim.Step
	backend := s.Backend()
	backend.Watch = func(step sim.Step) (scenarios.Deviation, bool) {
		steps = append(steps, step)
		return scenarios.Deviation{}, false
	}
	outcome, err := scenarios.Run(ctx, plan, backend, nil)
	return steps, outcome, err
}

// Singles returns every single deviation from the schedule whose steps are given:
// each delay, each fault and each crash point, one at a time.
func Singles(steps []sim.Step) []scenarios.Deviation {
	var deviations []scenarios.Deviation
	for _, step := range steps {
		for _, fault := range step.Faults() {
			extents := []time.Duration{0}
			switch {
			case fault == scenarios.FaultRelist:
				// A cache that is up to date but for one change loses nothing.
				extents[0] = relistAfter
			case fault.HasExtent():
				extents = lateness
			}
			for _, extent := range extents {
				deviations = append(deviations, scenarios.Deviation{Step: step.Name(), Fault: fault, Delay: scenarios.Duration(extent)})
			}
		}
		for _, delay := range Delays {
			deviations = append(deviations, scenarios.Deviation{Step: step.Name(), Delay: scenarios.Duration(delay)})
		}
	}
	return deviations
}

// draw returns a source of deviations that is drawn from a seed while the plan
// is played, and the list of what it drew. How often steps deviate, and how, is
// drawn for each run, so that runs differ in kind and not only in detail.
func draw(seed uint64) (watch func(sim.Step) (scenarios.Deviation, bool), drawn *[]scenarios.Deviation) {
	style := scenarios.Stream(seed, "explore style")
	// On the average one step in rate deviates; a fault has the share faults
	// among the deviations.
	rate := 1 << (3 + style.IntN(6))
	faults := style.Float64()
	streams := make(map[string]*rand.Rand)
	drawn = new([]scenarios.Deviation)
	return func(step sim.Step) (scenarios.Deviation, bool) {
		// One stream for each actor: what one of them does shifts no other's
		// draws.
		stream := streams[step.Actor]
		if stream == nil {
			stream = scenarios.Stream(seed, "explore "+step.Actor)
			streams[step.Actor] = stream
		}
		if stream.IntN(rate) != 0 {
			return scenarios.Deviation{}, false
		}
		d := scenarios.Deviation{Step: step.Name()}
		if possible := step.Faults(); len(possible) > 0 && stream.Float64() < faults {
			d.Fault = possible[stream.IntN(len(possible))]
		}
		if d.Fault == "" || d.Fault.HasExtent() {
			// Delays of all orders of magnitude, from 1 ms to 2 min.
			d.Delay = scenarios.Duration(time.Millisecond << stream.IntN(17))
		}
		*drawn = append(*drawn, d)
		return d, true
	}, drawn
}

// Play plays one schedule: the plan with the given deviations.
func Play(ctx context.Context, s *sim.Simulator, plan *scenarios.Plan, deviations []scenarios.Deviation) (*scenarios.Outcome, error) {
	outcome, err := scenarios.Run(ctx, plan.With(deviations), s.Backend(), nil)
	if err != nil {
		return nil, err
	}
	if outcome.Err != nil {
		return outcome, fmt.Errorf("play %s with %s: %w", plan.Metadata.Name, few(deviations), outcome.Err)
	}
	return outcome, nil
}

// PlayRandom plays one random schedule and returns the deviations that were
// drawn, with which Play gives the same history.
func PlayRandom(ctx context.Context, s *sim.Simulator, plan *scenarios.Plan, seed uint64) (*scenarios.Outcome, []scenarios.Deviation, error) {
	backend := s.Backend()
	var drawn *[]scenarios.Deviation
	backend.Watch, drawn = draw(seed)
	outcome, err := scenarios.Run(ctx, plan, backend, nil)
	if err != nil {
		return nil, nil, err
	}
	if outcome.Err != nil {
		return outcome, *drawn, fmt.Errorf("play %s with %s: %w", plan.Metadata.Name, few(*drawn), outcome.Err)
	}
	return outcome, *drawn, nil
}

// few names the first of the deviations.
func few(deviations []scenarios.Deviation) string {
	const most = 5
	if len(deviations) > most {
		return fmt.Sprintf("%v and %d more deviations", deviations[:most], len(deviations)-most)
	}
	return fmt.Sprint(deviations)
}
