// Package play plays one plan in a world and says what came of it: Run does the steps of the
// story on a Backend and shows every event to the guarantees, and an Outcome has their verdict
// and the evidence. The simulator and the lab are two Backends behind one interface; nothing
// here knows which of them is at work.
package play

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/guarantee"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// Outcome is the result of playing a plan.
type Outcome struct {
	Plan    *scenarios.Plan
	Timings invariant.Timings
	History *history.History
	// Results are the invariants' verdicts, in the plan's order.
	Results []invariant.Result
	// Unjudged are harms that processes under test have done and on which no guarantee has
	// ruled, and Idle says why none was put to the test, or "".
	Unjudged []invariant.Harm
	Idle     string
	// Broken is the violation that ended the run, or nil.
	Broken *invariant.Violation
	// Steps is how many of the plan's steps were done; Stuck says why the next
	// one was not, or why the run never came to rest.
	Steps int
	Stuck string
	// Settled is when the quiet time began in which nothing was missing any more,
	// or 0.
	Settled time.Duration
	// Injected counts the planned failures, and those that took effect.
	Injected Injected
	// Err says why the run could not be finished: the backend failed, or it was
	// interrupted.
	Err error
	// Artifacts are the backend's evidence.
	Artifacts []Artifact
	// Nearest is the nearest run that held, for a report to show beside this one; nil if none was
	// sought.
	Nearest *Outcome
	// Notes are the backend's remarks beside the history, whatever the verdict.
	Notes []string
	// Spent is the processor time that the backend used, if it knows.
	Spent []Spent
	// World and Version say where this was played, for whoever reads the report;
	// whoever calls Run knows.
	World, Version string
	// excuses are found on demand; nil in an outcome that was not played.
	excuses func() []invariant.Excuse
}

// Run plays a plan on a backend and judges it: first the steps of the story,
// with whatever goes wrong in them; then everything is healed, what is still
// missing must come, and nothing may go wrong again for a while. It returns an
// error, and no outcome, when the backend refuses the plan; everything that
// happens later is in the outcome.
//
// listen is shown every event as it happens; it may be nil.
func Run(ctx context.Context, plan *scenarios.Plan, backend Backend, listen func(history.Event)) (*Outcome, error) {
	r := &run{ctx: ctx, backend: backend, listen: listen, outcome: &Outcome{Plan: plan, History: new(history.History)}}
	r.injected.expect(plan.Deviations)
	timings, err := backend.Start(ctx, plan)
	if err != nil {
		_, stopErr := backend.Stop()
		return nil, errors.Join(err, stopErr)
	}
	r.outcome.Timings = timings
	judged, err := chosen(plan)
	if err != nil {
		_, stopErr := backend.Stop()
		return nil, errors.Join(err, stopErr)
	}
	if claimer, ok := backend.(Claimer); ok {
		judged = append(slices.Clip(judged), claimer.Claims()...)
	}
	r.panel = judges(plan, timings, judged, func() bool { return r.outcome.Stuck == "" })

	r.begin()
	for i := range plan.Spec.Steps {
		r.step(i, &plan.Spec.Steps[i])
	}
	r.settle()

	if r.outcome.Broken != nil {
		r.panel.EndedBy(r.outcome.Broken)
	}
	r.outcome.Results = r.panel.Results(r.outcome.Err == nil)
	r.outcome.excuses = sync.OnceValue(func() []invariant.Excuse {
		return invariant.Excuses(r.outcome.History, judged, params(plan, timings), r.outcome.Results)
	})
	r.outcome.Unjudged, r.outcome.Idle = r.panel.Unjudged(), r.panel.Idle()
	r.outcome.Injected = r.injected.counted()
	artifacts, stopErr := backend.Stop()
	r.outcome.Artifacts = artifacts
	if noter, ok := backend.(Noter); ok {
		r.outcome.Notes = noter.Notes()
	}
	if deeder, ok := backend.(Deeder); ok {
		r.outcome.Plan = r.outcome.Plan.WithDeeds(deeder.Deeds())
	}
	if spender, ok := backend.(Spender); ok {
		r.outcome.Spent = spender.Spent()
	}
	r.outcome.Err = errors.Join(r.outcome.Err, stopErr)
	return r.outcome, nil
}

// judges builds the checkers of the chosen guarantees and of the plan's own claims. In the end told
// reports whether the story came to its end.
func judges(plan *scenarios.Plan, timings invariant.Timings, chosen []invariant.Invariant, told func() bool) *invariant.Panel {
	if len(plan.Spec.Expect.Events) > 0 {
		chosen = append(slices.Clip(chosen), asTold(plan, timings.Skew, told))
	}
	return invariant.NewPanel(chosen, guarantee.All(), params(plan, timings))
}

// chosen are the guarantees by which a plan is judged: those that it names and those that always
// are, or all; and that about requests of the system's own, if it describes any.
func chosen(plan *scenarios.Plan) ([]invariant.Invariant, error) {
	var own []invariant.Invariant
	if id := guarantee.OneFencingPerRequest.ID; scenarios.AsksForFencing(plan.Spec.Requests) && !slices.Contains(plan.Spec.Invariants, id) {
		own = append(own, guarantee.OneFencingPerRequest)
	}
	if len(plan.Spec.Invariants) == 0 {
		return append(guarantee.All(), own...), nil
	}
	chosen := own
	for _, id := range plan.Spec.Invariants {
		inv, err := guarantee.Lookup(id)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, inv)
	}
	for _, inv := range guarantee.Always() {
		if !slices.Contains(plan.Spec.Invariants, inv.ID) {
			chosen = append(chosen, inv)
		}
	}
	return chosen, nil
}

// params are the facts of the plan that the checkers need.
func params(plan *scenarios.Plan, timings invariant.Timings) invariant.Params {
	p := invariant.Params{Timings: timings, Claims: claims(&plan.Spec), Patience: time.Duration(plan.Spec.Limits.Settle)}
	for _, host := range plan.Spec.Topology.Hosts {
		p.Hosts = append(p.Hosts, host.Name)
		if host.Role == scenarios.ControlPlane {
			p.Members = append(p.Members, host.Name)
		}
		if host.Watchdog == 0 {
			p.Unwatched = append(p.Unwatched, host.Name)
		}
		if on := plan.Spec.PlacedOn(host.Name); len(on) > 0 {
			if p.Residents == nil {
				p.Residents = map[string][]string{}
			}
			p.Residents[host.Name] = on
		}
	}
	for _, c := range plan.Spec.Controllers { // programs that play a part together are instances of the first
		for _, part := range append([]string{scenarios.PartOf(&c)}, c.Also...) {
			p.Roles.Cast(part, plan.Spec.FirstOf(&c))
		}
	}
	for _, c := range plan.Spec.Controllers { // whoever commands such Pods, they have the hosts reset
		if c.Pods != nil && c.Pods.FeedsWatchdog {
			p.Roles.Fencers = append(p.Roles.Fencers, c.Name)
		}
	}
	for _, c := range plan.Spec.Controllers {
		if !slices.Contains(p.Roles.Names(), plan.Spec.FirstOf(&c)) && !slices.Contains(timings.StandIns, c.Name) {
			p.Roles.Others = append(p.Roles.Others, c.Name)
		}
	}
	if check := plan.Spec.HealthCheck; check != nil {
		p.HealthCheck = &invariant.HealthCheck{
			UnhealthyAfter: time.Duration(check.UnhealthyAfter),
			Startup:        time.Duration(check.NodeStartupTimeout),
		}
		p.HealthCheck.MinUnhealthy, p.HealthCheck.MaxUnhealthy, p.HealthCheck.Share = check.Limits()
	}
	return p
}

// run is a plan being played.
type run struct {
	ctx     context.Context
	backend Backend
	listen  func(history.Event)
	outcome *Outcome
	panel   *invariant.Panel
	now     time.Duration
	// marks are how many events there were when the story began, and then after
	// each step: what happens later counts for the steps behind it.
	marks    []int
	injected injections
	// late is by how much the schedule's own delays may hold the story up.
	late time.Duration
	// lasting are the operations that were done for good.
	lasting []*scenarios.Op
	// deviates says that the schedule has left its default, and may again; strayed that it
	// has, and won't.
	deviates, strayed bool
}

// aftermath is how long a run goes on after a violation, so that the report can
// say by how much it was too late.
const aftermath = 15 * time.Second

// patience bounds a run that makes progress for ever, since every event restarts a budget. Settling
// takes at most patience times the run's budget. A step takes at most twice patience times its own:
// once for the world and once for the schedule's delays. Of events that are alike, patience of them
// restart it.
const patience = 5

// bringUp is for how long nothing may come any closer to a healthy topology: a host that boots
// makes no event for minutes where its emulation is starved.
const bringUp = 5 * time.Minute

// over says that nothing more will be done: a guarantee is broken, a step never
// came, or the backend failed.
func (r *run) over() bool {
	return r.outcome.Err != nil || r.outcome.Stuck != "" || r.outcome.Broken != nil
}

func (r *run) begin() {
	started := false
	r.persist(bringUp, func(e history.Event) bool {
		started = e.Kind == history.RunStarted
		return started
	})
	if !started && !r.over() {
		r.outcome.Stuck = fmt.Sprintf("the topology was not up and healthy %s after the run began, and nothing more came of it", r.now.Round(time.Second))
	}
	r.marks = append(r.marks, r.outcome.History.Len())
}

// step waits for a step's trigger and does what it says.
func (r *run) step(i int, s *scenarios.Step) {
	if r.over() {
		return
	}
	if !s.When.IsZero() && !r.await(i, s) {
		return
	}
	if s.After.Min > 0 {
		r.advance(r.now+s.After.Min, func(history.Event) bool { return r.outcome.Broken != nil })
	}
	if r.over() {
		return
	}
	if s.Do != nil {
		r.apply(*s.Do, i)
		if s.ForGood {
			r.lasting = append(r.lasting, s.Do)
		}
	}
	r.outcome.Steps = i + 1
	r.marks = append(r.marks, r.outcome.History.Len())
}

// await waits for a step's trigger, which may have been seen already if the step
// says since when it counts.
func (r *run) await(i int, s *scenarios.Step) bool {
	plan := r.outcome.Plan
	events := r.outcome.History.Events()
	wait := waitFor(s.When)
	mark := r.marks[since(plan, i)]
	if wait.held(events[:mark]) {
		return true
	}
	for _, e := range events[mark:] {
		if wait.see(e) {
			return true
		}
	}
	began, seen := r.now, false
	look := func(e history.Event) bool {
		seen = wait.see(e)
		return seen
	}
	r.persist(time.Duration(plan.Spec.Limits.Step), look)
	if !seen && !r.over() && r.endSchedule() {
		r.persist(r.longest(plan.Spec.Limits.Step), look)
	}
	if !seen && !r.over() {
		r.outcome.Stuck = fmt.Sprintf("step %d (%s) waited %s for %s", i+1, s.Title(), (r.now-began).Round(time.Millisecond),
			wait.missing(events[r.marks[0]:r.marks[i]], i)) + warned(wait, r.outcome.History.Events()[r.marks[0]:])
		for _, t := range wait.open() { // a guarantee may have promised it
			r.record(history.Event{At: r.now, Kind: history.StepOverdue, Host: t.ItsHost(), Object: t.Object, Key: t.Key, Value: t.Event, Note: s.Title()})
		}
	}
	return seen
}

// warned returns a controller's last warning about a host from which an event is awaited, since it
// may be why none comes.
func warned(w *wait, events []history.Event) string {
	for i := len(events) - 1; i >= 0; i-- {
		e := &events[i]
		if e.Kind == history.ControllerWarning && slices.ContainsFunc(w.triggers, func(t scenarios.Trigger) bool { return t.Host == e.Object || t.Host == "" && t.Object == "" }) {
			return fmt.Sprintf("; %s has warned: %s: %s", e.Actor, e.Value, e.Note)
		}
	}
	return ""
}

// endSchedule ends a schedule that has worked against a step for as long as that may take,
// and reports whether there was one: that the event doesn't come then says something.
func (r *run) endSchedule() bool {
	scheduler, ok := r.backend.(Scheduler)
	if !ok || !r.deviates {
		return false
	}
	scheduler.EndSchedule()
	r.deviates, r.strayed, r.late = false, true, 0
	r.record(history.Event{At: r.now, Kind: history.ScheduleEnded})
	return true
}

// persist lets the world run until enough is true of an event, a guarantee is
// broken, or nothing has come any closer for the budget. The budget measures being
// stuck rather than being slow: it starts again with every event that is progress,
// but not for ever, since controllers that fight each other make events without
// end, and some stories the same ones again and again; and what the schedule itself
// delays doesn't use it up, within the same bounds.
func (r *run) persist(budget time.Duration, enough func(history.Event) bool) {
	began, last, done := r.now, r.now, false
	alike := make(map[[4]string]int)
	for !done && r.outcome.Err == nil && r.outcome.Broken == nil {
		until := min(last+budget+r.late, began+2*patience*budget)
		if r.now >= until {
			return
		}
		r.advance(until, func(e history.Event) bool {
			if progress(e) {
				like := [4]string{string(e.Kind), e.Host, e.Object, e.Key}
				if alike[like]++; alike[like] <= patience {
					last = e.At
				}
			}
			done = enough(e)
			return done || r.outcome.Broken != nil
		})
	}
}

// longest is how long a run may make no progress once a schedule that left its default is over.
// A controller may then wait for as long as it ever does: for a time in its settings, or for its
// queue to try again what has failed often.
func (r *run) longest(limit scenarios.Duration) time.Duration {
	if !r.strayed {
		return time.Duration(limit)
	}
	return max(time.Duration(limit), r.outcome.Timings.Quiet, r.outcome.Timings.Retry)
}

// progress reports whether an event can bring a run any closer to its end. A
// controller that fails again and again doesn't.
func progress(e history.Event) bool {
	layer := e.Kind.Layer()
	return layer == history.World || layer == history.API
}

// settle withdraws every fault, also when a step never came, and waits until no
// liveness claim is pending any more, or until nothing has come any closer for the
// budget. Then nothing may be missing again for a quiet time, in which every timer
// of the controllers comes round: a wrong one may do no harm before that.
func (r *run) settle() {
	if v := r.outcome.Broken; v != nil && v.Open {
		r.advance(r.now+aftermath, func(history.Event) bool { return !v.Open })
	}
	if r.outcome.Err != nil || r.outcome.Broken != nil {
		r.finish()
		return
	}
	r.withdraw()
	r.apply(scenarios.Op{Heal: new(scenarios.HealOp)}, -1)
	r.deviates, r.strayed, r.late = false, r.strayed || r.deviates, 0
	budget := time.Duration(r.outcome.Plan.Spec.Limits.Settle)
	told, restless := r.outcome.Stuck == "", false
	for deadline := r.now + patience*budget; r.outcome.Err == nil && r.outcome.Broken == nil; {
		if !r.panel.Settled() {
			r.persist(r.longest(r.outcome.Plan.Spec.Limits.Settle), func(e history.Event) bool { return progress(e) && r.panel.Settled() })
		}
		if !told || !r.panel.Settled() {
			break
		}
		lasts := len(r.lasting) > 0 || r.panel.UserKeeps() // against which controllers may go on for ever
		if r.now >= deadline && restless && !lasts {       // at a moment at which nothing is missing
			r.outcome.Stuck = fmt.Sprintf("the run never came to rest: %s after the faults were withdrawn something was missing again within every %s",
				patience*budget, quiet(r.outcome.Plan, &r.outcome.Timings))
			break
		}
		if r.rest() {
			break
		}
		restless = true
		if r.now >= deadline && lasts {
			break
		}
	}
	r.finish()
}

// rest lets the quiet time pass and reports whether nothing was missing in it.
func (r *run) rest() bool {
	calm, began := true, r.now
	r.advance(r.now+quiet(r.outcome.Plan, &r.outcome.Timings), func(history.Event) bool {
		calm = r.panel.Settled()
		return !calm || r.outcome.Broken != nil
	})
	if calm && r.outcome.Broken == nil {
		r.outcome.Settled = began
	}
	return calm
}

// quiet returns the plan's limit, or else the one that suits its controllers in this world.
func quiet(plan *scenarios.Plan, timings *invariant.Timings) time.Duration {
	return cmp.Or(time.Duration(plan.Spec.Limits.Quiet), timings.Quiet)
}

// withdraw lets the scenario's users take back what they still hold when the
// story stopped early: a host that is held for ever says nothing about the
// controllers. Nor does one that is off, and that somebody was to switch on because no
// controller can.
func (r *run) withdraw() {
	steps := r.outcome.Plan.Spec.Steps
	unfinished := scenarios.Unfinished{
		Powerless: params(r.outcome.Plan, r.outcome.Timings).Roles.Power == "",
		Obstacles: r.outcome.Timings.Obstacles,
	}
	for i := r.outcome.Steps; i < len(steps); i++ {
		if do := steps[i].Do; do != nil && do.TakesBack(&unfinished) {
			r.apply(*do, i)
		}
	}
}

func (r *run) finish() {
	if r.outcome.Err == nil {
		r.record(history.Event{At: r.now, Kind: history.Done})
	}
}

// apply performs an operation: that of a step, or the healing.
func (r *run) apply(op scenarios.Op, step int) {
	if op.Heal != nil {
		op = scenarios.HealAllBut(r.lasting...)
	}
	err := r.backend.Apply(op)
	if ineffective := (*Ineffective)(nil); errors.As(err, &ineffective) {
		if !ineffective.Missing || !op.Idempotent() {
			r.outcome.Stuck = cmp.Or(r.outcome.Stuck, fmt.Sprintf("the step to %s came to nothing: %s", op, ineffective.Reason))
			return
		}
		err = nil
	}
	if err != nil {
		r.outcome.Err = fmt.Errorf("apply %s: %w", op, err)
		return
	}
	kind, name := history.OpApplied, ""
	if op.Heal != nil {
		kind = history.Healed
	}
	if step >= 0 {
		name = r.outcome.Plan.Spec.Steps[step].Name
		r.injected.add(&op, step+1)
	}
	e := history.Event{
		At: r.now, Kind: kind, Host: op.Host(), Object: op.Object(), Key: op.Name(), Value: op.String(), Note: name,
		Hinders: op.Hinders(&r.outcome.Timings), Frees: op.Ends(),
	}
	if op.Heal != nil { // the event ends all but these
		e.Frees, e.Lasting = nil, op.Heal.Spared(&r.outcome.Plan.Spec.Topology)
	}
	r.record(e)
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
	events := r.outcome.History.Events()
	if v := r.panel.Observe(&events[len(events)-1]); v != nil && r.outcome.Broken == nil {
		r.outcome.Broken = v
	}
	r.late += r.injected.observe(e)
	r.deviates = r.deviates || e.Kind == history.Deviated
	if r.listen != nil {
		r.listen(e)
	}
	return e
}

// claims returns the claims of all hosts, for the checker.
func claims(s *scenarios.Spec) []invariant.Claim {
	var all []invariant.Claim
	for i := range s.Claims {
		c := &s.Claims[i]
		for j := range s.Topology.Hosts {
			h := &s.Topology.Hosts[j]
			field := c.Field(h)
			claim := invariant.Claim{Host: h.Name, Object: field.Object, Key: field.Key, Value: c.Value, Within: time.Duration(c.Within)}
			if c.IsUsual() {
				claim.Key = ""
			}
			all = append(all, claim)
		}
	}
	return all
}
