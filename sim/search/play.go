package search

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/steps"
)

const (
	// Every recheck-th schedule is played twice, to check that both runs are the same, and once
	// more with two of its steps swapped.
	recheck = 50
	// scattered bounds the step at which the search for two such steps begins.
	scattered = 97
)

// Player plays the schedules of one story.
type Player struct {
	simulator *sim.Simulator
	story     *campaign.Story
	rows      rows
	// seen, which may be nil, is called with what came of each schedule that is tried.
	seen func(campaign.Schedule, *play.Outcome)
	// edges belong to the story; nil until a schedule is asked for what it reaches.
	edges *edges
	// scheduled counts steps; nil unless that is asked for.
	scheduled *int
}

// NewPlayer returns a player of a story.
func NewPlayer(simulator *sim.Simulator, story *campaign.Story) *Player {
	return &Player{simulator: simulator, story: story, rows: make(rows)}
}

// Play plays a schedule to its end. It returns the schedule with the deviations that were drawn.
func (p *Player) Play(schedule campaign.Schedule) (*play.Outcome, campaign.Schedule, error) {
	return p.play(schedule, nil)
}

func (p *Player) play(schedule campaign.Schedule, reached *coverage) (*play.Outcome, campaign.Schedule, error) {
	backend := p.simulator.Backend()
	var drawn []scenarios.Deviation
	if schedule.Draw {
		backend.Watch = draw(schedule.Seed, &drawn)
	}
	if reached != nil {
		drawn := backend.Watch
		backend.Decided, backend.Took = reached.decided, reached.met.took
		backend.Watch = func(s steps.Step) (d scenarios.Deviation, deviates bool) {
			reached.met.scheduled(s)
			if drawn != nil {
				d, deviates = drawn(s)
			}
			return d, deviates
		}
	}
	if watch := backend.Watch; p.scheduled != nil {
		backend.Watch = func(s steps.Step) (scenarios.Deviation, bool) {
			*p.scheduled++
			if watch == nil {
				return scenarios.Deviation{}, false
			}
			return watch(s)
		}
	}
	// Half a schedule proves nothing, so an interrupt doesn't stop it.
	plan := p.story.PlanOf(schedule)
	outcome, err := play.Run(context.Background(), plan, backend, nil)
	if schedule.Draw {
		schedule.Draw, schedule.Deviations = false, distinct(append(drawn, schedule.Deviations...))
	}
	if err == nil && outcome.Err != nil {
		err = fmt.Errorf("play %s with %s: %w", plan.Metadata.Name, few(schedule.Deviations), outcome.Err)
	}
	return outcome, schedule, err
}

// eventAt describes an event.
func eventAt(h *history.History, at int) string {
	if at < h.Len() {
		return strings.TrimSpace(h.Events()[at].String())
	}
	return "none"
}

// Try plays a schedule and returns its result. Now and then it checks that the simulator is
// deterministic.
func (p *Player) Try(schedule campaign.Schedule) (campaign.Result, error) {
	var reached *coverage
	audited := false
	if p.story.Cover {
		if p.edges == nil {
			var err error
			if p.edges, err = edgesOf(context.Background(), p.simulator, p.story.Plan); err != nil {
				return campaign.Result{}, err
			}
		}
		reached = newCoverage(p.rows, p.edges)
	}
	outcome, played, err := p.play(schedule, reached)
	switch {
	// a shortened story may be invalid
	case err != nil && schedule.Plan != nil:
		return campaign.Result{Number: schedule.Number, Variant: schedule.Variant, Verdict: invariant.Unknown, Signature: err.Error()}, nil
	case err != nil:
		return campaign.Result{}, err
	}
	if p.seen != nil && schedule.Variant == 0 {
		p.seen(schedule, outcome)
	}
	if schedule.Number%recheck == 0 && schedule.Variant == 0 {
		again, _, err := p.play(played, nil)
		if err != nil {
			return campaign.Result{}, err
		}
		if at := history.Diff(outcome.History, again.History); at >= 0 {
			return campaign.Result{}, fmt.Errorf("the simulator is not deterministic: replaying %s, event %d differs: %s and %s", few(played.Deviations), at+1, eventAt(outcome.History, at), eventAt(again.History, at))
		}
		// Where to begin is any number that depends on the schedule alone.
		if audited, err = p.simulator.Audit(p.story.PlanOf(played), schedule.Number*37%scattered, steps.Step.MayBeIndependent); err != nil {
			return campaign.Result{}, fmt.Errorf("with %s: %w", few(played.Deviations), err)
		}
	}
	result := campaign.ResultOf(outcome)
	if result.Number, result.Variant, result.Audited = schedule.Number, schedule.Variant, audited; reached != nil {
		reached.note(&result)
	}
	if schedule.Draw && (result.Verdict != invariant.Held || p.story.Cover) {
		result.Drawn = played.Deviations
	}
	return result, nil
}

// Benign plays the plan unchanged and returns the steps of its story, in the order in which they
// were scheduled.
func Benign(ctx context.Context, s *sim.Simulator, plan *scenarios.Plan) ([]steps.Step, *play.Outcome, error) {
	steps, outcome, err := tell(ctx, s, plan)
	return plain(steps), outcome, err
}

// Delays are the delays tried for a single step. Each delays it beyond something longer: its
// neighbours, a few calls and their consequences, a power-off, a poll, a boot, and a whole
// remediation.
var Delays = []time.Duration{
	10 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond, time.Second, 15 * time.Second, 90 * time.Second,
}

// ways lists what a search tries with a step of the simulator.
var ways = campaign.Ways{Delays: Delays, Extents: Delays[3:], Relist: 15 * time.Second}

// Singles returns every single deviation from the schedule of the given steps: each delay, each
// fault and each crash point, one at a time.
func Singles(taken []steps.Step) []scenarios.Deviation {
	var deviations []scenarios.Deviation
	for _, step := range taken {
		deviations = append(deviations, ways.Singles(step.Name(), step.Faults(), step.Latest())...)
	}
	return deviations
}

// draw returns a source of deviations that is drawn from a seed while the plan is played, and
// records the draws. Each run draws how often and in which ways steps deviate, so that runs differ
// in kind and not only in detail.
func draw(seed uint64, drawn *[]scenarios.Deviation) func(steps.Step) (scenarios.Deviation, bool) {
	style := scenarios.Stream(seed, "explore style")
	// On average one step in rate deviates. The share of faults among the deviations is faults.
	rate := 1 << (3 + style.IntN(6))
	faults := style.Float64()
	streams := make(map[string]*rand.Rand)
	return func(step steps.Step) (scenarios.Deviation, bool) {
		// Each actor has its own stream, so that the steps of one don't shift the draws of
		// another.
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
		if latest := step.Latest(); latest > 0 && !d.Fault.HasExtent() {
			d.Delay = min(d.Delay, scenarios.Duration(latest))
		}
		*drawn = append(*drawn, d)
		return d, true
	}
}

// few names the first of the deviations.
func few(deviations []scenarios.Deviation) string {
	const most = 5
	if len(deviations) > most {
		return fmt.Sprintf("%v and %d more deviations", deviations[:most], len(deviations)-most)
	}
	return fmt.Sprint(deviations)
}
