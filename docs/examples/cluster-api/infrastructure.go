package clusterapi

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// SetUpInfrastructure adds to a manager what Cluster API's own manager, which runs elsewhere, needs
// of others: the provider of infrastructure, and that of remediation. The manager is ready when
// Cluster API's has taken over all Machines and health checks of the topology.
func SetUpInfrastructure(mgr manager.Manager) error {
	made := objects{mgr.GetClient(), mgr.GetAPIReader()}
	if err := (&provider{objects: made}).setUp(mgr); err != nil {
		return fmt.Errorf("set up the provider of infrastructure: %w", err)
	}
	if err := (&remediator{made}).setUp(mgr); err != nil {
		return fmt.Errorf("set up the provider of remediation: %w", err)
	}
	return mgr.AddReadyzCheck("taken-over", func(request *http.Request) error { return takenOver(request.Context(), mgr.GetClient()) })
}

// takenOver says what Cluster API has not taken over yet.
func takenOver(ctx context.Context, reader client.Reader) error {
	var clusters clusterv1.ClusterList
	if err := reader.List(ctx, &clusters); err != nil {
		return err
	}
	up := make(map[client.ObjectKey]bool)
	for i := range clusters.Items {
		c := &clusters.Items[i]
		is := func(condition string) bool { return meta.IsStatusConditionTrue(c.Status.Conditions, condition) }
		up[client.ObjectKeyFromObject(c)] = is(clusterv1.ClusterRemoteConnectionProbeCondition) &&
			is(clusterv1.ClusterInfrastructureReadyCondition) && is(clusterv1.ClusterControlPlaneInitializedCondition)
	}
	var machines clusterv1.MachineList
	if err := reader.List(ctx, &machines); err != nil {
		return err
	}
	all := make(map[string]int32)
	for i := range machines.Items {
		m := &machines.Items[i]
		all[m.Spec.ClusterName]++
		node := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineNodeReadyCondition)
		switch {
		case !up[client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}]:
			return fmt.Errorf("the cluster %s is not up", m.Spec.ClusterName)
		case node == nil || node.Status != metav1.ConditionTrue:
			return fmt.Errorf("the Machine %s does not know its Node", m.Name)
		}
	}
	var checks clusterv1.MachineHealthCheckList
	if err := reader.List(ctx, &checks); err != nil {
		return err
	}
	for i := range checks.Items {
		c := &checks.Items[i]
		if !c.Spec.Remediation.TemplateRef.IsDefined() || c.Status.CurrentHealthy == nil || *c.Status.CurrentHealthy != all[c.Spec.ClusterName] {
			return fmt.Errorf("the MachineHealthCheck %s does not know its Machines", c.Name)
		}
	}
	return nil
}
