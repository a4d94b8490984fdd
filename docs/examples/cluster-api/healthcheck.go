package clusterapi

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinehealthcheck"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
)

// HealthChecks is, in scenarios, Cluster API's MachineHealthCheck controller with a provider
// of remediation.
const HealthChecks = "capi-healthcheck"

// requestAnnotation on a Machine names the last HostRemediation for which it was marked. It is
// set together with the mark, so that a request leads to one mark, whoever dies in between.
const requestAnnotation = "remediation.fencelab.dev/request"

func setUpHealthChecks(ctx context.Context, mgr manager.Manager, _ controllers.Deps) error {
	if err := addIndexes(ctx, mgr); err != nil {
		return err
	}
	checks := &machinehealthcheck.Reconciler{Client: constants{mgr.GetClient()}, ClusterCache: &oneCluster{mgr: mgr}}
	if err := checks.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 10}); err != nil {
		return fmt.Errorf("set up the MachineHealthCheck controller: %w", err)
	}
	return (&remediator{objects{mgr.GetClient(), mgr.GetAPIReader()}}).setUp(mgr)
}

// remediator is a provider of remediation as Cluster API wants one. Each HostRemediation,
// which the health check makes of a template, becomes the mark on its Machine that
// fencelab's remediation controllers act on. It gives the checks of a topology that template.
// A request that was marked once is not marked again: who withdraws the mark is right.
type remediator struct{ objects }

func (r *remediator) setUp(mgr manager.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("hostremediation").
		For(&clusterv1.MachineHealthCheck{}).
		Watches(&HostRemediation{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(obj)}}
		})).
		Complete(r)
}

// Reconcile looks after the check or the request of this name.
func (r *remediator) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var check clusterv1.MachineHealthCheck
	if err := r.Client.Get(ctx, request.NamespacedName, &check); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	} else if err == nil && !check.Spec.Remediation.TemplateRef.IsDefined() {
		if err := r.adopt(ctx, &check); err != nil {
			return reconcile.Result{}, fmt.Errorf("adopt the MachineHealthCheck %s: %w", request, err)
		}
	}
	var remediation HostRemediation
	if err := r.Client.Get(ctx, request.NamespacedName, &remediation); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	return reconcile.Result{}, r.mark(ctx, &remediation)
}

// adopt gives a check of the topology what Cluster API wants of one.
func (r *remediator) adopt(ctx context.Context, check *clusterv1.MachineHealthCheck) error {
	if err := r.cluster(ctx, client.ObjectKey{Namespace: check.Namespace, Name: check.Spec.ClusterName}); err != nil {
		return fmt.Errorf("make the cluster: %w", err)
	}
	template := &HostRemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: check.Namespace, Name: check.Name}}
	if err := r.Client.Create(ctx, template); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("make the template: %w", err)
	}
	return r.patch(ctx, check, map[string]any{"spec": map[string]any{"remediation": map[string]any{
		"templateRef": clusterv1.MachineHealthCheckRemediationTemplateReference{APIVersion: GroupVersion.String(), Kind: "HostRemediationTemplate", Name: template.Name},
	}}})
}

// mark marks the Machine of a request, unless that was done.
func (r *remediator) mark(ctx context.Context, remediation *HostRemediation) error {
	var machine clusterv1.Machine
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(remediation), &machine); err != nil {
		return client.IgnoreNotFound(err)
	}
	owners, id := remediation.OwnerReferences, string(remediation.UID)
	if len(owners) != 1 || owners[0].UID != machine.UID || !remediation.DeletionTimestamp.IsZero() || machine.Annotations[requestAnnotation] == id {
		return nil
	}
	annotations := map[string]any{requestAnnotation: id}
	if _, marked := machine.Annotations[api.ExternalRemediationAnnotation]; !marked {
		annotations[api.ExternalRemediationAnnotation] = ""
	}
	return r.patch(ctx, &machine, map[string]any{"metadata": map[string]any{"annotations": annotations, "resourceVersion": machine.ResourceVersion}})
}
