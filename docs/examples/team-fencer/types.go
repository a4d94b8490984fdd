package teamfencer

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// GroupVersion is that of the FenceRequest.
var GroupVersion = schema.GroupVersion{Group: "team.example.com", Version: "v1"}

// AddToScheme registers the FenceRequest.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &FenceRequest{}, &FenceRequestList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// FenceRequest asks for one host to be fenced.
type FenceRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   FenceRequestSpec   `json:"spec"`
	Status FenceRequestStatus `json:"status,omitempty"`
}

// FenceRequestSpec names the host.
type FenceRequestSpec struct {
	Host string `json:"host"`
}

// FenceRequestStatus is how far it has come.
type FenceRequestStatus struct {
	// NodeUID is the Node to be deleted, and no other one of that name.
	NodeUID types.UID `json:"nodeUID,omitempty"`
	// RequestedAt is when that was noted.
	RequestedAt *metav1.Time `json:"requestedAt,omitempty"`
	// NodeDeleted says that the host may be switched on again.
	NodeDeleted bool `json:"nodeDeleted,omitempty"`
	// Done says that nothing is left to do.
	Done bool `json:"done,omitempty"`
}

// FenceRequestList is a list of them.
type FenceRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FenceRequest `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (r *FenceRequest) DeepCopyObject() runtime.Object {
	c := *r
	r.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Status.RequestedAt = r.Status.RequestedAt.DeepCopy()
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *FenceRequestList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = nil
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*FenceRequest))
	}
	return &c
}
