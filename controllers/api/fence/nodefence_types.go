// Package fence holds two objects of fencing. By the NodeFence the agents of seed 004 agree that a
// boot of a host has to end, and it keeps what is needed to make its Node again. The StorageFence
// keeps a host out of the storage.
//
// +kubebuilder:object:generate=true
// +groupName=fencelab.dev
// +versionName=v1alpha1
package fence

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// GroupVersion is the group and version of both.
var GroupVersion = schema.GroupVersion{Group: "fencelab.dev", Version: "v1alpha1"}

// AddToScheme registers both.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &NodeFence{}, &NodeFenceList{}, &StorageFence{}, &StorageFenceList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// NodeFence says that one boot of a host has to end. It has the name of the host's Node.
// It is never taken back: an agent that has read it lets its host be reset, and it goes
// only when that boot is gone. The next boot is another one, and is left alone.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Boot",type="string",JSONPath=".spec.boot"
// +kubebuilder:printcolumn:name="Requested",type="date",JSONPath=".spec.requestedAt"
type NodeFence struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NodeFenceSpec `json:"spec"`
}

// NodeFenceList is a list of NodeFences.
//
// +kubebuilder:object:root=true
type NodeFenceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeFence `json:"items"`
}

// NodeFenceSpec names the boot to end and the Machine that asked for it.
type NodeFenceSpec struct {
	// Boot is the boot ID of the host that has to be reset.
	// +kubebuilder:validation:MinLength=1
	Boot string `json:"boot"`
	// Machine is the one whose mark asked for it.
	Machine MachineReference `json:"machine"`
	// RequestedAt is for people. Agents compare no clocks.
	RequestedAt metav1.MicroTime `json:"requestedAt"`
	// Backup is the data to recreate the Node from.
	// +optional
	Backup Backup `json:"backup,omitzero"`
}

// MachineReference names a Machine.
type MachineReference struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// Backup is data of a Node that its kubelet would not set again.
type Backup struct {
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// +optional
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Unschedulable is whether somebody else had cordoned the Node before.
	// +optional
	Unschedulable bool `json:"unschedulable,omitempty"`
}

// BackupOf returns the data to recreate a Node from. It leaves out the conditions and the taints
// that go with them, which were about a boot that is over, and some annotations.
func BackupOf(node *corev1.Node, without ...string) Backup {
	b := Backup{
		Labels: maps.Clone(node.Labels), Annotations: maps.Clone(node.Annotations),
		ProviderID: node.Spec.ProviderID, PodCIDRs: slices.Clone(node.Spec.PodCIDRs), Unschedulable: node.Spec.Unschedulable,
	}
	for _, key := range without {
		delete(b.Annotations, key)
	}
	for _, t := range node.Spec.Taints {
		switch t.Key {
		case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable, corev1.TaintNodeOutOfService:
		default:
			b.Taints = append(b.Taints, t)
		}
	}
	return b
}

// Node returns the Node as it was, without what was about the boot that is over.
func (b *Backup) Node(name string) *corev1.Node {
	b = b.DeepCopy()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: b.Labels, Annotations: b.Annotations}}
	node.Spec.ProviderID, node.Spec.PodCIDRs, node.Spec.Taints, node.Spec.Unschedulable = b.ProviderID, b.PodCIDRs, b.Taints, b.Unschedulable
	if len(b.PodCIDRs) > 0 {
		node.Spec.PodCIDR = b.PodCIDRs[0]
	}
	return node
}
