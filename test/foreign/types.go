// Package foreign is a module whose author has Go types of the kinds that fencelab has, as whoever
// imports metal3's or Cluster API's does. Its BareMetalHost and Machine lack fields of fencelab's,
// and have fields that fencelab's lack.
package foreign

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// BareMetalHost is this module's own.
type BareMetalHost struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   HostSpec   `json:"spec,omitempty"`
	Status HostStatus `json:"status,omitempty"`
}

// HostSpec has a field that fencelab's lacks, and lacks the BMC.
type HostSpec struct {
	Online                bool         `json:"online"`
	AutomatedCleaningMode string       `json:"automatedCleaningMode,omitempty"`
	ConsumerRef           *ConsumerRef `json:"consumerRef,omitempty"`
}

// ConsumerRef names the user of a host.
type ConsumerRef struct {
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
}

// HostStatus lacks the times of reboots and the answers to requests.
type HostStatus struct {
	OperationalStatus string       `json:"operationalStatus"`
	LastUpdated       *metav1.Time `json:"lastUpdated,omitempty"`
	PoweredOn         bool         `json:"poweredOn"`
	ErrorCount        int32        `json:"errorCount"`
}

// BareMetalHostList is a list of them.
type BareMetalHostList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BareMetalHost `json:"items"`
}

// Machine is this module's own.
type Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		ProviderID string `json:"providerID,omitempty"`
	} `json:"spec,omitzero"`
	Status struct {
		NodeRef *struct {
			Name string `json:"name"`
		} `json:"nodeRef,omitempty"`
	} `json:"status,omitzero"`
}

// MachineList is a list of them.
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Machine `json:"items"`
}

// copied is a deep copy by way of JSON.
func copied[T any](of *T) *T {
	data, err := json.Marshal(of)
	into := new(T)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		panic(err) // these types encode
	}
	return into
}

// DeepCopyObject implements runtime.Object.
func (h *BareMetalHost) DeepCopyObject() runtime.Object { return copied(h) }

// DeepCopyObject implements runtime.Object.
func (l *BareMetalHostList) DeepCopyObject() runtime.Object { return copied(l) }

// DeepCopyObject implements runtime.Object.
func (m *Machine) DeepCopyObject() runtime.Object { return copied(m) }

// DeepCopyObject implements runtime.Object.
func (l *MachineList) DeepCopyObject() runtime.Object { return copied(l) }

// AddToScheme registers the types under the names that fencelab has, too.
func AddToScheme(scheme *runtime.Scheme) error {
	hosts, machines := schema.GroupVersion{Group: "metal3.io", Version: "v1alpha1"}, schema.GroupVersion{Group: "cluster.x-k8s.io", Version: "v1beta2"}
	scheme.AddKnownTypes(hosts, &BareMetalHost{}, &BareMetalHostList{})
	scheme.AddKnownTypes(machines, &Machine{}, &MachineList{})
	metav1.AddToGroupVersion(scheme, hosts)
	metav1.AddToGroupVersion(scheme, machines)
	return nil
}
