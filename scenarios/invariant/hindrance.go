package invariant

import (
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// hindrances are what may keep controllers and BMCs from being as fast as they
// should be. A claim about time is judged only in their absence, so that being
// late is a fault of the controllers. They end when the faults are withdrawn, and
// a while after, because what failed is tried again in growing intervals.
type hindrances struct {
	recovery time.Duration
	// faults are those of BMCs that are in force: which host's, by name.
	faults map[string]string
	// down are the controllers that have crashed and not come back.
	down map[string]bool
	// everywhere says that something is in force that may hinder anybody.
	everywhere bool
	// stalled says that the lab itself is late.
	stalled bool
	// ended is when the last hindrance of a host ended, and of all under "".
	ended map[string]time.Duration
}

func newHindrances(p Params) hindrances {
	return hindrances{
		recovery: p.Timings.Backoff + 5*time.Second,
		faults:   make(map[string]string), down: make(map[string]bool), ended: make(map[string]time.Duration),
	}
}

// harmless are the operations that leave controllers and BMCs as fast as they were.
// What they lead to shows in events of its own.
var harmless = map[string]bool{
	"cut": true, "restore": true, "stopKubelet": true, "stopFeeding": true, "ignoreShutdown": true,
	"pause": true, "resume": true, "powerLoss": true, "powerUp": true,
	"annotate": true, "removeAnnotation": true, "setOnline": true, "patch": true, "delete": true, "create": true,
}

func (h *hindrances) observe(e *history.Event) {
	switch e.Kind {
	case history.OpApplied:
		switch {
		case e.Key == "addFault":
			h.faults[e.Object] = e.Host
		case e.Key == "removeFault":
			h.ended[h.faults[e.Object]] = e.At
			delete(h.faults, e.Object)
		case !harmless[e.Key], e.Key == "cut" && e.Object != "": // a controller's link
			h.everywhere = true
		}
	case history.Deviated:
		h.everywhere = true
	case history.Healed:
		for _, host := range h.faults { // order does not matter: all get the same time
			h.ended[host] = e.At
		}
		if h.everywhere || len(h.down) > 0 {
			h.ended[""] = e.At
		}
		clear(h.faults)
		h.everywhere = false
	case history.LabStalled:
		h.stalled = true
	case history.LabRecovered:
		h.stalled = false
		h.ended[""] = e.At
	case history.BMCFault, history.EvidenceLost, history.EvidenceRegained:
		h.ended[e.Host] = e.At
	case history.ControllerCrashed:
		h.down[e.Actor] = true
	case history.ControllerStarted:
		if h.down[e.Actor] {
			delete(h.down, e.Actor)
			h.ended[""] = e.At
		}
	}
}

// retold reports whether the scenario changes what the health check is told, so that
// nobody here knows it any more.
func retold(e *history.Event) bool {
	return e.Kind == history.OpApplied && strings.HasPrefix(e.Object, "MachineHealthCheck/")
}

// freed is from when a host's fencing is hindered by nothing any more that has been seen, and whether it isn't now.
func (h *hindrances) freed(host string) (time.Duration, bool) {
	var from time.Duration
	for _, name := range [...]string{"", host} {
		if ended, ok := h.ended[name]; ok {
			from = max(from, ended+h.recovery)
		}
	}
	return from, !h.inForce(host)
}

// since reports whether anything hindered the fencing of a host at or after a
// time.
func (h *hindrances) since(host string, from time.Duration) bool {
	if h.inForce(host) {
		return true
	}
	for _, name := range [...]string{"", host} {
		if ended, ok := h.ended[name]; ok && ended+h.recovery >= from {
			return true
		}
	}
	return false
}

// inForce reports whether something hinders the fencing of a host now.
func (h *hindrances) inForce(host string) bool {
	if h.everywhere || h.stalled || len(h.down) > 0 {
		return true
	}
	for _, faulty := range h.faults { // order does not matter: any will do
		if faulty == host || faulty == "" {
			return true
		}
	}
	return false
}
