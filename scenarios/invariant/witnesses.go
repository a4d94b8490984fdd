package invariant

import (
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// witnesses tell which agents of seed 004 were well enough to be asked, or to act. One
// isn't while its host is off or boots, and when anything holds it, its host or everybody
// up; and for a while after.
type witnesses struct {
	*hindrances
	// recovery is how long an agent may still be unwell after it was held up.
	recovery time.Duration
	names    []string
	now      time.Duration
	// booted are the hosts whose boot is complete, and since when.
	booted map[string]time.Duration
}

func newWitnesses(p Params) witnesses {
	return witnesses{
		hindrances: p.hindrances, recovery: max(p.Timings.Safe, p.Timings.Watchdog+p.Timings.Slack),
		names: p.Hosts, booted: make(map[string]time.Duration),
	}
}

func (w *witnesses) observe(e *history.Event) {
	w.now = e.At
	switch e.Kind {
	case history.RunStarted: // whoever is up was all along
		for name := range w.booted { // order does not matter: all alike
			w.booted[name] = -w.recovery
		}
	case history.PowerOff, history.BootEnded, history.EvidenceLost:
		delete(w.booted, e.Host)
	case history.BootComplete:
		w.booted[e.Host] = e.At
	}
}

// well reports whether the agent on a host was, since a time at least.
func (w *witnesses) well(name string, since time.Duration) bool {
	booted, up := w.booted[name]
	return up && booted+w.recovery < since && !w.hindered(name, since)
}

// hindered reports whether anything held an agent up since a time, or a while before.
func (w *witnesses) hindered(host string, since time.Duration) bool {
	for i := range w.spells {
		if s := &w.spells[i]; w.lasted(s, since) && s.on(host) {
			return true
		}
	}
	return false
}

// lasted reports whether a spell, and the while after it, were over only after a time.
func (w *witnesses) lasted(s *spell, since time.Duration) bool {
	return s.begin <= w.now && (s.end == open || s.end+w.recovery >= since)
}

// mostOf reports whether most of the agents on other hosts were, since a time. Where there
// are no others, none were unwell.
func (w *witnesses) mostOf(but string, since time.Duration) bool {
	well, others := 0, 0
	for _, name := range w.names {
		if name == but {
			continue
		}
		others++
		if w.well(name, since) {
			well++
		}
	}
	return 2*well > others || others == 0
}

// most reports whether nothing kept most agents from the API server since a time.
func (w *witnesses) most(since time.Duration) bool {
	for i := range w.spells {
		if s := &w.spells[i]; s.party == history.Everybody && w.lasted(s, since) {
			return false
		}
	}
	return w.mostOf("", since)
}
