package api

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/fencelab/fencelab/controllers/api/fence"
)

// GroupVersion is the group and version of the BareMetalHost.
var GroupVersion = schema.GroupVersion{Group: "metal3.io", Version: "v1alpha1"}

// AddToScheme registers the BareMetalHost.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &BareMetalHost{}, &BareMetalHostList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// NewScheme returns a scheme with every kind that the controllers read or write.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, policyv1.AddToScheme, storagev1.AddToScheme, clusterv1.AddToScheme, AddToScheme, fence.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}
