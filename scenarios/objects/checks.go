package objects

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// checks holds the health checks of a run and the Machines that they may select; nil knows none. A
// lab watches each kind by itself.
type checks struct {
	// first is the check that the story begins with, if any, which is no change.
	first    *scenarios.HealthCheck
	mutex    sync.Mutex
	all      map[string]*clusterv1.MachineHealthCheck
	machines map[string]*clusterv1.Machine
	// said holds what each check has said last, minded the types of Machines' conditions that any
	// check minds, sorted, and states the statuses of these.
	said   map[string]string
	minded []string
	states map[state]string
}

// state is a condition of a Machine.
type state struct{ machine, condition string }

func newChecks(first *scenarios.HealthCheck) *checks {
	return &checks{first: first, all: make(map[string]*clusterv1.MachineHealthCheck), machines: make(map[string]*clusterv1.Machine), said: make(map[string]string), states: make(map[state]string)}
}

// note keeps what a check or a Machine has become, and emits what checks say that they didn't
// before: what they ask for, and which Machines they leave out.
func (c *checks) note(before, after metav1.Object, emit func(history.Event)) {
	if c == nil {
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	machine := ""
	switch is := cmp.Or(after, before).(type) {
	case *clusterv1.Machine:
		machine = is.Name
		c.machines[is.Name] = is
		if after == nil {
			delete(c.machines, is.Name)
			maps.DeleteFunc(c.states, func(s state, _ string) bool { return s.machine == is.Name })
		}
	case *clusterv1.MachineHealthCheck:
		c.all[is.Name] = is
		if before == nil && c.first != nil && is.Name == Cluster {
			c.said[is.Name], c.first = said(healthCheck(c.first), nil), nil
		}
		if after == nil {
			delete(c.all, is.Name)
			delete(c.said, is.Name)
			emit(history.Event{Kind: history.CheckChanged, Object: "MachineHealthCheck/" + is.Name, UID: string(is.UID)})
		}
	}
	if !c.concerned(before, after) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.all)) {
		check := c.all[name]
		if is := said(check, c.machines); is != c.said[name] {
			c.said[name] = is
			emit(history.Event{Kind: history.CheckChanged, Object: "MachineHealthCheck/" + name, UID: string(check.UID), Key: machine, Value: is})
		}
	}
	c.conditions(emit)
}

// conditions emits the changes of the Machines' conditions that checks mind. Note of an event is
// when the condition says that it changed, for Date.
func (c *checks) conditions(emit func(history.Event)) {
	c.minded = c.minded[:0]
	for _, check := range c.all { // order does not matter: sorted below
		for _, sick := range check.Spec.Checks.UnhealthyMachineConditions {
			c.minded = append(c.minded, sick.Type)
		}
	}
	slices.Sort(c.minded)
	c.minded = slices.Compact(c.minded)
	maps.DeleteFunc(c.states, func(s state, _ string) bool { return !slices.Contains(c.minded, s.condition) })
	for _, name := range slices.Sorted(maps.Keys(c.machines)) {
		for _, kind := range c.minded {
			m, is, at := c.machines[name], "", ""
			if c := meta.FindStatusCondition(m.Status.Conditions, kind); c != nil {
				is, at = string(c.Status), c.LastTransitionTime.Format(time.RFC3339)
			}
			if one := (state{name, kind}); is != c.states[one] {
				c.states[one] = is
				emit(history.Event{Kind: history.MachineCondition, Host: hostOf(m), Object: "Machine/" + name, UID: string(m.UID), Key: kind, Value: is, Note: at})
			}
		}
	}
}

// concerned reports whether a change may be one of what a check says. Most are none: they are
// of other kinds, or of what a controller reports.
func (c *checks) concerned(before, after metav1.Object) bool {
	switch is := cmp.Or(after, before).(type) {
	case *clusterv1.Machine:
		was, ok := before.(*clusterv1.Machine)
		return !ok || after == nil || len(c.minded) > 0 || was.Spec.ClusterName != is.Spec.ClusterName || !maps.Equal(was.Labels, is.Labels)
	case *clusterv1.MachineHealthCheck:
		was, ok := before.(*clusterv1.MachineHealthCheck)
		return !ok || after == nil || was.Generation != is.Generation || !maps.Equal(was.Annotations, is.Annotations)
	}
	return false
}

// startupOfClusterAPI is how long a Machine may be without a Node if its check doesn't say.
const startupOfClusterAPI = 10 * time.Minute

// said returns the content of a check, which leaves some of the Machines out.
func said(check *clusterv1.MachineHealthCheck, machines map[string]*clusterv1.Machine) string {
	_, paused := check.Annotations[clusterv1.PausedAnnotation]
	is := history.Check{
		Paused:  paused,
		Startup: history.Age(startupOfClusterAPI),
	}
	if seconds := check.Spec.Checks.NodeStartupTimeoutSeconds; seconds != nil {
		is.Startup = history.Age(time.Duration(*seconds) * time.Second)
	}
	limits := scenarios.HealthCheck{UnhealthyRange: check.Spec.Remediation.TriggerIf.UnhealthyInRange}
	if most := check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo; most != nil {
		limits.MaxUnhealthy = most.String()
	}
	is.Least, is.Most, is.Share = limits.Limits()
	minds := func(ofMachine bool, kind, status string, seconds *int32) {
		minded := history.Minded{OfMachine: ofMachine, Type: kind, Status: status}
		if seconds != nil {
			minded.After = history.Age(time.Duration(*seconds) * time.Second)
		}
		is.Unhealthy = append(is.Unhealthy, minded)
	}
	for _, c := range check.Spec.Checks.UnhealthyNodeConditions {
		minds(false, string(c.Type), string(c.Status), c.TimeoutSeconds)
	}
	for _, c := range check.Spec.Checks.UnhealthyMachineConditions {
		minds(true, c.Type, string(c.Status), c.TimeoutSeconds)
	}
	selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
	for _, name := range slices.Sorted(maps.Keys(machines)) {
		if m := machines[name]; err != nil || m.Spec.ClusterName != check.Spec.ClusterName || !selector.Matches(apilabels.Set(m.Labels)) {
			is.LeavesOut = append(is.LeavesOut, name)
		}
	}
	return is.String()
}
