package scenarios

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// HostOp names the host that an operation is done to.
type HostOp struct {
	// host is the host's name.
	Host string `json:"host"`
}

// MoveOp has a BMC answer at another address. Whoever answered there does so no longer.
type MoveOp struct {
	// host is the host whose BMC it is.
	Host string `json:"host"`
	// to is the host name of the new address: any name, or that of another host. Default: its own
	// host's, as at first.
	To string `json:"to,omitempty"`
}

// Address is the host name of the new address.
func (m *MoveOp) Address() string { return cmp.Or(m.To, m.Host) }

// hinders is the BMC, until its BareMetalHost says where it is.
func (m *MoveOp) hinders(*invariant.Timings) *history.Hindrance {
	if m.To == "" {
		return nil
	}
	return &history.Hindrance{Party: BMCEnd(m.Host), Fails: true}
}

// FaultOp is a fault of a BMC.
type FaultOp struct {
	// name identifies the fault in removeFault and in the history.
	Name string `json:"name"`
	// host is the host whose BMC misbehaves.
	Host string `json:"host"`
	// rule says which requests are affected, and how.
	Rule json.RawMessage `json:"rule"`
}

// isPreset reports whether it is one of the known faults, whose times and hosts are its own.
func (f *FaultOp) isPreset() bool { return f.says("preset") }

// reachesOthers reports whether other hosts go off with this one.
func (f *FaultOp) reachesOthers() bool { return f.says("effect", "also") }

// says reports whether the rule has a field at a path.
func (f *FaultOp) says(path ...string) bool {
	at := f.Rule
	for _, field := range path {
		var fields map[string]json.RawMessage
		if json.Unmarshal(at, &fields) != nil || fields[field] == nil {
			return false
		}
		at = fields[field]
	}
	return true
}

// hinders is the BMC, unless the world says that the fault holds up nothing.
func (f *FaultOp) hinders(timings *invariant.Timings) *history.Hindrance {
	fault, holds := timings.Faults[f.Name]
	if !holds {
		return nil
	}
	h := &history.Hindrance{Party: BMCEnd(f.Host), Fails: true, Told: !fault.HoldsBack, For: fault.For}
	if fault.Hangs && timings.Answer > fault.For {
		h.For, h.Hangs = timings.Answer, true
	}
	return h
}

// HealOp withdraws every fault that doesn't last for good.
type HealOp struct {
	// Lasting are the operations of the steps that were done for good, which the engine adds.
	Lasting []*Op `json:"-"`
}

// HealAllBut withdraws every fault but those of some operations.
func HealAllBut(lasting ...*Op) Op { return Op{Heal: &HealOp{Lasting: lasting}} }

// Links returns the links that stay cut.
func (h *HealOp) Links(t *Topology) []Link {
	var links []Link
	for _, op := range h.Lasting {
		if op.Cut != nil {
			links = append(links, op.Cut.Links(t)...)
		}
	}
	return links
}

// Faults are the names of those that stay.
func (h *HealOp) Faults() []string {
	var names []string
	for _, op := range h.Lasting {
		if op.AddFault != nil {
			names = append(names, op.AddFault.Name)
		}
	}
	return names
}

// storage returns the troubles of the storage that stay.
func (h *HealOp) storage() (all []StorageOp) {
	for _, op := range h.Lasting {
		if op.BreakStorage != nil {
			all = append(all, *op.BreakStorage)
		}
	}
	return all
}

// Paused are the processes of controllers that go on standing still.
func (h *HealOp) Paused() []string {
	var names []string
	for _, op := range h.Lasting {
		if op.PauseController != nil {
			names = append(names, op.PauseController.Controller)
		}
	}
	return names
}

// Spared are the names of the hindrances that it doesn't end.
func (h *HealOp) Spared(t *Topology) []string {
	var names []string
	for _, op := range h.Lasting {
		names = append(names, op.declared().begins(op).clause)
		if op.Cut == nil {
			continue
		}
		names = append(names, history.LinkOf("", ""))
		for _, l := range op.Cut.Links(t) {
			names = append(names, history.LinkOf(l.From, l.To))
		}
	}
	return names
}

// StorageDeed is something that the storage, or a kubelet, does with a volume.
type StorageDeed string

// The deeds.
const (
	StorageAttach  StorageDeed = "attach"
	StorageDetach  StorageDeed = "detach"
	StorageMount   StorageDeed = "mount"
	StorageUnmount StorageDeed = "unmount"
	StorageFence   StorageDeed = "fence"
	StorageUnfence StorageDeed = "unfence"
)

// StorageDeeds are all of them.
var StorageDeeds = []string{string(StorageAttach), string(StorageDetach), string(StorageMount), string(StorageUnmount), string(StorageFence), string(StorageUnfence)}

// StorageOp is something that goes wrong with a volume.
type StorageOp struct {
	// does names the deed that fails: attach, detach, mount, unmount, fence or unfence.
	Does StorageDeed `json:"does"`
	// host is the host for which it fails. Default: all.
	Host string `json:"host,omitempty"`
	// refuses says that it fails at once. Default: it never ends, and is tried again when its
	// client has waited long enough.
	Refuses bool `json:"refuses,omitempty"`
}

// failing names the deed that fails, for a sentence.
func (s *StorageOp) failing() string {
	if s.Host == "" {
		return "every " + string(s.Does)
	}
	return "the " + string(s.Does) + " of " + s.Host
}

// hinders names those who wait for the storage: the attacher, who fences there, or the host that
// mounts.
func (s *StorageOp) hinders(*invariant.Timings) *history.Hindrance {
	h := &history.Hindrance{Party: ControllerEnd("attacher"), Fails: true}
	if s.Does == StorageFence || s.Does == StorageUnfence {
		h.Party = ControllerEnd("storagefencer")
	}
	if s.Host != "" && (s.Does == StorageMount || s.Does == StorageUnmount) {
		h.Party = HostEnd(s.Host)
	}
	return h
}

// FaultName names a fault that was added before.
type FaultName struct {
	// name is the fault's name.
	Name string `json:"name"`
}

// CrashPoint is the side of an effect on which a crash happens.
type CrashPoint string

// The crash points. A crash before the effect loses it; after it, the effect
// stands but the controller never hears of it.
const (
	CrashBefore CrashPoint = "before"
	CrashAfter  CrashPoint = "after"
)

// CrashOp kills the process of a controller and starts it again.
type CrashOp struct {
	// controller is the controller's name.
	Controller string `json:"controller"`
	// host is the host whose process dies, for a controller that runs on every host.
	Host string `json:"host,omitempty"`
	// deed names the effect around which the controller crashes: a write of an object, such as
	// delete Node/worker-1 or evict Pod/web, or a command, such as bmc ForceOff worker-1. Default:
	// the crash is immediate, unless each or occurrence is set.
	Deed string `json:"deed,omitempty"`
	// occurrence says which of these deeds from now on is meant, counted from 1; without a deed,
	// which of all that the controller writes and commands. Default: 1.
	Occurrence int `json:"occurrence,omitempty"`
	// each repeats the crash at every effect until the faults are withdrawn.
	Each bool `json:"each,omitempty"`
	// point says whether the controller dies before or after the effect. Default: after.
	Point CrashPoint `json:"point,omitempty"`
	// restartAfter is how long the controller stays down.
	RestartAfter Duration `json:"restartAfter,omitzero"`
	// staleBy is the age of the lists that fill the controller's caches when it restarts,
	// as if from an API server that lags behind. Default: the lists are up to date.
	StaleBy Duration `json:"staleBy,omitzero"`
	// lateBy is how late the requests are executed that are in flight when the controller
	// dies: the effect that it dies before, or, in an immediate crash, whatever it has
	// sent. Default: they are never executed.
	LateBy Duration `json:"lateBy,omitzero"`
}

// SentBefore returns the hindrance of requests that a process had sent when it died, and that
// arrive late by this much; nil if none do.
func SentBefore(process string, late time.Duration) *history.Hindrance {
	if late == 0 {
		return nil
	}
	return &history.Hindrance{Party: ControllerEnd(process), For: late, Decided: true}
}

// AtOnce reports whether it waits for nothing that the process does.
func (c *CrashOp) AtOnce() bool { return c.Deed == "" && c.Occurrence == 0 && !c.Each }

// Process is the name of the process.
func (c *CrashOp) Process() string {
	if c.Host != "" {
		return ProcessOn(c.Controller, c.Host)
	}
	return c.Controller
}

// ControllerOp names a controller.
type ControllerOp struct {
	// controller is the controller's name.
	Controller string `json:"controller"`
}

// hinders names a process that stands still, in whatever it had decided to do. Its clients don't
// wait for it, so requests that it has made fail.
func (c *ControllerOp) hinders(*invariant.Timings) *history.Hindrance {
	return &history.Hindrance{Party: ControllerEnd(c.Controller), Fails: true, Decided: true}
}

func (c *ControllerOp) process() string { return c.Controller }

// ProcessOn returns the name of a controller's process on a host.
func ProcessOn(controller, host string) string { return host + "." + controller }

// ClockOp is a clock that differs from the others.
type ClockOp struct {
	// controller is the controller whose clock is set. Give either controller or host.
	Controller string `json:"controller,omitempty"`
	// host is the host whose clock is set: the clock of its kubelet.
	Host string `json:"host,omitempty"`
	// ahead is how far the clock is ahead of the others.
	Ahead Duration `json:"ahead,omitzero"`
	// behind is how far the clock is behind the others. With neither ahead nor behind, it
	// is set right again.
	Behind Duration `json:"behind,omitzero"`
	// gains is how much the clock that a host's agents measure time by gains each second.
	Gains Duration `json:"gains,omitzero"`
	// loses is how much that clock loses each second.
	Loses Duration `json:"loses,omitzero"`
}

// Drift is the amount to add to each second.
func (c *ClockOp) Drift() time.Duration { return time.Duration(c.Gains) - time.Duration(c.Loses) }

// Offset is the amount to add to the time.
func (c *ClockOp) Offset() time.Duration { return time.Duration(c.Ahead) - time.Duration(c.Behind) }

// hinders names the party that a wrong clock holds up: a controller that goes by it. A host's clock
// holds up none, since agents measure by their host's uptime.
func (c *ClockOp) hinders(*invariant.Timings) *history.Hindrance {
	if c.Controller == "" || c.Offset() == 0 && c.Drift() == 0 {
		return nil
	}
	return &history.Hindrance{Party: ControllerEnd(c.Controller)}
}

// CacheOp names one kind in one controller's cache.
type CacheOp struct {
	// controller is the controller's name.
	Controller string `json:"controller"`
	// kind is the kind of object, such as BareMetalHost.
	Kind string `json:"kind"`
}

// hinders names the process whose cache learns late.
func (c *CacheOp) hinders(*invariant.Timings) *history.Hindrance {
	return &history.Hindrance{Party: ControllerEnd(c.Controller)}
}

// Selection is the target of a user's operation: one object, or all objects of a kind that have
// some labels when the operation is performed.
type Selection struct {
	Object string
	Kind   string
	Labels map[string]string
}

func (s Selection) String() string {
	if s.Object != "" {
		return s.Object
	}
	var labels []string
	for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
		labels = append(labels, key+"="+s.Labels[key])
	}
	return "every " + s.Kind + " with " + strings.Join(labels, " and ")
}

// AnnotateOp sets or removes one annotation of an object, or of all objects that it selects.
type AnnotateOp struct {
	// object is KIND/NAME, such as Machine/worker-1.
	Object string `json:"object,omitempty"`
	// kind selects, instead of object, all objects of this kind that have the labels.
	Kind string `json:"kind,omitempty"`
	// labels are the labels that the objects of kind must have.
	Labels map[string]string `json:"labels,omitempty"`
	// key is the annotation's key.
	Key string `json:"key"`
	// value is the annotation's value.
	Value string `json:"value,omitempty"`
	// as is the name of the user who does it, where there are several: their events have user/NAME
	// as actor. Default: user.
	As string `json:"as,omitempty"`
}

// By is who does it.
func (a *AnnotateOp) By() string { return history.UserNamed(a.As) }

// Selection is the target to annotate.
func (a *AnnotateOp) Selection() Selection { return Selection{a.Object, a.Kind, a.Labels} }

// FailAPIOp says which requests the API server refuses, and how. A request must
// match every field that is given.
type FailAPIOp struct {
	// controller is the controller whose requests are refused. Default: all controllers.
	Controller string `json:"controller,omitempty"`
	// verb is get, list, create, update, patch or delete. Default: any.
	Verb string `json:"verb,omitempty"`
	// kind is the kind of object, such as BareMetalHost. Default: any.
	Kind string `json:"kind,omitempty"`
	// code is the HTTP status: 403, 404, 409, 429 or 500. 404 is for custom resources only.
	Code int `json:"code"`
	// times is how many requests are refused. Default: all, until apiRestore or the end of
	// the story.
	Times int `json:"times,omitempty"`
}

// hinders names the party that failing requests hold up while the failure lasts. If only a number
// of requests is refused, each refusal has an event of its own.
func (f *FailAPIOp) hinders(*invariant.Timings) *history.Hindrance {
	switch {
	case f.Times > 0:
		return nil
	case f.Controller == "":
		return &history.Hindrance{Party: history.Everybody, Fails: true}
	default:
		return &history.Hindrance{Party: history.RequestsOf(f.Controller), Fails: true}
	}
}

// OutageOp is how the API server is away.
type OutageOp struct {
	// hang makes requests hang until their clients give up. Default: they are refused
	// immediately.
	Hang bool `json:"hang,omitempty"`
}

// Patience is how long a client of the API server waits for an answer.
const Patience = 30 * time.Second

// hinders is everybody, and who has sent a request meanwhile waits for as long as it is patient.
func (o *OutageOp) hinders(timings *invariant.Timings) *history.Hindrance {
	h := everybody(o, timings)
	if o.Hang {
		h.For = Patience
	}
	return h
}

// ObjectOp names one object, or selects several by their labels.
type ObjectOp struct {
	// object is KIND/NAME, such as Machine/worker-1.
	Object string `json:"object,omitempty"`
	// kind selects, instead of object, all objects of this kind that have the labels.
	Kind string `json:"kind,omitempty"`
	// labels are the labels that the objects of kind must have.
	Labels map[string]string `json:"labels,omitempty"`
	// as is the name of the user who does it, where there are several: their events have user/NAME
	// as actor. Default: user.
	As string `json:"as,omitempty"`
}

// By is who does it.
func (o *ObjectOp) By() string { return history.UserNamed(o.As) }

// Selection is the named target.
func (o *ObjectOp) Selection() Selection { return Selection{o.Object, o.Kind, o.Labels} }

// CreateOp is an object to be made.
type CreateOp struct {
	// object is KIND/NAME, such as Machine/worker-1.
	Object string `json:"object"`
	// with is the object's content, such as its spec. Default: the content that the
	// topology gives it. A custom resource has a status only if with gives one, and a
	// BareMetalHost without a bmc gets that of its host.
	With json.RawMessage `json:"with,omitempty"`
	// as is the name of the user who does it, where there are several: their events have user/NAME
	// as actor. Default: user.
	As string `json:"as,omitempty"`
}

func (o *CreateOp) String() string { return "create " + o.Object }

// By is who does it.
func (o *CreateOp) By() string { return history.UserNamed(o.As) }

// SaysStatus reports whether the object comes with a status: that of the topology, or one that is
// given. One of a custom kind otherwise has none: its controller has yet to say something.
func (o *CreateOp) SaysStatus() bool {
	var given struct{ Status json.RawMessage }
	return len(o.With) == 0 || json.Unmarshal(o.With, &given) == nil && given.Status != nil
}

// PatchOp is a change of an object.
type PatchOp struct {
	// object is KIND/NAME, such as Machine/worker-1.
	Object string `json:"object,omitempty"`
	// kind selects, instead of object, all objects of this kind that have the labels.
	Kind string `json:"kind,omitempty"`
	// labels are the labels that the objects of kind must have.
	Labels map[string]string `json:"labels,omitempty"`
	// merge is a JSON merge patch: it sets the fields that it has, null removes a field,
	// and lists are replaced. Its status is patched through the status subresource.
	Merge json.RawMessage `json:"merge"`
	// foreign says that the patch has fields of a system under test whose definition of the
	// kind is not fencelab's: only the lab's API server can check them.
	Foreign bool `json:"foreign,omitempty"`
	// as is the name of the user who does it, where there are several: their events have user/NAME
	// as actor. Default: user.
	As string `json:"as,omitempty"`
}

// By is who does it.
func (p *PatchOp) By() string { return history.UserNamed(p.As) }

// Selection is the target of the patch.
func (p *PatchOp) Selection() Selection { return Selection{p.Object, p.Kind, p.Labels} }

// Split returns the merge patches of the object itself and of its status; nil is
// nothing to patch.
func (p *PatchOp) Split() (object, status json.RawMessage, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(p.Merge, &fields); err != nil {
		return nil, nil, fmt.Errorf("read the patch of %s: %w", p.Selection(), err)
	}
	if of, ok := fields["status"]; ok {
		delete(fields, "status")
		if status, err = json.Marshal(map[string]json.RawMessage{"status": of}); err != nil {
			return nil, nil, fmt.Errorf("write the patch of %s: %w", p.Selection(), err)
		}
	}
	if len(fields) > 0 {
		if object, err = json.Marshal(fields); err != nil {
			return nil, nil, fmt.Errorf("write the patch of %s: %w", p.Selection(), err)
		}
	}
	return object, status, nil
}

// OnlineOp is a wanted power state.
type OnlineOp struct {
	// host is the BareMetalHost's name.
	Host string `json:"host"`
	// online says whether the host should be on.
	Online bool `json:"online"`
	// as is the name of the user who does it, where there are several: their events have user/NAME
	// as actor. Default: user.
	As string `json:"as,omitempty"`
}

// By is who does it.
func (o *OnlineOp) By() string { return history.UserNamed(o.As) }

func (f *FailAPIOp) String() string {
	count := "every"
	if f.Times > 0 {
		count = fmt.Sprintf("%d times", f.Times)
	}
	words := []string{"fail", count, f.Verb, f.Kind}
	if f.Controller != "" {
		words = append(words, "of", f.Controller)
	}
	return strings.Join(strings.Fields(strings.Join(append(words, fmt.Sprintf("with %d", f.Code)), " ")), " ")
}

func (c *CrashOp) String() string {
	var b strings.Builder
	b.WriteString("crash " + c.Process())
	switch {
	case c.Each:
		fmt.Fprintf(&b, " %s each of its effects", c.Point)
	case c.Deed != "" && c.Occurrence > 1:
		fmt.Fprintf(&b, " %s it %s (occurrence %d)", c.Point, deedInWords(c.Deed), c.Occurrence)
	case c.Deed != "":
		fmt.Fprintf(&b, " %s it %s", c.Point, deedInWords(c.Deed))
	case c.Occurrence > 0:
		fmt.Fprintf(&b, " %s its effect %d", c.Point, c.Occurrence)
	}
	fmt.Fprintf(&b, ", restart after %s", time.Duration(c.RestartAfter))
	if c.StaleBy > 0 {
		fmt.Fprintf(&b, " with lists %s old", time.Duration(c.StaleBy))
	}
	if c.LateBy > 0 {
		fmt.Fprintf(&b, ", requests execute %s later", time.Duration(c.LateBy))
	}
	return b.String()
}

// CrashPoints are the points of a crash; APIVerbs and APICodes are the verbs and the codes that
// failAPI accepts.
var (
	CrashPoints = []string{string(CrashBefore), string(CrashAfter)}

	APIVerbs = []string{"get", "list", "create", "update", "patch", "delete"}
	APICodes = []int{403, 404, 409, 429, 500}
)

func watchdogWhilePaused(op *HostOp, spec *Spec) []Feature {
	for _, host := range spec.Topology.Hosts {
		if host.Name == op.Host && host.Watchdog > 0 && !host.Softdog {
			return []Feature{FeaturePausedWatchdog}
		}
	}
	return nil
}

// outOfService is the taint by which a person says that a Node's host is off for sure.
const outOfService = "node.kubernetes.io/out-of-service"

// ends has controllers find a BMC that has moved.
func (p *PatchOp) ends() []string {
	var of struct{ Spec map[string]json.RawMessage }
	if host, ok := strings.CutPrefix(p.Object, "BareMetalHost/"); ok && json.Unmarshal(p.Merge, &of) == nil && of.Spec["bmc"] != nil {
		return []string{moved(host)}
	}
	return nil
}

// patches returns the features for a patch whose fields only some worlds have, or act on.
func patches(op *PatchOp, spec *Spec) (features []Feature) {
	if op.Foreign {
		features = append(features, FeatureForeignFields)
	}
	if bytes.Contains(op.Merge, []byte(outOfService)) && spec.Topology.Workload.Volume == nil {
		features = append(features, FeatureOutOfService)
	}
	return features
}

// volumes returns the feature of a Pod that has any.
func volumes(op *CreateOp, _ *Spec) []Feature {
	var given struct {
		Spec struct{ Volumes []json.RawMessage }
	}
	kind, _, _ := strings.Cut(op.Object, "/")
	if kind == "Pod" && json.Unmarshal(op.With, &given) == nil && len(given.Spec.Volumes) > 0 {
		return []Feature{FeatureVolumes}
	}
	return nil
}

// clocks returns the features for a clock that does more than put a host ahead or behind.
func clocks(op *ClockOp, _ *Spec) (features []Feature) {
	if op.Controller != "" {
		features = append(features, FeatureControllerClocks)
	}
	if op.Drift() != 0 {
		features = append(features, FeatureClockRates)
	}
	return features
}

func pastAndFuture(op *CrashOp, _ *Spec) []Feature {
	var features []Feature
	if op.StaleBy > 0 {
		features = append(features, FeatureStaleLists)
	}
	if op.LateBy > 0 && op.AtOnce() {
		features = append(features, FeatureLateRequests)
	}
	return features
}
