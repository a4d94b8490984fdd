package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/vms"
	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// system is a domain as the machine behind a BMC. It implements fakebmc's System,
// Resetter, GuestSystem and Mains. libvirt carries commands out at once, so that
// accepting one is to have done it.
type system struct {
	b      *Backend
	domain *vms.Domain

	mu    sync.Mutex // one at a time speaks to the guest
	guest fakebmc.Guest

	culprit atomic.Value // the string of blame
}

// blame says in whose name the machine's next power edge happens, if the machine
// is in a state in which there can be one.
func (s *system) blame(who string, on bool) {
	if off := s.domain.State() == vms.StateOff; off == on {
		s.culprit.Store(who)
	}
}

// blamed returns in whose name a power edge, or the end of a boot, happened, as
// far as that is known: a guest that is told nothing may still go off.
func (s *system) blamed(e vms.Event) string {
	switch {
	case e.Kind == vms.Reset && e.Detail == vms.ResetWatchdog:
		return string(history.Engine) // nobody else stops feeding a watchdog
	case e.Kind == vms.PoweredOn, e.Kind == vms.PoweredOff, e.Kind == vms.Reset:
		who, _ := s.culprit.Swap("").(string)
		return who
	}
	return ""
}

// PowerState implements fakebmc.System.
func (s *system) PowerState() (fakebmc.PowerState, error) {
	return fakebmc.PowerState(s.domain.State()), nil
}

// Resets implements fakebmc.Resetter.
func (*system) Resets() []fakebmc.ResetType {
	return append(needPower[:], fakebmc.ResetOn, fakebmc.ResetForceOff, fakebmc.ResetGracefulShutdown, fakebmc.ResetPushPowerButton)
}

// needPower are the resets of which a machine that is off knows nothing.
var needPower = [...]fakebmc.ResetType{fakebmc.ResetForceRestart, fakebmc.ResetGracefulRestart, fakebmc.ResetPowerCycle, fakebmc.ResetNmi}

// Reset implements fakebmc.System.
func (s *system) Reset(t fakebmc.ResetType) error { return s.reset(s.domain.Name(), t) }

// peer is a system behind the BMC of another host, which is there when wires are
// swapped.
type peer struct {
	*system
	host string // whose BMC it is
}

// Reset implements fakebmc.System.
func (p peer) Reset(t fakebmc.ResetType) error { return p.reset(p.host, t) }

// reset is a reset by the BMC of a host.
func (s *system) reset(host string, t fakebmc.ResetType) error {
	if !slices.Contains(s.Resets(), t) {
		return fmt.Errorf("%s of %s: %w", t, s.domain.Name(), fakebmc.ErrUnsupported)
	}
	off := s.domain.State() == vms.StateOff
	if s.deaf() && slices.Contains(needPower[:], t) {
		return fmt.Errorf("%s of %s, which is not on: %w", t, s.domain.Name(), fakebmc.ErrConflict)
	}
	asker, _ := s.b.askers.Load(errand{host, t})
	client, _ := asker.(string)
	ctx, cancel := context.WithTimeout(s.b.ctx, commandTimeout)
	defer cancel()
	if t == fakebmc.ResetPushPowerButton {
		t = fakebmc.ResetGracefulShutdown // it is the same button
		if off {
			t = fakebmc.ResetOn
		}
	}
	s.blame(client, t == fakebmc.ResetOn)
	late := func(err error) error {
		if errors.Is(err, vms.ErrNotRunning) {
			return fmt.Errorf("%w: %w", err, fakebmc.ErrConflict)
		}
		return err
	}
	switch t {
	case fakebmc.ResetForceOff:
		return s.domain.ForceOff(ctx)
	case fakebmc.ResetGracefulShutdown:
		if s.deaf() {
			return nil
		}
		return s.domain.Shutdown()
	case fakebmc.ResetForceRestart:
		return late(s.domain.Restart(ctx))
	case fakebmc.ResetGracefulRestart:
		return late(s.domain.Reboot())
	case fakebmc.ResetNmi:
		return late(s.domain.Interrupt())
	case fakebmc.ResetPowerCycle:
		if err := s.domain.ForceOff(ctx); err != nil {
			return err
		}
		s.blame(client, true)
	}
	return s.domain.On(ctx)
}

// deaf says that no guest hears a button yet, or any more. libvirt is spared it: what
// it asks of a QEMU that is just being started holds every other operation up.
func (s *system) deaf() bool {
	state := s.domain.State()
	return state == vms.StateOff || state == vms.StatePoweringOn
}

// LoseAC implements fakebmc.Mains: the process of the virtual machine is killed.
func (s *system) LoseAC() error {
	ctx, cancel := context.WithTimeout(s.b.ctx, commandTimeout)
	defer cancel()
	s.blame(fakebmc.ClientBMC, false)
	return s.domain.ForceOff(ctx)
}

// SetGuest implements fakebmc.GuestSystem.
func (s *system) SetGuest(g fakebmc.Guest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.b.ctx, commandTimeout)
	defer cancel()
	resume := s.guest.Paused && !g.Paused && s.domain.State() == vms.StatePaused
	s.guest = g
	if resume {
		if err := s.domain.Resume(ctx); err != nil {
			return err
		}
	}
	return s.instruct(ctx)
}

// notice tells the guest anew how it behaves: a boot forgets it, and a guest whose
// processors stood still has not heard it.
func (s *system) notice(e vms.Event) {
	if e.Kind != vms.Kind(evidence.Boot) && e.Kind != vms.Resumed {
		return
	}
	s.b.observers.Go(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.guest == (fakebmc.Guest{}) {
			return
		}
		ctx, cancel := context.WithTimeout(s.b.ctx, commandTimeout)
		defer cancel()
		if err := s.instruct(ctx); err != nil {
			s.b.logf("%v", err)
		}
	})
}

// instruct makes the guest behave, if there is one that can hear; see notice. It is
// called with mu held.
func (s *system) instruct(ctx context.Context) error {
	if s.domain.State() != vms.StateOn {
		return nil
	}
	command := evidence.ObeyShutdown.Taking(time.Duration(s.guest.Slow))
	if s.guest.Ignore {
		command = evidence.IgnoreShutdown
	}
	if err := s.domain.Tell(ctx, command); err != nil || !s.guest.Paused {
		return err
	}
	return s.domain.Pause(ctx)
}
