package guarantee

import (
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var ownAnnotationsOnly = invariant.Invariant{
	ID:    "own-annotations-only",
	Claim: "No controller removes a reboot annotation, a remediation mark, a hook, a pause, a finalizer, a cordon or an out-of-service taint that is not its own to remove.",
	Seed:  "000, 001",
	New:   func(p invariant.Params) invariant.Checker { return newOwners(p, "own-annotations-only", false) },
}

var contentPreserved = invariant.Invariant{
	ID:    "content-preserved",
	Claim: "The value of a reboot annotation or a remediation mark is never changed by a controller that did not set it.",
	Seed:  "000",
	New:   func(p invariant.Params) invariant.Checker { return newOwners(p, "content-preserved", true) },
}

// owners judges every removal of an annotation, or every change of a value that is
// there. A user that meddles with what isn't theirs is not to be blamed on the
// controllers, who must live with that.
type owners struct {
	invariant.Ruling
	roles     invariant.Roles
	placed    invariant.PlacedOn
	unmanaged map[string]bool
	// leaving are the Machines that are being deleted, and parting holds what their deletion has
	// taken from one of them, as set and as removed, unless the Machine goes with it.
	leaving map[string]bool
	parting [][2]history.Event
	// cordons and taints keep Pods from the present Nodes, by UID. Finalizers keep objects, by UID
	// and finalizer.
	cordons, taints map[string]history.Event
	finalizers      map[[2]string]history.Event
	// made is the last Node that was made, and lost has the cordons of Nodes that are gone, by
	// their names: one that is made anew with its cordon has it from whoever set that.
	made history.Event
	lost map[string]history.Event
	// content says that values are judged, and removals are not.
	content bool
}

func newOwners(p invariant.Params, id string, content bool) *owners {
	return &owners{
		Ruling: invariant.Ruling{ID: id}, roles: p.Roles, placed: invariant.PlacedOn{}, unmanaged: map[string]bool{}, leaving: map[string]bool{},
		cordons: map[string]history.Event{}, taints: map[string]history.Event{}, finalizers: map[[2]string]history.Event{}, content: content,
		lost: map[string]history.Event{},
	}
}

func (c *owners) Observe(e *history.Event) *invariant.Violation {
	if len(c.parting) > 0 && !(e.Kind == history.AnnotationRemoved && e.Object == c.parting[0][1].Object) {
		c.parted(e)
	}
	switch e.Kind {
	case history.ProvisioningState:
		c.unmanaged[e.Host] = !invariant.Managed(e.Value)
	case history.BareMetalHostDeleted:
		// Its annotations went with it, without a removal.
	case history.MachineDeleting:
		c.leaving[e.Object] = true
	case history.MachineDeleted:
		delete(c.leaving, e.Object)
	case history.AnnotationSet, history.AnnotationRemoved:
		if _, reboot := invariant.RebootRequest(e); reboot || e.Key == invariant.ExternalAnnotation || !c.content && invariant.KeepsOff(e) {
			c.judge(e)
		}
	case history.NodeCreated:
		c.made = *e
	case history.NodeCordoned:
		if before := c.lost[e.Object]; before.Kind != "" && e.UID == c.made.UID && e.At == c.made.At {
			c.cordons[e.UID] = before
		} else {
			keep(c.cordons, e)
		}
	case history.NodeOutOfService:
		keep(c.taints, e)
	case history.FinalizerAdded:
		c.finalizers[[2]string{e.UID, e.Key}] = *e
	case history.FinalizerRemoved:
		c.released(e)
	case history.NodeUncordoned:
		c.opened(c.cordons, e, "uncordoned", "cordon")
	case history.NodeInService:
		c.opened(c.taints, e, "called in service again", "taint")
	case history.NodeDeleted:
		c.lost[e.Object] = c.cordons[e.UID]
		delete(c.cordons, e.UID)
		delete(c.taints, e.UID)
	}
	return c.Tell()
}

// parted judges what the deletion of a Machine has taken from it by e, which comes next: what was
// on a Machine goes with it when its finalizer does, and not before.
func (c *owners) parted(e *history.Event) {
	for _, p := range c.parting {
		if set, removed := &p[0], &p[1]; !(e.Kind == history.MachineDeleted && e.Object == removed.Object) && !c.roles.MayTouch(removed.Actor, set.Actor, removed, false) {
			c.strange(set, removed, " was removed from ")
		}
	}
	c.parting = c.parting[:0]
}

// strange is the breach by e of something that was set.
func (c *owners) strange(set, e *history.Event, did string) {
	c.Breach(set, e, e.Key+did+e.Object+" by "+e.Actor+" at "+invariant.Seconds(e.At)+owner(set))
}

// keep remembers who began to keep Pods from a Node.
func keep(sets map[string]history.Event, e *history.Event) {
	if _, had := sets[e.UID]; !had {
		sets[e.UID] = *e
	}
}

// released judges a controller that takes a finalizer away: who has added it says when.
func (c *owners) released(e *history.Event) {
	of := [2]string{e.UID, e.Key}
	set, had := c.finalizers[of]
	delete(c.finalizers, of)
	if !had || c.content || !c.roles.Tested(e.Actor) {
		return
	}
	if c.Judged++; c.roles.MayTouch(e.Actor, set.Actor, e, false) {
		c.Allow(e, &set)
	} else {
		c.strange(&set, e, " was removed from ")
	}
}

// opened judges a controller that lets Pods onto a Node again: only a controller of its
// part may have kept them from it. Agents do so for each other.
func (c *owners) opened(sets map[string]history.Event, e *history.Event, did, what string) {
	set, had := sets[e.UID]
	delete(sets, e.UID)
	if !had || c.content || !c.roles.Tested(e.Actor) {
		return
	}
	c.Judged++
	if invariant.Same(e.Actor, set.Actor) || c.roles.Agent(e.Actor) && c.roles.Agent(set.Actor) {
		c.Allow(e, &set)
		return
	}
	c.Breach(&set, e, e.Object+" was "+did+" by "+e.Actor+" at "+invariant.Seconds(e.At)+", and the "+what+" is "+set.Actor+"'s of "+invariant.Seconds(set.At))
}

func (c *owners) judge(e *history.Event) {
	before, had := c.placed.Observe(e)
	removed := e.Kind == history.AnnotationRemoved
	if !had {
		return
	}
	if removed && c.leaving[e.Object] && invariant.Plays(e.Actor, c.roles.Deletion) {
		if !c.content {
			c.Judged++
			c.Allow(e, &before.Set)
			c.parting = append(c.parting, [2]history.Event{before.Set, *e})
		}
		return
	}
	if c.content {
		// Whether a value survives is put to the test by every controller that
		// comes near it.
		c.Judged++
		if removed || e.Value == before.Value {
			return
		}
	} else if !removed {
		return
	}
	switch {
	case e.Actor == "":
		c.Suspend(e, " by nobody knows whom")
	case !c.roles.Tested(e.Actor):
	default:
		c.Judged++
		if c.roles.MayTouch(e.Actor, before.Set.Actor, e, c.unmanaged[e.Host]) {
			c.Allow(e, &before.Set)
		} else {
			did := " was removed from "
			if c.content {
				did = " was changed on "
			}
			c.strange(&before.Set, e, did)
		}
	}
}

// owner says whose an annotation is, for a sentence.
func owner(set *history.Event) string {
	if set.Actor == "" {
		return ", and is not its own"
	}
	return ", and is " + set.Actor + "'s of " + invariant.Seconds(set.At)
}

func (c *owners) Finish(complete bool) invariant.Result {
	if c.content {
		return c.Conclude(complete, "no annotation was there to be changed")
	}
	return c.Conclude(complete, "no controller removed an annotation")
}
