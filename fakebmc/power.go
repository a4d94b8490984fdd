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

// The reset types that every System executes. No other one is advertised.
const (
	ResetOn               ResetType = "On"
	ResetForceOff         ResetType = "ForceOff"
	ResetGracefulShutdown ResetType = "GracefulShutdown"
	ResetForceRestart     ResetType = "ForceRestart"
)

var (
	powerStates = []PowerState{On, Off, PoweringOn, PoweringOff, Paused}
	resetTypes  = []ResetType{ResetOn, ResetForceOff, ResetGracefulShutdown, ResetForceRestart}
)

// Known reports whether t is a type that every System executes.
func (t ResetType) Known() bool { return slices.Contains(resetTypes, t) }

// System is the machine whose power the BMC controls. Package systemtest is its
// contract, and runs on every implementation.
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

// Watcher is a System that tells each edge of its power state when it happens.
// Without it a lag rule samples the state instead, and is as coarse as its samples.
type Watcher interface {
	// Watch calls f with every new state until stop is called.
	Watch(f func(PowerState)) (stop func())
}

var (
	// ErrConflict: the system's present state forbids the reset.
	ErrConflict = errors.New("the present power state forbids it")
	// ErrUnsupported: the system doesn't execute this reset type.
	ErrUnsupported = errors.New("reset type is not supported")
	// ErrUnreachable: there is no answer because there is no connection.
	ErrUnreachable = errors.New("bmc is unreachable: connection refused or reset")
)
