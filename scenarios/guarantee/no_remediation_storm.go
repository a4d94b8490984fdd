package guarantee

import (
	"fmt"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

var noRemediationStorm = invariant.Invariant{
	ID:    "no-remediation-storm",
	Claim: "A mark leads to one fencing; a Machine is not marked again before its Node has had time to return; none are marked while more or fewer are unhealthy than the health check acts on, or during its cool-down after that; and nothing is written, or warned of, over and over.",
	Seed:  "002, 004",
	New: func(p invariant.Params) invariant.Checker {
		return &storms{
			Ruling:     invariant.Ruling{ID: "no-remediation-storm"},
			roles:      p.Roles,
			targets:    invariant.NewTargets(p),
			hosts:      invariant.NewRoster[stormy](p.Hosts),
			Hindrances: p.Hindrances,
			grace:      p.Timings.Slack,
			coolDown:   p.Timings.CoolDown,
			returns:    p.Timings.Return,
			writes:     map[string][]history.Event{},
			warnings:   map[string][]history.Event{},
			idle:       map[string]idleness{},
			command:    p.Timings.Command,
			commands:   map[string][]history.Event{},
		}
	},
}

// A controller that writes an object more often than stormWrites times within
// stormWindow fights somebody, or itself. Right ones need a dozen for a remediation. So
// does one that writes it idleWrites times within idleWindow while nothing else happens.
const (
	stormWrites = 50
	stormWindow = 10 * time.Second
	idleWrites  = 30
	idleWindow  = 2 * time.Minute
)

// The same power command is given to a host no more often than this within the time that one is
// given to take effect, unless the host or what is asked of it changes. One that is refused is
// given again in growing intervals.
const stormCommands = 4

// A program has room for stormWarnings about one object within warningWindow: its recorder of
// Events drops those that come after them, whatever they say.
const (
	stormWarnings = 25
	warningWindow = 5 * time.Minute
)

// storms judges every mark of a health check, every remediation annotation that a
// controller sets, and how fast each controller writes, and warns.
type storms struct {
	invariant.Ruling
	*invariant.Hindrances
	roles   invariant.Roles
	targets invariant.Targets
	hosts   invariant.Roster[stormy]
	grace   time.Duration // as in accusers
	// crowded is the last event at which too many Machines were unhealthy for certain, and
	// coolDown how long no Machine is marked after that.
	crowded  history.Event
	coolDown time.Duration
	// returns is how long a Node may stay away before its host is cycled again for the same mark.
	returns time.Duration
	// writes and warnings are the latest of each controller about each object, and idle the writes
	// since anything but that has happened.
	writes, warnings map[string][]history.Event
	idle             map[string]idleness
	// command is how long a power command is given, and commands are the commands to each host
	// since that has changed, if they were all the same.
	command  time.Duration
	commands map[string][]history.Event
}

// idleness is how often something was written since an event.
type idleness struct {
	first history.Event
	times int
}

type stormy struct {
	// mark is the mark that stands, and last the one before.
	mark, last history.Event
	returned   bool          // the Node has been Ready since last
	fenced     history.Event // the fencing that came of the mark
	over       bool          // that fencing has ended
	held       bool
	boot       string // the boot that runs
	named      string // the boot that a NodeFence names
	answered   bool   // the named boot was over when the mark was set: no fencing comes of it
	// request is the NodeFence that an agent has made for the mark, and about the boot that ran
	// when the mark was set.
	request history.Event
	about   string
	ended   bool // request is gone
	// node and ready say whether there is a Node and whether it is Ready, since the event since.
	node, ready bool
	since       history.Event
}

func (h *stormy) unhealthy() bool { return h.mark.Kind != "" || h.held || !h.node || !h.ready }

func (c *storms) Observe(e *history.Event) *invariant.Violation {
	c.targets.Observe(e)
	if e.Kind != history.ControllerEffect {
		clear(c.idle)
	}
	c.commanded(e)
	switch e.Kind {
	case history.ControllerEffect:
		c.wrote(e)
		c.idled(e)
	case history.ControllerWarning:
		c.warned(e)
	case history.BootStarted:
		c.hosts.Of(e.Host).boot = e.Boot
	}
	if c.coolDown > 0 && c.targets.Check != nil {
		on := invariant.Parties{First: c.roles.HealthCheck}
		// A crowd counts that has lasted for so long that the health check has seen it.
		seen := func(since *history.Event) bool { return e.At-since.At-c.Lost(since.At, e.At, on) > c.grace }
		_, unhealthy, _ := c.count(seen)
		if _, most, _ := c.targets.ActsOn(seen); unhealthy > most {
			c.crowded = *e
		}
	}
	if e.Host != "" && e.Kind.Layer() == history.API {
		c.judge(c.hosts.Of(e.Host), e)
	}
	for h, named := range invariant.Concerned(&c.targets, &c.hosts, e) {
		h.State.become(named, e)
	}
	return c.Tell()
}

func (c *storms) judge(h *stormy, e *history.Event) {
	switch e.Kind {
	case history.AnnotationSet, history.AnnotationRemoved:
		switch set := e.Kind == history.AnnotationSet; e.Key {
		case invariant.ExternalAnnotation:
			c.marked(h, e, set)
		case invariant.RemediationAnnotation:
			c.asked(h, e, set)
		default: // a key of the remediation controller's own
			keyed, _ := invariant.RebootRequest(e)
			if keyed && (set && invariant.Plays(e.Actor, c.roles.Remediation) || !set && e.Key == h.fenced.Key) {
				c.asked(h, e, set)
			}
		}
	case history.ProvisioningState, history.MachineDeleted:
		h.fenced, h.last = history.Event{}, history.Event{}
	case history.HostConsumer:
		if invariant.ByUser(e) { // that ends a fencing, and the mark outlasts it
			h.fenced = history.Event{}
		}
	case history.FenceRequested:
		c.requested(h, e)
		h.named = e.Value
	case history.FenceEnded:
		h.named = ""
		h.ended = h.request.Kind != ""
	}
}

// become notes how the Machine's Node is from e on.
func (h *stormy) become(n *invariant.Named, e *history.Event) {
	if exists := n.UID != ""; exists != h.node || n.Ready != h.ready {
		h.node, h.ready, h.since = exists, n.Ready, *e
	}
	h.returned = h.returned || e.Kind == history.NodeReady
}

func (c *storms) marked(h *stormy, e *history.Event, set bool) {
	if !set {
		if !c.roles.Tested(e.Actor) || c.roles.Agent(e.Actor) && h.answered {
			h.last = history.Event{} // its user changed their mind, or an agent took it for an old one
		}
		h.mark = history.Event{}
		h.returned = h.returned || h.node && h.ready // it was reset, and its Node stayed
		return
	}
	if h.mark.Kind != "" {
		return // only its value changed
	}
	h.mark, h.fenced, h.over = *e, history.Event{}, false
	h.request, h.ended, h.about = history.Event{}, false, h.boot
	h.answered = h.named != "" && h.boot != h.named
	if !invariant.Plays(e.Actor, c.roles.HealthCheck) {
		h.last, h.returned = *e, false
		return
	}
	c.Judged++
	if last := h.last; last.Kind != "" && !h.returned && c.targets.Check != nil && e.At-last.At+invariant.Coarse < c.targets.Check.Startup {
		c.Breach(&last, e, fmt.Sprintf("%s was marked again at %s, %s after its last mark: its Node has %s to return",
			e.Object, invariant.Seconds(e.At), invariant.Seconds(e.At-last.At), invariant.Seconds(c.targets.Check.Startup)))
	}
	h.last, h.returned = *e, false
	c.limit(e)
}

// limit judges a mark by how many Machines are marked, and unhealthy.
func (c *storms) limit(e *history.Event) {
	if why := c.targets.Unsettled(); why != "" {
		c.SetAside(e, why)
		return
	}
	if c.targets.Check == nil || c.Unaware(e, &c.targets.Changed) {
		return
	}
	known := func(since *history.Event) bool { return !c.Unaware(e, since) }
	marked, unhealthy, possibly := c.count(known)
	switch _, most, least := c.targets.ActsOn(known); {
	case marked > most:
		c.Breach(e, e, fmt.Sprintf("%s, which makes %s, and %d may be", invariant.Clause(e), phrase.Count(marked, "marked Machine"), most))
	case unhealthy > most:
		c.Breach(e, e, fmt.Sprintf("%s, though %d Machines are unhealthy and none may be marked with more than %d", invariant.Clause(e), unhealthy, most))
	case possibly < least:
		c.Breach(e, e, fmt.Sprintf("%s, though no more than %d Machines are unhealthy and none may be marked with fewer than %d", invariant.Clause(e), possibly, least))
	case c.crowded.Kind != "" && e.At-c.crowded.At < c.coolDown-c.grace:
		c.Breach(&c.crowded, e, fmt.Sprintf("%s, though more than %d Machines were unhealthy until %s and none may be marked for %s after that",
			invariant.Clause(e), most, invariant.Seconds(c.crowded.At), invariant.Seconds(c.coolDown)))
	}
}

// count says how many Machines are marked, are unhealthy for certain, and may be: known says
// whether the health check knew of a change when it counted.
func (c *storms) count(known func(since *history.Event) bool) (marked, unhealthy, possibly int) {
	for i := range c.hosts.Hosts {
		h := &c.hosts.Hosts[i]
		t := c.targets.Of(h.Name)
		if settled := t.Since.Kind == "" || known(&t.Since); !settled {
			possibly++
			continue
		}
		if !t.Counts() {
			continue
		}
		if h.State.mark.Kind != "" {
			marked++
		}
		old := known(&h.State.since)
		if h.State.mark.Kind != "" || h.State.unhealthy() && old {
			unhealthy++
		}
		if h.State.mark.Kind != "" || h.State.unhealthy() || !old {
			possibly++
		}
	}
	return marked, unhealthy, possibly
}

// asked judges a remediation annotation by what the mark has led to already. One that
// did not bring the Node back in its time may be tried again.
func (c *storms) asked(h *stormy, e *history.Event, set bool) {
	h.held = set
	switch {
	case !set && h.fenced.Kind != "":
		h.over = true
		if !c.roles.Tested(e.Actor) {
			h.fenced = history.Event{} // a stranger ended it
		}
	case set && invariant.Plays(e.Actor, c.roles.Remediation) && h.mark.Kind != "":
		c.Judged++
		passed := e.At - h.fenced.At + invariant.Coarse
		late := c.targets.Check != nil && passed >= c.targets.Check.Startup || c.returns > 0 && passed >= c.returns
		if h.fenced.Kind != "" && h.over && !late {
			c.Breach(&h.fenced, e, fmt.Sprintf("%s was to be fenced again at %s for the mark of %s, which had led to a fencing at %s",
				e.Host, invariant.Seconds(e.At), invariant.Seconds(h.mark.At), invariant.Seconds(h.fenced.At)))
		}
		h.fenced, h.over = *e, false
	}
}

// requested judges a NodeFence of an agent by what the mark has led to already: the end of the
// boot that it was about.
func (c *storms) requested(h *stormy, e *history.Event) {
	if !c.roles.Agent(e.Actor) || h.mark.Kind == "" || h.answered {
		return
	}
	c.Judged++
	if h.ended {
		c.Breach(&h.request, e, fmt.Sprintf("boot %s of %s was to be fenced at %s for the mark of %s, which had led to a fencing at %s",
			e.Value, e.Host, invariant.Seconds(e.At), invariant.Seconds(h.mark.At), invariant.Seconds(h.request.At)))
	}
	if e.Value == h.about {
		h.request, h.ended = *e, false
	}
}

// wrote counts a controller's writes to one object, or its commands to one host.
func (c *storms) wrote(e *history.Event) {
	if !c.roles.Tested(e.Actor) {
		return
	}
	_, object, _ := strings.Cut(e.Value, " ")
	if recent := within(stormWindow, c.writes, e.Actor+" "+object, e); len(recent) > stormWrites {
		c.Breach(&recent[0], e, fmt.Sprintf("%s wrote %s %d times within %s, from %s on", e.Actor, object, len(recent), invariant.Seconds(e.At-recent[0].At), invariant.Seconds(recent[0].At)))
	}
}

// warned counts how often a controller warns about an object.
func (c *storms) warned(e *history.Event) {
	if !c.roles.Tested(e.Actor) {
		return
	}
	if recent := within(warningWindow, c.warnings, e.Actor+" "+e.Object, e); len(recent) > stormWarnings {
		c.Breach(&recent[0], e, fmt.Sprintf("%s warned about %s %d times within %s, from %s on, last of %s", e.Actor, e.Object, len(recent), invariant.Seconds(e.At-recent[0].At), invariant.Seconds(recent[0].At), e.Value))
	}
}

// within adds e to those of a key, and returns those of a time up to it.
func within(window time.Duration, all map[string][]history.Event, key string, e *history.Event) []history.Event {
	recent := append(all[key], *e)
	for e.At-recent[0].At > window {
		recent = recent[1:]
	}
	all[key] = recent
	return recent
}

// commanded counts the same power commands of a process to a host, one after the other.
func (c *storms) commanded(e *history.Event) {
	switch layer := e.Kind.Layer(); {
	case e.Kind == history.ControllerStarted && invariant.Plays(e.Actor, c.roles.Power):
		clear(c.commands) // a process that starts again knows of none
	case e.Host == "":
	case layer == history.World || layer == history.API:
		delete(c.commands, e.Host)
	case e.Kind == history.BMCCommand && invariant.Plays(e.Actor, c.roles.Power) && c.command > 0:
		if before := c.commands[e.Host]; len(before) > 0 && (before[0].Value != e.Value || before[0].Actor != e.Actor) {
			delete(c.commands, e.Host)
		}
		if same := within(c.command, c.commands, e.Host, e); len(same) > stormCommands {
			c.Breach(&same[0], e, fmt.Sprintf("%s gave %s the command %s %d times within %s, from %s on", e.Actor, e.Host, e.Value, len(same), invariant.Seconds(e.At-same[0].At), invariant.Seconds(same[0].At)))
		}
	}
}

// idled counts a controller's writes to one object between which nothing else happened: a
// storm may be slow.
func (c *storms) idled(e *history.Event) {
	if !c.roles.Tested(e.Actor) {
		return
	}
	_, object, _ := strings.Cut(e.Value, " ")
	key := e.Actor + " " + object
	run, ok := c.idle[key]
	if !ok {
		run.first = *e
	}
	if run.times++; run.times > idleWrites && e.At-run.first.At > idleWindow {
		run = idleness{first: *e, times: 1} // whoever looks that rarely may write each time
	}
	c.idle[key] = run
	if run.times > idleWrites {
		c.Breach(&run.first, e, fmt.Sprintf("%s wrote %s %d times from %s to %s, and nothing else happened meanwhile", e.Actor, object, run.times, invariant.Seconds(run.first.At), invariant.Seconds(e.At)))
	}
}

func (c *storms) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "no Machine was marked, and nothing was asked of a host for a mark, by a controller")
}
