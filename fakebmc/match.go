package fakebmc

import (
	"path"
	"slices"
	"sync/atomic"
	"time"
)

// rule is a Rule in force on one BMC, with its own count of matches.
type rule struct {
	Rule
	group    *Rule // the rule that was added, of which this one is a part
	concerns concern
	matched  atomic.Uint64
	timers   uint64                 // those of a rule that takes place by itself, so far
	stop     map[uint64]func() bool // the ones that have not fired
	begun    bool                   // it has taken place; all three under the BMC's mu
}

func newRule(r Rule, group *Rule) *rule {
	n := &rule{Rule: r, group: group}
	for _, k := range effects {
		if k.set(&r.Effect) {
			n.concerns = k.concern
		}
	}
	if n.spontaneous() {
		n.concerns = concern{}
	}
	return n
}

// arrival is what selectors look at.
type arrival struct {
	Request
	traits Traits
	bmc    *BMC
	kind   kind
	now    time.Duration
	actual PowerState
	looked bool
}

// phase reads the actual state, once and only when a rule asks for it; it is
// empty, and no phase, when the System fails.
func (a *arrival) phase() PowerState {
	if !a.looked {
		a.looked, a.actual = true, a.bmc.actual()
	}
	return a.actual
}

// kind says what the BMC does for a request. As a set it says which requests an
// effect concerns.
type kind uint8

const (
	other        kind = 1 << iota // the protocol's own business
	read                          // GET or HEAD of the ComputerSystem
	reset                         // a ComputerSystem.Reset
	managerReset                  // a Manager.Reset
	media                         // an image for a virtual drive

	anything = other | read | reset | managerReset | media
)

// verdict is what the rules that fired on one request say, in their order.
type verdict struct {
	effects Effects
	fired   []string
}

// judge finds the rules that fire on a request. One that does not count is a look at
// what would happen to it.
func judge(rules []*rule, a *arrival, counts bool) verdict {
	var v verdict
	for _, r := range rules {
		if !r.concerns.meets(a.kind, a.Request, a.traits) || !r.When.matches(a) {
			continue
		}
		n := r.matched.Load() + 1
		if counts {
			n = r.matched.Add(1)
		}
		if n <= r.When.Skip || r.When.Count != 0 && n-r.When.Skip > r.When.Count {
			continue
		}
		v.effects = append(v.effects, &r.Effect)
		v.fired = append(v.fired, r.Name)
	}
	return v
}

// by is the name of the rule whose effect it is.
func (v *verdict) by(e *Effect) string { return v.fired[slices.Index(v.effects, e)] }

// Effects are those of all rules that fired on one request, in the order of the rules.
type Effects []*Effect

// Loses reports whether a property is among those that get lost of a change.
func (v Effects) Loses(property string) bool {
	return v.First(func(e *Effect) bool { return slices.Contains(e.Lose, property) }) != nil
}

// Ignores reports whether what is asked for is accepted and not done.
func (v Effects) Ignores() bool { return v.First(func(e *Effect) bool { return e.Ignore }) != nil }

// First returns the effect that counts of those that exclude each other, or nil.
func (v Effects) First(is func(*Effect) bool) *Effect {
	for _, e := range v {
		if is(e) {
			return e
		}
	}
	return nil
}

func (v Effects) delay(s Stage) (sum time.Duration) {
	for _, e := range v {
		if e.at(s) {
			sum += time.Duration(e.Delay)
		}
	}
	return sum
}

func (v Effects) lag() (sum time.Duration) {
	for _, e := range v {
		sum += time.Duration(e.Lag)
	}
	return sum
}

// end is what ends a request at a stage instead of an answer.
func (v Effects) end(s Stage) *Effect {
	for _, e := range v {
		if e.at(s) && (e.Hang || e.Unreachable || e.refuses() || e.Restart != nil && s == Received) {
			return e
		}
	}
	return nil
}

func (e *Effect) at(s Stage) bool { return e.Stage == s || e.Stage == "" && s == Received }

// matches leaves the host out: AddRule keeps rules for other hosts away.
func (s *Selector) matches(a *arrival) bool {
	return s.inWindow(a.now) &&
		s.matchesClient(&a.Request) &&
		(s.Via == "" || s.Via == a.via()) &&
		(s.Method == "" || s.Method == a.Method) &&
		(s.Path == "" || glob(s.Path, a.Path)) &&
		(s.Header == "" || s.matchesHeader(a)) &&
		(s.Body == nil || s.matchesBody(a)) &&
		(len(s.Reset) == 0 || a.kind == reset && slices.Contains(s.Reset, a.ResetType)) &&
		(len(s.Phase) == 0 || slices.Contains(s.Phase, a.phase())) &&
		(s.Within == 0 || a.bmc.mem.changedWithin(a.now, time.Duration(s.Within))) &&
		(s.Restarted == 0 || a.bmc.mem.restartedWithin(a.now, time.Duration(s.Restarted)))
}

// matchesClient selects the BMC's own requests by their full name only: no
// fault of the network or of a client may hit them.
func (s *Selector) matchesClient(r *Request) bool {
	if r.own {
		return s.Client == r.Client
	}
	return s.Client == "" || glob(s.Client, r.Client)
}

func (s *Selector) matchesHeader(a *arrival) bool {
	name, pattern, _ := s.header()
	if a.traits.Header == nil {
		return false
	}
	value := a.traits.Header(name)
	return value != "" && glob(pattern, value)
}

func (s *Selector) matchesBody(a *arrival) bool {
	if a.traits.Body == nil {
		return false
	}
	for property, pattern := range s.Body { // order does not matter: all have to match
		value, ok := a.traits.Body(property)
		if ok != (pattern != "") || ok && !glob(pattern, value) {
			return false
		}
	}
	return true
}

func (s *Selector) inWindow(now time.Duration) bool {
	return now >= time.Duration(s.From) && (s.Until == 0 || now < time.Duration(s.Until))
}

// everything reports whether nothing narrows the selection of requests.
func (s *Selector) everything() bool {
	return len(s.Phase) == 0 && s.Within == 0 && s.Restarted == 0 && s.everyRequest()
}

func (s *Selector) everyRequest() bool {
	return s.Client == "" && s.Via == "" && s.Method == "" && s.Path == "" && s.Header == "" && s.Body == nil && len(s.Reset) == 0 && s.Skip == 0 && s.Count == 0
}

// cutsOff reports whether the rule stops connections and not only some requests.
func (r *Rule) cutsOff() bool {
	return r.Effect.Unreachable && r.Effect.Stage != Executed && r.When.Within == 0 && r.When.Restarted == 0 && r.When.everyRequest()
}

// spontaneous reports whether the rule takes place by itself when it comes into force.
func (r *Rule) spontaneous() bool {
	return r.Effect.standing() && !r.Effect.Unlisted || r.Effect.Restart != nil && r.When.everything()
}

func glob(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil // Validate has seen the pattern
}
