package fence

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// StorageFence keeps a Node's host out of the storage of its volumes, or lets it in again, like the
// NetworkFence of csi-addons. Whoever carries it out knows nothing of boots or Machines, and its
// deletion lets no host in: a host stays out until a StorageFence has said Unfenced.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Node",type="string",JSONPath=".spec.node"
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".spec.fenceState"
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.message"
type StorageFence struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec StorageFenceSpec `json:"spec"`
	// +optional
	Status StorageFenceStatus `json:"status,omitzero"`
}

// StorageFenceList is a list of StorageFences.
//
// +kubebuilder:object:root=true
type StorageFenceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StorageFence `json:"items"`
}

// StorageFenceSpec says whom to keep out, or to let in.
type StorageFenceSpec struct {
	// Node names the Node by which the storage knows the host.
	// +kubebuilder:validation:MinLength=1
	Node string `json:"node"`
	// FenceState is wanted.
	// +kubebuilder:validation:Enum=Fenced;Unfenced
	FenceState FenceState `json:"fenceState"`
}

// FenceState is whether a host is to be kept out.
type FenceState string

// The states.
const (
	Fenced   FenceState = "Fenced"
	Unfenced FenceState = "Unfenced"
)

// StorageFenceStatus reports the last operation. It doesn't say by itself which one that was:
// Result is that of an earlier state until the present one is carried out.
type StorageFenceStatus struct {
	// +optional
	Result Result `json:"result,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
}

// Result is how an operation ended.
type Result string

// The results.
const (
	Succeeded Result = "Succeeded"
	Failed    Result = "Failed"
)

// Message is that of the operation that brings the state about, once it has succeeded.
func (s FenceState) Message() string {
	if s == Unfenced {
		return "unfencing operation successful"
	}
	return "fencing operation successful"
}

// Is reports whether the storage has done what the object says, and that is the state.
func (f *StorageFence) Is(state FenceState) bool {
	return f.Spec.FenceState == state && f.Status.Result == Succeeded && f.Status.Message == state.Message()
}
