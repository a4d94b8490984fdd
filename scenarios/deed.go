package scenarios

import (
	"fmt"
	"strconv"
	"strings"
)

// Deed names a step by its action instead of its place among the simulator's steps. It names steps
// in worlds that don't schedule them, where only actions that pass a gate are visible.
type Deed struct {
	Actor string
	// Does is a verb and an object: an effect such as "delete Node/worker-1" or "bmc ForceOff
	// worker-1", a read such as "get Node/worker-1" or "read BMC/worker-1", a delivery such as
	// "deliver node-deleted Node/worker-1", or "start Process/remediation".
	Does string
	// After is how many effects its actor had had in the story, for a read: how often one asks is
	// more of an accident than what one does.
	After int
	// N counts from 1: those of the story, and of reads those since the actor's last effect.
	N int
}

// IsRead reports whether the deed changes nothing.
func (d Deed) IsRead() bool {
	verb, _, _ := strings.Cut(d.Does, " ")
	return verb == "get" || verb == "list" || verb == "read"
}

// IsDelivery reports whether something reaches a cache.
func (d Deed) IsDelivery() bool { return strings.HasPrefix(d.Does, "deliver ") }

// IsStart reports whether a process starts.
func (d Deed) IsStart() bool { return strings.HasPrefix(d.Does, "start ") }

// IsCommand reports whether it is a command to a BMC.
func (d Deed) IsCommand() bool { return strings.HasPrefix(d.Does, bmcDeed+" ") }

// deedVerbs begin the names of effects on objects, bmcDeed those of commands to BMCs. Sentences use
// the longer form.
var deedVerbs = map[string]string{
	"create": "creates", "update": "updates", "patch": "patches", "delete": "deletes", "evict": "evicts", "bind": "binds",
}

const bmcDeed = "bmc"

// deedInWords completes a sentence about whoever does it: "deletes Node/worker-1".
func deedInWords(effect string) string {
	verb, object, _ := strings.Cut(effect, " ")
	if reset, host, _ := strings.Cut(object, " "); verb == bmcDeed {
		return "sends " + reset + " to the BMC of " + host
	}
	return deedVerbs[verb] + " " + object
}

// String is the deed as a plan names it: ACTOR/DEED/N, or ACTOR/DEED/AFTER.N for a read.
func (d Deed) String() string {
	if d.IsRead() {
		return fmt.Sprintf("%s/%s/%d.%d", d.Actor, d.Does, d.After, d.N)
	}
	return fmt.Sprintf("%s/%s/%d", d.Actor, d.Does, d.N)
}

// DeedCount counts the deeds of a story. Every world counts by it, since a plan names the same deed
// in each.
type DeedCount struct {
	deeds   map[Deed]int
	effects map[string]int
}

// Next completes a deed by how often it was done. One that does nothing that is seen has no name,
// but may be an effect of its actor.
func (c *DeedCount) Next(actor, does string, effect bool) Deed {
	if c.deeds == nil {
		c.deeds, c.effects = make(map[Deed]int), make(map[string]int)
	}
	d := Deed{Actor: actor, Does: does}
	if does != "" {
		if d.IsRead() {
			d.After = c.effects[actor]
		}
		c.deeds[d]++ // without N
		d.N = c.deeds[d]
	}
	if effect {
		c.effects[actor]++
	}
	return d
}

// NamesDeed reports whether the name of a step is that of a deed: a verb and an object have a space
// between them.
func NamesDeed(step string) bool { return strings.Contains(step, " ") }

// ParseDeed reads the name of a step that a plan names by its deed.
func ParseDeed(step string) (Deed, error) {
	actor, rest, _ := strings.Cut(step, "/")
	last := strings.LastIndexByte(rest, '/')
	if last < 0 {
		return Deed{}, fmt.Errorf("step %q: write ACTOR/VERB OBJECT/N, such as remediation/delete Node/worker-1/1", step)
	}
	d := Deed{Actor: actor, Does: rest[:last]}
	count := rest[last+1:]
	var err error
	if d.IsRead() {
		var after string
		after, count, _ = strings.Cut(count, ".")
		d.After, err = strconv.Atoi(after)
	}
	if err == nil {
		d.N, err = strconv.Atoi(count)
	}
	if err != nil || d.N < 1 || d.After < 0 || d.String() != step {
		return Deed{}, fmt.Errorf("step %q: a deed is counted from 1, as in remediation/delete Node/worker-1/1, and a read by the effects of its actor before it, too, as in remediation/get Node/worker-1/0.1", step)
	}
	return d, nil
}

// Faults returns what can go wrong with a deed at a gate, besides coming late.
func (d Deed) Faults() []StepFault {
	switch {
	case d.IsStart():
		return []StepFault{FaultStaleList}
	case d.IsDelivery():
		return []StepFault{FaultRelist}
	case strings.HasPrefix(d.Does, "read "):
		return []StepFault{FaultCrashBefore, FaultErrorBefore, FaultCrashStale}
	case d.IsRead():
		return []StepFault{FaultCrashBefore, FaultErrorBefore, FaultCrashStale, FaultForbidden, FaultNotFound, FaultTooMany, FaultInternal}
	}
	effect := []StepFault{FaultCrashBefore, FaultErrorBefore, FaultCrashStale, FaultCrashAfter, FaultErrorAfter, FaultLate, FaultCrashLate}
	if d.IsCommand() {
		return append(effect, FaultIgnore)
	}
	return append(effect, FaultForbidden, FaultNotFound, FaultConflict, FaultTooMany, FaultInternal)
}
