package scenarios

import (
	"cmp"
	"slices"
)

// own are fencelab's controllers by the parts that they play, where they aren't called like
// those. In a part with an empty name it has none, so that a program takes the place of none.
var own = map[string]string{"power": "reboot", "fencer": "poisonpill", "tenancy": ""}

// watchdogController is another one in the part of a fencer.
const watchdogController = "watchdog"

// PartOf is the part that a controller plays.
func PartOf(c *Controller) string {
	part := cmp.Or(c.Plays, Base(c.Name))
	for of, name := range own { // order does not matter: each name is there once
		if name != "" && part == name {
			return of
		}
	}
	return part
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
