package invariant

import (
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// The annotations of seeds 000 to 002, spelled out because the claims are about the seeds' names
// and not about those in the controllers' code.
const (
	RebootAnnotation      = "reboot.metal3.io"
	RemediationAnnotation = RebootAnnotation + "/machine-remediation"
	ExternalAnnotation    = "host.metal3.io/external-remediation"
	PoweredOffAnnotation  = "remediation.metal3.io/powered-off-for-remediation"
	NodeBackupAnnotation  = "remediation.metal3.io/node-backup"
	PausedAnnotation      = "cluster.x-k8s.io/paused"
	// SkipDrainAnnotation is how a user keeps a Machine from being drained.
	SkipDrainAnnotation = "machine.cluster.x-k8s.io/exclude-node-draining"
	// SkipDetachAnnotation is how a user keeps its deletion from waiting for volumes.
	SkipDetachAnnotation = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach"
	SkipAnnotation       = "cluster.x-k8s.io/skip-remediation"
	// RemediateAnnotation is how a user has Cluster API's health check mark a Machine, as it is.
	RemediateAnnotation = "cluster.x-k8s.io/remediate-machine"
	PreDrainHook        = "pre-drain.delete.hook.machine.cluster.x-k8s.io"
	PreTerminateHook    = "pre-terminate.delete.hook.machine.cluster.x-k8s.io"
)

// RebootRequest reports whether e changes a reboot annotation of a host, and
// whether that is a keyed one, which also holds the host off.
func RebootRequest(e *history.Event) (keyed, ok bool) {
	rest, ok := strings.CutPrefix(e.Key, RebootAnnotation)
	if !ok || !strings.HasPrefix(e.Object, "BareMetalHost/") {
		return false, false
	}
	return rest != "", rest == "" || len(rest) > 1 && rest[0] == '/'
}

// OwnRequest reports whether an event is about a request of a system's own to fence a host, and
// whether it is wanted from then on, or over.
func OwnRequest(e *history.Event) (wanted, ok bool) {
	return e.Value == history.FencingWanted, e.Kind == history.FieldIs && e.Key == history.Fencing
}

var unquoted = strings.NewReplacer(`"`, "", "'", "", " ", "")

// Hard reports whether the value of a reboot annotation asks for a hard reboot: it is
// a map with the key mode, in JSON or as seed 000 writes it, {'mode':'hard'}.
func Hard(value string) bool {
	plain := unquoted.Replace(value)
	for field := range strings.SplitSeq(strings.Trim(plain, "{}"), ",") {
		if field == "mode:hard" {
			return true
		}
	}
	return false
}

// KeptOut reports whether the storage keeps the host out, so that nothing there can write to the
// volume, whatever runs.
func (b *Body) KeptOut() bool { return b.kept != nil }

// Takes reports whether an event takes something from a Machine, or from the host that it has.
func Takes(e *history.Event) bool {
	switch e.Kind {
	case history.NodeCordoned, history.NodeDeleting, history.NodeDeleted, history.PodTerminating, history.PodDeleted, history.StorageFenceAsked,
		history.MachineDeleting, history.MachineDeleted, history.BareMetalHostDeleted, history.ProvisioningState, history.HostConsumer, history.SpecChanged:
		return true
	case history.AnnotationSet:
		_, reboot := RebootRequest(e)
		return reboot
	case history.OnlineWanted:
		return e.Value == "false"
	}
	return false
}

// Interrupts reports whether an event is part of a drain, or of a termination. Hooks of the
// respective point forbid it.
func Interrupts(e *history.Event) (drains, ends bool) {
	switch e.Kind {
	case history.NodeCordoned, history.PodTerminating, history.PodDeleted:
		return true, false
	case history.AnnotationSet:
		_, reboot := RebootRequest(e)
		return false, reboot
	case history.OnlineWanted:
		return false, e.Value == "false"
	case history.HostConsumer, history.NodeDeleted, history.MachineDeleted, history.PowerOff, history.BootEnded:
		return false, true
	}
	return false, false
}

// Roster has one T for each host, in the order in which they were first named:
// those of the topology, then others that events are about.
type Roster[T any] struct{ Hosts []Entry[T] }

// Entry is the state of one host.
type Entry[T any] struct {
	Name  string
	State T
}

// NewRoster returns a roster of the topology's hosts.
func NewRoster[T any](hosts []string) Roster[T] {
	r := Roster[T]{Hosts: make([]Entry[T], len(hosts))}
	for i, name := range hosts {
		r.Hosts[i].Name = name
	}
	return r
}

// Of returns the state of a host, valid until the next call. Hosts are so few that a map would be
// slower.
func (r *Roster[T]) Of(name string) *T {
	for i := range r.Hosts {
		if r.Hosts[i].Name == name {
			return &r.Hosts[i].State
		}
	}
	r.Hosts = append(r.Hosts, Entry[T]{Name: name})
	return &r.Hosts[len(r.Hosts)-1].State
}

// Body is the physical state of one host, from world events only.
type Body struct {
	// Seen says that the state below is a fact. It is not before the first
	// report, nor after a gap in the evidence until the next one.
	Seen  bool
	Blind bool
	On    bool
	// Boot is the incarnation that runs, or "", and Complete whether its kubelet
	// has started.
	Boot     string
	Complete bool
	// began and ended are the events that began the boot that runs and ended the one before it.
	began, ended *history.Event
	last         string
	// Gap says that the observer has fallen silent before.
	Gap bool
	// kept is since when the storage keeps the host out, nil if it doesn't.
	kept *history.Event
}

// Began returns the event that began the boot that runs, zero if none did.
func (b *Body) Began() *history.Event { return orNone(b.began) }

// Ended returns the event that ended the boot before, zero if none did.
func (b *Body) Ended() *history.Event { return orNone(b.ended) }

// Kept returns the event since which the storage keeps the host out, zero if it doesn't.
func (b *Body) Kept() *history.Event { return orNone(b.kept) }

// none stands for an event that did not happen.
var none history.Event

func orNone(e *history.Event) *history.Event {
	if e == nil {
		return &none
	}
	return e
}

// Known reports whether the state of the host is a fact.
func (b *Body) Known() bool { return b.Seen && !b.Blind }

// IsOff reports whether the host is off, as a fact.
func (b *Body) IsOff() bool { return b.Known() && !b.On }

// Observe takes in an event of this host and reports whether it says that every
// process that ran until now is gone.
func (b *Body) Observe(e *history.Event) (gone bool) {
	switch e.Kind {
	case history.PowerOff:
		b.end(e)
		b.On = false
		return true
	case history.PowerOn:
		b.end(e)
		b.On = true
		return true
	case history.BootEnded, history.WatchdogFired:
		if e.Boot != "" && b.Boot != "" && e.Boot != b.Boot {
			return false // an earlier boot, reported late
		}
		b.end(e)
		return true
	case history.BootStarted, history.WorkloadStarted:
		return b.begin(e)
	case history.BootComplete:
		gone = b.begin(e)
		b.Complete = b.Complete || e.Boot == b.Boot
		return gone
	case history.VolumeFenced:
		b.kept = e
	case history.VolumeUnfenced:
		b.kept = nil
	case history.EvidenceLost:
		b.Blind, b.Seen, b.Gap = true, false, true
	case history.EvidenceRegained:
		b.Blind, b.Seen = false, false
	}
	return false
}

// begin notes that the boot of e runs, which ends any other.
func (b *Body) begin(e *history.Event) (gone bool) {
	switch {
	case e.Boot == "" || e.Boot == b.last: // says nothing new, or comes late
		return false
	case e.Boot == b.Boot:
		b.Seen, b.On = true, true
		return false
	}
	b.end(e)
	b.Boot, b.began, b.On = e.Boot, e, true
	return true
}

func (b *Body) end(e *history.Event) {
	if b.Boot != "" || !b.Seen {
		b.ended = e
	}
	if b.Boot != "" {
		b.last = b.Boot
	}
	b.Seen, b.Boot, b.Complete = true, "", false
}

// Resets distinguishes boots that end by a reset from those that end by a power-off.
type Resets struct{ ended history.Event }

// Observe takes in an event of one host, and returns the end of its boot when the next one
// begins without a power edge in between; else nil.
func (r *Resets) Observe(e *history.Event) *history.Event {
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

// Demand is the state that a host is asked to have, from API events.
type Demand struct {
	Offline   bool
	Unmanaged bool
	// Holds are keyed reboot annotations of others than the remediation
	// controller, whose hold is part of what is tested.
	Holds []string
	// Leaving says that the host's Machine is being deleted.
	Leaving bool
}

// Observe takes in an event of this host. Spec.online is the user's: what a controller under test
// makes of it changes nothing, unless it gives back the host of a Machine that is deleted (seed
// 003).
func (d *Demand) Observe(e *history.Event, roles *Roles) {
	switch e.Kind {
	case history.MachineDeleting:
		d.Leaving = true
	case history.MachineCreated, history.MachineDeleted:
		d.Leaving = false
	case history.OnlineWanted:
		if !roles.Tested(e.Actor) || d.Leaving && e.Value == "false" && Plays(e.Actor, roles.Deletion) {
			d.Offline = e.Value == "false"
		}
	case history.ProvisioningState:
		d.Unmanaged = !Managed(e.Value)
	case history.BareMetalHostDeleted:
		d.Unmanaged = true // it can't be asked for anything
	case history.AnnotationSet:
		if keyed, _ := RebootRequest(e); keyed && e.Key != RemediationAnnotation {
			d.Holds = append(Without(d.Holds, e.Key), e.Key)
		}
	case history.AnnotationRemoved:
		d.Holds = Without(d.Holds, e.Key)
	}
}

// On reports whether the host should be on.
func (d *Demand) On() bool { return !d.Offline && !d.Unmanaged && len(d.Holds) == 0 }

// Managed reports whether the reboot interface is responsible for a host in this
// provisioning state (seed 001: hosts in the provisioned state).
func Managed(state string) bool { return state == "provisioned" || state == "externally provisioned" }

// Detached is the provisioning state of a host that was taken from its controllers. What was asked
// of it waits until it is adopted.
const Detached = "detached"

// Without removes the first s from a list, in place.
func Without(list []string, s string) []string {
	for i := range list {
		if list[i] == s {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// KeepsOff reports whether an annotation of a Machine keeps controllers from it.
func KeepsOff(e *history.Event) bool {
	return strings.HasPrefix(e.Object, "Machine/") && (e.Key == PausedAnnotation || e.Key == SkipAnnotation || e.Key == SkipDrainAnnotation || e.Key == SkipDetachAnnotation ||
		strings.HasPrefix(e.Key, PreDrainHook) || strings.HasPrefix(e.Key, PreTerminateHook))
}

// Coarse is how much earlier than it became known a condition may be dated: Kubernetes keeps whole
// seconds.
const Coarse = time.Second

// OffEvents come when a host goes off.
var OffEvents = []history.Kind{history.PowerOff, history.BootEnded}

// BootEvents come when a host comes up.
var BootEvents = []history.Kind{history.PowerOn, history.BootStarted, history.BootComplete}

// Lapse is a stretch in which a report is wrong.
type Lapse struct {
	// Wrong is the event that began it, zero if there is none, and From when it counts.
	Wrong history.Event
	From  time.Duration
}

// Differ notes that the report is wrong.
func (l *Lapse) Differ(e *history.Event) {
	if l.Wrong.Kind == "" {
		l.Wrong, l.From = *e, e.At
	}
}

// Outlasts reports whether the stretch is longer than a limit when e comes.
func (l *Lapse) Outlasts(limit time.Duration, e *history.Event) bool {
	return l.Wrong.Kind != "" && e.At-l.From > limit
}
