// Package memory has a host in memory: a fakebmc.System that carries out its orders in
// the time that its settings give, for tests and for BMCs at scale.
package memory

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
)

// Timing is how long the transitions of an in-memory Host take.
type Timing struct {
	On       time.Duration // from Off through PoweringOn to On
	Off      time.Duration // hard, from any state through PoweringOff to Off
	Shutdown time.Duration // graceful, by the guest, through PoweringOff to Off
}

// Host is a System in memory, for tests and for BMCs at scale. It executes every
// reset type. A restart keeps it On and counts as a boot, as a reset line does on
// real boards. It implements every optional interface of a System: Resetter, Inventoried,
// GuestSystem, Mains, Booter, AnyBooter, MediaBay and Watcher.
type Host struct {
	clk    fakebmc.Clock
	timing Timing

	mu       sync.Mutex
	state    fakebmc.PowerState
	graceful bool // PoweringOff by the guest, which a hard reset overtakes
	boots    int
	nmis     int
	guest    fakebmc.Guest
	boot     fakebmc.Boot
	bootedBy *fakebmc.Boot // the override of the last boot; nil before the first one
	image    string
	cancel   func() bool // of the transition under way
	then     func()      // what that ends in
	made     fakebmc.Inventory
	round    int // the transition's number; a late timer of an older one is void
	watchers []*func(fakebmc.PowerState)
	untold   []fakebmc.PowerState
	telling  bool
}

// New returns a Host that is On, in its first boot, or Off.
func New(clk fakebmc.Clock, t Timing, on bool) *Host {
	h := &Host{clk: clk, timing: t, state: fakebmc.Off, boot: fakebmc.Boot{Enabled: fakebmc.BootDisabled, Target: fakebmc.BootNone, Mode: fakebmc.BootUEFI}}
	if on {
		h.state, h.boots = fakebmc.On, 1
	}
	h.made = fakebmc.TypicalInventory("")
	return h
}

// SetInventory says what the host is made of; a typical inventory, if it isn't called.
func (h *Host) SetInventory(i fakebmc.Inventory) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.made = i
}

func (h *Host) Inventory() (fakebmc.Inventory, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.made, nil
}

// PowerState implements System. A paused guest shows while the host is On.
func (h *Host) PowerState() (fakebmc.PowerState, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shown(), nil
}

func (h *Host) shown() fakebmc.PowerState {
	if h.state == fakebmc.On && h.guest.Paused {
		return fakebmc.Paused
	}
	return h.state
}

// Boots counts the boots that have begun.
func (h *Host) Boots() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boots
}

// Nmis counts the diagnostic interrupts.
func (h *Host) Nmis() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nmis
}

// BootedBy is the override that was in force when the last boot began.
func (h *Host) BootedBy() fakebmc.Boot {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bootedBy == nil {
		return fakebmc.Boot{}
	}
	return *h.bootedBy
}

func (h *Host) Resets() []fakebmc.ResetType {
	return []fakebmc.ResetType{
		fakebmc.ResetOn, fakebmc.ResetForceOff, fakebmc.ResetGracefulShutdown, fakebmc.ResetGracefulRestart,
		fakebmc.ResetForceRestart, fakebmc.ResetNmi, fakebmc.ResetPowerCycle, fakebmc.ResetPushPowerButton,
	}
}

// Reset implements System. On is refused with ErrConflict while the host powers
// off: accepting it would mean to forget it.
func (h *Host) Reset(t fakebmc.ResetType) error {
	h.mu.Lock()
	err := h.begin(t)
	h.mu.Unlock()
	h.tell()
	return err
}

func (h *Host) begin(t fakebmc.ResetType) error {
	conflict := func() error { return fmt.Errorf("%s of a host that is %s: %w", t, h.state, fakebmc.ErrConflict) }
	obeys := h.state == fakebmc.On && !h.guest.Ignore && !h.guest.Paused
	switch t {
	case fakebmc.ResetOn:
		return h.powerOn(conflict)
	case fakebmc.ResetForceOff:
		off := func() { h.become(fakebmc.Off) }
		switch {
		case h.state == fakebmc.PoweringOff && !h.graceful:
			h.then = off // the supply drains already, and nothing follows any more
		case h.state != fakebmc.Off:
			h.pass(fakebmc.PoweringOff, h.timing.Off, off)
		}
	case fakebmc.ResetGracefulShutdown:
		if h.state == fakebmc.PoweringOn {
			return conflict() // no guest yet to hear of it
		}
		if obeys {
			h.shutDown(func() { h.become(fakebmc.Off) })
		}
	case fakebmc.ResetGracefulRestart:
		if h.state != fakebmc.On {
			return conflict()
		}
		if obeys {
			h.shutDown(h.restart)
		}
	case fakebmc.ResetForceRestart:
		if h.state == fakebmc.Off || h.state == fakebmc.PoweringOff && !h.graceful {
			return conflict()
		}
		if h.state == fakebmc.PoweringOn {
			h.bootNow() // and goes on powering on
			return nil
		}
		h.stopTransition()
		h.restart()
	case fakebmc.ResetNmi:
		if h.state == fakebmc.Off || h.state == fakebmc.PoweringOff {
			return conflict()
		}
		h.nmis++
	case fakebmc.ResetPowerCycle:
		if h.state == fakebmc.Off || h.state == fakebmc.PoweringOff {
			return conflict()
		}
		h.pass(fakebmc.PoweringOff, h.timing.Off, func() {
			h.become(fakebmc.Off)
			_ = h.powerOn(nil)
		})
	case fakebmc.ResetPushPowerButton:
		switch {
		case h.state == fakebmc.Off:
			return h.powerOn(conflict)
		case obeys:
			h.shutDown(func() { h.become(fakebmc.Off) })
		}
	default:
		return fmt.Errorf("%w: %q", fakebmc.ErrUnsupported, t)
	}
	return nil
}

func (h *Host) powerOn(conflict func() error) error {
	switch h.state {
	case fakebmc.PoweringOff:
		return conflict()
	case fakebmc.Off:
		h.bootNow()
		h.pass(fakebmc.PoweringOn, h.timing.On, func() { h.become(fakebmc.On) })
	}
	return nil
}

func (h *Host) shutDown(then func()) {
	d := h.timing.Shutdown
	if h.guest.Slow > 0 {
		d = time.Duration(h.guest.Slow)
	}
	h.pass(fakebmc.PoweringOff, d, then)
	h.graceful = true
}

// restart is a boot without a power edge.
func (h *Host) restart() {
	h.bootNow()
	h.become(fakebmc.On)
}

// bootNow begins a boot, which consumes an override that is valid once.
func (h *Host) bootNow() {
	h.boots++
	h.bootedBy = new(fakebmc.Boot)
	*h.bootedBy = h.boot
	if h.boot.Enabled == fakebmc.BootOnce {
		h.boot.Enabled, h.boot.Target = fakebmc.BootDisabled, fakebmc.BootNone
	}
}

// pass goes through a transitional state, instead of the transition under way. What takes no time
// is over when it returns, so that whoever looks after an answer sees it.
func (h *Host) pass(through fakebmc.PowerState, d time.Duration, then func()) {
	h.stopTransition()
	h.become(through)
	h.graceful = false
	if d <= 0 {
		then()
		return
	}
	round := h.round
	h.then = then
	h.cancel = h.clk.AfterFunc(d, func() {
		h.mu.Lock()
		if h.round == round {
			h.cancel = nil
			h.then()
		}
		h.mu.Unlock()
		h.tell()
	})
}

func (h *Host) stopTransition() {
	h.round++
	if h.cancel != nil {
		h.cancel()
		h.cancel = nil
	}
}

func (h *Host) become(s fakebmc.PowerState) {
	before := h.shown()
	h.state = s
	if now := h.shown(); now != before {
		h.untold = append(h.untold, now)
	}
}

func (h *Host) LoseAC() error {
	h.mu.Lock()
	h.stopTransition()
	h.become(fakebmc.Off)
	h.mu.Unlock()
	h.tell()
	return nil
}

// SetGuest implements GuestSystem. A shutdown that is under way goes on.
func (h *Host) SetGuest(g fakebmc.Guest) error {
	h.mu.Lock()
	before := h.shown()
	h.guest = g
	if now := h.shown(); now != before {
		h.untold = append(h.untold, now)
	}
	h.mu.Unlock()
	h.tell()
	return nil
}

func (h *Host) Bootable() (targets, modes []string, err error) {
	return []string{fakebmc.BootNone, fakebmc.BootPxe, fakebmc.BootCd, fakebmc.BootHdd, fakebmc.BootHTTP, fakebmc.BootDevice, fakebmc.BootBIOS}, []string{fakebmc.BootUEFI, fakebmc.BootLegacy}, nil
}

func (h *Host) BootsAnything() {}

func (h *Host) Boot() (fakebmc.Boot, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boot, nil
}

func (h *Host) SetBoot(b fakebmc.Boot) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.Mode == "" {
		b.Mode = h.boot.Mode
	}
	h.boot = b
	return nil
}

func (h *Host) Media() (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.image, nil
}

// InsertMedia implements MediaBay. The image is noted, never read.
func (h *Host) InsertMedia(image string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.image = image
	return nil
}

func (h *Host) EjectMedia() error { return h.InsertMedia("") }

func (h *Host) Watch(f func(fakebmc.PowerState)) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers = append(slices.Clip(h.watchers), &f)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.watchers = slices.DeleteFunc(slices.Clone(h.watchers), func(w *func(fakebmc.PowerState)) bool { return w == &f })
	}
}

// tell hands edges to the watchers, in order and without the lock. One caller
// tells at a time; it also tells what others add meanwhile.
func (h *Host) tell() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.telling {
		return
	}
	h.telling = true
	for len(h.untold) > 0 {
		s, watchers := h.untold[0], h.watchers
		h.untold = h.untold[1:]
		h.mu.Unlock()
		for _, w := range watchers {
			(*w)(s)
		}
		h.mu.Lock()
	}
	h.telling = false
}
