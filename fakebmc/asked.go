package fakebmc

import (
	"fmt"
	"slices"
	"strings"
)

// asked is a kind of request that a BMC can get. A rule that none of them meets never fires, and
// is refused.
type asked struct {
	kind   kind
	traits Traits
	Request
	// below are the paths of a request that can have any path below one of them.
	below []string
}

// anybodys is the root of a Redfish service. Requests below it are for the BMC that the service
// belongs to. Where several BMCs share a service, the root belongs to none of them.
const anybodys = "/redfish"

// sessionsPath is where clients log in, unless a mockup has another place.
const sessionsPath = "/redfish/v1/SessionService/Sessions"

// everyAsked are the requests that this BMC can get.
func (b *BMC) everyAsked() []asked {
	header := func(string) string { return "" }
	sessions := Traits{Header: header, Auth: AuthSession}
	below := []string{anybodys}
	if b.shares {
		below = nil
		for _, name := range []string{b.id, b.host} {
			below = append(below, SystemsPath+"/"+name, ManagersPath+"/"+name, ChassisPath+"/"+name)
		}
		below = append(below, "/redfish/v1/TaskService/Tasks/*", "/redfish/v1/TaskService/TaskMonitors/*")
	}
	var all []asked
	add := func(k kind, t Traits, r Request) { all = append(all, asked{kind: k, traits: t, Request: r}) }
	for _, via := range []string{ViaRedfish, ViaIPMI} {
		var t Traits
		switch {
		case via == ViaRedfish:
			t = sessions
		case b.noIPMI:
			continue
		}
		request := func(method, path string, reset ResetType) Request {
			return Request{Via: via, Method: method, Path: path, ResetType: reset}
		}
		add(read, t, request(methodGet, b.paths.System, ""))
		if via == ViaRedfish && b.paths.Chassis != "" {
			add(read, t, request(methodGet, b.paths.Chassis, ""))
		}
		for _, r := range redfishResets {
			if via == ViaRedfish || slices.Contains(ChassisControls, r) {
				add(reset, t, request(methodPost, b.paths.Reset, r))
			}
			if via == ViaRedfish && b.paths.ChassisReset != "" && slices.Contains(ChassisResets, r) {
				add(reset, t, request(methodPost, b.paths.ChassisReset, r))
			}
		}
		if b.paths.ManagerReset != "" {
			add(managerReset, t, request(methodPost, b.paths.ManagerReset, ResetForceRestart))
		}
		add(other, t, request(methodPatch, b.paths.System, ""))
		add(other, t, request(methodGet, ManagersPath+"/"+b.id, ""))
	}
	for _, own := range []string{ClientBMC, ClientWatchdog, ClientRestore} {
		for _, r := range everyReset {
			add(reset, Traits{}, Request{Client: own, own: true, Method: methodPost, Path: b.paths.Reset, ResetType: r})
		}
	}
	events := Request{Client: ClientEvents, own: true, Method: methodPost}
	all = append(all, asked{kind: other, traits: Traits{Own: true}, Request: events, below: []string{"/redfish/v1/EventService/Subscriptions/*"}})
	add(read, sessions, Request{Via: ViaRedfish, Method: methodHead, Path: b.paths.System})
	if _, ok := b.sys.(MediaBay); ok || b.sys == nil {
		for _, method := range []string{methodPost, methodPatch} {
			t := sessions
			t.Own, t.Media = true, true
			all = append(all, asked{kind: media, traits: t, Request: Request{Via: ViaRedfish, Method: method}, below: below})
		}
	}
	for _, method := range methods {
		all = append(all, asked{kind: other, traits: sessions, Request: Request{Via: ViaRedfish, Method: method}, below: below})
	}
	if !b.shares {
		for _, path := range []string{b.paths.Sessions, b.paths.Sessions + "/Members"} {
			add(other, Traits{Header: header, Login: true}, Request{Via: ViaRedfish, Method: methodPost, Path: path})
		}
	}
	return all
}

// ChassisResets are the resets of a Redfish Chassis, which has no operating system that could be
// asked. They are those of the host.
var ChassisResets = []ResetType{ResetOn, ResetForceOn, ResetForceOff, ResetPowerCycle, ResetFullPowerCycle}

// ChassisControls are the resets of IPMI's Chassis Control, in the order of its numbers (section
// 28.3).
var ChassisControls = []ResetType{ResetForceOff, ResetOn, ResetPowerCycle, ResetForceRestart, ResetNmi, ResetGracefulShutdown}

// withBodies are the methods of requests that say something.
var withBodies = []string{methodPost, methodPatch, "PUT"}

// meets reports whether a rule fires on such a request: in some state of the host and at some time.
func (a *asked) meets(r *rule, s *Selector) bool {
	return r.concerns.meets(a.kind, a.Request, a.traits) &&
		(!a.own || s.Client == a.Client) && // anybody else may have any name
		(s.Via == "" || s.Via == a.via()) &&
		(s.Method == "" || s.Method == a.Method) &&
		(s.Path == "" || a.at(s.Path)) &&
		(s.Header == "" || a.traits.wired()) &&
		(s.Body == nil || a.traits.wired() && slices.Contains(withBodies, a.Method)) &&
		(len(s.Reset) == 0 || a.kind == reset && slices.Contains(s.Reset, a.ResetType))
}

// at reports whether the request can have a path that a glob matches.
func (a *asked) at(path string) bool {
	if a.below == nil {
		return glob(path, a.Path)
	}
	return slices.ContainsFunc(a.below, func(below string) bool {
		// A glob's star stops at a slash, so that it matches segment by segment.
		want, have := strings.Split(path, "/"), strings.Split(below, "/")
		if len(want) < len(have) {
			return false
		}
		for i := range have {
			if have[i] != "*" && !glob(want[i], have[i]) {
				return false
			}
		}
		return true
	})
}

// neverFires returns why no request that the BMC can get meets the rule, or nil.
func (b *BMC) neverFires(r *rule) error {
	if r.spontaneous() || r.Effect.Unlisted { // which is asked about no request
		return nil
	}
	all := b.everyAsked()
	some := func(s Selector) bool {
		return slices.ContainsFunc(all, func(a asked) bool { return a.meets(r, &s) })
	}
	if some(r.When) {
		return nil
	}
	what := r.Effect.keys()[0]
	without := r.When
	for _, x := range []struct {
		key   string
		value any
		drop  func()
	}{
		{"path", r.When.Path, func() { without.Path = "" }},
		{"via", r.When.Via, func() { without.Via = "" }},
		{"method", r.When.Method, func() { without.Method = "" }},
		{"reset", r.When.Reset, func() { without.Reset = nil }},
		{"header", r.When.Header, func() { without.Header = "" }},
		{"body", r.When.Body, func() { without.Body = nil }},
		{"client", r.When.Client, func() { without.Client = "" }},
	} {
		before := without
		if x.drop(); some(without) {
			return fmt.Errorf("%s fires on no request with %s %v: leave %s out, or choose another", what, x.key, x.value, x.key)
		}
		without = before
	}
	if b.shares && !some(Selector{}) {
		return fmt.Errorf("%s fires on no request to a BMC that shares its service with others: give each host a listener of its own", what)
	}
	return fmt.Errorf("%s fires on no request that when selects", what)
}
