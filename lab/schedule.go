package lab

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fencelab/fencelab/lab/record"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// schedule is the part of a run's schedule that the lab controls: the deeds of controllers, as
// they pass gates. Those that the plan names deviate.
type schedule struct {
	stream *record.Stream
	// listens says that deliveries are deeds, too: otherwise lists and watches pass as they come.
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

// listening reports whether watches are to be listened to. A nil schedule is one in which nothing
// deviates.
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
	e := history.Event{Kind: history.Deviated, Actor: actor, Value: d.String(), Hinders: d.Hinders(scenarios.ControllerEnd(actor), 0, scenarios.Manner{Sent: !deed.IsDelivery()})}
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

// errDead is returned for requests of a killed process, before they are sent.
var errDead = errors.New("the process was killed")

// errLost is returned when a request or its answer is lost.
var errLost = errors.New("the request, or its answer, was lost")
