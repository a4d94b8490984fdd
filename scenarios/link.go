package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Link is one direction of the network, from one end to another. Ends are API,
// host/NAME, controller/NAME and bmc/NAME; an empty one is any that the other has a
// link with, but for its BMC.
type Link struct{ From, To string }

// API is the end at the API server.
const API = history.Everybody

// HostEnd, ControllerEnd and BMCEnd are the ends of links at a host, at a process of a
// controller, and at the BMC of a host.
func HostEnd(name string) string       { return history.HostEnd(name) }
func ControllerEnd(name string) string { return history.ControllerEnd(name) }
func BMCEnd(host string) string        { return history.BMCEnd(host) }

// Covers reports whether a message from one end to another takes this link.
func (l Link) Covers(from, to string) bool {
	return (l.From == from || l.From == "") && (l.To == to || l.To == "") &&
		(l.From != "" && l.To != "" || !strings.HasPrefix(from, BMCEnd("")) && !strings.HasPrefix(to, BMCEnd("")))
}

// Host is the first host at an end, or "".
func (l Link) Host() string {
	for _, end := range [...]string{l.From, l.To} {
		if name, ok := strings.CutPrefix(end, HostEnd("")); ok {
			return name
		}
	}
	return ""
}

func (l Link) String() string { return l.From + " to " + l.To }

// LinkOp names links of the network: by host, by domain, by from and to, or by between.
type LinkOp struct {
	// host is a host: all its links, except that of its BMC.
	Host string `json:"host,omitempty"`
	// domain is a failure domain: all links that lead out of it, except those of BMCs. Its
	// hosts can still reach each other.
	Domain string `json:"domain,omitempty"`
	// from is where one direction of a link begins: api, host/NAME, controller/NAME or
	// bmc/NAME. Messages in the other direction still arrive.
	From string `json:"from,omitempty"`
	// to is where that direction ends.
	To string `json:"to,omitempty"`
	// between is the two ends of a link, in both directions.
	Between []string `json:"between,omitempty"`
}

// ImpairOp names links of the network, as a cut does, and what becomes of the frames that pass them.
type ImpairOp struct {
	// host is a host: all its links, except that of its BMC.
	Host string `json:"host,omitempty"`
	// domain is a failure domain: all links that lead out of it, except those of BMCs.
	Domain string `json:"domain,omitempty"`
	// from is where one direction of a link begins: api or host/NAME. Messages in the other direction pass as always.
	From string `json:"from,omitempty"`
	// to is where that direction ends.
	To string `json:"to,omitempty"`
	// between is the two ends of a link, in both directions.
	Between []string `json:"between,omitempty"`
	// delay is how much later each frame arrives. An exchange over links that are poor in both directions takes twice
	// as much longer.
	Delay Duration `json:"delay,omitzero"`
	// loss is the share of frames that never arrive, such as 0.1.
	Loss float64 `json:"loss,omitempty"`
	// rate is how many bytes pass in a second.
	Rate int `json:"rate,omitempty"`
}

// Link is which links are meant.
func (i *ImpairOp) Link() *LinkOp {
	return &LinkOp{Host: i.Host, Domain: i.Domain, From: i.From, To: i.To, Between: i.Between}
}

// How says how poor they are: "200ms late, 10% lost, 20000 bytes a second".
func (i *ImpairOp) How() string {
	var how []string
	if i.Delay > 0 {
		how = append(how, time.Duration(i.Delay).String()+" late")
	}
	if i.Loss > 0 {
		how = append(how, fmt.Sprintf("%g%% lost", 100*i.Loss))
	}
	if i.Rate > 0 {
		how = append(how, fmt.Sprintf("%d bytes a second", i.Rate))
	}
	return strings.Join(how, ", ")
}

func (i *ImpairOp) String() string { return "impair " + i.Link().String() + ": " + i.How() }

// Links are the directions that are meant in a topology.
func (l *LinkOp) Links(t *Topology) []Link {
	switch {
	case l.Host != "":
		return []Link{{From: HostEnd(l.Host)}, {To: HostEnd(l.Host)}}
	case l.Domain != "":
		return t.outOf(l.Domain)
	case len(l.Between) == 2:
		return []Link{{l.Between[0], l.Between[1]}, {l.Between[1], l.Between[0]}}
	default:
		return []Link{{l.From, l.To}}
	}
}

// outOf are the links between the hosts of a failure domain and all that is not in it.
func (t *Topology) outOf(domain string) []Link {
	inside, outside := []string(nil), []string{API}
	for i := range t.Hosts {
		if h := &t.Hosts[i]; h.Domain == domain {
			inside = append(inside, HostEnd(h.Name))
		} else {
			outside = append(outside, HostEnd(h.Name))
		}
	}
	var links []Link
	for _, in := range inside {
		for _, out := range outside {
			links = append(links, Link{in, out}, Link{out, in})
		}
	}
	return links
}

func (l *LinkOp) String() string {
	switch {
	case l.Host != "":
		return l.Host
	case l.Domain != "":
		return "domain " + l.Domain
	case len(l.Between) > 0:
		return strings.Join(slices.Sorted(slices.Values(l.Between)), " and ")
	default:
		return "the way from " + l.From + " to " + l.To
	}
}

// ends are those that are named.
func (l *LinkOp) ends() []string {
	if l.Host != "" {
		return []string{HostEnd(l.Host)}
	}
	if len(l.Between) > 0 {
		return l.Between
	}
	return []string{l.From, l.To}
}

// host is the first host that is named, object the controller, if one is.
func (l *LinkOp) host() string { return l.first(HostEnd("")) }
func (l *LinkOp) object() string {
	if name := l.first(ControllerEnd("")); name != "" {
		return ControllerEnd(name)
	}
	return ""
}

func (l *LinkOp) first(prefix string) string {
	for _, end := range l.ends() {
		if name, ok := strings.CutPrefix(end, prefix); ok {
			return name
		}
	}
	return ""
}

// asks is more than to cut a host's links.
func (l *LinkOp) asks(*Spec) []Feature {
	if l.object() == "" {
		return nil
	}
	return []Feature{FeatureControllerLinks}
}

// link checks that there are such links.
func (v *validator) link(path string, l *LinkOp) {
	given := 0
	for _, is := range [...]bool{l.Host != "", l.Domain != "", l.From != "" || l.To != "", len(l.Between) > 0} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		v.bad(path, "does not say which links: give it host, domain, from and to, or between")
		return
	case l.Host != "":
		v.host(path+".host", l.Host)
		return
	case l.Domain != "":
		if v.hosts != nil && !v.oneOf(path+".domain", "domain", l.Domain, v.domains()) {
			v.unsure = true
		}
		return
	case len(l.Between) > 0:
		for i, end := range l.Between {
			v.end(fmt.Sprintf("%s.between[%d]", path, i), end)
		}
		if len(l.Between) != 2 {
			v.bad(path+".between", "a link has two ends, but %d are given", len(l.Between))
			return
		}
	case l.From == "" || l.To == "":
		v.bad(path, "a direction goes from one end to another: give it from and to")
		return
	default:
		v.end(path+".from", l.From)
		v.end(path+".to", l.To)
	}
	one, other := l.ends()[0], l.ends()[1]
	if kinds := linked[kindOfEnd(one)]; kinds != nil && kindOfEnd(other) != "" && (one == other || !slices.Contains(kinds, kindOfEnd(other))) {
		v.bad(path, "there is no link between %s and %s: nothing is sent there", one, other)
	}
}

// leastRate is the slowest link over which an exchange with the API server ends before its client gives up.
const leastRate = 1000

func (v *validator) impair(path string, i *ImpairOp) {
	v.link(path, i.Link())
	switch {
	case i.Loss < 0 || i.Loss >= 1:
		v.bad(path+".loss", "%v: use the share of frames that is lost, such as 0.1; where all are, use cut", i.Loss)
	case i.Rate != 0 && i.Rate < leastRate:
		v.bad(path+".rate", "%d: use at least %d bytes a second, or cut", i.Rate, leastRate)
	case i.How() == "":
		v.bad(path, "does not say how poor the link is: give it delay, loss or rate")
	}
}

// domains are the failure domains of the topology.
func (v *validator) domains() []string {
	var all []string
	for _, host := range v.spec.Topology.Hosts {
		if host.Domain != "" && !slices.Contains(all, host.Domain) {
			all = append(all, host.Domain)
		}
	}
	return all
}

// endPattern is what an end looks like.
const endPattern = `^(api|(host|controller|bmc)/[-.a-z0-9]+)$`

// linked are the kinds of ends between which there are links.
var linked = map[string][]string{
	"api": {"host", "controller"}, "host": {"api", "host"}, "controller": {"api", "bmc"}, "bmc": {"controller"},
}

func kindOfEnd(end string) string {
	kind, _, _ := strings.Cut(end, "/")
	if linked[kind] == nil {
		return ""
	}
	return kind
}

// end checks one end of a link.
func (v *validator) end(path, end string) {
	kind, name, named := strings.Cut(end, "/")
	switch {
	case end == API:
	case !named || linked[kind] == nil || kind == API:
		v.bad(path, "%s is not an end of a link: write api, host/NAME, controller/NAME or bmc/NAME", phrase.Quote(end))
	case kind == "controller":
		v.controllerNamed(path, name)
	case v.hosts != nil && !slices.Contains(v.hosts, name):
		v.bad(path, "%s", unknown("host", name, v.hosts))
		v.unsure = true
	}
}

// controllerNamed checks a controller that is part of a value.
func (v *validator) controllerNamed(path, name string) {
	if v.controllers != nil && !slices.Contains(v.controllers, name) {
		v.bad(path, "%s", unknown("controller", name, v.controllers))
	}
}
