package guarantee

import (
	"iter"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var workloadRecovers = invariant.Invariant{
	ID:       "workload-recovers",
	Claim:    "The exclusive workload of a fenced host runs again: once the safe time is over if most agents are healthy, and eventually in any case.",
	Seed:     "004",
	Liveness: true,
	New: func(p invariant.Params) invariant.Checker {
		c := &recoveries{
			roles:     p.Roles,
			hosts:     invariant.NewRoster[recovering](p.Hosts),
			Promise:   invariant.NewPromise(p, invariant.Ruling{ID: "workload-recovers"}),
			witnesses: invariant.NewWitnesses(p),
			pledges:   newPledges(p),
			deadline:  p.Timings.Safe + p.Timings.Release + recoverySlack,
			release:   p.Timings.Release,
			bounded:   p.Timings.Safe > 0,
			others:    make(map[string]bool),
		}
		for _, host := range p.Unwatched {
			c.hosts.Of(host).unwatched = true
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
// lose, who release Pods and start them anew, unless a user deletes its Node; and everything that
// was fenced must have run again when the faults were withdrawn.
type recoveries struct {
	invariant.Promise
	witnesses invariant.Witnesses
	pledges   pledges
	roles     invariant.Roles
	hosts     invariant.Roster[recovering]
	deadline  time.Duration
	release   time.Duration // what the cluster's own controllers take of it
	bounded   bool
	// fenced is the fencing after which the workload has not started yet. Timed says that its time
	// counts, which began at from, and isn't over; anew is how often one of the cluster's own
	// controllers has started since, which begins its waits anew.
	fenced history.Event
	timed  bool
	from   time.Duration
	anew   int
	// others are Pods that users have bound, or that a DaemonSet keeps on each Node: none of them
	// runs again elsewhere.
	others map[string]bool
}

type recovering struct {
	invariant.Body
	bound bool
	// process is the boot in which the workload started last, until it is seen to stop.
	process   string
	unwatched bool // no watchdog ends the host's boots
	cordoned  bool // the Node is
	ready     bool // the Node is
}

func (c *recoveries) Observe(e *history.Event) *invariant.Violation {
	switch {
	case !c.timed:
	case c.unpromised() || !c.elsewhere(c.fenced.Host):
		c.from, c.anew = e.At, 0
	case e.Kind == history.ControllerStarted && !c.roles.Tested(e.Actor):
		c.anew++
	}
	if c.timed && e.At-c.from > c.deadline && e.At-c.from-c.heldBack(e) > c.deadline {
		c.timed = false
		if at := c.fenced.At; c.witnesses.Most(at) {
			c.Breach(&c.fenced, e, "the workload of "+c.fenced.Host+", which was to be fenced at "+invariant.Seconds(at)+", did not run again until "+invariant.Seconds(e.At))
		}
	}
	c.witnesses.Observe(e)
	c.pledges.observe(e)
	c.Promise.Observe(e)
	if layer := e.Kind.Layer(); e.Host != "" && (layer == history.World || layer == history.API) {
		c.judge(c.hosts.Of(e.Host), e)
	}
	return c.Tell()
}

func (c *recoveries) judge(h *recovering, e *history.Event) {
	h.Body.Observe(e)
	if (e.Kind == history.WorkloadStarted || e.Kind == history.WorkloadStopped) && c.others["Pod/"+e.Object] {
		return
	}
	switch e.Kind {
	case history.EvidenceLost:
		c.Suspend(e, ", so that nobody saw whether the workload ran there")
	case history.PodBound:
		if invariant.ByUser(e) || e.Key != "" {
			c.others[e.Object] = true
			return
		}
		for i := range c.hosts.Hosts {
			c.hosts.Hosts[i].State.bound = false
		}
		h.bound = true
	case history.WorkloadStopped:
		h.process = ""
	case history.WorkloadStarted:
		h.process = e.Boot
		if c.timed {
			if c.from > c.fenced.At && !c.unpromised() { // promised since
				c.Judged++
			}
			c.Within(c.from-c.fenced.At+c.deadline+c.heldBack(e), &c.fenced, e)
		}
		c.fenced, c.timed = history.Event{}, false
	case history.FenceRequested:
		if h.bound && (h.Boot == "" || h.Boot == e.Value) && (c.fenced.Kind == "" || c.fenced.Host == e.Host && c.fenced.Value != e.Value) {
			if c.fenced, c.timed, c.from, c.anew = *e, c.bounded, e.At, 0; c.pledges.free(e.Host) {
				c.Excuse(e)
			} else {
				c.Judged++
			}
		}
	case history.NodeCreated:
		h.ready, h.cordoned = false, false
	case history.NodeDeleted:
		if h.ready = false; h.bound && invariant.ByUser(e) {
			c.timed = false // Kubernetes takes its own time then
		}
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

// unpromised reports whether the end of the fenced host's boot was never announced: its workload
// still runs there, without a watchdog, and has nothing to recover from; or only a person can
// decide.
func (c *recoveries) unpromised() bool {
	h := c.hosts.Of(c.fenced.Host)
	return h.unwatched && h.process != "" && h.process == h.Boot || c.pledges.free(c.fenced.Host)
}

// heldBack is how much of the time until e was lost by the cluster's own controllers, how much a
// schedule delayed the next boot of the fenced host, or the host that has the workload now, and how
// much a user kept its Node or its Pod.
func (c *recoveries) heldBack(e *history.Event) time.Duration {
	return time.Duration(c.anew)*c.release + c.LostTo(c.from, e.At, func(*invariant.Spell) time.Duration { return c.witnesses.Recovery }, func(s *invariant.Spell) bool {
		name, process := strings.CutPrefix(s.Party, history.ControllerEnd(""))
		return process && !c.roles.Tested(name) || s.Scheduled() && c.mayRun(s.Party) || s.Keeps(invariant.ReleaseEnds|invariant.StorageEnds, c.fenced.Host)
	})
}

// mayRun reports whether a party is a host on which the workload may run again.
func (c *recoveries) mayRun(party string) bool {
	host, is := strings.CutPrefix(party, history.HostEnd(""))
	return is && (host == c.fenced.Host || c.hosts.Of(host).bound)
}

// elsewhere reports whether there is another Node that the workload can run on.
func (c *recoveries) elsewhere(but string) bool {
	for i := range c.hosts.Hosts {
		if h := &c.hosts.Hosts[i]; h.Name != but && h.State.ready && !h.State.cordoned {
			return true
		}
	}
	return false
}

func (c *recoveries) Lacks() iter.Seq[invariant.Lack] {
	return func(yield func(invariant.Lack) bool) {
		if c.fenced.Kind == "" || c.unpromised() {
			return
		}
		yield(invariant.Lack{
			Sentence: "the workload of " + c.fenced.Host + ", which was fenced, has not started again", Since: &c.fenced,
			Comes: []history.Kind{history.WorkloadStarted, history.PodBound}, On: invariant.Parties{Any: true, Ends: invariant.ReleaseEnds | invariant.StorageEnds},
		})
	}
}

func (c *recoveries) Pending() string { return c.Owing(c.Lacks()) }

func (c *recoveries) Finish(complete bool) invariant.Result {
	return c.ConcludeAfterHealing(complete, c.Lacks(), "no host with the workload was fenced by agents that had others to ask")
}
