package sim

import (
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/model"
	"github.com/fencelab/fencelab/sim/steps"
)

// host is a machine in the simulated world, with what runs on it.
type host struct {
	*model.Host
	w       *world
	actor   actor
	name    string
	at      string // its end of every link
	kubelet *kubelet
	// agents are the processes of controllers that run on every host, and feeder the one
	// of them that feeds the watchdog.
	agents []*process
	feeder *process
	// clock is the one by which the host measures how long something takes, and kept what
	// its agents keep for as long as the boot lasts.
	clock drifting
	kept  map[string][]byte // by program
}

func newHost(w *world, name string, t model.Timings) *host {
	h := &host{w: w, actor: actor{name: name, place: steps.PlaceHost + name}, name: name, at: scenarios.HostEnd(name)}
	h.Host = model.New(around{h}, around{h}, name, t)
	return h
}

// byScenario is the actor of what the scenario itself does.
const byScenario = string(history.Engine)

// deed is what happens to the host.
func (h *host) deed(verb string) steps.Deed {
	return steps.Deed{Verb: verb, On: steps.Object{Kind: "Host", Name: h.name}}
}

// stopFeeding leaves the watchdog alone: an agent that feeds it is over until the next boot.
func (h *host) stopFeeding() {
	if h.feeder != nil && h.Booted() {
		h.feeder.end()
	}
	h.StopFeeding()
}

// around is what is around a machine: it implements model.World and model.Software.
type around struct{ h *host }

// Now is the world's time.
func (a around) Now() time.Duration { return a.h.w.now }

// classes are the steps of machines.
var classes = map[model.Class]steps.Class{model.Power: steps.ClassPower, model.Boot: steps.ClassBoot, model.Watchdog: steps.ClassWatchdog}

// After schedules a step of the host.
func (a around) After(d time.Duration, class model.Class, verb string, do func()) model.Timer {
	return a.h.w.schedule(&a.h.actor, classes[class], a.h.deed(verb), d, func(trouble) { do() })
}

// Cancel takes a step back.
func (a around) Cancel(t model.Timer) {
	if t != nil {
		a.h.w.cancel(t.(*step))
	}
}

// Emit records an event.
func (a around) Emit(e history.Event) { a.h.w.emit(e) }

// Begins lets the host's clock show nothing yet.
func (a around) Begins() { a.h.clock.start(a.h.w.now) }

// Start starts the kubelet and the agents.
func (a around) Start() {
	a.h.kubelet.start()
	for _, agent := range a.h.agents {
		agent.restart(startLatency)
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
	a.h.kept = nil
}

// Halts has the kubelet's Lease tell what is so.
func (a around) Halts() { a.h.kubelet.rouse() }
