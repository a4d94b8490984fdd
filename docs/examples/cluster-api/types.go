package clusterapi

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of the provider's kinds.
var GroupVersion = schema.GroupVersion{Group: "infrastructure.fencelab.dev", Version: "v1"}

// AddToScheme registers the provider's kinds. Those of Cluster API fencelab knows.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &HostMachine{}, &HostMachineList{}, &HostedControlPlane{}, &HostedControlPlaneList{},
		&HostRemediation{}, &HostRemediationList{}, &HostRemediationTemplate{}, &HostRemediationTemplateList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// HostMachine is the infrastructure of a Machine: the use of a BareMetalHost.
//
// +kubebuilder:object:root=true
type HostMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   HostMachineSpec   `json:"spec"`
	Status HostMachineStatus `json:"status,omitempty"`
}

// HostMachineSpec says which host it is.
type HostMachineSpec struct {
	// ProviderID is the host's ID in its Node.
	ProviderID string `json:"providerID"`
	// Host is the BareMetalHost.
	Host string `json:"host"`
}

// HostMachineStatus holds the status that Cluster API's contract asks for.
type HostMachineStatus struct {
	Initialization HostMachineInitialization `json:"initialization,omitempty"`
}

// HostMachineInitialization says how far the host has come.
type HostMachineInitialization struct {
	Provisioned bool `json:"provisioned,omitempty"`
}

// HostMachineList is a list of them.
//
// +kubebuilder:object:root=true
type HostMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HostMachine `json:"items"`
}

// HostedControlPlane is a control plane without Machines, and all the infrastructure that its
// cluster has.
//
// +kubebuilder:object:root=true
type HostedControlPlane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status HostedControlPlaneStatus `json:"status,omitempty"`
}

// HostedControlPlaneStatus holds the status that Cluster API's contract asks for.
type HostedControlPlaneStatus struct {
	ExternalManagedControlPlane bool                             `json:"externalManagedControlPlane,omitempty"`
	Initialization              HostedControlPlaneInitialization `json:"initialization,omitempty"`
}

// HostedControlPlaneInitialization says that it can be reached, and that the cluster is there.
type HostedControlPlaneInitialization struct {
	ControlPlaneInitialized bool `json:"controlPlaneInitialized,omitempty"`
	Provisioned             bool `json:"provisioned,omitempty"`
}

// HostedControlPlaneList is a list of them.
//
// +kubebuilder:object:root=true
type HostedControlPlaneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HostedControlPlane `json:"items"`
}

// HostRemediation is Cluster API's request to remediate the Machine of its name.
//
// +kubebuilder:object:root=true
type HostRemediation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
}

// HostRemediationList is a list of them.
//
// +kubebuilder:object:root=true
type HostRemediationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HostRemediation `json:"items"`
}

// HostRemediationTemplate is the template of requests, which have no fields of their own.
//
// +kubebuilder:object:root=true
type HostRemediationTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
}

// HostRemediationTemplateList is a list of them.
//
// +kubebuilder:object:root=true
type HostRemediationTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HostRemediationTemplate `json:"items"`
}
