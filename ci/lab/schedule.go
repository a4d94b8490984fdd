package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/ci/lab/gate"
	"github.com/fencelab/fencelab/ci/lab/hosts"
	"github.com/fencelab/fencelab/ci/lab/record"
	thismachine "github.com/fencelab/fencelab/ci/machine"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
)

// schedule is what of a run's schedule a lab has in its hands: the deeds of controllers, as they pass gates. Those that the
// plan names deviate.
type schedule struct {
	stream *record.Stream
	// listens says that somebody wants to know of the deliveries, too: lists and watches pass as they come otherwise.
	listens bool

	mu sync.Mutex
	// deviations are the plan's, by the names of their steps.
	deviations map[string]scenarios.Deviation
	count      scenarios.DeedCount
	// deeds are all that there were, in order.
	deeds []scenarios.Deed
	// over is closed when the faults are withdrawn.
	over   chan struct{}
	healed bool
}

func newSchedule(plan *scenarios.Plan, s *record.Stream, record bool) *schedule {
	all := &schedule{
		stream: s, listens: record, deviations: make(map[string]scenarios.Deviation), over: make(chan struct{}),
	}
	for _, step := range plan.Spec.Steps {
		all.listens = all.listens || step.Do != nil && step.Do.Crash != nil && step.Do.Crash.StaleBy > 0
	}
	for _, d := range plan.Deviations {
		all.deviations[d.Step] = d
		deed, err := scenarios.ParseDeed(d.Step)
		if err == nil && deed.IsDelivery() || d.Fault == scenarios.FaultStaleList || d.Fault == scenarios.FaultCrashStale {
			all.listens = true
		}
	}
	return all
}

// listening reports whether watches are to be listened to. A nil schedule is one in which nothing deviates.
func (s *schedule) listening() bool { return s != nil && s.listens }

// step counts a deed, and returns how it deviates.
func (s *schedule) step(actor, does string, effect bool) (scenarios.Deviation, bool) {
	if s == nil || does == "" || !s.stream.Telling() {
		return scenarios.Deviation{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.healed {
		return scenarios.Deviation{}, false
	}
	deed := s.count.Next(actor, does, effect)
	s.deeds = append(s.deeds, deed)
	d, deviates := s.deviations[deed.String()]
	if !deviates || d.Fault != "" && !slices.Contains(deed.Faults(), d.Fault) {
		return scenarios.Deviation{}, false
	}
	// In the lab every step passes a gate, and a delivery is the only one that isn't sent.
	e := history.Event{Kind: history.Deviated, Actor: actor, Value: d.String(), Hinders: d.Hinders(scenarios.ControllerEnd(actor), 0, !deed.IsDelivery())}
	switch lasts := time.Duration(d.Delay).String(); {
	case d.Fault.HasExtent():
		e.Note = lasts
	case d.Delay > 0:
		e.Key = lasts
	}
	s.stream.Now(e)
	return d, true
}

// heal ends the schedule: what is held goes on at once.
func (s *schedule) heal() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.healed {
		s.healed = true
		close(s.over)
	}
}

// errGivenUp is of a caller that doesn't wait any more.
var errGivenUp = errors.New("its caller has given up")

// wait lets time pass, unless the schedule ends first. It fails when somebody doesn't want to
// wait any more.
func (s *schedule) wait(ctx context.Context, long time.Duration) error {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.over:
	case <-ctx.Done():
		return errGivenUp
	}
	return nil
}

// errLost is what the client of a request hears that, or whose answer, gets lost.
var errLost = errors.New("the request, or its answer, was lost")

// deviate does with a request what the plan says before the server hears of it.
func (l *life) deviate(ctx context.Context, r gate.Request, d scenarios.Deviation) error {
	by := time.Duration(d.Delay)
	if !d.Fault.HasExtent() && by > 0 {
		began := l.p.b.since()
		if l.p.b.running.schedule.wait(ctx, by) != nil {
			// Who waits for an answer has asked all the same.
			return l.late(r, errGivenUp, max(0, by-(l.p.b.since()-began)), "its client had given up")
		}
	}
	crash := func(stale scenarios.Duration) error {
		l.p.mu.Lock()
		defer l.p.mu.Unlock()
		if !l.dead {
			op := *deviating
			op.StaleBy = stale
			l.p.kill(&op, "before "+what(r))
		}
		return errDead
	}
	switch d.Fault {
	case scenarios.FaultCrashBefore:
		return crash(0)
	case scenarios.FaultCrashStale:
		return crash(d.Delay)
	case scenarios.FaultCrashLate:
		return l.late(r, crash(0), by, executedLate(by))
	case scenarios.FaultLate:
		return l.late(r, errLost, by, executedLate(by))
	case scenarios.FaultErrorBefore:
		return errLost
	case scenarios.FaultIgnore:
		host, reset := commanded(r.Effect)
		l.p.b.record.Now(history.Event{Kind: history.BMCCommand, Host: host, Actor: l.p.name, Value: reset})
		return &gate.Refusal{Code: http.StatusNoContent}
	case scenarios.FaultCrashAfter, scenarios.FaultErrorAfter:
		l.p.mu.Lock()
		defer l.p.mu.Unlock()
		l.after(r.ID, d.Fault)
	}
	if code := d.Fault.Status(); code != 0 {
		return &gate.Refusal{Code: code, Message: "the plan has the API server refuse to " + r.Deed}
	}
	return nil
}

// deviating is a crash of the schedule: the process is down for as long as in the simulator.
var deviating = &scenarios.CrashOp{RestartAfter: scenarios.Duration(3 * time.Second)}

// executedLate is the note of an effect.
func executedLate(by time.Duration) string { return "executed " + by.String() + " late" }

// commanded are the host and the reset of a command to a BMC.
func commanded(effect string) (host, reset string) {
	_, _ = fmt.Sscanf(effect, "bmc %s %s", &reset, &host) // it has both
	return host, reset
}

// what says in a note what a process died before.
func what(r gate.Request) string {
	if r.Effect == "" {
		return "a read"
	}
	return r.Effect
}

// after notes what goes wrong once the server has answered. It is called with p.mu held.
func (l *life) after(id uint64, fault scenarios.StepFault) {
	if l.faults == nil {
		l.faults = make(map[uint64]scenarios.StepFault)
	}
	l.faults[id] = fault
}

// late is how a request is executed that nobody waits for: it is lost when the schedule ends, or the run.
func (l *life) late(r gate.Request, heard error, by time.Duration, note string) error {
	if heard == errGivenUp && l.gone() {
		return errDead // it stood at the gate when its process died
	}
	b := l.p.b
	return &gate.Late{Err: heard, Later: func(send func(context.Context) gate.Answer) {
		b.tasks.Go(func() {
			timer := time.NewTimer(by)
			defer timer.Stop()
			select {
			case <-b.running.schedule.over:
				return
			case <-b.ctx.Done():
				return
			case <-timer.C:
			}
			ctx, cancel := thismachine.WithBudget(hosts.Overdue(b.ctx), hosts.CommandTimeout)
			defer cancel()
			b.record.Writers.Asks(r.Effect, l.p.name)
			b.record.Writers.Sends(r.Kind+"/"+r.Name, l.p.name)
			defer b.record.Writers.Done(r.Kind+"/"+r.Name, l.p.name)
			answer := send(ctx)
			if answer.Err == nil && answer.Status >= http.StatusBadRequest {
				b.record.Writers.Refused(r.Effect, l.p.name)
			}
			if r.Effect == "" || answer.Err != nil || answer.Status >= http.StatusBadRequest {
				return
			}
			if answer.Released {
				b.record.Writers.Released(r.Kind+"/"+r.Name, l.p.name)
			}
			if answer.Version != "" {
				b.record.Writers.Wrote(answer.Version, l.p.name)
			}
			b.record.Now(history.Event{Kind: history.ControllerEffect, Actor: l.p.name, Value: r.Effect, Note: note})
		})
	}}
}

func (l *life) gone() bool {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return l.dead
}

// AsOf implements gate.Listener: the first list of each kind that fills a cache is as old as the incarnation's are to be.
func (l *life) AsOf(r gate.Request) string {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.stale == "" || l.listed[r.Watches] {
		return ""
	}
	if l.listed == nil {
		l.listed = make(map[*objects.Kind]bool)
	}
	l.listed[r.Watches] = true
	return l.stale
}

// learned is what a process has been told of each object, over all its lives.
type learned map[client.ObjectKey]metav1.Object

// Told implements gate.Listener.
func (l *life) Told(ctx context.Context, r gate.Request, c gate.Change) error {
	p := l.p
	key := client.ObjectKeyFromObject(c.Object.(client.Object))
	p.mu.Lock()
	if l.dead {
		p.mu.Unlock()
		return errDead
	}
	if p.told == nil {
		p.told = make(map[*objects.Kind]learned)
	}
	known := p.told[r.Watches]
	if known == nil {
		known = make(learned)
		p.told[r.Watches] = known
	}
	before, after := known[key], c.Object
	if c.Deleted {
		before, after = c.Object, nil
		delete(known, key)
	} else {
		known[key] = c.Object
	}
	p.mu.Unlock()
	if c.Listed || before != nil && after != nil && before.GetResourceVersion() == after.GetResourceVersion() {
		return nil
	}
	d, deviates := p.b.running.schedule.step(p.name, objects.Delivery(r.Watches, before, after), false)
	if !deviates {
		return nil
	}
	if p.b.running.schedule.wait(ctx, time.Duration(d.Delay)) != nil {
		return errGivenUp
	}
	if d.Fault == scenarios.FaultRelist {
		return &gate.Refusal{Code: http.StatusGone, Message: "the plan has the watch expire"}
	}
	return nil
}
