// Package sim is the deterministic world: simulated hosts, BMCs, kubelets and controller processes
// on one virtual clock. Everything happens in steps, one at a time, in an order that the plan
// decides; the same plan gives the same history on every run and every machine.
//
// It has no goroutine, no wall clock and no randomness of its own. A reconcile
// runs as a coroutine that is suspended at every API and BMC call, so that
// everything else can happen in between, and its process can be killed there.
// Controllers that set themselves up with a manager have goroutines and a clock,
// in a bubble.
package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim/bubble"
	"github.com/fencelab/fencelab/sim/steps"
)

// epoch is the wall-clock time at which every run begins.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// maxSteps bounds a run, so that a loop of steps that takes no virtual time ends
// in an error instead of never.
const maxSteps = 2_000_000

// world holds the clock, the steps that are due, and the events.
type world struct {
	// overdue says that the request which a BMC receives now no longer has a client.
	overdue bool
	network network
	now     time.Duration
	// bubble runs the processes that set up their controllers themselves, and managed lists these
	// processes. Both are nil in a world without such processes.
	bubble  *bubble.Bubble
	managed []*process
	// asked are the calls made in the bubble that have not become steps yet.
	asked []asked
	queue stepQueue
	order uint64 // of steps with the same time: first come, first served
	taken int
	// deviations are the plan's deviations, by step, and awaited the steps for which others wait.
	deviations map[steps.Name]scenarios.Deviation
	awaited    map[steps.Name]*awaited
	// byDeed and awaitedDeeds are the same for steps that the plan names by their deeds. count
	// numbers the deeds, and is nil where no plan names any. deeds maps a step that the plan names
	// to the deed that it was.
	byDeed       map[string]scenarios.Deviation
	awaitedDeeds map[string]*awaited
	count        *scenarios.DeedCount
	deeds        map[string]string
	// story says that steps may deviate now: from when the topology is up until the faults are
	// withdrawn. After that, promised effects must appear, and their absence would prove nothing
	// against the controllers if the schedule still worked against them.
	story bool
	// assumed holds the scenario's assumptions.
	assumed steps.Premises
	// healed says that the faults were withdrawn.
	healed bool
	// watch sees every step of the story before it is scheduled; it may be nil.
	watch func(steps.Step) (scenarios.Deviation, bool)
	// took sees every step of the story when it is taken; it may be nil. taking is the present one.
	took   func(*step)
	taking steps.Name
	// came sees all that comes of the present step and might not have; it may be nil.
	came func(steps.Outcome)
	// queued sees each request that is put into a queue, and the actor that takes it from there; it
	// may be nil.
	queued func(actor, request string)
	// leasesWatched says that a process may watch Leases.
	leasesWatched bool
	// notice is called at once with every event.
	notice func(history.Event)
	// trace records more than the history does; nil in a search.
	trace *objects.Trace
	// notes are remarks on the run that are not in its history, and effects counts the effects of
	// controllers.
	notes   []string
	effects int
	// events have happened but were not handed over yet.
	events []history.Event
	// broken is the reason why the simulation cannot go on: it was asked for something that it
	// doesn't model.
	broken error
}

// trouble is the fault that the plan gives a step; empty for most steps.
type trouble struct {
	fault scenarios.StepFault
	// by is how late or how old something gets by the fault.
	by time.Duration
}

// actor is a source of steps, which are counted class by class.
type actor struct {
	name string
	// place is the actor's location: see Footprint.
	place string
	// alone says that it does one thing at a time, whole that its steps touch all of its place,
	// brittle that its effects do, around which it may crash, and apart that reconciles of
	// different requests share no memory.
	alone, whole, brittle, apart bool
	counts                       [12]struct {
		class steps.Class
		n     int
	}
}

func (a *actor) next(class steps.Class) int {
	for i := range a.counts {
		c := &a.counts[i]
		if c.class == class || c.class == "" {
			c.class = class
			c.n++
			return c.n
		}
	}
	panic("an actor has more classes of steps than there are")
}

// party returns the end that is held up when a step of the actor is delayed: its process or its
// host. If a host goes on or off late, the client that asked for it sees the BMC at fault.
func (a *actor) party(class steps.Class) string {
	kind, name, _ := strings.Cut(a.place, "/")
	switch {
	case a.place == steps.PlaceStorage:
		return history.ControllerEnd("attacher")
	case kind+"/" == steps.PlaceProcess:
		return history.ControllerEnd(name)
	case kind+"/" == steps.PlaceAgent, class == steps.ClassKubelet:
		return history.ControllerEnd(a.name)
	case kind+"/" == steps.PlaceBMC, class == steps.ClassPower:
		return history.BMCEnd(name)
	default:
		return history.HostEnd(name)
	}
}

// step is a scheduled action. A schedule has thousands, so that they are kept small.
type step struct {
	at time.Duration
	// due is when the step would be taken if nothing had been delayed.
	due   time.Duration
	order uint64
	name  steps.Name
	run   func(trouble)
	// of is the process that takes the step, in its incarnation life and only while it is not
	// paused; nil for steps of anything else.
	of   *process
	life int
	// index is the step's place in the queue, or -1 once it is taken or cancelled.
	index int
	// odd has what most steps have not; it is nil for them.
	odd *oddity
}

// oddity has what a plan, or an impatient client, has done to a step.
type oddity struct {
	// overdue says that the step is a request whose client has given up.
	overdue bool
	// deviates says that the plan changed the step; wait is nil unless it waits for another one.
	deviates bool
	wait     *wait
	// trouble goes wrong with the step under the plan.
	trouble trouble
}

// ordinary is the oddity of a step that has none.
var ordinary oddity

// oddity returns what is odd about the step, to be read.
func (s *step) oddity() *oddity {
	if s.odd == nil {
		return &ordinary
	}
	return s.odd
}

// makeOdd returns what is odd about the step, to be changed.
func (s *step) makeOdd() *oddity {
	if s.odd == nil {
		s.odd = &oddity{}
	}
	return s.odd
}

// lapsed reports whether the step's process is gone, so that nothing comes of it.
func (s *step) lapsed() bool { return s.of != nil && s.life != s.of.life }

// take runs the step, or leaves it to the process until that is no longer paused.
func (s *step) take() {
	if s.of == nil || s.of.runs(s.life) {
		s.run(s.oddity().trouble)
		return
	}
	s.of.unlessPaused(s.life, func() { s.run(s.oddity().trouble) })
}

// schedule schedules a step of an actor after a delay, unless the plan or the strategy changes it.
func (w *world) schedule(a *actor, class steps.Class, d steps.Deed, delay time.Duration, run func(trouble)) *step {
	s := w.queue.new()
	s.at, s.due, s.run = w.now+delay, w.now+delay, run
	s.name = steps.Name{Actor: a.name, Class: class, N: a.next(class)}
	if w.story && (len(w.deviations) > 0 || w.count != nil || w.watch != nil) || w.trace != nil && len(w.awaited) > 0 {
		w.disturb(s, a, d, delay)
	}
	w.order++
	s.order = w.order
	w.queue.push(s)
	return s
}

// disturb changes a step that is being scheduled as the plan or the strategy wants it.
func (w *world) disturb(s *step, a *actor, d steps.Deed, delay time.Duration) {
	class := s.name.Class
	var deviation scenarios.Deviation
	deviates := false
	if w.story {
		deviation, deviates = w.deviations[s.name]
	}
	step := steps.Step{Actor: a.name, Class: class, N: s.name.N, At: s.at, Cause: w.taking, Alone: a.alone, Effect: d.Effect, Verb: d.Verb, Object: d.On, Place: a.place, By: d.By, Request: d.Request, Answers: d.Answers, Node: d.Node, Watched: d.Watched, Whole: d.Whole || a.whole || a.brittle && d.Effect, Apart: a.apart, Assumed: w.assumed}
	if w.count != nil && w.story {
		deviation, deviates = w.named(step, deviation, deviates)
	}
	if w.watch != nil && w.story {
		if chosen, ok := w.watch(step); ok {
			deviation, deviates = chosen, true
		}
	}
	if w.trace != nil && len(w.awaited) > 0 {
		if other := w.awaited[s.name]; other != nil {
			other.words = scenarios.Possessive(steps.Told(step))
		}
	}
	if !deviates || deviation.Fault != "" && !step.Can(deviation.Fault) {
		return // such a step can't have this fault
	}
	s.odd = &oddity{deviates: true, trouble: trouble{fault: deviation.Fault}}
	if deviation.After != "" {
		wait := &wait{deviation: deviation, party: a.party(class), manner: class.Manner()}
		if w.trace != nil {
			wait.actor, wait.does = steps.Told(step)
		}
		w.park(s, wait)
		return
	}
	late, lasts := "", ""
	if deviation.Fault.HasExtent() {
		s.odd.trouble.by = time.Duration(deviation.Delay)
		lasts = s.odd.trouble.by.String()
	} else if deviation.Delay > 0 {
		s.at += time.Duration(deviation.Delay)
		late = time.Duration(deviation.Delay).String()
	}
	w.emit(history.Event{
		Kind: history.Deviated, Actor: a.name, Key: late, Value: deviation.String(), Note: lasts,
		Hinders: deviation.Hinders(a.party(class), delay, class.Manner()),
	})
	if w.trace != nil {
		actor, does := steps.Told(step)
		w.trace.Deviated(s.at, deviation.String(), actor, does, "")
	}
}

// catchUp takes the schedule's deviations from all steps that are still to come. A delayed step
// comes when it would have come by default, or at once if that time has passed, in the order of
// scheduling. Requests whose clients have given up are dropped, so that from now on only wanted
// things happen.
func (w *world) catchUp() {
	waiting := w.queue.steps
	w.queue.steps = nil
	for _, s := range waiting {
		if s.oddity().overdue {
			s.index = -1
			continue
		}
		w.unpark(s, false)
		s.at = min(s.at, max(s.due, w.now))
		if s.odd != nil {
			s.odd.trouble = trouble{}
		}
		w.queue.push(s)
	}
}

// cancel withdraws a step that has not happened yet. A nil step is fine.
func (w *world) cancel(s *step) {
	if s != nil && s.index >= 0 {
		w.queue.remove(s.index)
		w.unpark(s, false)
	}
}

// comes reports what comes of the present step and might not have.
func (w *world) comes(what steps.Outcome) {
	if w.came != nil {
		w.came(what)
	}
}

// emit records an event at the present time.
func (w *world) emit(e history.Event) {
	if e.Kind == history.ControllerEffect {
		w.effects++
	}
	e.At = w.now
	w.events = append(w.events, e)
	w.notice(e)
}

// advance takes the steps that are due until the given time and hands over the events. When each
// returns true it stops early, at the time of that event.
func (w *world) advance(until time.Duration, each func(history.Event) bool) (time.Duration, error) {
	for {
		if stopped := w.handOver(each); stopped {
			return w.now, w.broken
		}
		if w.broken != nil {
			return w.now, w.broken
		}
		s := w.queue.first()
		if next := until; w.bubble != nil {
			if s != nil {
				next = min(next, s.at)
			}
			if w.stir(next) {
				continue
			}
		}
		if s == nil || s.at > until {
			w.now = until
			return w.now, nil
		}
		if w.taken++; w.taken > maxSteps {
			return w.now, fmt.Errorf("the simulation has taken %d steps by %s without ending: some step repeats without letting time pass", w.taken, w.now)
		}
		w.take(s, s.at)
	}
}

// take takes a step out of the queue, at a time.
func (w *world) take(s *step, at time.Duration) {
	w.queue.remove(s.index)
	w.now = at
	w.unpark(s, false)
	if w.took != nil && w.story {
		w.took(s)
	}
	w.taking = s.name
	s.take()
	w.taking = steps.Name{}
	if len(w.awaited) > 0 {
		w.release(s)
	}
}

// handOver hands out the events one by one. If an event stops the run, the later ones stay for the
// next call.
func (w *world) handOver(each func(history.Event) bool) (stopped bool) {
	for i := 0; i < len(w.events); i++ {
		if each(w.events[i]) {
			w.events = w.events[:copy(w.events, w.events[i+1:])]
			return true
		}
	}
	w.events = w.events[:0]
	return false
}

// fail records the reason why the simulation cannot go on.
func (w *world) fail(err error) {
	if w.broken == nil {
		w.broken = err
	}
}

// stepQueue is a binary heap of steps by time, then by order of scheduling.
type stepQueue struct {
	steps []*step
	// room holds unused steps, allocated in bulk: a run has thousands, and they are gone with it.
	room []step
}

func (q *stepQueue) new() *step {
	if len(q.room) == 0 {
		q.room = make([]step, 64)
	}
	s := &q.room[0]
	q.room = q.room[1:]
	return s
}

func (q *stepQueue) less(i, j int) bool {
	a, b := q.steps[i], q.steps[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}

func (q *stepQueue) swap(i, j int) {
	q.steps[i], q.steps[j] = q.steps[j], q.steps[i]
	q.steps[i].index, q.steps[j].index = i, j
}

func (q *stepQueue) first() *step {
	if len(q.steps) == 0 {
		return nil
	}
	return q.steps[0]
}

func (q *stepQueue) push(s *step) {
	s.index = len(q.steps)
	q.steps = append(q.steps, s)
	q.up(s.index)
}

func (q *stepQueue) remove(i int) {
	last := len(q.steps) - 1
	removed := q.steps[i]
	if i != last {
		q.swap(i, last)
	}
	q.steps[last] = nil
	q.steps = q.steps[:last]
	if i != last {
		if !q.down(i) {
			q.up(i)
		}
	}
	removed.index = -1
}

func (q *stepQueue) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !q.less(i, parent) {
			return
		}
		q.swap(i, parent)
		i = parent
	}
}

func (q *stepQueue) down(i int) (moved bool) {
	for {
		child := 2*i + 1
		if child >= len(q.steps) {
			return moved
		}
		if right := child + 1; right < len(q.steps) && q.less(right, child) {
			child = right
		}
		if !q.less(child, i) {
			return moved
		}
		q.swap(i, child)
		i, moved = child, true
	}
}

// clock is the world's clock for a BMC (fakebmc.Clock): its timers are steps.
type clock struct {
	w    *world
	a    *actor
	host string
}

func (c clock) Now() time.Duration { return c.w.now }

func (c clock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	s := c.w.schedule(c.a, steps.ClassAnswer, steps.Deed{Verb: "answer", On: steps.Object{Kind: "BMC", Name: c.host}}, d, func(trouble) { f() })
	return func() bool {
		pending := s.index >= 0
		c.w.cancel(s)
		return pending
	}
}

// wallClock is the world's clock for a controller (k8s.io/utils/clock).
type wallClock struct {
	w *world
	// offset is how far the clock is ahead of the world's; nil means not at all.
	offset *time.Duration
}

// Now returns the time that the clock shows.
func (c wallClock) Now() time.Time {
	if c.offset != nil {
		return epoch.Add(c.w.now + *c.offset)
	}
	return epoch.Add(c.w.now)
}

// Since returns the time since t by this clock.
func (c wallClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
