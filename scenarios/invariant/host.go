package invariant

import (
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
)

// The annotations of seeds 000 to 002, spelled out because the claims are about
// them and not about what the controllers' code takes them for.
const (
	rebootAnnotation      = "reboot.metal3.io"
	remediationAnnotation = rebootAnnotation + "/machine-remediation"
	externalAnnotation    = "host.metal3.io/external-remediation"
	poweredOffAnnotation  = "remediation.metal3.io/powered-off-for-remediation"
	pausedAnnotation      = "cluster.x-k8s.io/paused"
	skipAnnotation        = "cluster.x-k8s.io/skip-remediation"
)

// rebootRequest reports whether e changes a reboot annotation of a host, and
// whether that is a keyed one, which also holds the host off.
func rebootRequest(e *history.Event) (keyed, ok bool) {
	rest, ok := strings.CutPrefix(e.Key, rebootAnnotation)
	if !ok || !strings.HasPrefix(e.Object, "BareMetalHost/") {
		return false, false
	}
	return rest != "", rest == "" || len(rest) > 1 && rest[0] == '/'
}

var unquoted = strings.NewReplacer(`"`, "", "'", "", " ", "")

// hard reports whether the value of a reboot annotation asks for a hard reboot: it is
// a map with the key mode, in JSON or as seed 000 writes it, {'mode':'hard'}.
func hard(value string) bool {
	plain := unquoted.Replace(value)
	for field := range strings.SplitSeq(strings.Trim(plain, "{}"), ",") {
		if field == "mode:hard" {
			return true
		}
	}
	return false
}

// roster has one T for each host, in the order in which they were first named:
// those of the topology, then others that events are about.
type roster[T any] struct {
	index map[string]int
	hosts []entry[T]
}

type entry[T any] struct {
	name  string
	state T
}

func newRoster[T any](hosts []string) roster[T] {
	r := roster[T]{index: make(map[string]int, len(hosts)), hosts: make([]entry[T], 0, len(hosts))}
	for _, name := range hosts {
		r.of(name)
	}
	return r
}

// of returns the state of a host, valid until the next call.
func (r *roster[T]) of(name string) *T {
	i, ok := r.index[name]
	if !ok {
		i = len(r.hosts)
		r.index[name] = i
		r.hosts = append(r.hosts, entry[T]{name: name})
	}
	return &r.hosts[i].state
}

// body is what is physically the case on one host, from world events only.
type body struct {
	// seen says that the state below is a fact. It is not before the first
	// report, nor after a gap in the evidence until the next one.
	seen  bool
	blind bool
	on    bool
	// boot is the incarnation that runs, or "", and complete whether its kubelet
	// has started.
	boot     string
	complete bool
	// began and ended are the events that began the boot that runs and ended
	// the one before it.
	began, ended history.Event
	last         string
	// gap says that the observer has fallen silent before.
	gap bool
}

// known reports whether the state of the host is a fact.
func (b *body) known() bool { return b.seen && !b.blind }

// isOff reports whether the host is off, as a fact.
func (b *body) isOff() bool { return b.known() && !b.on }

// observe takes in an event of this host and reports whether it says that every
// process that ran until now is gone.
func (b *body) observe(e *history.Event) (gone bool) {
	switch e.Kind {
	case history.PowerOff:
		b.end(e)
		b.on = false
		return true
	case history.PowerOn:
		b.end(e)
		b.on = true
		return true
	case history.BootEnded, history.WatchdogFired:
		if e.Boot != "" && b.boot != "" && e.Boot != b.boot {
			return false // an earlier boot, reported late
		}
		b.end(e)
		return true
	case history.BootStarted, history.WorkloadStarted:
		return b.begin(e)
	case history.BootComplete:
		gone = b.begin(e)
		b.complete = b.complete || e.Boot == b.boot
		return gone
	case history.EvidenceLost:
		b.blind, b.seen, b.gap = true, false, true
	case history.EvidenceRegained:
		b.blind, b.seen = false, false
	}
	return false
}

// begin notes that the boot of e runs, which ends any other.
func (b *body) begin(e *history.Event) (gone bool) {
	switch {
	case e.Boot == "" || e.Boot == b.last: // says nothing new, or comes late
		return false
	case e.Boot == b.boot:
		b.seen, b.on = true, true
		return false
	}
	b.end(e)
	b.boot, b.began, b.on = e.Boot, *e, true
	return true
}

func (b *body) end(e *history.Event) {
	if b.boot != "" || !b.seen {
		b.ended = *e
	}
	if b.boot != "" {
		b.last = b.boot
	}
	b.seen, b.boot, b.complete = true, "", false
}

// resets tell the ends of boots that are resets from those that come with a power-off.
type resets struct{ ended history.Event }

// observe takes in an event of one host, and returns the end of its boot when the next one
// begins without a power edge in between; else nil.
func (r *resets) observe(e *history.Event) *history.Event {
	switch e.Kind {
	case history.BootEnded:
		r.ended = *e
	case history.PowerOff, history.PowerOn, history.EvidenceLost:
		r.ended = history.Event{}
	case history.BootStarted:
		if ended := r.ended; ended.Kind != "" {
			r.ended = history.Event{}
			return &ended
		}
	}
	return nil
}

// demand is what a host is asked to be, from API events.
type demand struct {
	offline   bool
	unmanaged bool
	// holds are keyed reboot annotations of others than the remediation
	// controller, whose hold is part of what is tested.
	holds []string
}

func (d *demand) observe(e *history.Event) {
	switch e.Kind {
	case history.OnlineWanted:
		d.offline = e.Value == "false"
	case history.ProvisioningState:
		d.unmanaged = !managed(e.Value)
	case history.BareMetalHostDeleted:
		d.unmanaged = true // nobody can ask anything of it
	case history.AnnotationSet:
		if keyed, _ := rebootRequest(e); keyed && e.Key != remediationAnnotation {
			d.holds = append(without(d.holds, e.Key), e.Key)
		}
	case history.AnnotationRemoved:
		d.holds = without(d.holds, e.Key)
	}
}

// on reports whether the host should be on.
func (d *demand) on() bool { return !d.offline && !d.unmanaged && len(d.holds) == 0 }

// managed reports whether the reboot interface is responsible for a host in this
// provisioning state (seed 001: hosts in the provisioned state).
func managed(state string) bool { return state == "provisioned" || state == "externally provisioned" }

func without(list []string, s string) []string {
	for i := range list {
		if list[i] == s {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}
