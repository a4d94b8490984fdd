package objects

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
)

// budgets holds the PodDisruptionBudgets of a run by their names; nil knows none. A lab watches
// each kind by itself.
type budgets struct {
	mutex sync.Mutex
	all   map[string]*policyv1.PodDisruptionBudget
}

// note keeps what a budget has become.
func (b *budgets) note(before, after metav1.Object) {
	gone, was := before.(*policyv1.PodDisruptionBudget)
	budget, is := after.(*policyv1.PodDisruptionBudget)
	if b == nil || !was && !is {
		return
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.all == nil {
		b.all = make(map[string]*policyv1.PodDisruptionBudget)
	}
	if is {
		b.all[budget.Namespace+"/"+budget.Name] = budget
	} else {
		delete(b.all, gone.Namespace+"/"+gone.Name)
	}
}

// passedOver returns the budget that forbade the deletion of a Pod without an eviction, or "". A
// budget counts Pods that are Ready, and who evicts leaves word in the Pod.
func (b *budgets) passedOver(pod *corev1.Pod) string {
	if b == nil {
		return ""
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if len(b.all) == 0 || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	}) || !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}) {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(b.all)) {
		budget := b.all[name]
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err == nil && budget.Namespace == pod.Namespace && budget.Status.ObservedGeneration >= budget.Generation && budget.Status.DisruptionsAllowed == 0 && selector.Matches(apilabels.Set(pod.Labels)) {
			return "PodDisruptionBudget/" + budget.Name
		}
	}
	return ""
}
