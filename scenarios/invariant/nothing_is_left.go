package invariant

import (
	"iter"
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
)

var nothingIsLeft = Invariant{
	ID:       "nothing-is-left",
	Claim:    "No Node whose Machine is gone, NodeFence of a boot that is over, stamp, cordon or hold of a controller is left when it is done.",
	Seed:     "000, 002, 003, 004",
	Liveness: true,
	New: func(p Params) Checker {
		return &leftovers{promise: newPromise(p, ruling{id: "nothing-is-left"}), roles: p.Roles, hosts: newRoster[leavings](p.Hosts)}
	},
}

// leftovers judges what controllers under test have made for a purpose that is over. What a
// user has made is the user's to remove, what a Machine leaves that a user takes away
// altogether is the user's doing, and so is a Node that is there before its Machine.
type leftovers struct {
	promise
	roles Roles
	hosts roster[leavings]
}

type leavings struct {
	body
	// node is the creation of the Node that there is, ready whether it is Ready, and left
	// the end of the Machine that it had then.
	node, left history.Event
	ready      bool
	// machine is the Machine of the host, and consumer who uses it by its own word, both as
	// Kind/name; gone is the end of a Machine that was still its consumer.
	machine, consumer string
	gone              history.Event
	deleting, marked  bool
	fence             history.Event
	// stamps are those that stand, and holds the keys that controllers hold the host by.
	stamps, holds []history.Event
	// cordon is that of a controller, and usersCordon says that a user has one.
	cordon      history.Event
	usersCordon bool
}

func (c *leftovers) Observe(e *history.Event) *Violation {
	c.promise.observe(e)
	switch layer := e.Kind.Layer(); {
	case e.Host == "":
	case layer == history.World:
		c.hosts.of(e.Host).body.observe(e)
	case layer == history.API:
		c.learn(c.hosts.of(e.Host), e)
	}
	return nil
}

func (c *leftovers) learn(h *leavings, e *history.Event) {
	tested := c.roles.tested(e.Actor)
	switch e.Kind {
	case history.NodeCreated:
		h.node, h.left, h.cordon, h.ready = *e, history.Event{}, history.Event{}, false
		h.drop(&h.stamps, "Node/", "")
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
	case history.FenceRequested:
		if h.fence = (history.Event{}); tested {
			c.judged++
			h.fence = *e
		}
	case history.FenceEnded:
		h.fence = history.Event{}
	case history.Stamped:
		h.drop(&h.stamps, e.Object, e.Key)
		if e.Value != "" && tested {
			c.judged++
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
		c.judged++
		h.cordon = *e
	}
}

func (c *leftovers) machine(h *leavings, e *history.Event, tested bool) {
	switch e.Kind {
	case history.MachineCreated:
		h.machine, h.deleting, h.left = e.Object, false, history.Event{}
	case history.MachineDeleting:
		h.machine, h.deleting = e.Object, true
	case history.MachineDeleted:
		h.drop(&h.stamps, e.Object, "")
		if tested {
			c.judged++
			if h.node.Kind != "" {
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
	if e.Key == externalAnnotation {
		h.marked = e.Kind == history.AnnotationSet
	}
	keyed, _ := rebootRequest(e)
	if !keyed {
		return
	}
	h.drop(&h.holds, e.Object, e.Key)
	if e.Kind == history.AnnotationSet && tested {
		c.judged++
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

func (c *leftovers) lacks() iter.Seq[lack] {
	return func(yield func(lack) bool) {
		for i := range c.hosts.hosts {
			name, h := c.hosts.hosts[i].name, &c.hosts.hosts[i].state
			l := h.leaves(name)
			l.host, l.comes, l.on = name, leftEvents, parties{host: name, bmc: name, any: true}
			if l.sentence != "" && !yield(l) {
				return
			}
		}
	}
}

// leftEvents come when something that was left is removed.
var leftEvents = []history.Kind{history.NodeDeleted, history.NodeUncordoned, history.HostConsumer, history.AnnotationRemoved, history.FenceEnded, history.Stamped}

// leaves is the first thing that is left of what was done to a host.
func (h *leavings) leaves(name string) lack {
	over := h.ready && h.boot != "" && h.complete && h.boot != h.fence.Value
	switch {
	case h.left.Kind != "":
		return lack{sentence: "the Node of " + name + " is still there, and its Machine is gone since " + seconds(h.left.At), since: &h.left}
	case h.gone.Kind != "":
		return lack{sentence: name + " is still used by " + h.gone.Object + ", which is gone since " + seconds(h.gone.At), since: &h.gone}
	case len(h.holds) > 0 && h.machine == "":
		return lack{sentence: name + " is still held by " + h.holds[0].Key + ", and its Machine is gone", since: &h.holds[0]}
	case h.fence.Kind != "" && h.ready && !h.known():
		return lack{sentence: "nobody saw whether boot " + h.fence.Value + " of " + name + " is over, of which there is a NodeFence", since: &h.fence, blind: true}
	case h.fence.Kind != "" && over:
		return lack{sentence: "there is still a NodeFence of boot " + h.fence.Value + " of " + name + ", which is over", since: &h.fence}
	case h.cordon.Kind != "" && !h.usersCordon && !h.deleting && h.machine != "" && h.fence.Kind == "":
		return lack{sentence: "the Node of " + name + " is still cordoned, by " + h.cordon.Actor + " at " + seconds(h.cordon.At), since: &h.cordon}
	}
	for i := range h.stamps {
		s := &h.stamps[i]
		if strings.HasPrefix(s.Object, "Machine/") && !h.marked || strings.HasPrefix(s.Object, "Node/") && h.fence.Kind == "" {
			return lack{sentence: "the stamp " + s.Key + " is still on " + s.Object + ", and what it is about is over", since: s}
		}
	}
	return lack{}
}

func (c *leftovers) Pending() string { return c.pending(c.lacks()) }

func (c *leftovers) Finish(complete bool) Result {
	return c.verdictAfterHealing(complete, c.lacks(), "no controller has made anything that it has to remove")
}
