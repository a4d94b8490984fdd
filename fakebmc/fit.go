package fakebmc

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// redfishResets are the values of Redfish's ResetType. A BMC is asked for others
// only by a client that means another BMC.
var redfishResets = append(slices.Clone(everyReset), "Suspend", "Pause", "Resume")

// ResetTypes are the reset types that a client may ask for, executed or not.
func ResetTypes() []ResetType { return slices.Clone(redfishResets) }

// Fits returns an error for a rule that Validate accepts and that can never have an effect on the
// BMC of the host.
func (r Rule) Fits(host string, hosts []string) error {
	var errs []error
	b := &BMC{host: host, id: host} // with everything that a BMC can have
	b.locate()
	for _, x := range r.expand() {
		if x.When.Host != "" && !glob(x.When.Host, host) {
			errs = append(errs, fmt.Errorf("when.host %q leaves out %s, whose BMC it is", x.When.Host, host))
		}
		if x.When.Ends != "" {
			errs = append(errs, fmt.Errorf("ends %q would end the fault while the story counts on it: withdraw it by a step", x.When.Ends))
		}
		for _, t := range x.When.Reset {
			if !slices.Contains(redfishResets, t) {
				errs = append(errs, fmt.Errorf("reset type %q is none of %v", t, redfishResets))
			}
		}
		for key, others := range map[string]string{"swap": x.Effect.Swap, "also": x.Effect.Also} { // order does not matter: one at most is set
			if others != "" && !slices.ContainsFunc(hosts, func(name string) bool { return name != host && glob(others, name) }) {
				errs = append(errs, fmt.Errorf("%s %q is no other host", key, others))
			}
		}
		if len(errs) == 0 {
			if err := b.neverFires(newRule(x, &r)); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Concerns returns an error if the rule can never fire on any of these hosts, because its when.host
// matches none of them.
func (r Rule) Concerns(hosts ...string) error {
	if err := r.Validate(); err != nil {
		return err
	}
	for _, x := range r.expand() {
		if x.When.Host == "" || slices.ContainsFunc(hosts, func(host string) bool { return glob(x.When.Host, host) }) {
			return nil
		}
	}
	const few = 8
	names := strings.Join(hosts, ", ")
	if len(hosts) > few {
		names = fmt.Sprintf("%s and the other %d hosts", strings.Join(hosts[:few], ", "), len(hosts)-few)
	}
	return fmt.Errorf("rule %q would never fire: when.host %q is none of %s", r.Name, r.When.Host, names)
}

// Doubts are what of a rule is possible and hardly meant.
func (r Rule) Doubts() []string {
	report := r.Effect.Report
	if report == "" || report == reportNull || slices.Contains(powerStates, PowerState(report)) {
		return nil
	}
	return []string{fmt.Sprintf("report %q is no power state of Redfish's: those are %v", report, powerStates)}
}

// Holds is how long a request on which the rule fires is held up once that is reported, beyond its
// being made again; ok is false if the rule holds up none.
func (r Rule) Holds() (longest time.Duration, ok bool) {
	bent, some := r.longest(holdsBent)
	_, held := r.longest(holdsBack)
	return bent, some || held
}

// HoldsBack reports whether the rule holds requests back, and for how long: one that hangs is held
// back until its client gives up, and OnRequest reports one that is delayed only when that is
// over. What other rules do to a request is reported when it is done.
func (r Rule) HoldsBack() (longest time.Duration, ok bool) { return r.longest(holdsBack) }

// Hangs reports whether the rule leaves requests unanswered.
func (r Rule) Hangs() bool {
	return slices.ContainsFunc(r.expand(), func(x Rule) bool { return x.Effect.Hang })
}

// longest is for how long the rule holds something up at most; ok is false if it doesn't.
func (r Rule) longest(what held) (longest time.Duration, ok bool) {
	for _, x := range r.expand() {
		for _, k := range effects {
			if !k.set(&x.Effect) {
				continue
			}
			if long, holds := k.holds(&x.Effect); holds == what {
				longest, ok = max(longest, time.Duration(long)), true
			}
		}
	}
	return longest, ok
}

// Need is what a rule can't do without. Where it is missing the rule would come to
// nothing, so it is refused.
type Need string

// The needs.
const (
	NeedsWire  Need = "wire"  // a client that speaks a protocol with headers and sessions: a direct call sees nothing of it
	NeedsIPMI  Need = "ipmi"  // a client that speaks IPMI
	NeedsGuest Need = "guest" // a System that is a GuestSystem
	NeedsPeers Need = "peers" // systems of other hosts: see Peers
)

// selectors are those that have a need; the table of effects has theirs.
var selectors = []struct {
	key   string
	needs Need
	set   func(*Selector) bool
}{
	{"header", NeedsWire, func(s *Selector) bool { return s.Header != "" }},
	{"body", NeedsWire, func(s *Selector) bool { return s.Body != nil }},
	{"via", NeedsIPMI, func(s *Selector) bool { return s.Via == ViaIPMI }},
}

// KeysThatNeed are the keys of the selectors and effects that have a need.
func KeysThatNeed(n Need) []string {
	var keys []string
	for _, k := range selectors {
		if k.needs == n {
			keys = append(keys, k.key)
		}
	}
	for _, k := range effects {
		if k.needs == n {
			keys = append(keys, k.key)
		}
	}
	return keys
}

// Needs returns what all parts of the rule need, each with the key that needs it. Where one of them
// is missing, the rule has no effect at all.
func (r Rule) Needs() map[Need]string {
	all := make(map[Need]string)
	for i, x := range r.expand() {
		needs := x.needs()
		if i == 0 {
			all = needs
		}
		maps.DeleteFunc(all, func(n Need, _ string) bool { return needs[n] == "" })
	}
	return all
}

// needs are those of one part of a rule.
func (r *Rule) needs() map[Need]string {
	needs := make(map[Need]string)
	for _, k := range selectors {
		if k.set(&r.When) {
			needs[k.needs] = k.key
		}
	}
	for _, k := range effects {
		if k.needs != "" && k.set(&r.Effect) {
			needs[k.needs] = k.key
		}
	}
	return needs
}
