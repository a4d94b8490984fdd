package invariant

import (
	"iter"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

var workloadRecovers = Invariant{
	ID:       "workload-recovers",
	Claim:    "The exclusive workload of a fenced host runs again: once the safe time is over if most agents are healthy, and eventually in any case.",
	Seed:     "004",
	Liveness: true,
	New: func(p Params) Checker {
		c := &recoveries{
			roles:     p.Roles,
			hosts:     newRoster[recovering](p.Hosts),
			promise:   newPromise(p, ruling{id: "workload-recovers"}),
			witnesses: newWitnesses(p),
			deadline:  p.Timings.Safe + p.Timings.Release + recoverySlack,
			bounded:   p.Timings.Safe > 0,
		}
		for _, host := range p.Unwatched {
			c.hosts.of(host).unwatched = true
		}
		return c
	},
}

// recoverySlack is for what comes after the safe time: some writes, and a container that
// starts.
const recoverySlack = 15 * time.Second

// recoveries judges every fencing of a host on which the workload ran, or was bound to.
// While most agents are well it has to run again when the safe time is over, on another
// host or on the next boot of this one, beside the time that the cluster's own controllers
// lose, who release Pods and start them anew; and everything that was fenced must have run again
// when the faults were withdrawn.
type recoveries struct {
	promise
	witnesses witnesses
	roles     Roles
	hosts     roster[recovering]
	deadline  time.Duration
	bounded   bool
	// fenced is the fencing after which the workload has not started yet, and timed says that its time counts, and isn't
	// over.
	fenced history.Event
	timed  bool
}

type recovering struct {
	body
	bound bool
	// process is the boot in which the workload started last and was not seen to stop, and
	// unwatched says that no watchdog ends the host's boots.
	process   string
	unwatched bool
	// cordoned and ready are those of the Node.
	cordoned, ready bool
}

func (c *recoveries) Observe(e *history.Event) *Violation {
	if c.timed && e.At-c.fenced.At > c.deadline && e.At-c.fenced.At-c.heldBack(e) > c.deadline {
		c.timed = false
		if at := c.fenced.At; c.witnesses.most(at) && c.elsewhere(c.fenced.Host) && !c.neverStopped() {
			c.breach(&c.fenced, e, "the workload of "+c.fenced.Host+", which was to be fenced at "+seconds(at)+", did not run again until "+seconds(e.At))
		}
	}
	c.witnesses.observe(e)
	c.promise.observe(e)
	if layer := e.Kind.Layer(); e.Host != "" && (layer == history.World || layer == history.API) {
		c.judge(c.hosts.of(e.Host), e)
	}
	return c.tell()
}

func (c *recoveries) judge(h *recovering, e *history.Event) {
	h.body.observe(e)
	switch e.Kind {
	case history.EvidenceLost:
		c.suspend(e, ", so that nobody saw whether the workload ran there")
	case history.PodBound:
		for i := range c.hosts.hosts {
			c.hosts.hosts[i].state.bound = false
		}
		h.bound = true
	case history.WorkloadStopped:
		h.process = ""
	case history.WorkloadStarted:
		h.process = e.Boot
		if c.timed {
			c.within(c.deadline+c.heldBack(e), &c.fenced, e)
		}
		c.fenced, c.timed = history.Event{}, false
	case history.FenceRequested:
		if h.bound && (h.boot == "" || h.boot == e.Value) && c.fenced.Kind == "" {
			c.judged++
			c.fenced, c.timed = *e, c.bounded
		}
	case history.NodeCreated:
		h.ready, h.cordoned = false, false
	case history.NodeDeleted:
		h.ready = false
	case history.NodeReady:
		h.ready = true
	case history.NodeNotReady:
		h.ready = false
	case history.NodeCordoned:
		h.cordoned = true
	case history.NodeUncordoned:
		h.cordoned = false
	}
}

// neverStopped reports whether the workload of the fenced host still runs there, on a host
// that nobody has promised to end: it has nothing to recover from.
func (c *recoveries) neverStopped() bool {
	h := c.hosts.of(c.fenced.Host)
	return h.unwatched && h.process != "" && h.process == h.boot
}

// heldBack is how much of the time until e was lost by the cluster's own controllers.
func (c *recoveries) heldBack(e *history.Event) time.Duration {
	return c.lostTo(c.fenced.At, e.At, c.witnesses.recovery, func(s *spell) bool {
		name, process := strings.CutPrefix(s.party, history.ControllerEnd(""))
		return process && !c.roles.tested(name)
	})
}

// elsewhere reports whether there is another Node that the workload can run on.
func (c *recoveries) elsewhere(but string) bool {
	for i := range c.hosts.hosts {
		if h := &c.hosts.hosts[i]; h.name != but && h.state.ready && !h.state.cordoned {
			return true
		}
	}
	return false
}

func (c *recoveries) lacks() iter.Seq[lack] {
	return func(yield func(lack) bool) {
		if c.fenced.Kind == "" || c.neverStopped() {
			return
		}
		yield(lack{
			sentence: "the workload of " + c.fenced.Host + ", which was fenced, has not started again", since: &c.fenced,
			comes: []history.Kind{history.WorkloadStarted, history.PodBound}, on: parties{any: true},
		})
	}
}

func (c *recoveries) Pending() string { return c.pending(c.lacks()) }

func (c *recoveries) Finish(complete bool) Result {
	return c.verdictAfterHealing(complete, c.lacks(), "no host with the workload was fenced by agents")
}
