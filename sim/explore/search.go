package explore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim"
)

// Strategy says which schedules a search tries.
type Strategy string

// The strategies.
const (
	// Sweep is every single deviation from the benign schedule.
	Sweep Strategy = "sweep"
	// Pairs is random pairs of those.
	Pairs Strategy = "pairs"
	// Random is schedules in which any step may deviate.
	Random Strategy = "random"
)

// Search is the schedules of a scenario that are to be tried, numbered from 0. It
// is plain data, so that processes can share it out: what the i-th schedule is
// depends on nothing else.
type Search struct {
	Plan     *scenarios.Plan `json:"plan"`
	Strategy Strategy        `json:"strategy"`
	Seed     uint64          `json:"seed"`
	// Spans are what the scenario says of the steps' after, where it has a range:
	// all but a sweep draw from them for each schedule.
	Spans []scenarios.Span `json:"spans,omitempty"`
	// Deviations are the single ones from the benign schedule; not for random.
	Deviations []scenarios.Deviation `json:"deviations,omitempty"`
	// Steps is how many steps the benign schedule has, and Total how many schedules
	// are to be tried.
	Steps int `json:"steps"`
	Total int `json:"total"`
}

// NewSearch plays the benign schedule of a scenario and plans a search around it:
// of so many schedules, or of all that a sweep has. The outcome is the benign one's.
func NewSearch(ctx context.Context, s *sim.Simulator, scenario *scenarios.Scenario, plan *scenarios.Plan, strategy Strategy, seed uint64, schedules int) (*Search, *scenarios.Outcome, error) {
	steps, benign, err := Steps(ctx, s, plan)
	if err != nil {
		return nil, nil, err
	}
	search := &Search{Plan: plan, Strategy: strategy, Seed: seed, Steps: len(steps), Total: schedules}
	if strategy != Random {
		search.Deviations = Singles(steps)
	}
	if strategy == Sweep {
		search.Total = len(search.Deviations)
	} else if scenario.HasRanges() {
		for _, step := range scenario.Spec.Steps {
			search.Spans = append(search.Spans, step.After)
		}
	}
	return search, benign, nil
}

const (
	// patient is how many schedules there are to each one that goes on for as long
	// as a single run does when nothing is missing any more; the others do so for
	// brief only.
	patient = 8
	brief   = 15 * time.Second
	// recheck is how many schedules there are to each one that is played twice,
	// to see that it comes out the same.
	recheck = 50
)

// seed is that of one schedule. Those of two searches have nothing to do with each
// other, however close their seeds are.
func (s *Search) seed(i int) uint64 {
	return scenarios.Stream(s.Seed, fmt.Sprintf("schedule %d", i)).Uint64()
}

// PlanOf is the plan of the i-th schedule but for its deviations.
func (s *Search) PlanOf(i int) *scenarios.Plan {
	plan := *s.Plan
	if len(s.Spans) > 0 {
		plan.Redraw(s.Spans, s.seed(i))
	}
	if quiet := &plan.Spec.Limits.Quiet; *quiet == 0 && i%patient != 0 {
		*quiet = scenarios.Duration(brief)
	}
	return &plan
}

// Play plays the i-th schedule, to its end, and returns the deviations that it had.
func (s *Search) Play(simulator *sim.Simulator, i int) (*scenarios.Outcome, []scenarios.Deviation, error) {
	// Half a schedule says nothing, so that nobody interrupts it.
	ctx, plan := context.Background(), s.PlanOf(i)
	if s.Strategy == Random {
		return PlayRandom(ctx, simulator, plan, s.seed(i))
	}
	deviations := s.Deviations[i%len(s.Deviations):][:1]
	if s.Strategy == Pairs {
		deviations = s.pair(i)
	}
	outcome, err := Play(ctx, simulator, plan, deviations)
	return outcome, deviations, err
}

// pair draws two deviations of different steps, if there are any.
func (s *Search) pair(i int) []scenarios.Deviation {
	stream := scenarios.Stream(s.seed(i), "explore pair")
	first := s.Deviations[stream.IntN(len(s.Deviations))]
	for range 100 {
		if second := s.Deviations[stream.IntN(len(s.Deviations))]; second.Step != first.Step {
			return []scenarios.Deviation{first, second}
		}
	}
	return []scenarios.Deviation{first}
}

// Run plays every workers-th schedule, beginning with the worker-th, until the
// context ends, and hands over what it found part by part.
func (s *Search) Run(ctx context.Context, simulator *sim.Simulator, worker, workers, part int, found func(Tally) error) error {
	var tally Tally
	for i := worker; i < s.Total && ctx.Err() == nil; i += workers {
		outcome, deviations, err := s.Play(simulator, i)
		if err != nil {
			return err
		}
		if i%recheck == 0 {
			again, err := Play(context.Background(), simulator, s.PlanOf(i), deviations)
			if err != nil {
				return err
			}
			if at := history.Diff(outcome.History, again.History); at >= 0 {
				return fmt.Errorf("the simulator is not deterministic: played twice with %s, event %d differs", few(deviations), at+1)
			}
		}
		tally.Add(outcome, i, deviations)
		if tally.Tried == part {
			if err := found(tally); err != nil {
				return err
			}
			tally = Tally{}
		}
	}
	return found(tally)
}

// Failures are the failures of a search in the order of a report: what is certain
// comes first, then what was found first.
func (t *Tally) Failures() []Failure {
	return slices.SortedFunc(slices.Values(t.Failed), func(a, b Failure) int {
		uncertain := func(f Failure) int {
			if f.Invariant == "" {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(uncertain(a), uncertain(b)), cmp.Compare(a.Schedule, b.Schedule))
	})
}

// Describe says what a search has tried: "834 single deviations from 201 steps".
func (s *Search) Describe(tried int) string {
	what := "random schedules"
	switch s.Strategy {
	case Sweep:
		what = fmt.Sprintf("single deviations from %d steps", s.Steps)
	case Pairs:
		what = fmt.Sprintf("pairs of %d deviations", len(s.Deviations))
	}
	if s.Strategy != Sweep {
		what += fmt.Sprintf(" from seed %d", s.Seed)
	}
	text := fmt.Sprintf("%d %s", tried, what)
	if tried < s.Total {
		text += fmt.Sprintf(" (interrupted, of %d)", s.Total)
	}
	return text
}
