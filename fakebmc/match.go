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
	matched atomic.Uint64
}

// arrival is what selectors look at.
type arrival struct {
	*Request
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

// kind tells what the BMC does for a request.
type kind int

const (
	other kind = iota // the service's own business
	read              // GET or HEAD of the ComputerSystem
	reset             // a ComputerSystem.Reset
)

// The stages as indices into a verdict.
const (
	before = iota
	after
)

// verdict is the sum of the effects of all rules that fired on one request.
type verdict struct {
	delay  [2]time.Duration
	end    [2]*Effect // what ends it instead of an answer: hang, unreachable or refuse
	ignore bool
	stuck  *Stuck
	lag    time.Duration
	report *Effect
	fired  []string
}

func judge(rules []*rule, a *arrival) verdict {
	var v verdict
	for _, r := range rules {
		if !r.Effect.concerns(a) || !r.When.matches(a) {
			continue
		}
		n := r.matched.Add(1)
		if n <= r.When.Skip || r.When.Count != 0 && n-r.When.Skip > r.When.Count {
			continue
		}
		v.fired = append(v.fired, r.Name)
		v.add(&r.Effect)
	}
	return v
}

func (v *verdict) add(e *Effect) {
	stage := before
	if e.Stage == Executed {
		stage = after
	}
	switch {
	case e.Delay != 0:
		v.delay[stage] += time.Duration(e.Delay)
	case e.Lag != 0:
		v.lag += time.Duration(e.Lag)
	case e.Ignore:
		v.ignore = true
	case e.Stuck != nil && v.stuck == nil:
		v.stuck = e.Stuck
	case e.Report != "" && v.report == nil:
		v.report = e
	case (e.Hang || e.Unreachable || e.Refuse != nil) && v.end[stage] == nil:
		v.end[stage] = e
	}
}

// concerns tells whether the effect means anything for the request, so that
// other requests don't use up a rule's count.
func (e *Effect) concerns(a *arrival) bool {
	switch {
	case e.Lag != 0, e.Report != "":
		return a.kind == read
	case e.Ignore:
		return a.kind == reset
	case e.Stuck != nil:
		return a.kind == reset && a.ResetType == ResetGracefulShutdown
	}
	return true
}

// matches leaves the host out: AddRule keeps rules for other hosts away.
func (s *Selector) matches(a *arrival) bool {
	return s.inWindow(a.now) &&
		(s.Method == "" || s.Method == a.Method) &&
		(s.Path == "" || glob(s.Path, a.Path)) &&
		(len(s.Reset) == 0 || a.kind == reset && slices.Contains(s.Reset, a.ResetType)) &&
		(len(s.Phase) == 0 || slices.Contains(s.Phase, a.phase()))
}

func (s *Selector) inWindow(now time.Duration) bool {
	return now >= time.Duration(s.From) && (s.Until == 0 || now < time.Duration(s.Until))
}

// cutsOff tells whether the rule stops connections and not only some requests.
func (r *Rule) cutsOff() bool {
	w := &r.When
	return r.Effect.Unreachable && r.Effect.Stage != Executed &&
		w.Method == "" && w.Path == "" && len(w.Reset) == 0 && w.Skip == 0 && w.Count == 0
}

func glob(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil // Validate has seen the pattern
}
