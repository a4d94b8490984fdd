package onhost

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/fencelab/fencelab/controllers/api/fence"
)

// mapper knows the kinds that agents use, so that one can start while there is no API
// server to be asked for them.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, clusterv1.GroupVersion, fence.GroupVersion})
	m.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	m.Add(fence.GroupVersion.WithKind("NodeFence"), meta.RESTScopeRoot)
	m.Add(clusterv1.GroupVersion.WithKind("Machine"), meta.RESTScopeNamespace)
	return m
}
