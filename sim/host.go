package sim

import (
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/model"
	"github.com/fencelab/fencelab/sim/steps"
)

// host is a machine in the simulated world, with the software that runs on it.
type host struct {
	*model.Host
	w       *world
	actor   actor
	name    string
	at      string // its end of every link
	kubelet *kubelet
	// storage has the workload's volume; nil without one.
	storage *storage
	// agents are the processes of controllers that run on every host. One of them, feeder, feeds
	// the watchdog.
	agents []*process
	// guests are the processes that the story has put here.
	guests []*process
	feeder *process
	// clock measures durations on the host. Kept holds what its agents store for as long as the
	// boot lasts.
	clock drifting
	kept  map[string][]byte // by program
}

func newHost(w *world, name string, t model.Timings) *host {
	h := &host{w: w, actor: actor{name: name, place: steps.PlaceHost + name}, name: name, at: scenarios.HostEnd(name)}
	h.Host = model.New(around{h}, around{h}, name, t)
	return h
}

// byScenario is the actor in events that the scenario itself causes.
const byScenario = string(history.Engine)

// deed returns a deed on the host.
func (h *host) deed(verb string) steps.Deed {
	return steps.Deed{Verb: verb, On: steps.Object{Kind: "Host", Name: h.name}, Node: h.kubelet.node}
}

// stopFeeding stops the feeding of the watchdog. An agent that feeds it ends until the next boot.
func (h *host) stopFeeding() {
	if h.feeder != nil && h.Booted() {
		h.feeder.end()
	}
	h.StopFeeding()
}

// around is a machine's environment. It implements model.World and model.Software.
type around struct{ h *host }

// Now returns the world's time.
func (a around) Now() time.Duration { return a.h.w.now }

// classes maps the classes of a machine's steps.
var classes = map[model.Class]steps.Class{model.Power: steps.ClassPower, model.Boot: steps.ClassBoot, model.Watchdog: steps.ClassWatchdog}

// After schedules a step of the host.
func (a around) After(d time.Duration, class model.Class, verb string, do func()) model.Timer {
	return a.h.w.schedule(&a.h.actor, classes[class], a.h.deed(verb), d, func(trouble) { do() })
}

// Cancel withdraws a step.
func (a around) Cancel(t model.Timer) {
	if t != nil {
		a.h.w.cancel(t.(*step))
	}
}

// Emit records an event.
func (a around) Emit(e history.Event) { a.h.w.emit(e) }

// Begins starts the host's clock from zero.
func (a around) Begins() { a.h.clock.start(a.h.w.now) }

// Start starts the kubelet and the agents.
func (a around) Start() {
	a.h.kubelet.start()
	for _, p := range slices.Concat(a.h.agents, a.h.guests) {
		p.restart(startLatency)
	}
}

// ShutDown stops the containers.
func (a around) ShutDown() { a.h.kubelet.shutDown() }

// Kill ends every process.
func (a around) Kill() {
	a.h.kubelet.kill()
	for _, agent := range a.h.agents {
		agent.die() // that is not a crash
	}
	for _, p := range a.h.guests {
		if p.alive() {
			p.stop(death{note: "its host went down"})
		}
	}
	a.h.kept = nil
}

// Halts brings the kubelet's Lease up to date, since no renewal will follow.
func (a around) Halts() { a.h.kubelet.rouse() }
