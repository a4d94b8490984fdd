package scenarios

import (
	"cmp"
	"slices"

	"github.com/fencelab/fencelab/scenarios/history"
)

// own are fencelab's controllers by the parts that they play, where they aren't called like
// those. In a part with an empty name it has none, so that a program takes the place of none.
var own = map[string]string{"power": "reboot", "fencer": "poisonpill", "tenancy": ""}

// watchdogController is another one in the part of a fencer.
const watchdogController = "watchdog"

// PartOf is the part that a controller plays.
func PartOf(c *Controller) string {
	part := cmp.Or(c.Plays, c.base())
	for of, name := range own { // order does not matter: each name is there once
		if name != "" && part == name {
			return of
		}
	}
	return part
}

// base is Base of a controller's name. A program, and Pods, have a name of their own.
func (c *Controller) base() string {
	if c.Program != nil || c.Pods != nil {
		return c.Name
	}
	return history.ControllerOf(c.Name)
}

// FirstOf is the name of the controller of which this one is a further one: its own, unless that of
// another is there.
func (s *Spec) FirstOf(c *Controller) string {
	if base := c.base(); s.Controller(base) != nil {
		return base
	}
	return c.Name
}

// ownIn is fencelab's controller in a part, or "" if there is none, or no such part.
func ownIn(part string) string {
	if !slices.Contains(KnownParts, part) {
		return ""
	}
	if name, other := own[part]; other {
		return name
	}
	return part
}

// ComesWithSystem reports whether a controller plays a part that fencelab has none in, so that a
// system has to bring its program.
func (c *Controller) ComesWithSystem() bool {
	part := PartOf(c)
	return c.Program == nil && slices.Contains(KnownParts, part) && ownIn(part) == ""
}

// KnownParts lists the parts that a controller can play.
var KnownParts = []string{"power", "remediation", "healthcheck", "fencer", "deletion", "tenancy"}
