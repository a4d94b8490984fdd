package systemtest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
)

// word is something that is asked of a system.
type word struct {
	name string
	say  func(*subject) error
	// on is how the system is before, if it is to do anything; final is what it is once that is
	// done.
	on    bool
	final fakebmc.PowerState
	// soft is up to the guest, which may not be there to hear of it.
	soft bool
	// boots is how many begin because of it.
	boots int
}

// words are all that a system can be asked. A button asks for what isn't the case, and whether it
// was when the button was pushed is not told from outside while something is under way.
func words(s *subject) []word {
	reset := func(t fakebmc.ResetType, on bool, final fakebmc.PowerState, soft bool, boots int) word {
		return word{string(t), func(s *subject) error { return s.System.Reset(t) }, on, final, soft, boots}
	}
	all := []word{
		reset(fakebmc.ResetOn, false, fakebmc.On, false, 1),
		reset(fakebmc.ResetForceOff, true, fakebmc.Off, false, 0),
		reset(fakebmc.ResetGracefulShutdown, true, fakebmc.Off, true, 0),
		reset(fakebmc.ResetForceRestart, true, fakebmc.On, false, 1),
	}
	for _, w := range []word{
		reset(fakebmc.ResetPowerCycle, true, fakebmc.On, false, 1),
		reset(fakebmc.ResetGracefulRestart, true, fakebmc.On, true, 1),
	} {
		if more, ok := s.System.(fakebmc.Resetter); ok && slices.Contains(more.Resets(), fakebmc.ResetType(w.name)) {
			all = append(all, w)
		}
	}
	if _, ok := s.System.(fakebmc.Mains); ok {
		all = append(all, word{"loss of power", func(s *subject) error { return s.System.(fakebmc.Mains).LoseAC() }, true, fakebmc.Off, false, 0})
	}
	return all
}

// runInterrupted says each word to a system in every phase of what comes of each other. The last
// one that was accepted counts; what was refused changes nothing.
func runInterrupted(t *testing.T, start func(t *testing.T, on bool) Fixture) {
	for _, first := range words(begin(t, start, true)) {
		t.Run(first.name, func(t *testing.T) {
			dry := begin(t, start, first.on)
			phases := dry.phases(first)
			seconds := words(dry)
			if dry.Real {
				phases = phases[:min(len(phases), 2)]
				seconds = slices.DeleteFunc(seconds, func(w word) bool { return w.soft || w.final != fakebmc.Off })
			}
			for _, at := range phases {
				for _, second := range seconds {
					t.Run(fmt.Sprintf("%s after %s", second.name, at), func(t *testing.T) {
						begin(t, start, first.on).interrupt(first, at, second)
					})
				}
			}
		})
	}
}

// phases are the middles of the states through which a system goes once a word was said: from the
// moment itself until it has settled.
func (s *subject) phases(w word) []time.Duration {
	s.do(w.say(s))
	var (
		all          = []time.Duration{0}
		state, since = s.state(), time.Duration(0)
	)
	for passed := s.Step; passed < s.Limit; passed += s.Step {
		s.Advance(s.Step)
		now := s.state()
		if s.Real && now == w.final && passed-since >= s.Hold {
			break // real time is not waited for longer than that
		}
		if now != state {
			if middle := ((since + passed) / 2).Truncate(s.Step); middle > 0 {
				all = append(all, middle)
			}
			state, since = now, passed
		}
	}
	return all
}

func (s *subject) interrupt(first word, at time.Duration, second word) {
	s.do(first.say(s))
	s.Advance(at)
	during := s.state()
	err := second.say(s)
	if err != nil && !errors.Is(err, fakebmc.ErrConflict) {
		s.t.Fatalf("%s while %s had it %s: %v", second.name, first.name, during, err)
	}
	want := states(second.final)
	switch {
	case err != nil:
		want = states(first.final)
	case second.soft:
		want = states(first.final, second.final)
	}
	if s.Real && err == nil && len(want) == 1 {
		s.until("the system is "+string(want[0]), func() bool { return s.state() == want[0] })
		s.stays(want[0])
		return
	}
	final := s.settle()
	if !slices.Contains(want, final) {
		s.t.Errorf("%s while %s had it %s came to %v, and the system settled in %s, want one of %s", second.name, first.name, during, err, final, want)
	}
	s.stays(final)
	if begun := s.Boots() - s.boots; begun > first.boots+second.boots {
		s.t.Errorf("%d boots began, and no more than %d were asked for", begun, first.boots+second.boots)
	}
}
