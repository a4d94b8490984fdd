package fakebmc

import (
	"errors"
	"slices"
)

// PowerState is a Redfish Resource.PowerState. A reported state may be any
// string, since real BMCs invent values; the empty one stands for JSON null.
type PowerState string

// The values that the Redfish schema allows.
const (
	On          PowerState = "On"
	Off         PowerState = "Off"
	PoweringOn  PowerState = "PoweringOn"
	PoweringOff PowerState = "PoweringOff"
	Paused      PowerState = "Paused"
)

// ResetType is a Redfish Resource.ResetType.
type ResetType string

// The reset types that every System executes.
const (
	ResetOn               ResetType = "On"
	ResetForceOff         ResetType = "ForceOff"
	ResetGracefulShutdown ResetType = "GracefulShutdown"
	ResetForceRestart     ResetType = "ForceRestart"
)

// The reset types that the BMC executes itself: the first with the System's On, and the second if
// the System is one of Mains.
const (
	ResetForceOn        ResetType = "ForceOn"        // on, whatever hinders it
	ResetFullPowerCycle ResetType = "FullPowerCycle" // no power for a while, neither for the host nor for its BMC
)

// The reset types that a System may execute as well: see Resetter.
const (
	ResetGracefulRestart ResetType = "GracefulRestart" // by the guest, which stays on
	ResetNmi             ResetType = "Nmi"             // a diagnostic interrupt
	ResetPowerCycle      ResetType = "PowerCycle"      // hard off, and on again
	ResetPushPowerButton ResetType = "PushPowerButton" // on when off, else what the guest makes of it
)

var (
	powerStates = []PowerState{On, Off, PoweringOn, PoweringOff, Paused}
	resetTypes  = []ResetType{ResetOn, ResetForceOff, ResetGracefulShutdown, ResetForceRestart}
	everyReset  = []ResetType{
		ResetOn, ResetForceOn, ResetForceOff, ResetGracefulShutdown, ResetGracefulRestart,
		ResetForceRestart, ResetNmi, ResetPowerCycle, ResetFullPowerCycle, ResetPushPowerButton,
	}
)

// Known reports whether t is a type that every System executes.
func (t ResetType) Known() bool { return slices.Contains(resetTypes, t) }

// leadsTo reports whether a state is where a reset of this type ends.
func (t ResetType) leadsTo(s PowerState) bool {
	switch t {
	case ResetForceOff, ResetGracefulShutdown:
		return s == Off
	case ResetNmi, ResetPushPowerButton:
		return s == On || s == Off
	}
	return s == On
}

// System is the machine whose power the BMC controls. Package systemtest is its
// contract, and runs on every implementation. A System that can do more implements
// Watcher, Resetter, Booter, MediaBay, GuestSystem or Mains as well. A BMC advertises
// only what its System implements.
type System interface {
	// PowerState returns the actual state: On, Off, PoweringOn, PoweringOff or Paused.
	PowerState() (PowerState, error)
	// Reset begins a reset and returns when it is accepted, never when it is
	// completed. On and ForceOff are accepted when there is nothing to do. The
	// error wraps ErrConflict when the present state forbids the reset (a
	// ForceRestart of a system that is off), ErrUnsupported when the type is
	// unknown; in both cases nothing has changed.
	Reset(ResetType) error
}

// Watcher is a System that reports each edge of its power state when it happens.
// Without it a lag rule samples the state instead, and is as coarse as its samples,
// and there are no power events.
type Watcher interface {
	// Watch calls f with every new state until stop is called.
	Watch(f func(PowerState)) (stop func())
}

// Resetter is a System that executes more reset types than those that all execute.
type Resetter interface {
	// Resets returns all types that Reset executes. They must not change.
	Resets() []ResetType
}

// ClientResetter is a System that wants to know who has it reset.
type ClientResetter interface {
	// ResetFor is Reset on behalf of a client: Request.Client, or the BMC's own
	// ClientBMC, ClientWatchdog and ClientRestore.
	ResetFor(client string, t ResetType) error
}

// resetFor resets a System for a client. What its own BMC would do with more than its power is done
// with that alone.
func resetFor(sys System, client string, t ResetType) error {
	switch t {
	case ResetForceOn:
		t = ResetOn
	case ResetFullPowerCycle:
		t = ResetForceRestart
	}
	if s, ok := sys.(ClientResetter); ok {
		return s.ResetFor(client, t)
	}
	return sys.Reset(t)
}

// The targets of a boot override, of those that Redfish knows.
const (
	BootNone = "None"
	BootPxe  = "Pxe"
	BootCd   = "Cd"
	BootHdd  = "Hdd"
	BootHTTP = "UefiHttp"
	BootBIOS = "BiosSetup"
	// BootDevice stands for the device that Boot.Device names.
	BootDevice = "UefiTarget"
)

// When a boot override is in force.
const (
	BootDisabled   = "Disabled"
	BootOnce       = "Once"
	BootContinuous = "Continuous"
)

// The firmware modes of a boot.
const (
	BootUEFI   = "UEFI"
	BootLegacy = "Legacy"
)

// Boot is where a System boots from instead of its default.
type Boot struct {
	Enabled string // BootDisabled, BootOnce or BootContinuous
	Target  string // BootNone to BootBIOS, or whatever an AnyBooter takes
	Mode    string // BootUEFI or BootLegacy; empty changes nothing
	Device  string // of BootDevice: its UEFI device path
}

// Booter is a System with a setting for where it boots from.
type Booter interface {
	// Bootable returns the targets and modes to which Boot can be set; only they are
	// advertised.
	Bootable() (targets, modes []string, err error)
	// Boot returns the override in force. A boot that begins ends one that is
	// valid once.
	Boot() (Boot, error)
	// SetBoot sets it for the next boot.
	SetBoot(Boot) error
}

// AnyBooter is a Booter that takes any target: it notes where it would boot from, and boots
// nothing. So it can stand for a machine that lists whatever its vendor has.
type AnyBooter interface {
	Booter
	BootsAnything()
}

// MediaBay is a System with a virtual CD drive. The service itself never fetches
// an image: the System does, if it needs it.
type MediaBay interface {
	Media() (image string, err error) // empty when there is none
	// InsertMedia inserts the image of a URL that was allowed. A System that fetches
	// it must not follow where the URL's server sends it, which was not allowed. The
	// error wraps ErrNoImage when no image is to be had there, ErrConflict when there is
	// one in the drive; the client is told what it says.
	InsertMedia(image string) error
	EjectMedia() error
}

// GuestSystem is a System whose guest can be made to misbehave.
type GuestSystem interface {
	SetGuest(Guest) error
}

// Mains is a System that can lose its AC power: without a transition, and without
// a word to the guest. Others are forced off.
type Mains interface {
	LoseAC() error
}

var (
	// ErrConflict: the system's present state forbids the reset.
	ErrConflict = errors.New("the present power state forbids it")
	// ErrUnsupported: the system doesn't execute this reset type, or can't do
	// what a rule asks of it.
	ErrUnsupported = errors.New("it is not supported")
	// ErrNoImage: the URL of virtual media leads to no image, which is for the client
	// to correct.
	ErrNoImage = errors.New("no image is to be had there")
	// ErrUnreachable: there is no answer because there is no connection.
	ErrUnreachable = errors.New("bmc is unreachable: connection refused or reset")
)
