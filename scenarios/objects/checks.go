package objects

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

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
	// said holds what each check has said last.
	said map[string]string
}

func newChecks(first *scenarios.HealthCheck) *checks {
	return &checks{first: first, all: make(map[string]*clusterv1.MachineHealthCheck), machines: make(map[string]*clusterv1.Machine), said: make(map[string]string)}
}

// note keeps what a check or a Machine has become, and emits what checks say that they didn't
// before: what they ask for, and which Machines they leave out.
func (c *checks) note(before, after metav1.Object, emit func(history.Event)) {
	if c == nil || !c.concerned(before, after) {
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
	for _, name := range slices.Sorted(maps.Keys(c.all)) {
		check := c.all[name]
		if is := said(check, c.machines); is != c.said[name] {
			c.said[name] = is
			emit(history.Event{Kind: history.CheckChanged, Object: "MachineHealthCheck/" + name, UID: string(check.UID), Key: machine, Value: is})
		}
	}
}

// concerned reports whether a change may be one of what a check says. Most are none: they are
// of other kinds, or of what a controller reports.
func (c *checks) concerned(before, after metav1.Object) bool {
	switch is := cmp.Or(after, before).(type) {
	case *clusterv1.Machine:
		was, ok := before.(*clusterv1.Machine)
		return !ok || after == nil || was.Spec.ClusterName != is.Spec.ClusterName || !maps.Equal(was.Labels, is.Labels)
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
		Paused:     paused,
		OfMachines: len(check.Spec.Checks.UnhealthyMachineConditions) > 0,
		Startup:    history.Age(startupOfClusterAPI),
	}
	if seconds := check.Spec.Checks.NodeStartupTimeoutSeconds; seconds != nil {
		is.Startup = history.Age(time.Duration(*seconds) * time.Second)
	}
	limits := scenarios.HealthCheck{UnhealthyRange: check.Spec.Remediation.TriggerIf.UnhealthyInRange}
	if most := check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo; most != nil {
		limits.MaxUnhealthy = most.String()
	}
	is.Least, is.Most = limits.ActsOn(100) // a share of one hundred Machines is its percentage
	is.Share = limits.Share()
	for _, c := range check.Spec.Checks.UnhealthyNodeConditions {
		minded := history.Minded{Type: string(c.Type), Status: string(c.Status)}
		if c.TimeoutSeconds != nil {
			minded.After = history.Age(time.Duration(*c.TimeoutSeconds) * time.Second)
		}
		is.Unhealthy = append(is.Unhealthy, minded)
	}
	selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
	for _, name := range slices.Sorted(maps.Keys(machines)) {
		if m := machines[name]; err != nil || m.Spec.ClusterName != check.Spec.ClusterName || !selector.Matches(apilabels.Set(m.Labels)) {
			is.LeavesOut = append(is.LeavesOut, name)
		}
	}
	return is.String()
}
