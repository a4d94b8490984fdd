package guarantee

import (
	"iter"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var nothingIsLeft = invariant.Invariant{
	ID:       "nothing-is-left",
	Claim:    "No Node whose Machine is gone, NodeFence of a boot that is over, stamp, cordon, hold or fence of the storage of a controller is left when it is done.",
	Seed:     "000, 002, 003, 004",
	Liveness: true,
	New: func(p invariant.Params) invariant.Checker {
		return &leftovers{Promise: invariant.NewPromise(p, invariant.Ruling{ID: "nothing-is-left"}), roles: p.Roles, hosts: invariant.NewRoster[leavings](p.Hosts)}
	},
}

// leftovers judges what controllers under test have made for a purpose that is over. What a
// user has made is the user's to remove, what a Machine leaves that a user takes away
// altogether is the user's doing, and so is a Node that is there before its Machine.
type leftovers struct {
	invariant.Promise
	roles invariant.Roles
	hosts invariant.Roster[leavings]
}

type leavings struct {
	invariant.Body
	node  history.Event // the creation of the Node that there is
	ready bool          // that Node is Ready
	left  history.Event // the end of the Machine to which that Node belonged
	// strange: the Node is of a boot that began after the host had been taken from the Machine.
	strange bool
	taken   history.Event // when the host was taken from the Machine
	unaware bool          // whoever took it may not have known of the boot that ran then
	ended   history.Event // the end of the last Machine, until there is another
	// machine is the Machine of the host, and consumer who uses it by its own word, both as
	// Kind/name.
	machine, consumer string
	gone              history.Event // the end of a Machine that was still the consumer
	deleting, marked  bool
	fence             history.Event
	barred            history.Event   // the last request to keep the host out of the storage
	stamps            []history.Event // the standing stamps
	holds             []history.Event // the annotations by which controllers hold the host
	cordon            history.Event   // the cordon of a controller
	usersCordon       bool
}

func (c *leftovers) Observe(e *history.Event) *invariant.Violation {
	c.Promise.Observe(e)
	switch layer := e.Kind.Layer(); {
	case e.Host == "":
	case layer == history.World:
		c.hosts.Of(e.Host).Body.Observe(e)
	case e.Kind == history.NodeTakenOver:
		was, is := c.hosts.Of(e.Value), c.hosts.Of(e.Host)
		is.node, is.ready, is.cordon, is.strange = *e, was.ready, was.cordon, false
		was.node, was.left, was.cordon, was.ready = history.Event{}, history.Event{}, history.Event{}, false
	case layer == history.API:
		c.learn(c.hosts.Of(e.Host), e)
	}
	return nil
}

func (c *leftovers) learn(h *leavings, e *history.Event) {
	tested := c.roles.Tested(e.Actor)
	switch e.Kind {
	case history.NodeCreated:
		h.node, h.left, h.cordon, h.ready = *e, history.Event{}, history.Event{}, false
		h.strange = h.taken.Kind != "" && (h.Began().Seq > h.taken.Seq || h.unaware)
		h.drop(&h.stamps, "Node/", "")
		if tested && h.ended.Kind != "" { // a kubelet registers whatever becomes of its Machine
			c.Judged++
			h.left = h.ended
		}
	case history.NodeDeleted:
		if e.UID == h.node.UID {
			h.node, h.left, h.cordon, h.ready = history.Event{}, history.Event{}, history.Event{}, false
			h.drop(&h.stamps, "Node/", "")
		}
	case history.NodeReady, history.NodeNotReady:
		h.ready = e.Kind == history.NodeReady
	case history.NodeCordoned, history.NodeUncordoned:
		c.cordoned(h, e, tested)
	case history.MachineCreated, history.MachineDeleting, history.MachineDeleted:
		c.machine(h, e, tested)
	case history.HostConsumer, history.BareMetalHostDeleted:
		h.consumer, h.gone = e.Value, history.Event{}
		switch {
		case e.Value == h.machine:
			h.taken = history.Event{}
		case h.taken.Kind == "":
			h.taken, h.unaware = *e, h.Boot != "" && c.Unaware(e, h.Began())
		}
	case history.FenceRequested:
		if h.fence = (history.Event{}); tested {
			c.Judged++
			h.fence = *e
		}
	case history.FenceEnded:
		h.fence = history.Event{}
	case history.StorageFenceAsked:
		if h.barred = *e; tested {
			c.Judged++
		}
	case history.Stamped:
		h.drop(&h.stamps, e.Object, e.Key)
		if e.Value != "" && tested {
			c.Judged++
			h.stamps = append(h.stamps, *e)
		}
	case history.AnnotationSet, history.AnnotationRemoved:
		c.annotated(h, e, tested)
	}
}

func (c *leftovers) cordoned(h *leavings, e *history.Event, tested bool) {
	switch {
	case e.Kind == history.NodeUncordoned:
		h.cordon = history.Event{}
		h.usersCordon = h.usersCordon && tested
	case !tested:
		h.usersCordon = true
	default:
		c.Judged++
		h.cordon = *e
	}
}

func (c *leftovers) machine(h *leavings, e *history.Event, tested bool) {
	switch e.Kind {
	case history.MachineCreated:
		h.machine, h.deleting, h.left, h.ended = e.Object, false, history.Event{}, history.Event{}
		if h.consumer == e.Object {
			h.taken = history.Event{}
		}
	case history.MachineDeleting:
		h.machine, h.deleting = e.Object, true
	case history.MachineDeleted:
		h.ended = *e
		h.drop(&h.stamps, e.Object, "")
		h.holds = slices.DeleteFunc(h.holds, func(set history.Event) bool { return c.roles.CutsShort(e, &set) })
		if tested {
			c.Judged++
			if h.node.Kind != "" && !h.strange {
				h.left = *e
			}
			if h.consumer == e.Object {
				h.gone = *e
			}
		}
		h.machine, h.deleting, h.marked = "", false, false
	}
}

func (c *leftovers) annotated(h *leavings, e *history.Event, tested bool) {
	if e.Key == invariant.ExternalAnnotation {
		h.marked = e.Kind == history.AnnotationSet
	}
	keyed, _ := invariant.RebootRequest(e)
	if !keyed {
		return
	}
	h.drop(&h.holds, e.Object, e.Key)
	if e.Kind == history.AnnotationSet && tested {
		c.Judged++
		h.holds = append(h.holds, *e)
	}
}

// drop removes from a list what is about an object, or objects of a kind, with that key if
// there is one.
func (h *leavings) drop(list *[]history.Event, object, key string) {
	kept := (*list)[:0]
	for i := range *list {
		if e := &(*list)[i]; !strings.HasPrefix(e.Object, object) || key != "" && e.Key != key {
			kept = append(kept, *e)
		}
	}
	*list = kept
}

func (c *leftovers) Lacks() iter.Seq[invariant.Lack] {
	return func(yield func(invariant.Lack) bool) {
		for i := range c.hosts.Hosts {
			name, h := c.hosts.Hosts[i].Name, &c.hosts.Hosts[i].State
			l := h.leaves(name, c.roles.Power != "")
			l.Host, l.Comes, l.On.BMC, l.On.Any = name, leftEvents, name, true
			if l.Sentence != "" && !yield(l) {
				return
			}
		}
	}
}

// leftEvents come when something that was left is removed.
var leftEvents = []history.Kind{history.NodeDeleted, history.NodeUncordoned, history.HostConsumer, history.AnnotationRemoved, history.FenceEnded, history.Stamped, history.VolumeUnfenced}

// leaves is the first thing that is left of what was done to a host. What is left of a Machine that
// is gone needs nothing of its host to go. A hold goes when it is answered, which needs a
// controller of the power.
func (h *leavings) leaves(name string, powered bool) invariant.Lack {
	switch {
	case h.left.Kind != "":
		return invariant.Lack{Sentence: "the Node of " + name + " is still there, and its Machine is gone since " + invariant.Seconds(h.left.At), Since: &h.left}
	case h.gone.Kind != "":
		return invariant.Lack{Sentence: name + " is still used by " + h.gone.Object + ", which is gone since " + invariant.Seconds(h.gone.At), Since: &h.gone}
	case len(h.holds) > 0 && h.machine == "" && powered:
		return invariant.Lack{Sentence: name + " is still held by " + h.holds[0].Key + ", and its Machine is gone", Since: &h.holds[0], On: invariant.Parties{Ends: invariant.HostEnds}}
	}
	l := h.leavesOfFencing(name)
	l.On.Host = name
	return l
}

// leavesOfFencing is the first thing that is left of a fencing, which may wait for the host.
func (h *leavings) leavesOfFencing(name string) invariant.Lack {
	over := h.ready && h.Boot != "" && h.Complete && h.Boot != h.fence.Value
	switch {
	case h.fence.Kind != "" && h.ready && !h.Known():
		return invariant.Lack{Sentence: "nobody saw whether boot " + h.fence.Value + " of " + name + " is over, of which there is a NodeFence", Since: &h.fence, Blind: true}
	case h.fence.Kind != "" && over:
		return invariant.Lack{Sentence: "there is still a NodeFence of boot " + h.fence.Value + " of " + name + ", which is over", Since: &h.fence}
	case h.KeptOut() && !invariant.ByUser(h.Kept()) && !invariant.ByUser(&h.barred) && h.ready && !h.marked && h.machine != "" && len(h.holds) == 0:
		return invariant.Lack{Sentence: "the storage still keeps " + name + " out, since " + invariant.Seconds(h.Kept().At), Since: h.Kept()}
	case h.cordon.Kind != "" && !h.usersCordon && !h.deleting && h.machine != "" && h.fence.Kind == "":
		return invariant.Lack{Sentence: "the Node of " + name + " is still cordoned, by " + h.cordon.Actor + " at " + invariant.Seconds(h.cordon.At), Since: &h.cordon}
	}
	for i := range h.stamps {
		s := &h.stamps[i]
		if strings.HasPrefix(s.Object, "Machine/") && !h.marked || strings.HasPrefix(s.Object, "Node/") && h.fence.Kind == "" {
			return invariant.Lack{Sentence: "the stamp " + s.Key + " is still on " + s.Object + ", and what it is about is over", Since: s}
		}
	}
	return invariant.Lack{}
}

func (c *leftovers) Pending() string { return c.Owing(c.Lacks()) }

func (c *leftovers) Finish(complete bool) invariant.Result {
	return c.ConcludeAfterHealing(complete, c.Lacks(), "no controller has made anything that it has to remove")
}
