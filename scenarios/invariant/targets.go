package invariant

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// HealthCheck says when a Machine may be marked, and how many.
type HealthCheck struct {
	// UnhealthyAfter is how long a Node may be not Ready, and Startup how long a
	// Machine may be without one: for ever if it is 0.
	UnhealthyAfter, Startup time.Duration
	// MinUnhealthy is how many Machines have to be unhealthy for any to be marked,
	// and MaxUnhealthy how many may be. With Share, MaxUnhealthy is in percent of the Machines
	// that the check is concerned with, rounded down.
	MinUnhealthy, MaxUnhealthy int
	Share                      bool
	// Minds are the states that are unhealthy beside a Node that is not Ready.
	Minds []history.Minded
}

// most is the largest number of unhealthy Machines among this many on which the check acts.
func (h *HealthCheck) most(machines int) int {
	if h.Share {
		return machines * h.MaxUnhealthy / 100
	}
	return h.MaxUnhealthy
}

// forever is longer than any run.
const forever = math.MaxInt64 / 4

// MayMiss is how long a Machine may be without its Node.
func (h *HealthCheck) MayMiss() time.Duration {
	if h.Startup == 0 {
		return forever
	}
	return h.Startup
}

// Targets are the Machines that a health check is concerned with, and what the check says, as
// the history has them so far.
type Targets struct {
	// Check joins all health checks that are in force. It is nil if there is none, if one minds
	// what a history doesn't have, or if they differ in the Machines that they act on, or how many.
	// Changed is the event that changed one last, and Idle that since which none is in force.
	Check         *HealthCheck
	Changed, Idle history.Event
	checks        []namedCheck
	hosts         Roster[Target]
	nodes         Roster[Named]
}

// namedCheck is one health check, with the Machines that it leaves out. Unread says that nobody
// here understands it, or has events of all that it minds.
type namedCheck struct {
	object string
	HealthCheck
	leavesOut      []string
	paused, unread bool
}

// NewTargets returns those of a story that has not begun.
func NewTargets(p Params) Targets {
	t := Targets{hosts: NewRoster[Target](p.Hosts)}
	if p.HealthCheck != nil {
		t.checks = []namedCheck{{object: "MachineHealthCheck/fencelab", HealthCheck: *p.HealthCheck}}
		t.together()
	}
	return t
}

// Target is what decides whether a health check is concerned with the Machine of a host.
type Target struct {
	// Gone says that there is no Machine any more, Leaving that it is being deleted; Paused and
	// Skipped that an annotation keeps the check from it; Unmanaged that its host isn't
	// provisioned.
	Gone, Leaving, Paused, Skipped, Unmanaged bool
	// Since is the event that last changed whether it counts.
	Since history.Event
	// LeftOut is the event since which no health check that is in force selects the Machine.
	LeftOut history.Event
	// machine is its name, if the history has that; node is the Node that the Machine names, and
	// names says that the history has that.
	machine, node string
	names         bool
	conditions    conditions
}

// Named is a Node by its name.
type Named struct {
	// UID is that of the Node, "" if there is none, and host the one that the name stands for.
	UID, host string
	// Ready says that it is so since the last change, and Had that it has been at some time. Empty
	// says that a user has made it and no kubelet has written to it: it stands for no host yet.
	Ready, Had, Empty bool
	Since             history.Event
	conditions        conditions
}

// condition is a status that a condition has since an event, and the one before.
type condition struct {
	kind, status, was string
	since, began      history.Event
}

// conditions holds the conditions of one object that have had an event.
type conditions []condition

// become notes that a condition has a status from e on.
func (all *conditions) become(kind, status string, e *history.Event) {
	i := slices.IndexFunc(*all, func(c condition) bool { return c.kind == kind })
	if i < 0 {
		i, *all = len(*all), append(*all, condition{kind: kind})
	}
	if c := &(*all)[i]; c.status != status {
		c.was, c.began = c.status, c.since
		c.status, c.since = status, *e
	}
}

// Ailment is a state that a health check minds, since an event. Over is the event that
// ended it, if one did.
type Ailment struct {
	history.Minded
	Since, Over history.Event
}

// Name returns its condition in words.
func (a *Ailment) Name(host string) string {
	if a.OfMachine {
		return a.Type + " of the Machine of " + host
	}
	return a.Type + " of the Node of " + host
}

// Lasted reports whether it has lasted long enough for a mark at a time, or until it was over. It
// may have begun before the history has it.
func (a *Ailment) Lasted(at time.Duration) bool {
	older, _ := time.ParseDuration(a.Since.Note) // or it says nothing else
	if a.Over.Kind != "" {
		at = a.Over.At
	}
	return at-a.Since.At+max(Coarse, older) >= time.Duration(a.After)
}

// Ailments are the states of a host's Machine, and of its Node, that a health check minds: those
// that last, and the latest that are over.
func (t *Targets) Ailments(host string) (all []Ailment) {
	if t.Check == nil || len(t.Check.Minds) == 0 {
		return nil
	}
	of := func(c condition, ofMachine bool) {
		for _, m := range t.Check.Minds {
			switch {
			case m.Type != c.kind, m.OfMachine != ofMachine:
			case m.Status == c.status:
				all = append(all, Ailment{Minded: m, Since: c.since})
			case m.Status == c.was:
				all = append(all, Ailment{Minded: m, Since: c.began, Over: c.since})
			}
		}
	}
	for _, c := range t.Node(host).conditions {
		of(c, false)
	}
	for _, c := range t.hosts.Of(host).conditions {
		of(c, true)
	}
	return all
}

// Counts reports whether the Machine is a target: it takes part in the number of Machines,
// healthy or not, and may be marked.
func (t *Target) Counts() bool {
	return !t.Gone && !t.Leaving && !t.Paused && !t.Skipped && t.LeftOut.Kind == ""
}

// Observe takes in an event.
func (t *Targets) Observe(e *history.Event) {
	if e.Kind == history.CheckChanged {
		t.change(e)
	}
	if OfNode(e) && e.Kind != history.MachineNode {
		t.node(e)
	}
	switch e.Kind {
	case history.AnnotationSet, history.AnnotationRemoved, history.ProvisioningState, history.MachineCreated, history.MachineDeleting, history.MachineDeleted, history.MachineNode, history.MachineCondition:
	default:
		return
	}
	if e.Host == "" {
		return
	}
	h := t.hosts.Of(e.Host)
	counted := h.Counts()
	switch set := e.Kind == history.AnnotationSet; e.Kind {
	case history.ProvisioningState:
		h.Unmanaged = !Managed(e.Value)
	case history.MachineCreated:
		h.Gone, h.Leaving, h.machine = false, false, strings.TrimPrefix(e.Object, "Machine/")
		if h.LeftOut = (history.Event{}); t.leavesOut(e.Host, h) {
			h.LeftOut = *e
		}
	case history.MachineCondition:
		h.conditions.become(e.Key, e.Value, e)
	case history.MachineDeleting:
		h.Leaving = true
	case history.MachineDeleted:
		h.Gone, h.Paused, h.Skipped = true, false, false
		h.names, h.conditions = false, nil
	case history.MachineNode:
		h.node, h.names = e.Value, true
	default:
		switch {
		case !strings.HasPrefix(e.Object, "Machine/"):
		case e.Key == PausedAnnotation:
			h.Paused = set
		case e.Key == SkipAnnotation:
			h.Skipped = set
		}
	}
	if h.Counts() != counted {
		h.Since = *e
	}
}

// OfNode reports whether an event is a change of a Node, or of which one a Machine names.
func OfNode(e *history.Event) bool {
	return e.Host != "" && (e.Kind == history.MachineNode || strings.HasPrefix(e.Object, "Node/") && e.Kind.Layer() == history.API)
}

func (t *Targets) node(e *history.Event) {
	n := t.nodes.Of(strings.TrimPrefix(e.Object, "Node/"))
	n.host = e.Host
	switch e.Kind {
	case history.NodeCreated, history.NodeDeleted:
		if *n = (Named{host: e.Host, Since: *e}); e.Kind == history.NodeCreated {
			n.UID, n.Empty = e.UID, ByUser(e)
		}
	case history.NodeTakenOver:
		n.Empty = false
	case history.NodeReady:
		n.Ready, n.Had, n.Empty, n.Since = true, true, false, *e
		n.conditions.become("Ready", "True", e)
	case history.NodeNotReady:
		n.Ready, n.Since = false, *e
		n.conditions.become("Ready", e.Note, e)
	case history.NodeCondition:
		n.conditions.become(e.Key, e.Value, e)
	}
}

// Concerns reports whether an event of OfNode is about the Node of a host's Machine. It is about
// each Machine that names the Node, whichever host runs that. Where the history has no names, it is
// about the host that the Node stands for.
func (t *Targets) Concerns(e *history.Event, host string) bool {
	if h := t.hosts.Of(host); h.names && e.Kind != history.MachineNode {
		return e.Object[len("Node/"):] == h.node
	}
	return e.Host == host
}

// Concerned yields the hosts that an event of OfNode is about, and the Nodes of their Machines. Of
// any other event it yields none.
func Concerned[T any](t *Targets, hosts *Roster[T], e *history.Event) iter.Seq2[*Entry[T], *Named] {
	return func(yield func(*Entry[T], *Named) bool) {
		if !OfNode(e) {
			return
		}
		hosts.Of(e.Host)
		for i := range hosts.Hosts {
			if h := &hosts.Hosts[i]; t.Concerns(e, h.Name) && !yield(h, t.Node(h.Name)) {
				return
			}
		}
	}
}

// Node is that of a host's Machine.
func (t *Targets) Node(host string) *Named {
	h := t.hosts.Of(host)
	if h.names {
		return t.nodes.Of(h.node)
	}
	for i := range t.nodes.Hosts {
		if n := &t.nodes.Hosts[i].State; n.host == host {
			return n
		}
	}
	return new(Named)
}

// Shared reports whether the Node that a host's Machine names may be another host's: another
// Machine names it too, or another host's kubelet wrote to it last. Then nothing that the Node says
// is certainly about this host.
func (t *Targets) Shared(host string) bool {
	h := t.hosts.Of(host)
	if !h.names || h.node == "" {
		return false
	}
	n := t.nodes.Of(h.node)
	if n.UID == "" {
		return false
	}
	return n.host != host || slices.ContainsFunc(t.hosts.Hosts, func(o Entry[Target]) bool {
		return o.Name != host && o.State.names && o.State.node == h.node
	})
}

// change takes in what a health check says now. One that is gone says nothing.
func (t *Targets) change(e *history.Event) {
	t.Changed = *e
	i := slices.IndexFunc(t.checks, func(c namedCheck) bool { return c.object == e.Object })
	if i < 0 {
		i, t.checks = len(t.checks), append(t.checks, namedCheck{object: e.Object})
	}
	if is, err := history.ParseCheck(e.Value); err != nil {
		t.checks[i] = namedCheck{object: e.Object, unread: true}
	} else if is == nil {
		t.checks = slices.Delete(t.checks, i, i+1)
	} else {
		t.checks[i] = namedCheck{object: e.Object, HealthCheck: checkOf(is), leavesOut: is.LeavesOut, paused: is.Paused}
	}
	t.together()
	for i := range t.hosts.Hosts {
		h := &t.hosts.Hosts[i]
		counted := h.State.Counts()
		if out := t.leavesOut(h.Name, &h.State); !out {
			h.State.LeftOut = history.Event{}
		} else if h.State.LeftOut.Kind == "" {
			h.State.LeftOut = *e
		}
		if h.State.Counts() != counted {
			h.State.Since = *e
		}
	}
}

func checkOf(is *history.Check) HealthCheck {
	h := HealthCheck{UnhealthyAfter: forever, Startup: time.Duration(is.Startup), MinUnhealthy: is.Least, MaxUnhealthy: is.Most, Share: is.Share}
	for _, m := range is.Unhealthy {
		if m.Type == "Ready" && m.Status != "True" && !m.OfMachine {
			h.UnhealthyAfter = min(h.UnhealthyAfter, time.Duration(m.After))
		} else {
			h.Minds = append(h.Minds, m)
		}
	}
	return h
}

// leavesOut reports whether no health check that is in force selects the Machine of a host.
func (t *Targets) leavesOut(host string, h *Target) (out bool) {
	for i := range t.checks {
		switch c := &t.checks[i]; {
		case c.paused:
		case !slices.Contains(c.leavesOut, cmp.Or(h.machine, host)):
			return false
		default:
			out = true
		}
	}
	return out
}

// together makes one of all checks that are in force: a Machine may be marked, and has to be, when
// the first of them says so. Where they differ in how many Machines they act on, or in which, there
// is none.
func (t *Targets) together() {
	t.Check, t.Idle = nil, history.Event{}
	var one *namedCheck
	for i := range t.checks {
		switch c := &t.checks[i]; {
		case c.paused:
		case one == nil:
			one = new(*c)
		case c.unread, c.MinUnhealthy != one.MinUnhealthy, c.MaxUnhealthy != one.MaxUnhealthy, c.Share != one.Share, !slices.Equal(c.leavesOut, one.leavesOut):
			one.unread = true
		default:
			one.UnhealthyAfter = min(one.UnhealthyAfter, c.UnhealthyAfter)
			if c.MayMiss() < one.MayMiss() {
				one.Startup = c.Startup
			}
			one.Minds = slices.Concat(one.Minds, c.Minds)
		}
	}
	if one != nil && !one.unread {
		t.Check = &one.HealthCheck
	} else if one == nil && t.Changed.Kind != "" {
		t.Idle = t.Changed
	}
}

// Of is the target of a host.
func (t *Targets) Of(host string) *Target { return t.hosts.Of(host) }

// ActsOn is how many Machines may be unhealthy, at least and at most, by what somebody knows who
// may have missed the changes that known denies; and how many have to be.
func (t *Targets) ActsOn(known func(since *history.Event) bool) (few, many, least int) {
	if !t.Check.Share {
		return t.Check.MaxUnhealthy, t.Check.MaxUnhealthy, t.Check.MinUnhealthy
	}
	fewest, most := 0, 0
	for i := range t.hosts.Hosts {
		h := &t.hosts.Hosts[i].State
		sure := h.Since.Kind == "" || known(&h.Since)
		if h.Counts() && sure {
			fewest++
		}
		if h.Counts() || !sure {
			most++
		}
	}
	return t.Check.most(fewest), t.Check.most(most), t.Check.MinUnhealthy
}

// Unsettled is why a clause that counts Machines, or their conditions, can't be judged, or "".
func (t *Targets) Unsettled() string {
	if t.Check == nil && t.Changed.Kind != "" && t.Idle.Kind == "" {
		return "what the health check acts on is not known since it was changed at " + Seconds(t.Changed.At)
	}
	return ""
}
