package objects

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// Names of what every topology has.
const (
	// Namespace is where the Machines, BareMetalHosts and Pods are.
	Namespace = "default"
	// Cluster is the Cluster API cluster's name.
	Cluster = scenarios.ClusterName
	// WorkloadName is the Pod of the exclusive workload, and its process.
	WorkloadName = "exclusive"
)

// Topology returns the objects that stand for a topology, in an order in which
// they can be created: for each host a BareMetalHost and its Machine, then the
// MachineHealthCheck, if any. Nodes are made by the hosts' kubelets. Their
// status is set and has to be written through the status subresource as well,
// where there is one. The world says how a host's BMC is reached, and which UUID its system
// has.
func Topology(spec *scenarios.Spec, bmc func(host string) api.BMCDetails, uuid func(host string) string) []client.Object {
	var objs []client.Object
	for i := range spec.Topology.Hosts {
		h := &spec.Topology.Hosts[i]
		objs = append(objs, hostObject(h, bmc(h.Name), uuid(h.Name)), machineObject(h))
	}
	if spec.HealthCheck != nil {
		objs = append(objs, healthCheck(spec.HealthCheck))
	}
	return objs
}

func hostObject(host *scenarios.Host, bmc api.BMCDetails, uuid string) *api.BareMetalHost {
	h := &api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: host.Name}}
	h.Spec = api.BareMetalHostSpec{
		Online: !host.Off, BMC: bmc, ExternallyProvisioned: true,
		ConsumerRef: &corev1.ObjectReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Namespace: Namespace, Name: host.Machine()},
	}
	h.Status = api.BareMetalHostStatus{PoweredOn: !host.Off, Hardware: api.HardwareDetails{SystemUUID: uuid}, Provisioning: api.ProvisionStatus{State: api.StateExternallyProvisioned}}
	return h
}

// Restore sets what the BMCs of a topology do when a loss of AC power is over.
func Restore(topology *scenarios.Topology, bmcs map[string]*fakebmc.BMC) error {
	for i := range topology.Hosts {
		h := &topology.Hosts[i]
		if h.PowerRestore == "" {
			continue
		}
		if err := bmcs[h.Name].SetRestorePolicy(fakebmc.RestorePolicy(h.PowerRestore)); err != nil {
			return err
		}
	}
	return nil
}

// ProviderID is the host's ID in its Node and its Machine.
func ProviderID(host string) string { return "metal3://" + Namespace + "/" + host }

// Names are the hosts by the names of their Nodes and of their Machines. The first of several hosts
// with one Node's name has it now.
type Names struct {
	nodes    map[string][]string
	machines map[string]string
	budgets  *budgets
	checks   *checks
}

// NamesOf returns the names of a topology, which a run begins with, and its health check, if any.
func NamesOf(topology *scenarios.Topology, check *scenarios.HealthCheck) Names {
	names := Names{make(map[string][]string), make(map[string]string), newBudgets(), newChecks(check)}
	for i := range topology.Hosts {
		h := &topology.Hosts[i]
		names.nodes[h.Node()], names.machines[h.Machine()] = append(names.nodes[h.Node()], h.Name), h.Name
	}
	return names
}

// Reported notes the host of the kubelet that has written to a Node. From then on, the name is this
// host's in the API, until the kubelet of another host has written to a Node of the name.
func (n *Names) Reported(node, host string) {
	hosts := n.nodes[node]
	if i := slices.Index(hosts, host); i > 0 {
		hosts[0], hosts[i] = hosts[i], hosts[0]
	}
}

// OfNode returns the host that has a Node's name now, or "" if the topology has no such Node.
func (n *Names) OfNode(node string) string {
	if hosts := n.nodes[node]; len(hosts) > 0 {
		return hosts[0]
	}
	return ""
}

// host is the host that an object belongs to; one that the topology knows nothing of has its
// own name.
func (n *Names) host(kind scenarios.Naming, name string) string {
	switch kind {
	case scenarios.AfterNode:
		return cmp.Or(n.OfNode(name), name)
	case scenarios.AfterMachine:
		return cmp.Or(n.machines[name], name)
	}
	return name
}

// Changes hands over what became different between two versions of an object, in
// a fixed order. A nil before means that the object was created, a nil after that
// it was deleted. The events have neither number nor time.
//
// The host that an event belongs to is the object's own name for BareMetalHosts, the
// Node's host for kinds that name one, and the host that a Machine's annotation names.
// A Machine that has lost that is still the one of its host in the topology. A Node is taken over
// only by one host of its name from another. A Pod that isn't evicted passes over a budget which
// forbids that by then.
func (n *Names) Changes(kind *Kind, before, after metav1.Object, emit func(history.Event)) {
	see := func(e history.Event) {
		if pod, ok := after.(*corev1.Pod); ok && e.Kind == history.PodTerminating {
			e.Key = n.budgets.passedOver(pod)
		}
		of, name, _ := strings.Cut(e.Object, "/")
		switch {
		case of == "Machine" && e.Host == "":
			e.Host = n.host(scenarios.AfterMachine, name)
		case kind.NamesNode:
			e.Host = n.host(scenarios.AfterNode, e.Host)
		}
		if e.Kind == history.NodeTakenOver {
			if hosts := n.nodes[name]; e.Value == e.Host || !slices.Contains(hosts, e.Host) || !slices.Contains(hosts, e.Value) {
				return
			}
		}
		emit(e)
	}
	n.checks.note(before, after, see)
	if kind.Changes == nil {
		return
	}
	n.budgets.note(before, after, func(e history.Event) {
		e.Host = n.host(scenarios.AfterNode, e.Host)
		emit(e)
	})
	kind.Changes(before, after, see)
}

func machineObject(host *scenarios.Host) *clusterv1.Machine {
	name := host.Name
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: Namespace, Name: host.Machine(),
		Labels:      map[string]string{clusterv1.ClusterNameLabel: Cluster},
		Annotations: map[string]string{api.HostAnnotation: Namespace + "/" + name},
	}}
	m.Spec = clusterv1.MachineSpec{
		ClusterName:       Cluster,
		Bootstrap:         clusterv1.Bootstrap{DataSecretName: new(string)},
		ProviderID:        ProviderID(name),
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: api.GroupVersion.Group, Kind: "BareMetalHost", Name: name},
	}
	m.Status.NodeRef = clusterv1.MachineNodeReference{Name: host.Node()}
	m.Status.Phase = string(clusterv1.MachinePhaseRunning)
	return m
}

func healthCheck(h *scenarios.HealthCheck) *clusterv1.MachineHealthCheck {
	seconds := func(d scenarios.Duration) *int32 {
		s := int32((time.Duration(d) + time.Second - 1) / time.Second)
		return &s
	}
	mhc := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Cluster}}
	mhc.Spec = clusterv1.MachineHealthCheckSpec{
		ClusterName: Cluster,
		Selector:    metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.ClusterNameLabel: Cluster}},
		Checks:      clusterv1.MachineHealthCheckChecks{NodeStartupTimeoutSeconds: seconds(h.NodeStartupTimeout)},
	}
	for _, status := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionUnknown} {
		mhc.Spec.Checks.UnhealthyNodeConditions = append(mhc.Spec.Checks.UnhealthyNodeConditions, clusterv1.UnhealthyNodeCondition{
			Type: corev1.NodeReady, Status: status, TimeoutSeconds: seconds(h.UnhealthyAfter),
		})
	}
	if h.MaxUnhealthy != "" {
		limit := intstr.Parse(h.MaxUnhealthy)
		mhc.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = &limit
	}
	mhc.Spec.Remediation.TriggerIf.UnhealthyInRange = h.UnhealthyRange
	return mhc
}
