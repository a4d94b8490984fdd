package lab

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/lab/hosts"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/vms/keeper"
)

// attach makes the lab a guest of an existing cluster, unless something there is in its way.
func (b *Backend) attach(nodes []string, o cluster.AttachOptions) (*cluster.Attached, error) {
	come, err := b.toCome(nodes)
	if err != nil {
		return nil, err
	}
	o.Name, o.Nodes, o.Manifests, o.Objects = keeper.Name(), nodes, b.set.Manifests(), come
	a, err := cluster.Attach(b.ctx, o)
	if err != nil {
		return nil, &play.Missing{World: "lab", Reasons: []string{err.Error()}, Remedy: "remove what is in the way, or choose another cluster"}
	}
	b.logf("everything created in the cluster has the label %s=%s; nothing else there is read or changed", cluster.Label, keeper.Name())
	return a, nil
}

// toCome are the objects with names of their own that the lab will make beside its manifests.
func (b *Backend) toCome(nodes []string) ([]client.Object, error) {
	come := objects.Topology(&b.plan.Spec, func(string) api.BMCDetails { return api.BMCDetails{} }, func(string) string { return "" })
	come = append(come, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: objects.Namespace, Name: hosts.BMCSecret}})
	for _, node := range nodes {
		come = append(come, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	}
	chosen, err := objects.Controllers(b.set, &b.plan.Spec)
	if err != nil {
		return nil, err
	}
	for _, c := range chosen {
		come = append(come, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "lab-" + c.Name}})
	}
	if host := b.plan.Spec.Topology.Workload.Host; host != "" {
		come = append(come, exclusive(host, nil)...)
	}
	scheme, err := b.scheme()
	if err != nil {
		return nil, err
	}
	for _, obj := range come {
		kind, err := apiutil.GVKForObject(obj, scheme)
		if err != nil {
			return nil, fmt.Errorf("look for %s: %w", obj.GetName(), err)
		}
		obj.GetObjectKind().SetGroupVersionKind(kind)
	}
	return come, nil
}
