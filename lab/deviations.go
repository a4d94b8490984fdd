package lab

import (
	"context"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/lab/hosts"
	thismachine "github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
)

// deviate does with a request what the plan says before the server hears of it.
func (l *life) deviate(ctx context.Context, r gate.Request, d scenarios.Deviation) error {
	by := time.Duration(d.Delay)
	if !d.Fault.HasExtent() && by > 0 {
		began := l.p.b.since()
		if l.p.b.procs.schedule.wait(ctx, by) != nil {
			// A client that gives up has sent its request all the same.
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

// late executes a request after its client has given up waiting. The request is lost when the
// schedule or the run ends.
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
			case <-b.procs.schedule.over:
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

// AsOf implements gate.Listener: if the incarnation is to start from stale caches, the first list
// of each kind is as old as they are.
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

// learned holds the last version of each object that a process received, over all its lives.
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
	d, deviates := p.b.procs.schedule.step(p.name, objects.Delivery(r.Watches, before, after), false)
	if !deviates {
		return nil
	}
	if p.b.procs.schedule.wait(ctx, time.Duration(d.Delay)) != nil {
		return errGivenUp
	}
	if d.Fault == scenarios.FaultRelist {
		return &gate.Refusal{Code: http.StatusGone, Message: "the plan has the watch expire"}
	}
	return nil
}
