package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// Outcome is what came of playing a plan.
type Outcome struct {
	Plan    *Plan
	Timings invariant.Timings
	History *history.History
	// Results are the invariants' verdicts, in the plan's order.
	Results []invariant.Result
	// Steps is how many of the plan's steps were done; Stuck says why the next
	// one was not.
	Steps int
	Stuck string
	// Err says why the run could not be finished: the backend failed, or it was
	// interrupted.
	Err error
	// Artifacts are the backend's evidence.
	Artifacts []Artifact
}

// Run plays a plan on a backend and judges it: first the steps of the story,
// with whatever goes wrong in them; then everything is healed and what is still
// missing must come. It returns an error, and no outcome, when the backend
// refuses the plan; everything that happens later is in the outcome.
//
// listen is shown every event as it happens; it may be nil.
func Run(ctx context.Context, plan *Plan, backend Backend, listen func(history.Event)) (*Outcome, error) {
	r := &run{ctx: ctx, backend: backend, listen: listen, outcome: &Outcome{Plan: plan, History: new(history.History)}}
	timings, err := backend.Start(ctx, plan)
	if err != nil {
		_, stopErr := backend.Stop()
		return nil, errors.Join(err, stopErr)
	}
	r.outcome.Timings = timings
	if r.panel, err = judges(plan, timings); err != nil {
		_, stopErr := backend.Stop()
		return nil, errors.Join(err, stopErr)
	}

	r.begin()
	for i := range plan.Spec.Steps {
		r.step(i, &plan.Spec.Steps[i])
	}
	r.settle()

	r.outcome.Results = r.panel.Results(r.outcome.Err == nil)
	artifacts, stopErr := backend.Stop()
	r.outcome.Artifacts = artifacts
	r.outcome.Err = errors.Join(r.outcome.Err, stopErr)
	return r.outcome, nil
}

// judges builds the checkers of the plan's invariants.
func judges(plan *Plan, timings invariant.Timings) (*invariant.Panel, error) {
	var chosen []invariant.Invariant
	if len(plan.Spec.Invariants) == 0 {
		chosen = invariant.All()
	}
	for _, id := range plan.Spec.Invariants {
		inv, err := invariant.Lookup(id)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, inv)
	}
	params := invariant.Params{Timings: timings}
	for _, host := range plan.Spec.Topology.Hosts {
		params.Hosts = append(params.Hosts, host.Name)
	}
	return invariant.NewPanel(chosen, params), nil
}

// run is a plan being played.
type run struct {
	ctx     context.Context
	backend Backend
	listen  func(history.Event)
	outcome *Outcome
	panel   *invariant.Panel
	// broken is the first violation.
	broken *invariant.Violation
	now    time.Duration
}

// aftermath is how long a run goes on after a violation, so that the report can
// say by how much it was too late.
const aftermath = 15 * time.Second

// patience is how many times its budget a run may take to settle in all.
const patience = 5

// bringUp bounds the time to a healthy topology.
const bringUp = 10 * time.Minute

// over says that nothing more will be done: a guarantee is broken, a step never
// came, or the backend failed.
func (r *run) over() bool {
	return r.outcome.Err != nil || r.outcome.Stuck != "" || r.broken != nil
}

func (r *run) begin() {
	if !r.await(Trigger{Event: string(history.RunStarted), Occurrence: 1}, r.now+bringUp) && !r.over() {
		r.outcome.Stuck = fmt.Sprintf("the topology was not up and healthy within %s", bringUp)
	}
}

// step waits for a step's trigger and does what it says.
func (r *run) step(i int, s *Step) {
	if r.over() {
		return
	}
	if limit := time.Duration(r.outcome.Plan.Spec.Limits.Step); s.When.Event != "" && !r.await(s.When, r.now+limit) {
		if !r.over() {
			r.outcome.Stuck = fmt.Sprintf("step %d (%s) waited %s for %s, which never came", i+1, s.Title(), limit, s.When)
		}
		return
	}
	if s.After.Min > 0 {
		r.advance(r.now+s.After.Min, func(history.Event) bool { return r.broken != nil })
	}
	if r.over() {
		return
	}
	if s.Do != nil {
		r.apply(*s.Do, s.Name)
	}
	r.outcome.Steps = i + 1
}

// settle withdraws every fault, also when a step never came, and waits until no liveness claim is pending any
// more, or until nothing has come any closer for the budget. The budget measures
// being stuck rather than being slow: it starts again with every event, but not
// for ever, since controllers that fight each other make events without end.
func (r *run) settle() {
	if r.broken != nil && r.broken.Open {
		r.advance(r.now+aftermath, func(history.Event) bool { return !r.broken.Open })
	}
	if r.outcome.Err != nil || r.broken != nil {
		r.finish()
		return
	}
	r.withdraw()
	r.apply(Op{Heal: &struct{}{}}, "")
	budget := time.Duration(r.outcome.Plan.Spec.Limits.Settle)
	deadline := r.now + patience*budget
	for progressed := true; progressed && r.now < deadline && r.outcome.Err == nil && r.broken == nil && !r.panel.Settled(); {
		progressed = false
		r.advance(min(r.now+budget, deadline), func(e history.Event) bool {
			progressed = progressed || progress(e)
			return r.broken != nil || progress(e) && r.panel.Settled()
		})
	}
	r.finish()
}

// withdraw lets the scenario's users take back what they still hold when the
// story stopped early: a host that is held for ever says nothing about the
// controllers.
func (r *run) withdraw() {
	steps := r.outcome.Plan.Spec.Steps
	for i := r.outcome.Steps; i < len(steps); i++ {
		if do := steps[i].Do; do != nil && do.RemoveAnnotation != nil {
			r.apply(*do, steps[i].Name)
		}
	}
}

// progress reports whether an event can bring a run any closer to its end. A
// controller that fails again and again doesn't.
func progress(e history.Event) bool {
	layer := e.Kind.Layer()
	return layer == history.World || layer == history.API
}

func (r *run) finish() {
	if r.outcome.Err == nil {
		r.record(history.Event{At: r.now, Kind: history.Done})
	}
}

func (r *run) apply(op Op, name string) {
	err := r.backend.Apply(op)
	if ineffective := (*Ineffective)(nil); errors.As(err, &ineffective) {
		r.outcome.Stuck = fmt.Sprintf("the step to %s came to nothing: %s", op, ineffective.Reason)
		return
	}
	if err != nil {
		r.outcome.Err = fmt.Errorf("apply %s: %w", op, err)
		return
	}
	kind := history.OpApplied
	if op.Heal != nil {
		kind = history.Healed
	}
	r.record(history.Event{At: r.now, Kind: kind, Host: op.host(), Value: op.String(), Note: name})
}

// await advances until an event matches the trigger as often as it says.
func (r *run) await(t Trigger, until time.Duration) bool {
	left := max(t.Occurrence, 1)
	seen := false
	r.advance(until, func(e history.Event) bool {
		if t.Matches(e) {
			left--
		}
		seen = left == 0
		return seen || r.broken != nil
	})
	return seen
}

// advance lets the world run and judges every event.
func (r *run) advance(until time.Duration, stop func(history.Event) bool) {
	if r.outcome.Err != nil {
		return
	}
	now, err := r.backend.Advance(until, func(e history.Event) bool {
		return stop(r.record(e))
	})
	r.now = now
	if err == nil {
		err = context.Cause(r.ctx)
	}
	r.outcome.Err = err
}

func (r *run) record(e history.Event) history.Event {
	e = r.outcome.History.Append(e)
	if v := r.panel.Observe(e); v != nil && r.broken == nil {
		r.broken = v
	}
	if r.listen != nil {
		r.listen(e)
	}
	return e
}
