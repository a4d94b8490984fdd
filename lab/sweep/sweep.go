// Package sweep looks for deviations that break a guarantee in a world whose steps can't be
// chosen. It plays a story once and records the deeds of the system under test. Then it plays the
// story again and again, each time with one of the deeds deviating.
package sweep

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/campaign/pool"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/scenarios/play"
)

// World is a world that can list the deeds that passed its gates.
type World interface {
	play.Backend
	// Deeds returns the deeds of the story, in order.
	Deeds() []scenarios.Deed
}

// Options bound a sweep.
type Options struct {
	// Schedules is how many to try; 0 is all.
	Schedules int
	// Workers is how many worlds there are at a time.
	Workers int
	// Again is how often a violation is played again, to see how often it comes.
	Again int
	// Dir is where what came of each schedule is kept, if anywhere: a sweep that was
	// interrupted goes on from there.
	Dir string
}

// Run sweeps the story of a plan, reports what it found, and returns the exit code. World makes a
// world; one that is to record what reaches caches, too, is asked for once. When the context ends,
// what was found so far counts.
func Run(ctx context.Context, session *campaign.Session, plan *scenarios.Plan, world func(record bool) World, o Options) (code int, err error) {
	session.AsFound = true // each schedule has one deviation, and takes a minute
	benign := world(true)
	code, err = session.Single(ctx, plan, benign)
	if err != nil || code != exit.Held || plan.Spec.Expect.Violated != "" {
		return code, err // there is nothing to search for
	}
	deeds := underTest(plan, benign.Deeds())
	s := campaign.Over(plan, Singles(deeds), o.Schedules, fmt.Sprintf("single deviations from %s", phrase.Count(len(deeds), "deed")))
	known, err := pool.Open(o.Dir, plan)
	if err != nil {
		return 0, exit.Coded(exit.Internal, err)
	}
	defer known.Close()
	tally, err := session.Search(ctx, s, pool.Start(ctx, max(1, o.Workers), pool.Here(func(ctx context.Context, schedule campaign.Schedule) (campaign.Result, error) {
		return playOne(ctx, s.Story, schedule, known, func() play.Backend { return world(false) })
	})))
	if err != nil {
		return 0, err
	}
	code = play.CodeOfVerdict(tally.Verdict(s.Total))
	for _, f := range tally.Failures() {
		if ctx.Err() != nil || f.Invariant == "" {
			continue
		}
		if err := again(ctx, session, s.Story.PlanOf(f.Schedule), f, world, o.Again); err != nil {
			return code, err
		}
	}
	return code, nil
}

// attempts limits how often a world that fails to start is started: a busy machine may be too slow
// for one.
const attempts = 3

func playOne(ctx context.Context, story *campaign.Story, schedule campaign.Schedule, known *pool.Log, world func() play.Backend) (campaign.Result, error) {
	plan := story.PlanOf(schedule)
	if result, ok := known.Find(plan); ok {
		result.Number = schedule.Number
		return result, nil
	}
	var outcome *play.Outcome
	var err error
	for range attempts {
		if outcome, err = play.Run(ctx, plan, world(), nil); err == nil || ctx.Err() != nil || play.CodeOfUnplayed(err) != exit.Internal {
			break
		}
	}
	if err != nil {
		return campaign.Result{}, fmt.Errorf("play %s: %w", plan.Deviations[0], err)
	}
	result := campaign.ResultOf(outcome)
	result.Number = schedule.Number
	if outcome.Err != nil {
		return result, nil // a lab that failed says nothing, and is tried again when the sweep goes on
	}
	return result, known.Add(plan, result)
}

// again plays a violation some more times, and reports on the first that comes again.
func again(ctx context.Context, session *campaign.Session, plan *scenarios.Plan, f campaign.Failure, world func(bool) World, times int) error {
	session.To.Print("\n%s, first with %s\n", f.Signature, plan.Deviations[0])
	came := 0
	for range times {
		var code int
		var err error
		if came == 0 {
			code, err = session.Single(ctx, plan, world(false))
		} else {
			var o *play.Outcome
			if o, err = session.Play(ctx, plan, world(false)); err == nil {
				verdict, _ := o.Verdict()
				code = play.CodeOfVerdict(verdict)
			}
		}
		if err != nil {
			return err
		}
		if code == exit.Violated {
			came++
		}
	}
	session.To.Print("  %s: it came again %d of %d times\n", rate(came, times), came, times)
	return nil
}

// rate is a word for how often something comes.
func rate(came, times int) string {
	switch came {
	case times:
		return "always"
	case 0:
		return "flaky, and not seen again"
	}
	return "flaky"
}

// readsTried is how many reads of a kind are tried after each effect: who polls goes on reading.
const readsTried = 2

// underTest are the deeds of the system under test that a sweep tries: of the programs, if there
// are any, and else of the controllers that the scenario lists.
func underTest(plan *scenarios.Plan, deeds []scenarios.Deed) []scenarios.Deed {
	programs := slices.ContainsFunc(plan.Spec.Controllers, func(c scenarios.Controller) bool { return c.Program != nil })
	tested := make(map[string]bool)
	for _, c := range plan.Spec.Controllers {
		tested[c.Name] = !programs || c.Program != nil
	}
	return slices.DeleteFunc(slices.Clone(deeds), func(d scenarios.Deed) bool {
		return !tested[d.Actor] || d.IsRead() && d.N > readsTried
	})
}

// ways lists less than the simulator tries, because time is dear in a lab.
var ways = campaign.Ways{Delays: []time.Duration{time.Second, 15 * time.Second}, Extents: []time.Duration{15 * time.Second}, Relist: 15 * time.Second}

// tried lists which of the faults are tried of effects, deliveries and reads each, and the delays
// among them; others are not. First come those that change when an effect comes, or take it away,
// or its answer, or the process around it.
var tried = [...][]scenarios.Deviation{
	{
		{Fault: scenarios.FaultLate}, {Delay: long}, {Fault: scenarios.FaultErrorBefore}, {Fault: scenarios.FaultCrashAfter},
		{Fault: scenarios.FaultErrorAfter}, {Fault: scenarios.FaultIgnore}, {Fault: scenarios.FaultCrashBefore}, {Fault: scenarios.FaultCrashLate},
		{Fault: scenarios.FaultConflict}, {Fault: scenarios.FaultInternal}, {Delay: short}, {Fault: scenarios.FaultCrashStale},
	},
	{{Delay: long}, {Fault: scenarios.FaultRelist}, {Delay: short}},
	{{Fault: scenarios.FaultErrorBefore}, {Delay: long}, {Fault: scenarios.FaultCrashBefore}, {Fault: scenarios.FaultInternal}},
}

const short, long = scenarios.Duration(time.Second), scenarios.Duration(15 * time.Second)

// turnOf is the place of a deviation among those that are tried of a class, or -1.
func turnOf(class int, d scenarios.Deviation) int {
	return slices.IndexFunc(tried[class], func(of scenarios.Deviation) bool {
		return of.Fault == d.Fault && (d.Fault != "" || of.Delay == d.Delay)
	})
}

// Singles lists the single deviations of deeds, those most likely to find something first. Deeds
// to one host come before the same with the next; of each host first the effects, then what
// reaches caches, then the reads; and of those way by way, commands to BMCs first, since they are
// physical.
func Singles(deeds []scenarios.Deed) []scenarios.Deviation {
	var all []scenarios.Deviation
	for _, turn := range turns(deeds) {
		for class := range tried {
			var of []scenarios.Deviation
			for _, d := range turn {
				if !d.IsStart() && class == classOf(d) {
					of = append(of, ways.Singles(d.String(), d.Faults(), 0)...)
				}
			}
			of = slices.DeleteFunc(of, func(d scenarios.Deviation) bool { return turnOf(class, d) < 0 })
			slices.SortStableFunc(of, func(a, b scenarios.Deviation) int { return turnOf(class, a) - turnOf(class, b) })
			all = append(all, of...)
		}
	}
	return all
}

// turns divides deeds: the first has one of each kind, the second those of which there is a second
// that differs in its object alone, and so on. In each of them commands to BMCs come first.
func turns(deeds []scenarios.Deed) (all [][]scenarios.Deed) {
	seen := make(map[scenarios.Deed]int)
	for _, d := range deeds {
		kind := d
		kind.Does = d.Does[:strings.LastIndexAny(d.Does, "/ ")+1]
		turn := seen[kind]
		if seen[kind]++; turn == len(all) {
			all = append(all, nil)
		}
		all[turn] = append(all[turn], d)
	}
	for _, turn := range all {
		slices.SortStableFunc(turn, func(a, b scenarios.Deed) int { return rank(a) - rank(b) })
	}
	return all
}

func rank(d scenarios.Deed) int {
	if d.IsCommand() {
		return 0
	}
	return 1
}

func classOf(d scenarios.Deed) int {
	switch {
	case d.IsDelivery():
		return 1
	case d.IsRead():
		return 2
	}
	return 0
}
