package guarantee

import (
	"iter"
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var unhealthyIsFenced = invariant.Invariant{
	ID:       "unhealthy-is-fenced",
	Claim:    "A Machine whose Node is not Ready, or missing, for too long is marked; a marked Machine has its host powered off and its Node deleted, or called out of service, unless the mark is withdrawn.",
	Seed:     "002",
	Liveness: true,
	New: func(p invariant.Params) invariant.Checker {
		c := &rescues{
			roles:    p.Roles,
			targets:  invariant.NewTargets(p),
			hosts:    invariant.NewRoster[patient](p.Hosts),
			Promise:  invariant.NewPromise(p, invariant.Ruling{ID: "unhealthy-is-fenced", Skew: p.Timings.Skew}),
			grace:    p.Timings.Slack,
			coolDown: p.Timings.CoolDown, guarded: p.Timings.Guarded,
		}
		return c
	},
}

// rescues judges every mark after healing, also when the remediation controller has
// taken it away. An agent of seed 004 may take it away when there was a NodeFence while it
// stood, or a boot has ended: else it was not about anything that is over. A NodeFence of
// another boot than the one that the Node reported when the mark was set answers another mark.
// And it judges every Node that stops being Ready, by whether the health check marks its
// Machine in time, if nothing hinders it and as many Machines are unhealthy as it acts on.
//
// A Node that may be another host's as well is none to be judged by. To be silent is certain of
// both hosts, but to fence one proves nothing about the other, so a user has to part them:
// only then does a Machine have to be marked, or its mark to be answered.
type rescues struct {
	invariant.Promise
	roles   invariant.Roles
	targets invariant.Targets
	hosts   invariant.Roster[patient]
	grace   time.Duration // how long a Node must be Ready for a health check to see it
	// crowded is when too many Machines may have been unhealthy last, and coolDown how
	// long the health check marks nobody after that, or after its own start.
	crowded, coolDown time.Duration
	// guarded says that a guard may keep the health check from a Machine: no event has its Pods.
	guarded bool
	// anew is when a process of the health check started or died last: whoever goes on counts from
	// its own sight, since what others have written is by their clocks.
	anew time.Duration
}

// patient is a host that may be unhealthy. It has a field for each fact that can keep it from being
// fenced.
type patient struct {
	invariant.Body
	invariant.Consumer
	demand
	// before was withdrawn by a user, by left. A mark that is back before anybody can have seen
	// that it was gone is still the same.
	before demand
	left   history.Event
	node   string // the Node
	out    string // a Node out of service
	held   bool
	// pending says that a reboot is on record, and not yet the boot that answers it: the start for
	// which the Node has its time is still to come.
	pending    bool
	fencing    string        // the boot that a NodeFence names
	ready      history.Event // since when the Node is Ready, or zero
	lost       history.Event // since when it is not, after it had been
	remediated bool          // the Machine has been marked at some time
	// unseen says that the health check has not seen the Node return: it stopped being Ready while
	// the Machine was marked or its host held, or the Machine was handed over or the health check
	// died just before.
	unseen   bool
	returned time.Duration // when the health check could see it return first
	handed   history.Event // since when nothing keeps the health check from the Machine
	sick     history.Event // when a Node that had been Ready for a while stopped being Ready
	absent   history.Event // since when there is no Node although the host has been started
	shared   bool          // the Node may be another host's as well
	ailed    int           // ailments that began until this event were judged, or answered by a mark
}

// demand has a mark, and how far its fencing has come.
type demand struct {
	// mark is the last one, while it stands or if it was taken away before its time, and dropped
	// its removal.
	mark, dropped history.Event
	marked        string // the Node at the time of the mark, while it exists and is in service
	wentOff       bool   // the host was off at some time since the mark
	perhaps       bool   // it may have been
	answered      bool   // a boot has ended, or a NodeFence named one, since the mark was set
	// about is the boot that the mark is about, if that is certain: the one that ran and that the
	// Node reported then.
	about string
}

func (c *rescues) Observe(e *history.Event) *invariant.Violation {
	c.targets.Observe(e)
	if (e.Kind == history.ControllerStarted || e.Kind == history.ControllerCrashed) && invariant.Plays(e.Actor, c.roles.HealthCheck) {
		c.anew = e.At
	}
	if c.coolDown > 0 && c.targets.Check != nil {
		if most, _ := c.count(e); most > c.few(e) || e.Kind == history.ControllerStarted && invariant.Plays(e.Actor, c.roles.HealthCheck) {
			c.crowded = e.At
		}
	}
	for i := range c.hosts.Hosts {
		c.expire(&c.hosts.Hosts[i], e)
		c.missed(&c.hosts.Hosts[i], e)
		c.ails(&c.hosts.Hosts[i], e)
	}
	c.Promise.Observe(e)
	if layer := e.Kind.Layer(); e.Host != "" && (layer == history.World || layer == history.API) {
		h, ofNode := c.hosts.Of(e.Host), invariant.OfNode(e)
		if !ofNode {
			c.judge(h, e)
		}
		if ofNode || e.Kind == history.MachineDeleted {
			c.names(e)
		}
	}
	return c.Tell()
}

// names hands a Node's event to each host whose Machine names the Node, and notes whose Node may be
// another's from e on.
func (c *rescues) names(e *history.Event) {
	for i := range c.hosts.Hosts {
		h := &c.hosts.Hosts[i]
		s := &h.State
		if e.UID == s.marked && (e.Kind == history.NodeDeleted || e.Kind == history.NodeCreated) {
			s.marked = ""
		}
		if invariant.OfNode(e) && c.targets.Concerns(e, h.Name) {
			c.judge(s, e)
		}
		if was := s.shared; was != c.targets.Shared(h.Name) {
			if s.shared = !was; was {
				s.hand(e)
			}
		}
	}
}

func (c *rescues) judge(h *patient, e *history.Event) {
	switch e.Kind.Layer() {
	case history.World:
		h.Body.Observe(e)
		h.wentOff = h.wentOff || h.IsOff() || e.Kind == history.PowerOff
		h.perhaps = h.perhaps || h.Blind
		switch e.Kind {
		case history.PowerOff:
			h.absent = history.Event{}
		case history.BootStarted:
			h.await(e)
		}
		h.answered = h.answered || !h.Known() || !h.On || e.Kind == history.BootEnded
		return
	case history.API:
		h.Consumer.Observe(e)
	default:
		return
	}
	switch e.Kind {
	case history.MachineDeleted: // there is none to mark
		h.mark, h.sick = history.Event{}, history.Event{}
	case history.MachineCreated:
		if h.node != "" && h.ready.Kind == "" && h.lost.Kind != "" {
			h.sick = *e // its time begins, whatever became of the one before
		}
		h.hand(e)
	case history.PendingRebootSince, history.LastPoweredOn:
		h.pending = e.Kind == history.PendingRebootSince && e.Value != ""
		h.await(e)
	case history.NodeDeleting:
		if e.UID == h.marked && !invariant.ByUser(e) { // what keeps it is another's
			h.marked = ""
		}
	case history.NodeOutOfService:
		if h.out = e.UID; e.UID == h.marked { // whoever says so: it releases the workload
			h.marked = ""
		}
	case history.NodeInService:
		h.out = ""
	case history.FenceRequested:
		h.fencing = e.Value
		h.answered = h.answered || h.fenced()
	case history.FenceEnded:
		h.fencing = ""
	case history.AnnotationSet, history.AnnotationRemoved:
		switch set := e.Kind == history.AnnotationSet; e.Key {
		case invariant.ExternalAnnotation:
			c.marked(h, e, set)
			h.await(e)
			h.returned = e.At
		case invariant.RemediationAnnotation:
			if h.held, h.returned = set, e.At; !set && h.sick.Kind != "" {
				h.sick = *e // only now can it be marked anew
			}
			h.await(e)
		case invariant.PausedAnnotation:
			h.hand(e)
		case invariant.SkipAnnotation:
			h.hand(e)
		}
	case history.MachineNode:
		c.renamed(h, e)
	case history.NodeCreated, history.NodeDeleted:
		if h.ready.Kind != "" {
			h.lost = *e
		}
		h.node, h.ready, h.sick = e.UID, history.Event{}, history.Event{}
		if e.Kind == history.NodeDeleted {
			h.node = ""
		}
		h.await(e)
	case history.NodeReady:
		h.ready, h.returned, h.sick = *e, e.At, history.Event{}
	case history.NodeNotReady:
		if h.ready.Kind != "" && e.At-h.ready.At > c.grace {
			h.sick = *e
			h.unseen = h.held || h.mark.Kind != "" && h.dropped.Kind == "" || h.handed.Kind != "" && e.At-h.handed.At <= c.grace ||
				c.anew >= h.returned && c.anew-h.returned-c.Lost(h.returned, c.anew, c.on()) <= c.grace
		}
		if h.ready.Kind != "" {
			h.lost = *e
		}
		h.ready = history.Event{}
	}
}

// renamed notes that the Machine names another Node from e on, or none. A mark that stands then
// needs the deletion of this one, unless a controller under test chose it.
func (c *rescues) renamed(h *patient, e *history.Event) {
	n := c.targets.Node(e.Host)
	if n.UID == h.node {
		return
	}
	if h.marked != "" && c.roles.Blameless(e) {
		h.marked = n.UID
	}
	if h.ready.Kind != "" {
		h.lost = *e
	}
	another := h.node != ""
	h.node, h.ready, h.sick, h.returned = n.UID, history.Event{}, history.Event{}, e.At
	switch {
	case n.Ready:
		h.ready = *e
	case n.Had && another: // else it has its time to start, as one that comes
		h.sick = *e
		h.hand(e)
	}
	h.await(e)
}

// hand notes that e has given the Machine to the health check, or taken it away. A Node that is not
// Ready or missing then may have been for as long as it knows: it looks at the Nodes of its
// Machines only.
func (h *patient) hand(e *history.Event) {
	if h.handed = *e; h.sick.Kind != "" {
		h.sick, h.unseen = *e, true
	}
	if h.absent.Kind != "" {
		h.absent = *e
	}
}

// await notes that the time in which the Node has to return begins with e, unless it is there or
// can't be expected: the host is off or about to reboot, or the Machine is being remediated.
func (h *patient) await(e *history.Event) {
	if h.absent = (history.Event{}); h.node == "" && h.Boot != "" && !h.held && !h.pending && (h.mark.Kind == "" || h.dropped.Kind != "") {
		h.absent = *e
	}
}

func (c *rescues) marked(h *patient, e *history.Event, set bool) {
	if set {
		if h.mark.Kind == "" && h.left.Kind != "" && e.Object == h.left.Object && c.Unaware(e, &h.left) {
			h.demand = h.before
			return
		}
		if h.mark.Kind == "" || h.dropped.Kind != "" {
			for _, a := range c.targets.Ailments(e.Host) {
				if since, limit := c.since(h, &a); a.Over.Kind == "" && invariant.Plays(e.Actor, c.roles.HealthCheck) && c.coolDown == 0 {
					c.InTime(limit, c.Hindrances, c.on(), &since, e)
				}
			}
			if h.sick.Kind != "" && c.targets.Check != nil && invariant.Plays(e.Actor, c.roles.HealthCheck) && c.coolDown == 0 {
				sick := h.sick
				sick.At = c.counts(&sick)
				c.InTime(c.patience(), c.Hindrances, c.on(), &sick, e)
			}
			if h.mark.Kind != "" && h.missing() != "" {
				c.forgotten(h, e)
			}
			h.remediated, h.ailed = true, e.Seq
			h.mark, h.dropped, h.marked, h.sick = *e, history.Event{}, h.node, history.Event{}
			if h.marked == h.out || c.targets.Node(e.Host).Empty {
				h.marked = ""
			}
			h.wentOff, h.perhaps = h.IsOff(), !h.Known()
			h.about = ""
			if h.Known() && h.Complete && h.ready.Kind != "" && h.ready.At > h.Began().At && !h.shared {
				h.about = h.Boot
			}
			h.answered = h.fenced() || h.wentOff || h.perhaps
		}
		return
	}
	if h.sick.Kind != "" { // only now can it be marked anew
		h.sick = *e
	}
	if h.mark.Kind == "" {
		return
	}
	target := c.targets.Of(e.Host)
	if c.roles.Agent(e.Actor) && !target.Paused && !target.Unmanaged {
		c.Judged++
		if !h.answered {
			c.Breach(&h.mark, e, e.Actor+" removed a mark for which nothing was fenced")
		}
	}
	if target.Unmanaged || !invariant.Plays(e.Actor, c.roles.Remediation) || invariant.Same(e.Actor, h.mark.Actor) {
		h.before, h.left = h.demand, *e
		h.mark = history.Event{} // withdrawn
		return
	}
	c.Judged++
	h.dropped = *e
	switch what := h.missing(); {
	case what == "":
		h.mark = history.Event{}
	case what == neverOff && !c.Unaware(e, &h.mark):
		c.forgotten(h, e)
	}
}

// forgotten judges a mark that was taken away although it has led to no fencing, by e: by that
// itself, or by the next mark, with which nothing can come of it any more.
func (c *rescues) forgotten(h *patient, e *history.Event) {
	if t := c.targets.Of(e.Host); c.roles.Power != "" && !h.perhaps && !t.Paused && h.MayBe(h.mark.Object) {
		c.Breach(&h.mark, e, h.mark.Object+" was marked at "+invariant.Seconds(h.mark.At)+", "+h.dropped.Actor+" removed the mark at "+invariant.Seconds(h.dropped.At)+", and "+h.missing())
	}
}

// fenced reports whether there is a NodeFence that may be about the mark's boot.
func (h *patient) fenced() bool {
	return h.fencing != "" && (h.about == "" || h.fencing == h.about)
}

const (
	neverOff     = "its host was never off"
	neverDeleted = "its Node was never deleted"
)

// missing says what of a fencing has not happened since the mark was set.
func (h *patient) missing() string {
	switch {
	case !h.wentOff:
		return neverOff
	case h.marked != "":
		return neverDeleted
	}
	return ""
}

// on is on whom a mark depends.
func (c *rescues) on() invariant.Parties { return invariant.Parties{First: c.roles.HealthCheck} }

// expire judges a Node that has not been Ready for too long when e comes.
func (c *rescues) expire(h *invariant.Entry[patient], e *history.Event) {
	s := &h.State
	if s.sick.Kind == "" || s.shared || c.roles.HealthCheck == "" || c.targets.Idle.Kind != "" {
		return
	}
	if why := c.targets.Unsettled(); why != "" {
		c.SetAside(e, why)
		s.sick = history.Event{}
		return
	}
	if c.targets.Check == nil || e.At-s.sick.At <= c.patience() {
		return
	}
	on := c.on()
	if c.coolDown > 0 && e.At-c.crowded-c.Lost(c.crowded, e.At, on) <= c.coolDown+c.patience() {
		return
	}
	from := c.counts(&s.sick)
	lost := c.Lost(from, e.At, on)
	limit := c.patience()
	if ails, _ := c.ailing(h.Name, e.At); s.remediated && (lost > 0 || s.unseen || ails > 0) {
		limit += c.targets.Check.Startup // it may not have seen the Node return, or not well
	}
	if e.At-from-lost <= limit {
		return
	}
	sick := s.sick
	s.sick = history.Event{}
	if s.mark.Kind != "" && s.dropped.Kind == "" || s.held || !c.due(h.Name, e) {
		return
	}
	c.unmarked(&sick, e, "the Node of "+h.Name+" has not been Ready since "+invariant.Seconds(sick.At), lost)
}

// missed judges a Node that has not returned in its time when e comes.
func (c *rescues) missed(h *invariant.Entry[patient], e *history.Event) {
	s := &h.State
	if s.absent.Kind == "" || c.targets.Check == nil || c.targets.Check.Startup == 0 || c.roles.HealthCheck == "" || c.Healed.Kind != "" ||
		e.At-s.absent.At <= c.targets.Check.Startup+c.patience() {
		return
	}
	on := c.on()
	from := c.counts(&s.absent)
	lost := c.Lost(from, e.At, on)
	limit := c.targets.Check.Startup + c.patience()
	if c.Lost(from, from+c.patience(), on) > 0 {
		limit += c.targets.Check.Startup // it may have begun to wait only then
	}
	if e.At-from-lost <= limit || c.coolDown > 0 && e.At-c.crowded <= c.coolDown+limit {
		return
	}
	absent := s.absent
	s.absent = history.Event{}
	if !c.due(h.Name, e) {
		return
	}
	c.unmarked(&absent, e, invariant.Clause(&absent)+"; the Node of "+h.Name+" has "+invariant.Seconds(c.targets.Check.Startup)+" to return", lost)
}

// ails judges a Node, or a Machine whose Node is Ready, that has been in a state that the check
// minds for too long when e comes.
func (c *rescues) ails(h *invariant.Entry[patient], e *history.Event) {
	if c.targets.Check == nil || len(c.targets.Check.Minds) == 0 || c.roles.HealthCheck == "" {
		return
	}
	s := &h.State
	for _, a := range c.targets.Ailments(h.Name) {
		since, limit := c.since(s, &a)
		lost := c.Lost(since.At, e.At, c.on())
		if lost > 0 {
			limit += c.targets.Check.Startup // it may not know that the Node is another one
		}
		switch marked := s.mark.Kind != "" && s.dropped.Kind == ""; {
		case a.Over.Kind != "", a.OfMachine && s.ready.Kind == "", a.Since.Seq <= s.ailed, marked, s.held, e.At-since.At-lost <= limit, c.coolDown > 0 && e.At-c.crowded <= c.coolDown+limit:
			continue
		}
		s.ailed = a.Since.Seq
		if s.shared || !c.due(h.Name, e) {
			continue
		}
		c.unmarked(&a.Since, e, a.Name(h.Name)+" has been "+a.Status+" since "+invariant.Seconds(a.Since.At), lost)
	}
}

// since is when the health check's time for an ailment begins, as an event, and how long it has.
func (c *rescues) since(h *patient, a *invariant.Ailment) (since history.Event, limit time.Duration) {
	since = a.Since
	since.At = max(c.counts(&since), h.handed.At)
	return since, time.Duration(a.After) + 2*invariant.Coarse + c.grace
}

// counts is when the health check's time for what has been so since an event begins: not before its
// process, nor before a user has changed what it allows.
func (c *rescues) counts(since *history.Event) time.Duration {
	return max(since.At, c.anew, c.targets.Changed.At)
}

// unmarked judges that a Machine is still not marked at e, which had to be since another event; of
// the time between the two, some was lost.
func (c *rescues) unmarked(since, e *history.Event, why string, lost time.Duration) {
	if c.guarded {
		c.SetAside(e, "a guard of the health check may have kept it from a Machine, and the history has no events of its Pods")
		return
	}
	c.Judged++
	c.Breach(since, e, why+", and at "+invariant.Seconds(e.At)+" its Machine was still not marked"+invariant.Beside(lost))
}

// patience is how long a Node that is not Ready may go without a mark.
func (c *rescues) patience() time.Duration {
	return c.targets.Check.UnhealthyAfter + 2*invariant.Coarse + c.grace
}

// seen reports whether a change is so old that the health check knows it when e comes.
func (c *rescues) seen(e *history.Event) func(*history.Event) bool {
	return func(since *history.Event) bool { return e.At-since.At > c.grace }
}

// few is how many Machines may be unhealthy by the stricter count.
func (c *rescues) few(e *history.Event) int {
	few, _, _ := c.targets.ActsOn(c.seen(e))
	return few
}

// due reports whether the Machine of a host is one that the health check has to mark, if its Node
// is unhealthy: it is a target, and the check acts on as many as are unhealthy.
func (c *rescues) due(host string, e *history.Event) bool {
	most, least := c.count(e)
	few, _, fewest := c.targets.ActsOn(c.seen(e))
	t := c.targets.Of(host)
	return t.Counts() && !t.Unmanaged && most <= few && least >= fewest
}

// count says how many Machines are unhealthy at most and at least. One that has just returned,
// has just stopped being Ready, or has just become a target or ceased to be one, may be counted
// or not.
func (c *rescues) count(e *history.Event) (most, least int) {
	for i := range c.hosts.Hosts {
		o := &c.hosts.Hosts[i].State
		t := c.targets.Of(c.hosts.Hosts[i].Name)
		if t.Since.Kind != "" && e.At-t.Since.At <= c.grace {
			most++
			continue
		}
		if !t.Counts() {
			continue
		}
		fenced := o.mark.Kind != "" && o.dropped.Kind == "" || o.held
		switch {
		case fenced, o.ready.Kind == "" && e.At-o.lost.At > c.grace:
			most++
			least++
		case o.ready.Kind == "", e.At-o.ready.At <= c.grace:
			most++
		default:
			sure, perhaps := c.ailing(c.hosts.Hosts[i].Name, e.At)
			least += sure
			most += perhaps
		}
	}
	return most, least
}

// ailing is 1 for a Node in a state that the check minds, for sure and perhaps.
func (c *rescues) ailing(host string, at time.Duration) (sure, perhaps int) {
	for _, a := range c.targets.Ailments(host) {
		switch {
		case a.Over.Kind == "" && at-a.Since.At > c.grace:
			return 1, 1
		case a.Over.Kind == "", at-a.Over.At <= c.grace:
			perhaps = 1
		}
	}
	return 0, perhaps
}

func (c *rescues) Lacks() iter.Seq[invariant.Lack] {
	return func(yield func(invariant.Lack) bool) {
		for i := range c.hosts.Hosts {
			h := &c.hosts.Hosts[i]
			s := &h.State
			what, target := s.missing(), c.targets.Of(h.Name)
			if c.roles.Remediation == "" || c.roles.Power == "" || s.mark.Kind == "" || s.shared || target.Unmanaged || target.Paused || what == "" ||
				!s.MayBe(s.mark.Object) {
				continue
			}
			sentence := s.mark.Object + " was marked at " + invariant.Seconds(s.mark.At)
			if s.dropped.Kind != "" {
				sentence += ", " + s.dropped.Actor + " removed the mark at " + invariant.Seconds(s.dropped.At) + ","
			}
			if !yield(invariant.Lack{
				Sentence: sentence + " and " + what, Since: &s.mark, Blind: what == neverOff && s.perhaps,
				Host: h.Name, Comes: fencedEvents, On: invariant.Parties{BMC: h.Name, First: c.roles.Remediation, Second: c.roles.Power},
			}) {
				return
			}
		}
	}
}

// fencedEvents come when a host is fenced.
var fencedEvents = slices.Concat(invariant.OffEvents, []history.Kind{history.NodeDeleted})

func (c *rescues) Pending() string { return c.Owing(c.Lacks()) }

func (c *rescues) Finish(complete bool) invariant.Result {
	return c.ConcludeAfterHealing(complete, c.Lacks(), "no Machine was marked, or had to be")
}
