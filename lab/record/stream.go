package record

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/play"
)

const (
	// Skew bounds how differently late the observers are: the API's watch and
	// libvirt's events are some milliseconds behind what they report.
	Skew = 25 * time.Millisecond
	// lag is how long events are held back, so that those of all observers can
	// be put in order.
	lag = 50 * time.Millisecond
)

// Stream puts the events of all observers in the order of their times.
type Stream struct {
	Since func() time.Duration
	// about is the note of the event with which the story begins.
	about string
	// Up is called when the story begins.
	Up func()

	mu      sync.Mutex
	pending []history.Event
	failure error
	// waiting holds what the topology lacks before the story can begin; nil before that is known.
	waiting play.Awaited
	// workload is the host on which the topology has the workload start.
	workload string
	// NodesReady is closed when at most the workload is waited for.
	NodesReady chan struct{}
	announced  bool
	// begun says that the story has.
	begun bool
	// held has the times of events that observers will still put.
	held []time.Duration
	// handed is the time up to which events were handed over. One that turns up
	// later with an earlier time is dated to then: order cannot be mended.
	handed time.Duration
}

func NewStream(since func() time.Duration) *Stream {
	return &Stream{Since: since, Up: func() {}, NodesReady: make(chan struct{})}
}

// Now records an event of the present moment.
func (s *Stream) Now(e history.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.At = s.Since()
	s.insert(e)
}

// Put records an event with its own time.
func (s *Stream) Put(e history.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.insert(e)
}

// hold keeps back events from a time on until it is released: an observer has seen one, and
// doesn't know everything about it yet.
func (s *Stream) hold(at time.Duration) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, at)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		i := slices.Index(s.held, at)
		s.held = slices.Delete(s.held, i, i+1)
	}
}

// known is the time up to which nothing else will be put, at most until.
func (s *Stream) known(until time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := min(s.Since()-lag, until)
	for _, at := range s.held {
		known = min(known, at-1)
	}
	return known
}

// insert is called with mu held.
func (s *Stream) insert(e history.Event) {
	e.At = max(e.At, s.handed)
	i, _ := slices.BinarySearchFunc(s.pending, e, func(a, b history.Event) int {
		if a.At <= b.At { // behind those of the same time
			return -1
		}
		return 1
	})
	s.pending = slices.Insert(s.pending, i, e)
	if len(s.waiting) > 0 {
		if s.waiting.Saw(&e) && e.Kind == history.WorkloadStarted && e.Host != s.workload && s.failure == nil {
			s.failure = fmt.Errorf("the workload started on host %s, but the story begins with it on %s", e.Host, s.workload)
		}
		s.begin(e.At)
	}
}

// Heard notes that an agent hears the API server.
func (s *Stream) Heard(agent string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting.Came(hears(agent)) {
		s.begin(max(s.Since(), s.handed))
	}
}

// laid notes that no groundwork is waited for any more.
func (s *Stream) laid() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting.Came(groundwork) {
		s.begin(max(s.Since(), s.handed))
	}
}

// lacksOnly reports whether the story would begin but for one thing.
func (s *Stream) lacksOnly(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting.Only(what)
}

// hears names the step of an agent that a story waits for.
func hears(agent string) string { return agent + " hears the API server" }

// begin begins the story once nothing is waited for any more. It is called with mu held.
func (s *Stream) begin(at time.Duration) {
	if !s.waiting.Nodes() && !s.announced {
		s.announced = true
		close(s.NodesReady)
	}
	if len(s.waiting) == 0 {
		s.begun = true
		s.Up()
		s.insert(history.Event{At: at, Kind: history.RunStarted, Note: s.about})
	}
}

// Remark has the event with which the story begins say something.
func (s *Stream) Remark(about string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.about = about
}

// Telling reports whether the story has begun.
func (s *Stream) Telling() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
}

// Fail ends the run: an observer cannot go on, so that nothing is certain any
// more.
func (s *Stream) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure = err
	}
}

// Await says what has to come up before the story begins.
func (s *Stream) Await(plan *scenarios.Plan, chosen []controllers.Selection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.workload = play.Await(&plan.Spec.Topology), plan.Spec.Topology.Workload.Host
	for _, c := range chosen {
		if c.Place == controllers.Cluster {
			s.waiting[c.Name] = true
			continue
		}
		for i := range plan.Spec.Topology.Hosts {
			name := scenarios.ProcessOn(c.Name, plan.Spec.Topology.Hosts[i].Name)
			s.waiting[name], s.waiting[hears(name)] = true, true
		}
	}
	if deletesMachines(chosen) || slices.ContainsFunc(chosen, func(c controllers.Selection) bool { return c.Announces != "" }) {
		s.waiting[groundwork] = true
	}
}

// take returns the next event if it is not later than the given time.
func (s *Stream) take(until time.Duration) (history.Event, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return history.Event{}, false, s.failure
	}
	if len(s.pending) == 0 || s.pending[0].At > until {
		s.handed = max(s.handed, until)
		return history.Event{}, false, nil
	}
	e := s.pending[0]
	s.pending = s.pending[1:]
	s.handed = max(s.handed, e.At)
	return e, true, nil
}

// Advance hands over what happens until the given time, each event a moment
// after it happened.
func (s *Stream) Advance(ctx context.Context, until time.Duration, each func(history.Event) bool) (time.Duration, error) {
	for {
		known := s.known(until)
		for {
			e, ok, err := s.take(known)
			if err != nil {
				return s.handed, err
			}
			if !ok {
				break
			}
			if each(e) {
				return e.At, nil
			}
		}
		if known == until {
			return until, nil
		}
		wait := time.NewTimer(lag)
		if rest := until + lag - s.Since(); rest < lag {
			wait.Reset(max(rest, time.Millisecond))
		}
		select {
		case <-ctx.Done():
			wait.Stop()
			return s.handed, context.Cause(ctx)
		case <-wait.C:
		}
		wait.Stop()
	}
}

// Lacks lists what is waited for before the story begins.
func (s *Stream) Lacks() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.waiting))
}

// Failed returns the reason why the run can't go on.
func (s *Stream) Failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// Pending are the events that were not handed over yet.
func (s *Stream) Pending() []history.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.pending)
}
