package guarantee

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var annotationsCleared = invariant.Invariant{
	ID:       "annotations-cleared",
	Claim:    "No remediation or reboot annotation is left on any Machine or host.",
	Seed:     "000, 001, 002",
	Liveness: true,
	New: func(p invariant.Params) invariant.Checker {
		return &annotations{Promise: invariant.NewPromise(p, invariant.Ruling{ID: "annotations-cleared"}), roles: p.Roles, within: p.Timings.Back(), patience: p.Timings.Patience(), atOnce: p.Timings.AtOnce && len(p.Roles.Fencers) == 0, hosts: invariant.NewRoster[annotated](p.Hosts)}
	},
}

// annotations judges what is left after healing. A keyed annotation that a user has set is the
// user's to remove. A plain one stays while spec.online is false (seed 000). What no part of the
// story answers stays, too.
type annotations struct {
	invariant.Promise
	roles invariant.Roles
	hosts invariant.Roster[annotated]
	// within is how long a mark may stay on a Machine whose Node is away, and patience how long a
	// request may whose host is shutting down.
	within, patience time.Duration
	// atOnce says that who answers a mark doesn't keep it until its host is back.
	atOnce bool
	left   []history.Event // the AnnotationSet of each, oldest first
}

// annotated is a host: away while its Node is deleted or not Ready, offline while it should be off.
// The mark of a Machine whose host is another's is answered by no controller.
type annotated struct {
	invariant.Body
	invariant.Consumer
	invariant.Shutdown
	away, offline bool
}

func (c *annotations) Observe(e *history.Event) *invariant.Violation {
	c.Promise.Observe(e)
	if e.Host == "" {
		return nil
	}
	h := c.hosts.Of(e.Host)
	if e.Kind.Layer() == history.World {
		h.Body.Observe(e)
	}
	h.Consumer.Observe(e)
	h.Shutdown.Observe(e)
	switch e.Kind {
	case history.NodeDeleted, history.NodeNotReady:
		h.away = true
	case history.NodeReady:
		h.away = false
	case history.OnlineWanted:
		h.offline = e.Value == "false"
	case history.MachineDeleted:
		c.left = slices.DeleteFunc(c.left, func(set history.Event) bool { return c.roles.CutsShort(e, &set) })
	case history.AnnotationSet:
		if c.concerned(e) && c.find(e.Object, e.Key) < 0 {
			if c.answered(h, e.Key == invariant.ExternalAnnotation) {
				c.Judged++
			}
			c.left = append(c.left, *e)
		}
	case history.AnnotationRemoved:
		if i := c.find(e.Object, e.Key); i >= 0 {
			c.left = append(c.left[:i], c.left[i+1:]...)
		}
	}
	return nil
}

func (c *annotations) concerned(e *history.Event) bool {
	keyed, reboot := invariant.RebootRequest(e)
	return reboot && !(keyed && c.roles.Blameless(e)) || e.Key == invariant.ExternalAnnotation || e.Key == invariant.PoweredOffAnnotation || e.Key == invariant.NodeBackupAnnotation
}

// answered reports whether those who answer a mark, or another annotation, are parts of the story.
// Agents take a mark away when the host is back: one that is off needs somebody to switch it on.
func (c *annotations) answered(h *annotated, mark bool) bool {
	power := c.roles.Power != ""
	if !mark {
		return power
	}
	return power && c.roles.Remediation != "" || len(c.roles.Fencers) > 0 && (power || !h.IsOff())
}

func (c *annotations) find(object, key string) int {
	return slices.IndexFunc(c.left, func(e history.Event) bool { return e.Object == object && e.Key == key })
}

func (c *annotations) Lacks() iter.Seq[invariant.Lack] {
	return func(yield func(invariant.Lack) bool) {
		for i := range c.left {
			e := &c.left[i]
			h := c.hosts.Of(e.Host)
			mark := e.Key == invariant.ExternalAnnotation
			if e.Key == invariant.RebootAnnotation && h.offline || mark && !h.MayBe(e.Object) || !c.answered(h, mark) {
				continue
			}
			var within time.Duration
			on := invariant.Parties{BMC: e.Host, Any: true, Ends: invariant.ReturnEnds}
			switch {
			case !strings.HasPrefix(e.Object, "Machine/"):
			case c.atOnce:
				on.Ends &^= invariant.HoldEnds
			case c.find(e.Object, invariant.ExternalAnnotation) >= 0 || len(c.roles.Fencers) > 0: // it stays until the host is back
				if on.Host = e.Host; h.away {
					within = c.within
				}
			}
			if e.Key == invariant.RebootAnnotation {
				within = h.Within(c.patience)
			}
			if !yield(invariant.Lack{
				Within: within, Sentence: e.Key + " is still on " + e.Object + ", where it was set at " + invariant.Seconds(e.At), Since: e,
				Host: e.Host, Comes: []history.Kind{history.AnnotationRemoved}, On: on,
			}) {
				return
			}
		}
	}
}

func (c *annotations) Pending() string { return c.Owing(c.Lacks()) }

func (c *annotations) Finish(complete bool) invariant.Result {
	return c.ConcludeAfterHealing(complete, c.Lacks(), "nobody set an annotation that a controller has to remove")
}
