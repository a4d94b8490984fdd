package file

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// trigger checks what step i waits for.
func (v *validator) trigger(path string, t scenarios.Trigger, i int) {
	if t.Since != "" && t.Since != scenarios.SinceStart {
		earlier, twice := []string{scenarios.SinceStart}, false
		for _, step := range v.spec.Steps[:i] {
			twice = twice || step.Name == t.Since && slices.Contains(earlier, step.Name)
			if step.Name != "" {
				earlier = append(earlier, step.Name)
			}
		}
		if v.OneOf(path+".since", "earlier step", t.Since, earlier) && twice {
			v.Bad(path+".since", "two earlier steps are named %s: give each its own name", phrase.Quote(t.Since))
		}
	}
	several, list := t.List()
	if list == "" {
		v.event(path, t)
		return
	}
	if t.Event != "" {
		v.Bad(path+".event", "cannot be combined with %s: put it into the list", list)
	}
	if len(t.AllOf) > 0 && len(t.AnyOf) > 0 {
		v.Bad(path+".anyOf", "cannot be combined with allOf: give each a step of its own")
	}
	for j, one := range several {
		at := fmt.Sprintf("%s.%s[%d]", path, list, j)
		for _, inner := range [...]string{"allOf", "anyOf"} {
			v.Bad(at+"."+inner, "a list within a list: move its events into the outer one")
		}
		v.Bad(at+".since", "belongs next to %s, where it applies to all of them", list)
		if _, nested := one.List(); nested == "" {
			v.event(at, one)
		}
	}
}

// event checks a single event that is waited for.
func (v *validator) event(path string, t scenarios.Trigger) {
	kind := history.Kind(t.Event)
	switch layer := kind.Layer(); {
	case t.Event == "":
		if !t.IsZero() {
			v.Bad(path, "names no event to wait for")
		}
	case layer == history.Engine:
		v.Bad(path+".event", "%s cannot be waited for: the scenario does it itself", t.Event)
	case layer == "":
		v.OneOf(path+".event", "event", t.Event, eventKinds())
	}
	if t.Occurrence < 1 {
		v.Bad(path+".occurrence", "%d: occurrences are counted from 1", t.Occurrence)
	}
	v.Host(path+".host", t.Host)
	switch {
	case slices.Contains(bystanders[kind], t.Actor):
	case history.IsUser(t.Actor):
		v.user(path+".actor", t.Actor)
	default:
		v.Controller(path+".actor", t.Actor)
	}
	v.subject(path+".object", kind, t)
	v.value(path+".value", kind, t.Value)
	if kind != history.AnnotationSet && kind != history.AnnotationRemoved && kind != history.FieldIs {
		v.Bad(path+".key", "only annotation-set, annotation-removed and field-is have a key")
	}
	switch kind {
	case history.FieldIs:
		v.field(path, t)
	case history.ControllerEffect:
		if t.Value == "" {
			v.Bad(path+".occurrence", "counts effects of any kind: name the deed in value, such as delete Node/NAME")
		} else {
			scenarios.CheckDeed(v, path+".value", t.Value)
		}
	case history.WorkloadStarted, history.WorkloadStopped, history.PodBound, history.PodDeleted:
		if v.spec.Topology.Workload.Host == "" && !v.doc.broken("spec.topology.workload") {
			v.Bad(path+".event", "%s never happens: spec.topology has no workload", kind)
		}
	case history.HostPaused, history.HostResumed:
		if !v.unsure && !slices.ContainsFunc(v.spec.Steps, func(s scenarios.Step) bool {
			return s.Do != nil && (s.Do.Pause != nil || s.Do.AddFault != nil)
		}) {
			v.Bad(path+".event", "%s never happens: no step pauses a host", kind)
		}
	case history.PowerOn, history.PowerOff, history.BootStarted, history.BootEnded, history.BootComplete:
		if !v.unsure && v.nobodySwitches() {
			v.Bad(path+".event", "%s never happens: no step and no controller ends a boot, or switches a host on; add one, such as powerLoss or the controller reboot", kind)
		}
	case history.WatchdogFired:
		if v.hosts != nil && !slices.ContainsFunc(v.spec.Topology.Hosts, func(h scenarios.Host) bool {
			return h.Watchdog > 0 && (t.Host == "" || t.Host == h.Name)
		}) {
			v.Bad(path+".event", "%s never happens: the host has no watchdog", kind)
		}
	case history.WatchdogDisarmed, history.ControllerStopping:
		if !slices.ContainsFunc(v.spec.Steps, func(s scenarios.Step) bool { return s.Do != nil && s.Do.StopAgent != nil }) {
			v.Bad(path+".event", "%s never happens: no step stops an agent in order; add stopAgent", kind)
		}
	case history.QuorumLost, history.QuorumRegained:
		if v.hosts != nil && !slices.ContainsFunc(v.spec.Topology.Hosts, func(h scenarios.Host) bool { return h.Role == scenarios.ControlPlane }) {
			v.Bad(path+".event", "%s never happens: the API server's store stands on none of the hosts; give some the role %s", kind, scenarios.ControlPlane)
		}
	case history.LinkCut, history.LinkImpaired, history.LinkRestored:
		if !slices.ContainsFunc(v.spec.Steps, func(s scenarios.Step) bool {
			return s.Do != nil && (s.Do.Cut != nil && kind != history.LinkImpaired || s.Do.Impair != nil && kind != history.LinkCut)
		}) && !v.unsure {
			v.Bad(path+".event", "%s never happens: no step does that to a link", kind)
		}
	case history.BMCFault:
		if t.Value != "" {
			v.fault(path+".value", t.Value)
		}
	}
}

// nobodySwitches reports whether nothing in the story changes what a host's power does, or ends its
// boot. What isn't known may.
func (v *validator) nobodySwitches() bool {
	if v.controllers == nil || v.spec.Topology.Ironic != nil || v.spec.Topology.BMC != nil {
		return false
	}
	for i := range v.spec.Controllers {
		c := &v.spec.Controllers[i]
		known := c.Name == "remediation" || c.Name == healthCheckController || c.Name == "deletion"
		if !known || c.Plays != "" || c.Program != nil || c.Pods != nil || len(c.Also) > 0 {
			return false
		}
	}
	return !slices.ContainsFunc(v.spec.Steps, func(s scenarios.Step) bool {
		return s.Do != nil && s.Do.Switches()
	})
}

// bystanders are who beside controllers has a hand in a host's power: its BMC by
// itself, its watchdog, what a BMC does when power returns, and the scenario.
var bystanders = map[history.Kind][]string{
	history.BMCCommand: {"bmc", "watchdog", "restore"},
	history.PowerOn:    {"bmc", "watchdog", "restore", string(history.Engine)},
	history.PowerOff:   {"bmc", "watchdog", "restore", string(history.Engine)},
	history.BootEnded:  {"bmc", "watchdog", "restore", string(history.Engine)},
}

// objectsOf are the kinds of objects that an API event can be about.
var objectsOf = map[history.Kind][]string{
	history.NodeCreated: {"Node"}, history.NodeTakenOver: {"Node"}, history.NodeDeleted: {"Node"}, history.NodeReady: {"Node"}, history.NodeNotReady: {"Node"},
	history.NodeCondition: {"Node"}, history.NodeLabels: {"Node"}, history.NodeTaints: {"Node"}, history.NodeAnnotations: {"Node"}, history.NodeNetwork: {"Node"}, history.SpecChanged: {"BareMetalHost"}, history.NodeCordoned: {"Node"}, history.NodeUncordoned: {"Node"},
	history.CheckChanged: {"MachineHealthCheck"},
	history.PodBound:     {"Pod"}, history.PodTerminating: {"Pod"}, history.PodDeleted: {"Pod"}, history.PodProtected: {"Pod"}, history.PodUnprotected: {"Pod"},
	history.FinalizerAdded: {"Node", "Machine", "Pod"}, history.FinalizerRemoved: {"Node", "Machine", "Pod"},
	history.MachineCondition: {"Machine"}, history.MachineDeleting: {"Machine"}, history.DeletionPhase: {"Machine"}, history.DrainTimeout: {"Machine"}, history.DetachTimeout: {"Machine"}, history.Stamped: {"Machine", "Node"},
	history.AnnotationSet: {"BareMetalHost", "Machine"}, history.AnnotationRemoved: {"BareMetalHost", "Machine"},
	history.PowerReported: {"BareMetalHost"}, history.OnlineWanted: {"BareMetalHost"}, history.ProvisioningState: {"BareMetalHost"},
}

// subject checks the object of an event: that there is one of the kind, and that it
// is the host's which the trigger names.
func (v *validator) subject(path string, event history.Kind, t scenarios.Trigger) {
	kinds := objectsOf[event]
	if t.Object == "" || len(kinds) == 0 {
		return
	}
	kind, name, named := strings.Cut(t.Object, "/")
	if !named {
		v.Bad(path, "%s does not name an object: write %s/NAME", phrase.Quote(t.Object), kinds[0])
		return
	}
	if !v.OneOf(path, "kind of object", kind, kinds) || kind == "Pod" {
		return
	}
	v.named(path, kind, name)
	host := name
	for i := range v.spec.Topology.Hosts {
		if h := &v.spec.Topology.Hosts[i]; h.Called(v.vocab.Kinds.Get(kind).Named) == name {
			host = h.Name
		}
	}
	if t.Host != "" && t.Host != host {
		v.Bad(path, "never happens: %s is not an object of the host %s", t.Object, t.Host)
	}
}

// valueless are the events that have no value.
var valueless = []history.Kind{
	history.BootStarted, history.BootComplete, history.BootEnded, history.HostPaused, history.HostResumed, history.WatchdogFired, history.WatchdogDisarmed,
	history.LinkCut, history.LinkRestored, history.LinkImpaired, history.QuorumLost, history.QuorumRegained, history.NodeCreated, history.NodeDeleted, history.NodeReady, history.NodeNotReady,
	history.NodeCordoned, history.NodeUncordoned, history.NodeDeleting, history.MachineDeleting, history.HostReleased, history.ControllerStarted, history.ControllerStopping, history.ControllerCrashed,
}

// value checks the value of an event that has a closed set of them, or none.
func (v *validator) value(path string, event history.Kind, value string) {
	valid := v.vocab.Values[event]
	switch {
	case value == "":
	case slices.Contains(valueless, event):
		v.Bad(path, "%s has no value: leave it out", event)
	case event == history.PowerReported || event == history.OnlineWanted:
		v.OneOf(path, "value", value, []string{"true", "false"})
	case len(valid) > 0:
		v.OneOf(path, "value", value, valid)
	}
}

// field checks the field of an object that is waited for.
func (v *validator) field(path string, t scenarios.Trigger) {
	kind, name, named := strings.Cut(t.Object, "/")
	switch {
	case t.Object == "" || t.Key == "":
		v.Bad(path, "does not say which object's field: give it object and key")
	case !named:
		v.Bad(path+".object", "%s does not name an object: write KIND/NAME", phrase.Quote(t.Object))
	case v.OneOf(path+".object", "kind of object", kind, v.vocab.Kinds.Names(scenarios.AnyKind)):
		v.named(path+".object", kind, name)
		if v.vocab.CheckField == nil {
			return
		}
		if err := v.vocab.CheckField(kind, t.Key); err != nil {
			v.Bad(path+".key", "%s", phrase.OneLine(err))
		}
	}
}
