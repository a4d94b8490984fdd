// Package api holds the types that the fencing controllers share: the
// BareMetalHost (seed 000's two status fields included, which upstream's type
// lacks), the annotations of seeds 000 to 002 with their grammar, and the
// scheme of everything that the controllers read and write.
//
// +kubebuilder:object:generate=true
// +groupName=metal3.io
// +versionName=v1alpha1
package api
