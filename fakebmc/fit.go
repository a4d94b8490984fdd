package fakebmc

import (
	"errors"
	"fmt"
	"slices"
)

// redfishResets are the values of Redfish's ResetType. A BMC is asked for others
// only by a client that means another BMC.
var redfishResets = append(slices.Clone(everyReset), "ForceOn", "FullPowerCycle", "Suspend", "Pause", "Resume")

// ResetTypes are the reset types that a client may ask for, executed or not.
func ResetTypes() []ResetType { return slices.Clone(redfishResets) }

// Fits returns why a rule that Validate accepts can come to nothing on the BMC of
// one of the hosts.
func (r Rule) Fits(host string, hosts []string) error {
	var errs []error
	for _, x := range r.expand() {
		if x.When.Host != "" && !glob(x.When.Host, host) {
			errs = append(errs, fmt.Errorf("when.host %q leaves out %s, whose BMC it is", x.When.Host, host))
		}
		for _, t := range x.When.Reset {
			if !slices.Contains(redfishResets, t) {
				errs = append(errs, fmt.Errorf("reset type %q is none of %v", t, redfishResets))
			}
		}
		if swap := x.Effect.Swap; swap != "" && !slices.ContainsFunc(hosts, func(name string) bool { return name != host && glob(swap, name) }) {
			errs = append(errs, fmt.Errorf("swap %q is no other host", swap))
		}
	}
	return errors.Join(errs...)
}

// Doubts are what of a rule is possible and hardly meant.
func (r Rule) Doubts() []string {
	report := r.Effect.Report
	if report == "" || report == reportNull || slices.Contains(powerStates, PowerState(report)) {
		return nil
	}
	return []string{fmt.Sprintf("report %q is no power state of Redfish's: those are %v", report, powerStates)}
}

// WireOnly returns what of a rule shows on the wire only, to clients that speak HTTP
// or IPMI, or "" if some of it shows in a direct call as well.
func (r Rule) WireOnly() string {
	what := ""
	for _, x := range r.expand() {
		key := x.wireOnly()
		if key == "" {
			return ""
		}
		what = key
	}
	return what
}

func (r *Rule) wireOnly() string {
	e := &r.Effect
	switch {
	case r.When.Header != "":
		return "header"
	case r.When.Via == ViaIPMI:
		return "via"
	case e.Cap != 0:
		return "cap"
	case e.Expire:
		return "expire"
	case e.Auth != "":
		return "auth"
	case e.Etag != "":
		return "etag"
	case e.Drop != "":
		return "drop"
	case e.Omit != "":
		return "omit"
	case len(e.Advertise) > 0:
		return "advertise"
	}
	return ""
}
