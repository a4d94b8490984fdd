package systemtest

import (
	"errors"
	"slices"
	"testing"

	"github.com/fencelab/fencelab/fakebmc"
)

// runOptional tests what a system says that it can do beyond fakebmc.System.
//
// It is long because it is a list of tests.
func runOptional(t *testing.T, start func(t *testing.T, on bool) Fixture) {
	for _, c := range []struct {
		reset fakebmc.ResetType
		on    bool
		via   []fakebmc.PowerState
		final fakebmc.PowerState
		boots int
	}{
		{fakebmc.ResetPowerCycle, true, states(fakebmc.On, fakebmc.PoweringOff, fakebmc.Off, fakebmc.PoweringOn), fakebmc.On, 1},
		{fakebmc.ResetGracefulRestart, true, states(fakebmc.On, fakebmc.PoweringOff, fakebmc.Off, fakebmc.PoweringOn), fakebmc.On, 1},
		{fakebmc.ResetPushPowerButton, true, states(fakebmc.On, fakebmc.PoweringOff), fakebmc.Off, 0},
		{fakebmc.ResetPushPowerButton, false, states(fakebmc.Off, fakebmc.PoweringOn), fakebmc.On, 1},
	} {
		t.Run(string(c.reset), func(t *testing.T) {
			s := begin(t, start, c.on)
			s.requireReset(c.reset)
			s.reset(c.reset)
			s.await(c.final, c.via, c.boots)
			s.stays(c.final)
			s.wantBoots(c.boots)
		})
	}
	for _, r := range resets(fakebmc.ResetPowerCycle, fakebmc.ResetGracefulRestart, fakebmc.ResetNmi) {
		t.Run(string(r)+" when off is refused", func(t *testing.T) {
			s := begin(t, start, false)
			s.requireReset(r)
			if err := s.System.Reset(r); !errors.Is(err, fakebmc.ErrConflict) {
				t.Errorf("%s of a system that is off: %v; want ErrConflict", r, err)
			}
			s.stays(fakebmc.Off)
			s.wantBoots(0)
		})
	}
	t.Run("what a system doesn't list it refuses", func(t *testing.T) {
		s := begin(t, start, true)
		var listed []fakebmc.ResetType
		if more, ok := s.System.(fakebmc.Resetter); ok {
			listed = more.Resets()
		}
		for _, r := range resets(fakebmc.ResetPowerCycle, fakebmc.ResetGracefulRestart, fakebmc.ResetNmi, fakebmc.ResetPushPowerButton) {
			if slices.Contains(listed, r) {
				continue
			}
			if err := s.System.Reset(r); !errors.Is(err, fakebmc.ErrUnsupported) {
				t.Errorf("Reset(%s) = %v; want ErrUnsupported", r, err)
			}
		}
		s.stays(fakebmc.On)
	})
	t.Run("a guest that ignores acpi", func(t *testing.T) {
		s := begin(t, start, true)
		guest, ok := s.System.(fakebmc.GuestSystem)
		if !ok {
			t.Skip("the system is no GuestSystem")
		}
		s.do(guest.SetGuest(fakebmc.Guest{Ignore: true}))
		s.reset(fakebmc.ResetGracefulShutdown)
		s.stays(fakebmc.On)
		s.do(guest.SetGuest(fakebmc.Guest{}))
		s.reset(fakebmc.ResetGracefulShutdown)
		s.await(fakebmc.Off, states(fakebmc.On, fakebmc.PoweringOff), 0)
	})
	t.Run("a paused guest", func(t *testing.T) {
		s := begin(t, start, true)
		guest, ok := s.System.(fakebmc.GuestSystem)
		if !ok {
			t.Skip("the system is no GuestSystem")
		}
		s.do(guest.SetGuest(fakebmc.Guest{Paused: true}))
		s.until("the system is Paused", func() bool { return s.state() == fakebmc.Paused })
		s.reset(fakebmc.ResetForceOff) // works without a guest
		s.await(fakebmc.Off, states(fakebmc.Paused, fakebmc.PoweringOff), 0)
	})
	t.Run("ac loss", func(t *testing.T) {
		s := begin(t, start, true)
		mains, ok := s.System.(fakebmc.Mains)
		if !ok {
			t.Skip("the system has no Mains")
		}
		s.do(mains.LoseAC())
		s.await(fakebmc.Off, states(fakebmc.On, fakebmc.PoweringOff), 0)
		s.stays(fakebmc.Off)
		s.reset(fakebmc.ResetOn)
		s.await(fakebmc.On, states(fakebmc.Off, fakebmc.PoweringOn), 1)
	})
	t.Run("boot override once", func(t *testing.T) {
		s := begin(t, start, false)
		booter, ok := s.System.(fakebmc.Booter)
		if !ok {
			t.Skip("the system is no Booter")
		}
		s.do(booter.SetBoot(fakebmc.Boot{Enabled: "Once", Target: "Pxe"}))
		if b, err := booter.Boot(); err != nil || b.Enabled != "Once" || b.Target != "Pxe" {
			t.Errorf("the override is %+v, %v", b, err)
		}
		s.reset(fakebmc.ResetOn)
		s.await(fakebmc.On, states(fakebmc.Off, fakebmc.PoweringOn), 1)
		if b, err := booter.Boot(); err != nil || b.Enabled != "Disabled" {
			t.Errorf("after the boot the override is %+v, %v", b, err)
		}
	})
	t.Run("virtual media", func(t *testing.T) {
		s := begin(t, start, false)
		bay, ok := s.System.(fakebmc.MediaBay)
		if !ok {
			t.Skip("the system has no MediaBay")
		}
		s.do(bay.InsertMedia(s.Image))
		if got, err := bay.Media(); err != nil || got != s.Image {
			t.Errorf("inserted: %q, %v", got, err)
		}
		s.do(bay.EjectMedia())
		if got, err := bay.Media(); err != nil || got != "" {
			t.Errorf("ejected: %q, %v", got, err)
		}
	})
}

func (s *subject) requireReset(r fakebmc.ResetType) {
	s.t.Helper()
	if more, ok := s.System.(fakebmc.Resetter); !ok || !slices.Contains(more.Resets(), r) {
		s.t.Skipf("the system doesn't execute %s", r)
	}
}

func (s *subject) do(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
