package guarantee

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var noFalseFence = invariant.Invariant{
	ID:    "no-false-fence",
	Claim: "No controller powers off a host without being asked to, fences one whose Machine is not marked, or marks a Machine that leaves or whose Node is healthy or has time left to come, or one whose host has to stay on for the API server to keep its quorum; and no agent lets its host be reset because the control plane failed, or for a reset that brings nothing nearer.",
	Seed:  "000, 002, 004",
	New: func(p invariant.Params) invariant.Checker {
		return &accusers{
			Ruling:     invariant.Ruling{ID: "no-false-fence", Skew: p.Timings.Skew},
			roles:      p.Roles,
			targets:    invariant.NewTargets(p),
			hosts:      invariant.NewRoster[suspected](p.Hosts),
			Hindrances: p.Hindrances,
			grace:      p.Timings.Slack,
			missing:    p.Timings.Missing,
			witnesses:  invariant.NewWitnesses(p),
			members:    p.Members,
		}
	},
}

// accusers judges every PowerOff by a controller, every remediation annotation that one sets and
// every mark of a health check. What a controller did is judged by what was the case a moment
// before too; and not at all if something hindered it since that changed, for then it may have
// known no better. An agent that has its own host reset has a reason if the host is fenced, or was
// hindered itself, or if the API server was silent and most of the others were hindered: a control
// plane that is away is none. A mark is a reason for one reset.
type accusers struct {
	invariant.Ruling
	*invariant.Hindrances
	witnesses invariant.Witnesses
	roles     invariant.Roles
	targets   invariant.Targets
	hosts     invariant.Roster[suspected]
	// grace is how old the knowledge may be on which a controller acts while nothing
	// hinders it: what it read just before it wrote.
	grace time.Duration
	// missing is how long a Node that was deleted has to return.
	missing time.Duration
	// members are the hosts with a member of the API server's store.
	members []string
	// begun says that the topology is up.
	begun bool
}

// suspected is a host that may be fenced. It has a field for each fact that can be a reason to.
type suspected struct {
	invariant.Resets
	body      invariant.Body
	down      history.Event // what asked it to go off, as it went down last
	requests  []string      // the reboot annotations that stand
	offline   bool
	unmanaged bool
	// pending is the request on record, until the controller powers the host on.
	pending history.Event
	overdue bool          // the client of the last power-on had given it up or died
	wish    history.Event // the last event that asked the host to go off
	unasked history.Event // since when nothing asks the host to go off
	// asked and loose are the last commands to go off that the BMC received while something asked
	// for it, or had just before, and while nothing did.
	asked, loose history.Event

	marked    bool
	mark      history.Event // the one that stands
	unmarked  history.Event // since when there is none
	spent     history.Event // the reset that came of the mark
	consumer  string        // who uses the host by its own word
	created   history.Event // the creation of a Machine whose Node has not come yet
	unready   history.Event // when there was a Ready Node last
	poweredOn history.Event // when a boot was last recorded
	// wished is a user's annotation by which the health check is to mark the Machine, while it
	// stands, and unwished its removal.
	wished, unwished history.Event
	// paused and skipped are the annotations that keep controllers from the Machine, while they
	// stand, and leaving is the beginning of its deletion.
	paused, skipped, leaving history.Event

	fence string        // the boot that a NodeFence names, while it stands
	began history.Event // the beginning of the boot that runs

	now  condition   // how the Node is
	past []condition // how it was before, latest last
}

// condition is how a Machine's Node is, since an event.
type condition struct {
	exists, ready bool
	since         history.Event
	// older is how long before that it says it began: the write may have been late.
	older time.Duration
	// seen says of a Node that was deleted that the health check had the time to see it Ready.
	seen bool
}

// sick reports whether it may lead to a mark at a time.
func (c *accusers) sick(h *suspected, n *condition, at time.Duration) bool {
	switch {
	case c.targets.Check != nil && !n.exists && h.created.Kind != "":
		return at-h.created.At+invariant.Coarse >= c.targets.Check.MayMiss()
	case c.targets.Check == nil, !n.exists && !n.seen:
		return !n.ready
	case !n.exists:
		return at-n.since.At+invariant.Coarse >= c.mayMiss()
	}
	return !n.ready && at-n.since.At+max(invariant.Coarse, n.older) >= c.targets.Check.UnhealthyAfter
}

// overdue reports whether no Node has been Ready for long enough to lead to a mark. The time
// starts again when the API reports that the host was powered on, or the Machine is unmarked, but
// not when a Node is deleted and recreated.
func (c *accusers) overdue(h *suspected, at time.Duration) bool {
	since := max(h.unready.At, h.poweredOn.At, h.unmarked.At)
	return c.missing > 0 && !h.now.ready && h.unready.Kind != "" && at-since+invariant.Coarse >= c.mayMiss()
}

// mayMiss is how long a Machine may be without its Node, by the health check as it is now.
func (c *accusers) mayMiss() time.Duration {
	check := c.targets.Check
	switch {
	case check == nil || c.targets.Changed.Kind == "":
		return c.missing
	case check.Startup == 0:
		return check.MayMiss()
	}
	return min(c.missing, check.Startup)
}

func (h *suspected) wanted() bool {
	return !h.unmanaged && (len(h.requests) > 0 || h.offline || h.pending.Kind != "")
}

func (c *accusers) Observe(e *history.Event) *invariant.Violation {
	c.targets.Observe(e)
	c.begun = c.begun || e.Kind == history.RunStarted
	for h, named := range invariant.Concerned(&c.targets, &c.hosts, e) {
		c.node(h, named, e)
	}
	if e.Host != "" {
		h := c.hosts.Of(e.Host)
		was := h.wanted()
		c.reset(h, e)
		c.judge(h, e)
		if was && !h.wanted() {
			h.unasked = *e
		}
	}
	c.witnesses.Observe(e)
	return c.Tell()
}

// reset judges what an agent does to its own host, and what for.
func (c *accusers) reset(h *suspected, e *history.Event) {
	switch e.Kind {
	case history.BootStarted:
		h.began = *e
	case history.FenceEnded:
		h.fence = ""
	case history.FenceRequested:
		h.fence = e.Value
		if c.roles.Agent(e.Actor) {
			c.forMark(h, e)
		}
	case history.BootEnded:
		if !c.roles.Agent(e.Actor) {
			return
		}
		switch {
		case h.fence == e.Boot, c.witnesses.Away(e.Host, e.At):
			c.Judged++
			c.Allow(e, e)
		case h.marked && h.spent.Kind == "":
			h.spent = *e
			c.Judged++
			c.Allow(e, &h.mark)
		case h.began.Boot == e.Boot && c.witnesses.Shut(e.Host, h.began.At, e.At):
			c.Judged++
			c.Breach(&h.began, e, invariant.Clause(e)+" by "+e.Actor+", though that had no network since before it began: a reset brings it no nearer")
		case c.witnesses.Deaf(e.Host, e.At), c.witnesses.Silent(e.Host, e.At) && !c.witnesses.MostOf(e.Host, e.At):
			c.Judged++
			c.Allow(e, e) // no peer could be reached
		default:
			c.Judged++
			why := " and most of the others ran and could be reached"
			switch {
			case h.marked:
				c.Breach(&h.spent, e, invariant.Clause(e)+" by "+e.Actor+", as at "+invariant.Seconds(h.spent.At)+", for one mark of "+invariant.Seconds(h.mark.At))
				return
			case len(c.witnesses.Names) == 1:
				why = ", and it had nobody to ask"
			case !c.witnesses.Silent(e.Host, e.At):
				why = " and the API server answered"
			}
			c.Breach(e, e, invariant.Clause(e)+" by "+e.Actor+", though nobody wanted it to be fenced"+why)
		}
	}
}

func (c *accusers) judge(h *suspected, e *history.Event) {
	ended := h.Resets.Observe(e)
	if ran := h.body.Complete; e.Kind.Layer() == history.World {
		if h.body.Observe(e); ran && !h.body.Complete {
			h.down = h.decided(e)
		}
	}
	switch e.Kind {
	case history.AnnotationSet, history.AnnotationRemoved:
		c.annotated(h, e)
	case history.HostConsumer:
		h.consumer = e.Value
	case history.MachineCreated, history.MachineDeleting, history.MachineDeleted:
		c.machine(h, e)
	case history.FieldIs:
		if wanted, is := invariant.OwnRequest(e); is && wanted {
			h.marked, h.mark = true, *e
		} else if is && h.marked {
			h.marked, h.unmarked = false, *e
		}
	case history.OnlineWanted:
		if h.offline = e.Value == "false"; h.offline {
			h.wish = *e
		}
	case history.ProvisioningState:
		if h.unmanaged = !invariant.Managed(e.Value); h.unmanaged && e.Value != invariant.Detached {
			h.pending = history.Event{} // it asked for a boot of an image that is gone
		}
	case history.PendingRebootSince:
		if e.Value == "" || h.pending.Kind == "" && len(h.requests) == 0 {
			h.pending = history.Event{}
		} else {
			h.pending = h.wish
		}
	case history.LastPoweredOn:
		h.pending, h.poweredOn = history.Event{}, *e
	case history.BMCCommand:
		if invariant.PowersOn(e) {
			h.overdue = e.Key == history.Late
		}
		switch {
		case !invariant.PowersOff(e) || c.roles.Blameless(e) || e.Key == history.Late:
		case h.wanted() || c.Unaware(e, &h.unasked):
			h.asked = *e
		default:
			h.loose = *e
		}
	case history.PowerOff:
		c.off(h, e)
	case history.PowerOn:
		if invariant.Plays(e.Actor, c.roles.Power) && !h.overdue {
			h.pending = history.Event{} // what was recorded has had its boot
		}
		h.asked, h.loose = history.Event{}, history.Event{}
	case history.BootStarted: // what was received before is carried out late, if ever
		if ended != nil && !c.roles.Agent(ended.Actor) {
			c.off(h, ended)
		}
		h.asked, h.loose = history.Event{}, history.Event{}
	case history.QuorumLost:
		c.quorum(h, e)
	case history.EvidenceLost:
		c.Suspend(e, ", so that nobody saw whether it was powered off")
	}
}

// off judges a power-off by the command that led to it. None while the host was on
// means that the BMC carried out an older one late.
func (c *accusers) off(h *suspected, e *history.Event) {
	switch {
	case c.roles.Blameless(e):
	case e.Actor == "":
		if !h.wanted() {
			c.Suspend(e, " by nobody knows whom")
		}
	case h.wanted() || h.asked.Kind != "":
		c.Judged++
		c.Allow(e, &h.wish)
	case h.loose.Kind != "" && h.loose.Seq < e.Seq:
		c.Judged++
		c.Breach(&h.loose, e, invariant.Clause(e)+" by "+e.Actor+", which nobody had asked for")
	default:
		c.Allow(e, e) // a command of before, carried out late
	}
	if e.Kind == history.PowerOff {
		h.asked, h.loose = history.Event{}, history.Event{}
	}
}

// quorum judges the loss of the API server's quorum by the last decision that it goes back to,
// about this host or another that is down, unless that is a user's: whether a majority was left
// then of hosts whose Nodes were Ready and that were not to go off.
func (c *accusers) quorum(h *suspected, e *history.Event) {
	if e.Actor == "" || c.roles.Blameless(e) {
		return
	}
	last := h
	for _, name := range c.members {
		if o := c.hosts.Of(name); !o.body.Complete && o.down.Seq > last.down.Seq {
			last = o
		}
	}
	why := " as " + e.Actor + " switched " + e.Host + " off"
	if last != h {
		why += ", and " + invariant.Clause(&last.down)
	}
	decided := &last.down
	switch {
	case decided.Kind == "":
		c.Excuse(e)
		return
	case invariant.ByUser(decided):
		c.Judged++
		c.Allow(e, decided)
		return
	}
	left, first := 0, *decided
	for _, name := range c.members {
		o := c.hosts.Of(name)
		if o == last {
			continue
		}
		known := func(why *history.Event) bool {
			return why.Kind != "" && why.Seq < decided.Seq && !c.Unaware(decided, why)
		}
		var goes *history.Event
		switch {
		case !o.now.ready && known(&o.now.since):
			goes = &o.now.since
		case !o.body.Complete && known(&o.down): // its Machine may be gone by now
			goes = &o.down
		case o.marked && known(&o.mark):
			goes = &o.mark
		case known(&o.leaving):
			goes = &o.leaving
		case o.wanted() && known(&o.wish):
			goes = &o.wish
		default:
			left++
			continue
		}
		if first.Seq == decided.Seq || goes.Seq > first.Seq {
			first = *goes
		}
	}
	if 2*left > len(c.members) {
		c.Excuse(e)
		return
	}
	c.Judged++
	c.Breach(&first, e, invariant.Clause(e)+why+", though "+invariant.Clause(&first))
}

// decided is why a host went down: its Machine's mark or deletion, or a request, or the event
// itself if there was nothing of it; and zero if a command of before was carried out late.
func (h *suspected) decided(e *history.Event) history.Event {
	switch {
	case h.marked:
		return h.mark
	case h.leaving.Kind != "":
		return h.leaving
	case h.wanted() || h.asked.Kind != "":
		return h.wish
	case h.loose.Kind != "":
		return *e
	}
	return history.Event{}
}

func (c *accusers) annotated(h *suspected, e *history.Event) {
	set := e.Kind == history.AnnotationSet
	if e.Key == invariant.ExternalAnnotation {
		if set && !h.marked && invariant.Plays(e.Actor, c.roles.HealthCheck) {
			c.mark(h, e)
		}
		switch {
		case set && !h.marked:
			h.marked, h.mark, h.spent = true, *e, history.Event{}
		case set || h.mark.Object != e.Object:
		default:
			h.marked, h.unmarked = false, *e
		}
		return
	}
	if strings.HasPrefix(e.Object, "Machine/") {
		var since history.Event
		if set {
			since = *e
		}
		switch e.Key {
		case invariant.PausedAnnotation:
			h.paused = since
		case invariant.SkipAnnotation:
			h.skipped = since
		case invariant.RemediateAnnotation:
			if h.wished = since; !set {
				h.unwished = *e
			}
		}
	}
	if _, ok := invariant.RebootRequest(e); !ok {
		return
	}
	h.requests = invariant.Without(h.requests, e.Key)
	if set {
		h.requests = append(h.requests, e.Key)
		h.wish = *e
	}
	if set && invariant.Plays(e.Actor, c.roles.Remediation) {
		c.forMark(h, e)
	}
}

// machine notes which Machine it is: what was said of another is not said of it.
func (c *accusers) machine(h *suspected, e *history.Event) {
	switch e.Kind {
	case history.MachineDeleting:
		h.leaving = *e
		return
	case history.MachineCreated:
		if h.created = (history.Event{}); c.begun && !h.now.exists {
			h.created = *e
		}
	}
	h.leaving = history.Event{}
	if h.marked && h.mark.Object == e.Object {
		h.marked, h.unmarked = false, *e
	}
}

// forMark judges what is done for a mark of the Machine that uses the host by whether there is one.
func (c *accusers) forMark(h *suspected, e *history.Event) {
	another := h.marked && strings.HasPrefix(h.consumer, "Machine/") && strings.HasPrefix(h.mark.Object, "Machine/") && h.consumer != h.mark.Object
	switch {
	case another:
		c.Judged++
		c.Breach(&h.mark, e, invariant.Clause(e)+" by "+e.Actor+", though "+h.consumer+" has the host and not "+h.mark.Object+", which is marked")
	case h.marked:
		c.Judged++
		c.Allow(e, &h.mark)
	case c.Unaware(e, &h.unmarked):
		c.Excuse(e)
	default:
		first := h.unmarked
		if first.Kind == "" {
			first = *e
		}
		c.Judged++
		c.Breach(&first, e, invariant.Clause(e)+" by "+e.Actor+", though the Machine was not marked")
	}
}

// mark judges a mark by how the Machine's Node is, or was a moment ago.
func (c *accusers) mark(h *suspected, e *history.Event) {
	since, leftOut := &h.now.since, &c.targets.Of(e.Host).LeftOut
	for _, kept := range [...]*history.Event{&h.paused, &h.skipped, &h.leaving, &c.targets.Idle, leftOut} {
		if kept.Kind != "" && !c.Unaware(e, kept) {
			why := kept.Key + " keeps controllers from it"
			switch {
			case kept.Kind == history.MachineDeleting:
				why = "it is being deleted"
			case kept == &c.targets.Idle:
				why = "no health check is in force"
			case kept == leftOut:
				why = "no health check selects it"
			}
			c.Judged++
			c.Breach(kept, e, invariant.Clause(e)+" by "+e.Actor+", though "+why+" since "+invariant.Seconds(kept.At))
			return
		}
	}
	ailments := c.targets.Ailments(e.Host)
	ails := func(which func(a *invariant.Ailment) bool) int {
		return slices.IndexFunc(ailments, func(a invariant.Ailment) bool { return which(&a) })
	}
	lasts := func(a *invariant.Ailment) bool { return a.Over.Kind == "" }
	switch i := ails(func(a *invariant.Ailment) bool { return lasts(a) && a.Lasted(e.At) }); {
	case i >= 0:
		c.Judged++
		c.Allow(e, &ailments[i].Since)
	case h.wished.Kind != "":
		c.Judged++
		c.Allow(e, &h.wished)
	case c.sick(h, &h.now, e.At), c.overdue(h, e.At):
		c.Judged++
		c.Allow(e, since)
	case c.Unaware(e, &h.unwished), c.wasSick(h, e), ails(func(a *invariant.Ailment) bool { return a.Lasted(e.At) && c.Unaware(e, &a.Over) }) >= 0:
		c.Excuse(e)
	case c.targets.Unsettled() != "", c.Unaware(e, &c.targets.Changed):
		c.SetAside(e, cmp.Or(c.targets.Unsettled(), "the health check had just been changed"))
	case h.now.ready && ails(lasts) >= 0:
		a := &ailments[ails(lasts)]
		c.Judged++
		c.Breach(&a.Since, e, invariant.Clause(e)+" by "+e.Actor+", though "+a.Name(e.Host)+" had been "+a.Status+" for "+invariant.Seconds(e.At-a.Since.At)+" only")
	case h.now.ready:
		c.Judged++
		c.Breach(since, e, invariant.Clause(e)+" by "+e.Actor+", though its Node was Ready since "+invariant.Seconds(since.At))
	case !h.now.exists && h.created.Kind != "":
		c.Judged++
		c.Breach(&h.created, e, invariant.Clause(e)+" by "+e.Actor+", "+invariant.Seconds(e.At-h.created.At)+" after it was created: its Node has "+invariant.Seconds(c.targets.Check.Startup)+" to come")
	case !h.now.exists && c.targets.Check != nil && c.targets.Check.Startup == 0:
		c.Judged++
		c.Breach(&c.targets.Changed, e, invariant.Clause(e)+" by "+e.Actor+", whose Node is missing, and the health check minds none that is")
	case !h.now.exists:
		c.Judged++
		c.Breach(since, e, invariant.Clause(e)+" by "+e.Actor+", though its Node had been missing for "+invariant.Seconds(e.At-since.At)+" only")
	default:
		c.Judged++
		c.Breach(since, e, invariant.Clause(e)+" by "+e.Actor+", though its Node had been not Ready for "+invariant.Seconds(e.At-since.At)+" only")
	}
}

// wasSick reports whether the Node was sick at the end of a condition of which its author may
// not have known that it had ended.
func (c *accusers) wasSick(h *suspected, e *history.Event) bool {
	ended := &h.now.since
	for i := len(h.past) - 1; i >= 0 && c.Unaware(e, ended); i-- {
		if c.sick(h, &h.past[i], ended.At) {
			return true
		}
		ended = &h.past[i].since
	}
	return false
}

// node notes how the Node of a Machine is from e on, by itself or because it is another one.
func (c *accusers) node(host *invariant.Entry[suspected], named *invariant.Named, e *history.Event) {
	h := &host.State
	n := condition{exists: named.UID != "", ready: named.Ready, since: *e}
	switch e.Kind {
	case history.MachineNode:
		n.older = e.At - named.Since.At
	case history.NodeReady:
		h.created = history.Event{}
	case history.NodeNotReady:
		n.older, _ = time.ParseDuration(e.Value) // or it says nothing else
	}
	if !n.exists {
		t := c.targets.Of(host.Name) // which the health check looks at while it counts
		since := max(h.now.since.At, t.Since.At)
		n.seen = h.now.ready && t.Counts() && e.At-since-c.Lost(since, e.At, invariant.Parties{First: c.roles.HealthCheck}) > c.grace
	}
	if h.now.ready && !n.ready {
		h.unready = *e
	}
	if n.exists != h.now.exists || n.ready != h.now.ready {
		if h.now.since.Kind != "" { // that nothing was known yet is no condition
			h.past = append(h.past, h.now)
		}
		h.now = n
	}
}

func (c *accusers) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "no controller powered a host off, asked for that or marked a Machine")
}
