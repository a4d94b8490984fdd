package guarantee

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var nodeRestored = invariant.Invariant{
	ID:       "node-restored",
	Claim:    "After remediation the Node is back: Ready, as schedulable as before, and with its labels; one that is kept, or made from a copy, also has the taints and annotations of users.",
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
// The labels are those that the Node had when it was deleted; others may have come. Agents keep a
// copy, and so does a controller that makes the Node anew itself. Otherwise the remediation
// controller deletes a Node with what users have set on it since it was created (seed 002), and the
// kubelet brings its own. Of taints and annotations those of users count, since controllers set and
// remove others. No process under test takes a user's from a Node that stays.
//
// It was schedulable before unless it was cordoned already when the first thing happened to it: its
// boot ended, it stopped being Ready, was deleted, or fencing was decided. Whoever cordons it later
// must uncordon it, and a process under test must remove each taint of its own that keeps Pods
// away.
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
	belongings
	disturbed bool
	// byUser says that a user has deleted the Node. No process under test makes the kubelet of the
	// boot that ran then, forsaken, register again.
	byUser   bool
	forsaken string
	// repels are the taints on the Node that keep Pods away and that processes under test have set.
	repels string
	// leaving says that its Machine is being deleted, or was: its Node goes with it.
	leaving bool
	// wasCordoned and wanted are how the Node was before. owed is a cordon that somebody else had
	// set on a Node which an agent has deleted, until it is there again.
	wasCordoned bool
	owed        history.Event
	// since is the last event that took something away, and cordon the one that cordoned the Node.
	since, cordon history.Event
}

// belongings have a Node's labels, taints, annotations and Pod addresses, in the order of sorts.
type belongings [4]belonging

// sorts are the words for them, and their events.
var sorts = [...]struct {
	what string
	kind history.Kind
}{{"labels", history.NodeLabels}, {"taints", history.NodeTaints}, {"annotations", history.NodeAnnotations}, {"Pod addresses", history.NodeNetwork}}

// lacks says what is missing, of the first sort of which anything is.
func (b *belongings) lacks() string {
	for i := range b {
		if missing := b[i].lacks(); missing != "" {
			return sorts[i].what + " that it had: " + missing
		}
	}
	return ""
}

// belonging has sets of one sort, in the form of NodeLabels: the Node's own, and two that it must
// have in the end. Users have set theirs, and no bystander has taken them away again; others were
// there when the Node was deleted.
type belonging struct {
	has, theirs, others string
	// gone has what users had set on a Node that a controller other than an agent deleted, until
	// the next Node. If the controller makes that itself, it has kept a copy.
	gone string
	// left has what users had set on the Node before, whoever deleted it. Whoever has a copy may
	// bring it back.
	left string
}

func (b *belonging) lacks() string {
	return history.JoinLabels(history.MissingLabels(b.has, b.theirs), history.MissingLabels(b.has, b.others))
}

// taken returns what the Node has to have and a change to now takes from it: it had that, or is
// given another value instead.
func (b *belonging) taken(now string) string {
	var gone []string
	given := "," + history.MissingLabels(b.has, now)
	for pair := range strings.SplitSeq(history.JoinLabels(b.theirs, b.others), ",") {
		name, _, _ := strings.Cut(pair, "=")
		had := history.MissingLabels(b.has, pair) == ""
		if history.MissingLabels(now, pair) != "" && (had || strings.Contains(given, ","+name+"=")) {
			gone = append(gone, pair)
		}
	}
	return strings.Join(gone, ",")
}

// repel notes which taints of processes under test keep Pods away from the Node now. A taint that a
// user had set isn't theirs.
func (c *nodes) repel(h *nodeHost, e *history.Event) {
	taints := &h.belongings[1]
	repels := history.SharedLabels(e.Value, h.repels)
	for pair := range strings.SplitSeq(history.MissingLabels(history.JoinLabels(history.JoinLabels(taints.has, taints.theirs), taints.left), e.Value), ",") {
		taint, _, _ := strings.Cut(pair, "=")
		switch {
		case !strings.HasSuffix(taint, ":NoSchedule") && !strings.HasSuffix(taint, ":NoExecute"):
		case e.Actor == "":
			c.Suspend(e, " by nobody knows whom")
		case c.roles.Tested(e.Actor):
			repels, h.since = history.JoinLabels(repels, pair), *e
		}
	}
	h.repels = repels
}

// become notes what the Node has now, by whoever e is of.
func (c *nodes) become(h *nodeHost, b *belonging, e *history.Event) {
	switch gone := b.taken(e.Value); {
	case gone == "":
	case c.roles.Tested(e.Actor):
		c.disturb(h, e)
	default:
		if e.Actor == "" {
			c.Suspend(e, " by nobody knows whom")
		}
		b.theirs, b.others = history.MissingLabels(gone, b.theirs), history.MissingLabels(gone, b.others)
	}
	if invariant.ByUser(e) {
		b.theirs = history.JoinLabels(b.theirs, history.MissingLabels(b.has, e.Value))
	}
	b.has = e.Value
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
		h.had, h.uid, h.ready, h.cordoned, h.belongings, h.repels = true, e.UID, was.ready, was.cordoned, was.belongings, was.repels
		was.had, was.uid = false, ""
	case history.NodeCreated:
		h.had, h.uid = true, e.UID
		h.ready, h.cordoned, h.calledOff, h.repels = false, false, false, ""
		for i := range h.belongings {
			b := &h.belongings[i]
			if c.roles.Tested(e.Actor) {
				b.theirs = history.JoinLabels(b.theirs, b.gone)
			} else if invariant.ByUser(e) {
				b.left = "" // it is the user's as it is
			}
			b.has, b.gone = "", ""
		}
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
			if labels := &h.belongings[0]; history.MissingLabels(labels.has, labels.others) == "" {
				labels.others = history.MissingLabels(labels.theirs, labels.has)
			}
			for i := range h.belongings {
				if b := &h.belongings[i]; !c.roles.Agent(e.Actor) {
					if b.gone = ""; c.roles.Tested(e.Actor) {
						b.gone = history.SharedLabels(b.has, b.theirs)
					}
					b.left = history.SharedLabels(b.has, history.JoinLabels(b.theirs, b.left))
					b.theirs = history.MissingLabels(b.has, b.theirs) // still owed, by whoever had taken it
				}
			}
			h.uid = ""
			if h.cordoned && c.roles.Agent(e.Actor) && c.roles.Blameless(&h.cordon) {
				h.owed = h.cordon
			}
			h.byUser, h.forsaken = invariant.ByUser(e), h.Boot
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
	case history.NodeLabels, history.NodeTaints, history.NodeAnnotations, history.NodeNetwork:
		if e.Kind == history.NodeTaints {
			c.repel(h, e)
		}
		for i := range sorts {
			if sorts[i].kind == e.Kind {
				c.become(h, &h.belongings[i], e)
			}
		}
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
var nodeEvents = slices.Concat(invariant.BootEvents, []history.Kind{history.NodeCreated, history.NodeReady, history.NodeUncordoned, history.NodeInService, history.NodeLabels, history.NodeTaints, history.NodeAnnotations, history.NodeNetwork})

// lacking is what the Node of a host lacks. Without a controller of the hosts' power, the story
// itself has to switch on a host that is off; agents make a Node that they deleted anew
// nevertheless.
func (s *nodeHost) lacking(name string, roles *invariant.Roles, within time.Duration) invariant.Lack {
	forsaken := s.uid == "" && s.byUser
	staysOff := roles.Power == "" && s.IsOff() && (s.uid != "" || forsaken || len(roles.Fencers) == 0)
	if !s.had || !s.Demand.On() || s.leaving || staysOff || forsaken && s.Boot != "" && s.forsaken == s.Boot {
		return invariant.Lack{}
	}
	l := invariant.Lack{Host: name, Comes: nodeEvents, On: invariant.Parties{Host: name, BMC: name, Any: true, Ends: invariant.ReturnEnds}}
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
	case s.repels != "" && s.disturbed:
		what = "still has taints of controllers, which keep Pods away: " + s.repels
	case s.owed.Kind != "":
		what = "is not cordoned again, as " + s.owed.Actor + " had cordoned it at " + invariant.Seconds(s.owed.At)
	case s.belongings.lacks() != "":
		what = "lacks " + s.belongings.lacks()
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
