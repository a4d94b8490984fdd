package scenarios

import (
	"cmp"
	"slices"
)

// own are fencelab's controllers by the parts that they play, where they aren't called like
// those.
var own = map[string]string{"power": "reboot", "fencer": "poisonpill"}

// watchdogController is another one in the part of a fencer.
const watchdogController = "watchdog"

// PartOf is the part that a controller plays.
func PartOf(c *Controller) string {
	part := cmp.Or(c.Plays, c.Name)
	for of, name := range own { // order does not matter: each name is there once
		if part == name {
			return of
		}
	}
	return part
}

// ownIn is fencelab's controller in a part, or "" if there is no such part.
func ownIn(part string) string {
	if !slices.Contains(KnownParts, part) {
		return ""
	}
	return cmp.Or(own[part], part)
}

// KnownParts lists the parts that a controller can play.
var KnownParts = []string{"power", "remediation", "healthcheck", "fencer", "deletion"}
