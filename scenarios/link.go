package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Link is one direction of the network, from one end to another. Ends are API,
// host/NAME, controller/NAME and bmc/NAME; an empty one is any that the other has a
// link with, but for its BMC.
type Link struct{ From, To string }

// API is the end at the API server, and Storage that at the storage, which has its own network.
const (
	API     = history.Everybody
	Storage = "storage"
)

// HostEnd, ControllerEnd and BMCEnd are the ends of links at a host, at a process of a
// controller, and at the BMC of a host.
func HostEnd(name string) string       { return history.HostEnd(name) }
func ControllerEnd(name string) string { return history.ControllerEnd(name) }
func BMCEnd(host string) string        { return history.BMCEnd(host) }

// Covers reports whether a message from one end to another takes this link.
func (l Link) Covers(from, to string) bool {
	return (l.From == from || l.From == "") && (l.To == to || l.To == "") &&
		(l.From != "" && l.To != "" || !strings.HasPrefix(from, BMCEnd("")) && !strings.HasPrefix(to, BMCEnd("")) && to != Storage)
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
	// host is a host: all its links, except those of its BMC and to the storage.
	Host string `json:"host,omitempty"`
	// domain is a failure domain: all links that lead out of it, except those of BMCs and to the
	// storage. Its hosts can still reach each other.
	Domain string `json:"domain,omitempty"`
	// from is where one direction of a link begins: api, storage, host/NAME, controller/NAME or
	// bmc/NAME. Messages in the other direction still arrive.
	From string `json:"from,omitempty"`
	// to is where that direction ends.
	To string `json:"to,omitempty"`
	// between is the two ends of a link, in both directions.
	Between []string `json:"between,omitempty"`
}

// ImpairOp names links of the network, as a cut does, and what becomes of the frames that pass
// them.
type ImpairOp struct {
	// host is a host: all its links, except that of its BMC.
	Host string `json:"host,omitempty"`
	// domain is a failure domain: all links that lead out of it, except those of BMCs.
	Domain string `json:"domain,omitempty"`
	// from is where one direction of a link begins: api or host/NAME. Messages in the other
	// direction pass as always.
	From string `json:"from,omitempty"`
	// to is where that direction ends.
	To string `json:"to,omitempty"`
	// between is the two ends of a link, in both directions.
	Between []string `json:"between,omitempty"`
	// delay is how much later each frame arrives. An exchange over links that are poor in both
	// directions takes twice as much longer.
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

// ends returns the named ends of the links.
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
	if slices.Contains(l.ends(), Storage) {
		return []Feature{FeatureVolume}
	}
	if l.object() == "" {
		return nil
	}
	return []Feature{FeatureControllerLinks}
}

// EndPattern matches the name of an end.
const EndPattern = `^(api|storage|(host|controller|bmc)/[-.a-z0-9]+)$`

// linked are the kinds of ends between which there are links.
var linked = map[string][]string{
	"api": {"host", "controller"}, "host": {"api", "host", "storage"}, "storage": {"host"}, "controller": {"api", "bmc"}, "bmc": {"controller"},
}

func kindOfEnd(end string) string {
	kind, _, _ := strings.Cut(end, "/")
	if linked[kind] == nil {
		return ""
	}
	return kind
}
