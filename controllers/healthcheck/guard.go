package healthcheck

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
)

// noGuard lets every host go.
func noGuard(string) bool { return false }

// guard returns a function that reports whether the guarded Pods may be too few without a Node. It
// counts those on other Nodes that are Ready, and whose hosts don't go off soon, and asks
// not whether that Node's own Pod is well: a Pod is also called unready because its kubelet is
// silent, and may run on. So it never needs the disruptions that the budget allows, which a mark of
// a moment ago has used up unseen. A budget that is absent, or of which no controller has said yet
// how many Pods it wants, guards everything.
func (r *Reconciler) guard(ctx context.Context, namespace string, others others) (func(node string) bool, error) {
	everything := func(string) bool { return true }
	budget, err := api.Get(ctx, r.Live, client.ObjectKey{Namespace: namespace, Name: r.Settings.Guard}, &policyv1.PodDisruptionBudget{})
	if err != nil {
		return nil, err
	}
	if budget == nil || budget.Status.ObservedGeneration < budget.Generation || budget.Status.DesiredHealthy == 0 {
		return everything, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("parse the selector of PodDisruptionBudget %s: %w", budget.Name, err)
	}
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list the Pods that PodDisruptionBudget %s guards: %w", budget.Name, err)
	}
	var nodes corev1.NodeList
	if err := r.Live.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Nodes of guarded Pods: %w", err)
	}
	var leaving []string // Nodes whose hosts go off soon, of whatever Machine
	for i := range others.machines {
		if machine := &others.machines[i]; others.leaves(machine) {
			leaving = append(leaving, machine.Status.NodeRef.Name)
		}
	}
	return func(without string) bool {
		left := int32(0)
		for i := range pods.Items {
			on := pods.Items[i].Spec.NodeName
			if on != without && !slices.Contains(leaving, on) && podReady(&pods.Items[i]) && slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == on && api.Ready(&n) }) {
				left++
			}
		}
		return left < budget.Status.DesiredHealthy
	}, nil
}

func podReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
