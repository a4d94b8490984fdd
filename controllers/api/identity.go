package api

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Consumer returns the Machine that uses a host, according to the host.
func Consumer(host *BareMetalHost) (key types.NamespacedName, ok bool) {
	ref := host.Spec.ConsumerRef
	if ref == nil || ref.Kind != "Machine" || ref.Name == "" {
		return key, false
	}
	key = types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if key.Namespace == "" {
		key.Namespace = host.Namespace
	}
	return key, true
}

// Owner classifies the owner of the Node that a Machine's nodeRef names. The reference is a name,
// and names are used again (design, decisions 19 and 23).
type Owner string

// The owners. The owner of an Unproven Node can't be determined: a controller that would fence or
// delete it asks a person.
const (
	Own      Owner = "own"
	Anothers Owner = "another's"
	Unproven Owner = "unproven"
)

// NodeUnproven is the reason of warnings about an Unproven Node.
const NodeUnproven = "NodeUnproven"

// Proof is a Node's owner, with the evidence.
// +kubebuilder:object:generate=false
type Proof struct {
	Owner Owner
	// Why is the evidence against the Machine, empty if the Node is its own.
	Why string
}

// ByProviderID returns the owner of a Node if provider IDs decide it.
func ByProviderID(machine *clusterv1.Machine, node *corev1.Node) (proof Proof, told bool) {
	id, nodeID := machine.Spec.ProviderID, node.Spec.ProviderID
	switch {
	case id == "" || nodeID == "":
		return Proof{}, false
	case id == nodeID:
		return Proof{Owner: Own}, true
	}
	return Proof{Anothers, fmt.Sprintf("has the provider ID %s, not %s", Shorten(nodeID), Shorten(id))}, true
}

// ByReport returns the owner of a Node where provider IDs don't decide: the Machine, if its host
// has itself reported the boot that the Node reports, and no other Machine refers to the Node. An
// unreported boot is "".
func ByReport(machine *clusterv1.Machine, node *corev1.Node, reported string, machines []clusterv1.Machine) Proof {
	switch other := AnothersToo(machine, node, machines); {
	case other.Owner != "":
		return other
	case reported == "" || reported != node.Status.NodeInfo.BootID:
		return Proof{Unproven, "has no provider ID, or the Machine has none, and the Machine's host has not reported the Node's boot"}
	}
	return Proof{Owner: Own}
}

// Sharer says who else may have the Node that a Machine's provider ID proves to be its own, or "".
// The ID is that of the kubelet which created the Node, and a kubelet of the same name on another
// host writes to that Node from then on (design, decision 25). A cache is enough, for it only
// forbids. A Machine may have no host.
func Sharer(ctx context.Context, cache client.Reader, machine *clusterv1.Machine, node *corev1.Node, host *BareMetalHost) (string, error) {
	var machines clusterv1.MachineList
	if err := cache.List(ctx, &machines, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list the Machines that may have Node %s: %w", node.Name, err)
	}
	if who := namer(machine, node, machines.Items); who != "" || !foreign(node, host) {
		return who, nil
	}
	var hosts BareMetalHostList
	if err := cache.List(ctx, &hosts, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list the hosts that may run Node %s: %w", node.Name, err)
	}
	return runner(node, hosts.Items), nil
}

// SharerAmong is Sharer for a caller that has the lists.
func SharerAmong(machine *clusterv1.Machine, node *corev1.Node, host *BareMetalHost, machines []clusterv1.Machine, hosts []BareMetalHost) string {
	if who := namer(machine, node, machines); who != "" || !foreign(node, host) {
		return who
	}
	return runner(node, hosts)
}

// namer is another Machine that names the Node, in words, or "".
func namer(machine *clusterv1.Machine, node *corev1.Node, machines []clusterv1.Machine) string {
	for i := range machines {
		other := &machines[i]
		if client.ObjectKeyFromObject(other) != client.ObjectKeyFromObject(machine) && other.Status.NodeRef.Name == node.Name {
			return "is named by Machine " + client.ObjectKeyFromObject(other).String() + " as well"
		}
	}
	return ""
}

// foreign reports whether the system that writes to the Node is none of the host's.
func foreign(node *corev1.Node, host *BareMetalHost) bool {
	system := node.Status.NodeInfo.SystemUUID
	return system != "" && host != nil && !strings.EqualFold(system, host.Status.Hardware.SystemUUID)
}

// runner is the host whose system writes to the Node, in words, or "".
func runner(node *corev1.Node, hosts []BareMetalHost) string {
	for i := range hosts {
		if other := &hosts[i]; strings.EqualFold(other.Status.Hardware.SystemUUID, node.Status.NodeInfo.SystemUUID) {
			return "is run by the system of BareMetalHost " + client.ObjectKeyFromObject(other).String() + " as well"
		}
	}
	return ""
}

// AnothersToo returns a proof if another Machine refers to the Node as well, by its provider ID or
// by its name, and an empty one otherwise.
func AnothersToo(machine *clusterv1.Machine, node *corev1.Node, machines []clusterv1.Machine) Proof {
	for i := range machines {
		other := &machines[i]
		byID := node.Spec.ProviderID != "" && other.Spec.ProviderID == node.Spec.ProviderID
		byName := other.Status.NodeRef.Name == node.Name
		switch name := client.ObjectKeyFromObject(other).String(); {
		case other.UID == machine.UID && name == client.ObjectKeyFromObject(machine).String():
		case byID:
			return Proof{Anothers, "has the provider ID of Machine " + name}
		case byName:
			return Proof{Unproven, "is named by Machine " + name + " as well, and has no provider ID, or the Machine has none"}
		}
	}
	return Proof{}
}

// WhoseNode returns the owner of the Node that a Machine names, given the Machine's host or nil.
// The kubelet reports the boot and its system's UUID in one write, and the host's inspection has
// found the UUID. Unless two hosts have the same UUID, both together are the host's own report.
func WhoseNode(ctx context.Context, reader client.Reader, machine *clusterv1.Machine, node *corev1.Node, host *BareMetalHost) (Proof, error) {
	if proof, told := ByProviderID(machine, node); told {
		return proof, nil
	}
	var machines clusterv1.MachineList
	if err := reader.List(ctx, &machines, client.UnsafeDisableDeepCopy); err != nil {
		return Proof{}, fmt.Errorf("list the Machines that may have Node %s: %w", node.Name, err)
	}
	reported := ""
	if host != nil && host.Status.Hardware.SystemUUID != "" {
		is, system := node.Status.NodeInfo.SystemUUID, host.Status.Hardware.SystemUUID
		if is != "" && !strings.EqualFold(is, system) {
			return Proof{Anothers, fmt.Sprintf("is run by the system %s, and BareMetalHost %s is the system %s", Shorten(is), client.ObjectKeyFromObject(host), Shorten(system))}, nil
		}
		var hosts BareMetalHostList
		if err := reader.List(ctx, &hosts, client.UnsafeDisableDeepCopy); err != nil {
			return Proof{}, fmt.Errorf("list the hosts that may run Node %s: %w", node.Name, err)
		}
		same := 0
		for i := range hosts.Items {
			if strings.EqualFold(hosts.Items[i].Status.Hardware.SystemUUID, system) {
				same++
			}
		}
		if is != "" && same == 1 {
			reported = node.Status.NodeInfo.BootID
		}
	}
	return ByReport(machine, node, reported, machines.Items), nil
}
