package invariant

import (
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// witnesses tell which agents of seed 004 were well enough to be asked, or to act. One
// isn't while its host is off or boots, and when it, its host or everybody was held up for
// more than a moment; and for a while after. A single request that fails is a moment: an
// agent asks again.
type witnesses struct {
	*hindrances
	// recovery is how long an agent may still be unwell after it was held up.
	recovery time.Duration
	roles    *Roles
	names    []string
	// booted are the hosts whose boot is complete, and since when.
	booted map[string]time.Duration
}

func newWitnesses(p Params) witnesses {
	return witnesses{
		hindrances: p.hindrances, recovery: max(p.Timings.Safe, p.Timings.Watchdog+p.Timings.Slack),
		roles: &p.Roles, names: p.Hosts, booted: make(map[string]time.Duration),
	}
}

func (w *witnesses) observe(e *history.Event) {
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

// moment is how long an agent may be held up and still be well, and untilAsked what a request
// that fails adds to that: two of them are more than a moment.
const moment, untilAsked = 2 * time.Second, 1500 * time.Millisecond

// hindered reports whether an agent was held up for more than a moment since a time, or a
// while before.
func (w *witnesses) hindered(host string, since time.Duration) bool {
	sum := time.Duration(0)
	for i := range w.spells {
		s := &w.spells[i]
		if !w.lasted(s, since) || !s.on(host, w.roles) {
			continue
		}
		if s.fails {
			sum += untilAsked
		}
		if sum += min(s.end, w.now) - s.begin; sum > moment {
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
