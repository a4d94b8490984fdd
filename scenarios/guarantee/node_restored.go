package guarantee

import (
	"iter"
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var nodeRestored = invariant.Invariant{
	ID:       "node-restored",
	Claim:    "After remediation the Node is back: Ready, as schedulable as before, and with its labels.",
	Seed:     "002, 004",
	Liveness: true,
	New: func(p invariant.Params) invariant.Checker {
		return &nodes{Promise: invariant.NewPromise(p, invariant.Ruling{ID: "node-restored"}), roles: p.Roles, hosts: invariant.NewRoster[nodeHost](p.Hosts), within: p.Timings.Back()}
	},
}

// nodes judges the Nodes as they stand after healing: that of every host which had
// one and should be on. Ready counts only while the host's boot is complete, for
// an API object outlives the kubelet that wrote it.
//
// The labels are those that the Node had when it was deleted; others may have come. Only agents
// keep a copy: the remediation controller deletes a Node with what users have set on it since it
// was created (seed 002), and the kubelet brings its own. It was schedulable before unless it was
// cordoned already when the first thing happened to it: its boot ended, it stopped being Ready, was
// deleted, or fencing was decided. Whoever cordons it later must uncordon it.
type nodes struct {
	invariant.Promise
	roles invariant.Roles
	hosts invariant.Roster[nodeHost]
	// within is how long a Node may be away before its remediation does something again.
	within time.Duration
}

type nodeHost struct {
	invariant.Body
	invariant.Demand
	had      bool
	uid      string
	ready    bool
	cordoned bool
	// calledOff says that a process under test has called the Node out of service.
	calledOff bool
	// labels of the Node, and theirs: of these, the ones that users have set since it was created.
	labels, theirs string
	disturbed      bool
	// forsaken is the boot whose Node the scenario's user has deleted: no process under test makes
	// its kubelet register again.
	forsaken string
	// leaving says that its Machine is being deleted, or was: its Node goes with it.
	leaving bool
	// wasCordoned and wanted are how the Node was before. owed is a cordon that somebody else had
	// set on a Node which an agent has deleted, until it is there again.
	wasCordoned bool
	owed        history.Event
	wanted      string
	// since is the last event that took something away, and cordon the one that cordoned the Node.
	since, cordon history.Event
}

func (c *nodes) Observe(e *history.Event) *invariant.Violation {
	c.Promise.Observe(e)
	if e.Host != "" {
		c.judge(e)
	}
	return nil
}

func (c *nodes) judge(e *history.Event) {
	layer := e.Kind.Layer()
	if layer != history.World && layer != history.API {
		return
	}
	h := c.hosts.Of(e.Host)
	if layer == history.World {
		if ran := h.Boot; h.Body.Observe(e) && ran != "" {
			c.disturb(h, e)
		}
		return
	}
	h.Demand.Observe(e, &c.roles)
	switch e.Kind {
	case history.NodeTakenOver: // as it is
		was := c.hosts.Of(e.Value)
		h.had, h.uid, h.ready, h.cordoned, h.labels = true, e.UID, was.ready, was.cordoned, was.labels
		was.had, was.uid = false, ""
	case history.NodeCreated:
		h.had, h.uid = true, e.UID
		h.ready, h.cordoned, h.calledOff, h.labels, h.theirs = false, false, false, "", ""
	case history.MachineDeleting, history.MachineDeleted:
		h.leaving = true
	case history.MachineCreated:
		h.leaving = false
	case history.AnnotationSet:
		if e.Key == invariant.ExternalAnnotation || e.Key == invariant.RemediationAnnotation {
			c.disturb(h, e)
		}
	case history.NodeDeleted:
		if e.UID == h.uid {
			c.disturb(h, e)
			if history.MissingLabels(h.labels, h.wanted) == "" {
				if h.wanted = h.labels; !c.roles.Agent(e.Actor) {
					h.wanted = history.MissingLabels(h.theirs, h.labels)
				}
			}
			h.uid = ""
			if h.cordoned && c.roles.Agent(e.Actor) && c.roles.Blameless(&h.cordon) {
				h.owed = h.cordon
			}
			if h.forsaken = ""; invariant.ByUser(e) {
				h.forsaken = h.Boot
			}
		}
	}
	if e.UID != h.uid {
		return // of a Node that was replaced
	}
	switch e.Kind {
	case history.NodeReady:
		h.ready = true
	case history.NodeNotReady:
		if h.ready { // a Node that is new wasn't Ready yet
			c.disturb(h, e)
		}
		h.ready = false
	case history.NodeLabels:
		if invariant.ByUser(e) {
			h.theirs += "," + history.MissingLabels(h.labels, e.Value)
		}
		h.labels = e.Value
	case history.NodeCordoned:
		h.cordoned, h.since, h.cordon, h.owed = true, *e, *e, history.Event{}
		h.wasCordoned = h.wasCordoned || c.roles.Blameless(e) // whoever cordons it, and is not under test, means it
	case history.NodeOutOfService:
		h.calledOff = !c.roles.Blameless(e)
	case history.NodeInService:
		h.calledOff = false
	case history.NodeUncordoned:
		h.cordoned = false
		if c.roles.Blameless(e) { // whoever wants it schedulable
			h.owed = history.Event{}
		}
	}
}

// disturb notes that something happened to the Node or its boot.
func (c *nodes) disturb(h *nodeHost, e *history.Event) {
	if !h.had {
		return
	}
	c.Judged++
	h.since = *e
	if !h.disturbed {
		h.disturbed, h.wasCordoned = true, h.cordoned
	}
}

func (c *nodes) Lacks() iter.Seq[invariant.Lack] {
	return func(yield func(invariant.Lack) bool) {
		for i := range c.hosts.Hosts {
			h := &c.hosts.Hosts[i]
			if l := h.State.lacking(h.Name, &c.roles, c.within); l.Sentence != "" && !yield(l) {
				return
			}
		}
	}
}

// nodeEvents come when a Node is as it was.
var nodeEvents = slices.Concat(invariant.BootEvents, []history.Kind{history.NodeCreated, history.NodeReady, history.NodeUncordoned, history.NodeInService, history.NodeLabels})

// lacking is what the Node of a host lacks. Without a controller of the hosts' power, the story
// itself has to switch on a host that is off; agents make its Node anew nevertheless.
func (s *nodeHost) lacking(name string, roles *invariant.Roles, within time.Duration) invariant.Lack {
	staysOff := roles.Power == "" && s.IsOff() && (s.uid != "" || len(roles.Fencers) == 0)
	if !s.had || !s.Demand.On() || s.leaving || staysOff || s.uid == "" && s.forsaken != "" && s.forsaken == s.Boot {
		return invariant.Lack{}
	}
	l := invariant.Lack{Host: name, Comes: nodeEvents, On: invariant.Parties{Host: name, BMC: name, Any: true}}
	what := ""
	switch {
	case s.uid == "":
		l.Within = within
		what = "has not been created again"
	case s.Known() && !s.Complete:
		what = "has no kubelet: no boot of the host is complete"
	case !s.ready:
		what = "is not Ready"
	case s.cordoned && s.disturbed && !s.wasCordoned:
		what = "is still cordoned"
	case s.calledOff:
		what = "is still called out of service"
	case s.owed.Kind != "":
		what = "is not cordoned again, as " + s.owed.Actor + " had cordoned it at " + invariant.Seconds(s.owed.At)
	case history.MissingLabels(s.labels, s.wanted) != "":
		what = "lacks labels that it had: " + history.MissingLabels(s.labels, s.wanted)
	case !s.Known():
		l.Sentence, l.Blind = "nobody saw whether the kubelet of "+name+" runs", true
		return l
	default:
		return invariant.Lack{}
	}
	l.Sentence = "the Node of " + name + " " + what
	if s.since.Kind != "" {
		l.Since = &s.since
	}
	return l
}

func (c *nodes) Pending() string { return c.Owing(c.Lacks()) }

func (c *nodes) Finish(complete bool) invariant.Result {
	return c.ConcludeAfterHealing(complete, c.Lacks(), "nothing happened to any Node")
}
