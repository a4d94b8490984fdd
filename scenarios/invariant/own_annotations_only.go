package invariant

import (
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
)

var ownAnnotationsOnly = Invariant{
	ID:    "own-annotations-only",
	Claim: "No controller removes a reboot annotation, a remediation mark, a hook, a pause or a cordon that is not its own to remove.",
	Seed:  "000, 001",
	New:   func(p Params) Checker { return newOwners(p, "own-annotations-only", false) },
}

var contentPreserved = Invariant{
	ID:    "content-preserved",
	Claim: "The value of a reboot annotation or a remediation mark is never changed by a controller that did not set it.",
	Seed:  "000",
	New:   func(p Params) Checker { return newOwners(p, "content-preserved", true) },
}

// owners judges every removal of an annotation, or every change of a value that is
// there. A user that meddles with what isn't theirs is not to be blamed on the
// controllers, who must live with that.
type owners struct {
	ruling
	roles     Roles
	placed    placedOn
	unmanaged map[string]bool
	// leaving are the Machines that are being deleted.
	leaving map[string]bool
	// cordons are those of the Nodes that there are, by their UIDs.
	cordons map[string]history.Event
	// content says that values are judged, and removals are not.
	content bool
}

func newOwners(p Params, id string, content bool) *owners {
	return &owners{
		ruling: ruling{id: id}, roles: p.Roles, placed: placedOn{}, unmanaged: map[string]bool{}, leaving: map[string]bool{},
		cordons: map[string]history.Event{}, content: content,
	}
}

func (c *owners) Observe(e *history.Event) *Violation {
	switch e.Kind {
	case history.ProvisioningState:
		c.unmanaged[e.Host] = !managed(e.Value)
	case history.BareMetalHostDeleted:
		// Its annotations went with it: nobody removed them.
	case history.MachineDeleting:
		c.leaving[e.Object] = true
	case history.MachineDeleted:
		delete(c.leaving, e.Object)
	case history.AnnotationSet, history.AnnotationRemoved:
		if _, reboot := rebootRequest(e); reboot || e.Key == externalAnnotation || !c.content && keepsOff(e) {
			c.judge(e)
		}
	case history.NodeCordoned:
		if _, had := c.cordons[e.UID]; !had {
			c.cordons[e.UID] = *e
		}
	case history.NodeUncordoned:
		if !c.content {
			c.uncordoned(e)
		}
		delete(c.cordons, e.UID)
	case history.NodeDeleted:
		delete(c.cordons, e.UID)
	}
	return c.tell()
}

// uncordoned judges a controller that lets Pods onto a Node again: only a controller of its
// part may have kept them from it. Agents do so for each other.
func (c *owners) uncordoned(e *history.Event) {
	set, had := c.cordons[e.UID]
	if !had || !c.roles.tested(e.Actor) {
		return
	}
	c.judged++
	if same(e.Actor, set.Actor) || c.roles.agent(e.Actor) && c.roles.agent(set.Actor) {
		c.allow(e, &set)
		return
	}
	c.breach(&set, e, e.Object+" was uncordoned by "+e.Actor+" at "+seconds(e.At)+", and the cordon is "+set.Actor+"'s of "+seconds(set.At))
}

// keepsOff reports whether an annotation of a Machine keeps controllers from it.
func keepsOff(e *history.Event) bool {
	return strings.HasPrefix(e.Object, "Machine/") && (e.Key == pausedAnnotation || e.Key == skipAnnotation ||
		strings.HasPrefix(e.Key, preDrainHook) || strings.HasPrefix(e.Key, preTerminateHook))
}

func (c *owners) judge(e *history.Event) {
	before, had := c.placed.observe(e)
	removed := e.Kind == history.AnnotationRemoved
	if !had {
		return
	}
	if removed && c.leaving[e.Object] && plays(e.Actor, c.roles.Deletion) {
		if !c.content { // what was on a Machine goes with it when its finalizer does
			c.judged++
			c.allow(e, &before.set)
		}
		return
	}
	if c.content {
		// Whether a value survives is put to the test by every controller that
		// comes near it.
		c.judged++
		if removed || e.Value == before.value {
			return
		}
	} else if !removed {
		return
	}
	switch {
	case e.Actor == "":
		c.suspend(e, " by nobody knows whom")
	case !c.roles.tested(e.Actor):
	default:
		c.judged++
		if c.roles.mayTouch(e.Actor, before.set.Actor, e, c.unmanaged[e.Host]) {
			c.allow(e, &before.set)
		} else {
			did := " was removed from "
			if c.content {
				did = " was changed on "
			}
			c.breach(&before.set, e, e.Key+did+e.Object+" by "+e.Actor+" at "+seconds(e.At)+owner(&before.set))
		}
	}
}

// owner says whose an annotation is, for a sentence.
func owner(set *history.Event) string {
	if set.Actor == "" {
		return ", and is not its own"
	}
	return ", and is " + set.Actor + "'s of " + seconds(set.At)
}

func (c *owners) Finish(complete bool) Result {
	if c.content {
		return c.verdict(complete, "no annotation was there to be changed")
	}
	return c.verdict(complete, "no controller removed an annotation")
}
