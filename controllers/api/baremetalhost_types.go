package api

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BareMetalHost is a physical server and the BMC that controls its power.
// Field names and JSON are upstream's (metal3.io/v1alpha1), reduced to what
// power management needs.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=bmh;bmhost
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".status.provisioning.state"
// +kubebuilder:printcolumn:name="Consumer",type="string",JSONPath=".spec.consumerRef.name"
// +kubebuilder:printcolumn:name="Online",type="boolean",JSONPath=".spec.online"
// +kubebuilder:printcolumn:name="Powered",type="boolean",JSONPath=".status.poweredOn"
// +kubebuilder:printcolumn:name="Error",type="string",JSONPath=".status.errorType"
type BareMetalHost struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BareMetalHostSpec   `json:"spec,omitempty"`
	Status BareMetalHostStatus `json:"status,omitempty"`
}

// BareMetalHostList is a list of BareMetalHosts.
//
// +kubebuilder:object:root=true
type BareMetalHostList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BareMetalHost `json:"items"`
}

// BareMetalHostSpec is the state that the user wants for a host.
type BareMetalHostSpec struct {
	// Online is whether the host should be powered on. A pending reboot
	// overrides it while it lasts (seed 000).
	Online bool `json:"online"`
	// BMC says how to reach the host's management controller.
	// +optional
	BMC BMCDetails `json:"bmc,omitempty"`
	// BootMACAddress is the MAC address that the host boots from.
	// +optional
	BootMACAddress string `json:"bootMACAddress,omitempty"`
	// ConsumerRef is the object that uses this host: a Machine.
	// +optional
	ConsumerRef *corev1.ObjectReference `json:"consumerRef,omitempty"`
	// ExternallyProvisioned says that the host runs an image that somebody
	// else put there.
	// +optional
	ExternallyProvisioned bool `json:"externallyProvisioned,omitempty"`
}

// BMCDetails is the address of a BMC and the Secret that opens it.
type BMCDetails struct {
	// Address is a URL: redfish+http://HOST:PORT/redfish/v1/Systems/ID,
	// or redfish:// and redfish+https:// for TLS.
	// +optional
	Address string `json:"address,omitempty"`
	// CredentialsName names a Secret in the host's namespace with the keys
	// username and password.
	// +optional
	CredentialsName string `json:"credentialsName,omitempty"`
	// DisableCertificateVerification accepts any TLS certificate.
	// +optional
	DisableCertificateVerification bool `json:"disableCertificateVerification,omitempty"`
}

// ProvisioningState is a stage in a host's life cycle.
type ProvisioningState string

// The states that matter here. Only a provisioned host takes part in the
// reboot interface; leaving that state deprovisions it.
const (
	StateProvisioned           ProvisioningState = "provisioned"
	StateExternallyProvisioned ProvisioningState = "externally provisioned"
	StateDeprovisioning        ProvisioningState = "deprovisioning"
	StateAvailable             ProvisioningState = "available"
	// StateDetached is that of a host with the DetachedAnnotation, whatever its status says.
	StateDetached ProvisioningState = "detached"
)

// Provisioned reports whether a host in this state runs an image and takes part in
// the reboot interface (seed 001).
func (s ProvisioningState) Provisioned() bool {
	return s == StateProvisioned || s == StateExternallyProvisioned
}

// ProvisioningState is the state that counts for controllers.
func (h *BareMetalHost) ProvisioningState() ProvisioningState {
	if _, detached := h.Annotations[DetachedAnnotation]; detached {
		return StateDetached
	}
	return h.Status.Provisioning.State
}

// ErrorType classifies the error that keeps a host from its goal.
type ErrorType string

// PowerManagementError is recorded when a power command was refused, had no
// effect in time, or the BMC could not be reached.
const PowerManagementError ErrorType = "power management error"

// BareMetalHostStatus is the observed state of a host.
type BareMetalHostStatus struct {
	// PoweredOn is false only when the BMC said exactly Off. Every other
	// answer (PoweringOff, Paused, none) counts as not known to be off.
	PoweredOn bool `json:"poweredOn"`
	// Hardware is the result of the host's inspection.
	// +optional
	Hardware HardwareDetails `json:"hardware,omitzero"`
	// Provisioning is the state of the host's image and its reboots.
	// +optional
	Provisioning ProvisionStatus `json:"provisioning,omitempty"`
	// ErrorType and ErrorMessage say what went wrong last; ErrorCount how
	// often in a row.
	// +optional
	ErrorType ErrorType `json:"errorType,omitempty"`
	// +optional
	ErrorMessage string `json:"errorMessage,omitempty"`
	// +optional
	ErrorCount int `json:"errorCount,omitempty"`
}

// HardwareDetails holds the result of an inspection. Upstream has many fields; the UUID is ours.
type HardwareDetails struct {
	// SystemUUID is that of the system's firmware, as its BMC and its kubelet have it. It
	// tells which host a Node's boot is of where provider IDs don't.
	// +optional
	SystemUUID string `json:"systemUUID,omitempty"`
}

// ProvisionStatus holds the two times that make a reboot request exact
// (seed 000), and the answer to those that hold the host. Both times have
// microseconds, because a virtual machine can boot and be asked to reboot again
// within one second.
type ProvisionStatus struct {
	// State is the provisioning state.
	// +optional
	State ProvisioningState `json:"state,omitempty"`
	// PendingRebootSince is a time before which the last reboot was
	// requested. While it is later than LastPoweredOn the host goes off, and
	// stays off, whatever Spec.Online says.
	// +optional
	PendingRebootSince *metav1.MicroTime `json:"pendingRebootSince,omitempty"`
	// LastPoweredOn is a time after which the host was last booted: every
	// process that ran before it has stopped. It is written while the host is
	// known to be off, before the command to power on, so that a crash
	// between the two causes no second reboot.
	// +optional
	LastPoweredOn *metav1.MicroTime `json:"lastPoweredOn,omitempty"`
	// HeldOffFor answers the keyed reboot annotations: it maps the key of each
	// to the RequestID of its content, once the host was found off by a reading
	// that began when the annotation was there already, with that content. An
	// entry is gone as soon as the host is seen on, or may boot. So an Off from
	// before a request is no answer to it, whatever pendingRebootSince says.
	// +optional
	HeldOffFor map[string]string `json:"heldOffFor,omitempty"`
}

// RebootPending reports whether a requested reboot has not led to a boot yet:
// PendingRebootSince is later than LastPoweredOn (seed 000).
func (p ProvisionStatus) RebootPending() bool {
	return p.PendingRebootSince != nil &&
		(p.LastPoweredOn == nil || p.PendingRebootSince.After(p.LastPoweredOn.Time))
}
