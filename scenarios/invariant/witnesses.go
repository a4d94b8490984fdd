package invariant

import (
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Witnesses record which agents of seed 004 were well enough to be asked, or to act. An agent is
// not well while its host is off or boots, when it, its host or everybody was held up for more
// than a moment, and for a while after. A single request that fails is a moment: an agent asks
// again.
type Witnesses struct {
	*Hindrances
	// Recovery is how long an agent may still be unwell after it was held up.
	Recovery time.Duration
	roles    *Roles
	Names    []string
	// window is how far back something may lie for which an agent lets its host be reset: for
	// silence it hears nothing, and hears again within hearing; or it was away for more than
	// brief.
	window, silence, hearing, brief time.Duration
	// refused says that, for an agent, a refusal is no answer.
	refused bool
	// booted are the hosts whose boot is complete, and since when.
	booted map[string]time.Duration
	// nodes are the times at which the Node of a host became Ready, and stopped being Ready or was
	// deleted, by turns.
	nodes map[string][]time.Duration
}

// NewWitnesses returns witnesses that have observed nothing.
func NewWitnesses(p Params) Witnesses {
	t := &p.Timings
	return Witnesses{
		Hindrances: p.Hindrances, Recovery: max(t.Safe, t.Watchdog+t.Slack),
		window: t.Silence + t.Hearing + t.Watchdog + t.Slack, silence: t.Silence, hearing: t.Hearing, brief: t.Brief, refused: t.Refused,
		roles: &p.Roles, Names: p.Hosts, booted: make(map[string]time.Duration), nodes: make(map[string][]time.Duration),
	}
}

// Observe notes which hosts are up, and whose Nodes are Ready.
// hears is how long after a spell a host hears again.
func (w *Witnesses) hears(*Spell) time.Duration { return w.hearing }

func (w *Witnesses) Observe(e *history.Event) {
	switch e.Kind {
	case history.RunStarted: // whoever is up was all along
		for name := range w.booted { // order does not matter: all alike
			w.booted[name] = -w.Recovery
		}
		for _, changes := range w.nodes { // order does not matter: all alike
			changes[0] = -open
		}
	case history.PowerOff, history.BootEnded, history.EvidenceLost:
		delete(w.booted, e.Host)
	case history.BootComplete:
		w.booted[e.Host] = e.At
	case history.NodeReady, history.NodeNotReady, history.NodeDeleted:
		if ready := len(w.nodes[e.Host])%2 == 1; ready != (e.Kind == history.NodeReady) {
			w.nodes[e.Host] = append(w.nodes[e.Host], e.At)
		}
	}
}

// known reports whether a host's Node was Ready while the agent on another could look at it, and
// for a while before: agents ask no peer whose Node has not been Ready.
func (w *Witnesses) known(name, to string, at time.Duration) bool {
	from, until := at-w.window-w.Recovery, at
	silences := w.silences(to)
	for i := range w.spells {
		if s := &w.spells[i]; s.begin < until && s.end >= at && silences(s) {
			from, until = min(from, s.begin-w.Recovery), s.begin
		}
	}
	changes := w.nodes[name]
	n := 0
	for n < len(changes) && changes[n] <= until {
		n++
	}
	return n%2 == 1 && changes[n-1] <= max(from, 0)
}

// well reports whether the agent on a host was well since a time at least, as far as the links
// that matter go. An agent that has booted while the API server was away knows no peer until it is
// back.
func (w *Witnesses) well(name string, since time.Duration, matters func(*Spell) bool) bool {
	knows, up := w.booted[name]
	for i := range w.spells {
		if s := &w.spells[i]; s.begin <= knows && knows < s.end && (s.Party == history.Everybody || s.on(name, w.roles)) {
			knows = s.end
		}
	}
	return up && knows < since-w.Recovery && !w.hindered(name, since, matters)
}

// Away reports whether the agent on a host, at a moment, has stood still or was dead for so long
// that its watchdog may have gone unfed. A short death doesn't count, since the next agent
// remembers.
func (w *Witnesses) Away(host string, at time.Duration) bool {
	var sum time.Duration
	for i := range w.spells {
		s := &w.spells[i]
		if s.link() || !s.on(host, w.roles) || s.begin > at || s.end < at-w.window {
			continue
		}
		if s.fails && s.Name != IsDown {
			sum += untilAsked
		}
		sum += min(s.end, at) - max(s.begin, at-w.window)
	}
	return w.silence > 0 && sum >= w.brief
}

// Deaf reports whether the agent on a host, at a moment, has had no network for long enough to let
// that host be reset, or has just booted. One cut link makes no agent deaf: the others answer.
func (w *Witnesses) Deaf(host string, at time.Duration) bool {
	if booted, up := w.booted[host]; w.silence == 0 || !up || booted+w.Recovery >= at {
		return !w.well(host, at, anyLink)
	}
	return w.LostTo(at-w.window, at, w.hears, func(s *Spell) bool { return s.network() && s.on(host, w.roles) }) >= w.silence
}

// Silent reports whether the API server, at a moment, may have been silent for the agent on a host
// for long enough that it asks the others.
func (w *Witnesses) Silent(host string, at time.Duration) bool {
	if w.silence == 0 {
		return true
	}
	return w.LostTo(at-w.window, at, w.hears, w.silences(host)) >= w.silence
}

// silences returns whether a spell keeps the API server's answers from the agent on a host.
func (w *Witnesses) silences(host string) func(*Spell) bool {
	own, api := history.HostEnd(host), history.Everybody
	to, from := history.LinkOf(own, api), history.LinkOf(api, own)
	return func(s *Spell) bool {
		requests, refused := strings.CutPrefix(s.Party, history.RequestsOf(""))
		switch {
		case s.Party == history.Everybody:
			return true
		case refused:
			return w.refused && w.roles.Agent(requests) && strings.HasPrefix(requests, host+".")
		case s.link():
			return s.on(host, w.roles) && (s.network() || s.Name == to || s.Name == from)
		}
		return s.on(host, w.roles)
	}
}

// anyLink is for an agent that needs all links, and between for one that answers another.
func anyLink(*Spell) bool { return true }

func between(host, other string) func(*Spell) bool {
	to, from := history.LinkOf(history.HostEnd(host), history.HostEnd(other)), history.LinkOf(history.HostEnd(other), history.HostEnd(host))
	return func(s *Spell) bool { return s.network() || s.Name == to || s.Name == from }
}

// Shut reports whether a host has had no network between two moments. A schedule that answers
// its agent all the same is a deviation.
func (w *Witnesses) Shut(host string, from, to time.Duration) (shut bool) {
	for i := range w.spells {
		switch s := &w.spells[i]; {
		case s.Party == history.HostEnd(host) && s.network():
			shut = shut || s.begin <= from && s.end >= to
		case !s.link() && s.Name != IsDown && s.on(host, w.roles) && s.begin <= to && s.end >= from:
			return false
		}
	}
	return shut
}

// moment is how long an agent may be held up and still be well. A failing request adds untilAsked:
// two of them are more than a moment.
const moment, untilAsked = 2 * time.Second, 1500 * time.Millisecond

// hindered reports whether an agent was held up on links that matter for more than a moment since
// a time, or a while before.
func (w *Witnesses) hindered(host string, since time.Duration, matters func(*Spell) bool) bool {
	sum := time.Duration(0)
	for i := range w.spells {
		s := &w.spells[i]
		if !w.lasted(s, since) || !s.on(host, w.roles) || s.link() && !matters(s) {
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
func (w *Witnesses) lasted(s *Spell, since time.Duration) bool {
	return s.begin <= w.now && (s.end == open || s.end+w.Recovery >= since)
}

// MostOf reports whether most of the agents on other hosts were well since a time, and could
// answer the agent of one host, which knows them, or anybody if none is named. If there are no
// others, none were unwell.
func (w *Witnesses) MostOf(but string, since time.Duration) bool {
	well, others := 0, 0
	for _, name := range w.Names {
		if name == but {
			continue
		}
		others++
		matters := anyLink
		if but != "" {
			matters = between(name, but)
		}
		if w.well(name, since, matters) && (but == "" || w.known(name, but, since)) {
			well++
		}
	}
	return 2*well > others || others == 0
}

// Most reports whether nothing kept most agents from the API server since a time.
func (w *Witnesses) Most(since time.Duration) bool {
	for i := range w.spells {
		if s := &w.spells[i]; s.Party == history.Everybody && w.lasted(s, since) {
			return false
		}
	}
	return w.MostOf("", since)
}
