package objects

import (
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fencelab/fencelab/scenarios/history"
)

// budgets holds the PodDisruptionBudgets of a run by their names, and the Pods that they may
// protect; nil knows none. A lab watches each kind by itself.
type budgets struct {
	mutex sync.Mutex
	all   map[types.NamespacedName]*policyv1.PodDisruptionBudget
	pods  map[types.NamespacedName]*corev1.Pod
	// protected has the budgets that protect a Pod.
	protected map[types.NamespacedName]string
}

func newBudgets() *budgets {
	return &budgets{
		all: make(map[types.NamespacedName]*policyv1.PodDisruptionBudget), pods: make(map[types.NamespacedName]*corev1.Pod),
		protected: make(map[types.NamespacedName]string),
	}
}

// note keeps what a budget or a Pod has become, and emits which Pods are protected from now on, or
// no longer. The host of an event is its Node.
func (b *budgets) note(before, after metav1.Object, emit func(history.Event)) {
	if b == nil {
		return
	}
	b.mutex.Lock()
	var events []history.Event
	is := after
	if is == nil {
		is = before
	}
	switch obj := is.(type) {
	case *corev1.Pod:
		key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
		if after == nil || obj.DeletionTimestamp != nil { // which has an event of its own
			delete(b.pods, key)
			delete(b.protected, key)
			break
		}
		b.pods[key] = obj
		events = b.protect(events, key)
	case *policyv1.PodDisruptionBudget:
		key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
		if b.all[key] = obj; after == nil {
			delete(b.all, key)
		}
		for _, pod := range sorted(b.pods) {
			events = b.protect(events, pod)
		}
	}
	b.mutex.Unlock()
	for _, e := range events {
		emit(e)
	}
}

// protect appends what has changed about the protection of a Pod.
func (b *budgets) protect(events []history.Event, key types.NamespacedName) []history.Event {
	pod, was := b.pods[key], b.protected[key]
	now := ""
	if pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodRunning {
		now = b.forbids(pod)
	}
	if now == was {
		return events
	}
	e := history.Event{Kind: history.PodProtected, Host: pod.Spec.NodeName, Object: "Pod/" + pod.Name, UID: string(pod.UID), Key: now}
	if b.protected[key] = now; now == "" {
		delete(b.protected, key)
		e.Kind, e.Key = history.PodUnprotected, was
	}
	return append(events, e)
}

// forbids returns the budget on account of which the API server refuses to evict a Pod that runs:
// the only one of the Pod allows no disruption, or has yet to count, or there are several.
// Otherwise it returns "".
func (b *budgets) forbids(pod *corev1.Pod) string {
	of := b.of(pod)
	if len(of) == 0 || len(of) == 1 && counted(of[0]) && of[0].Status.DisruptionsAllowed > 0 {
		return ""
	}
	var names []string
	for _, budget := range of {
		names = append(names, "PodDisruptionBudget/"+budget.Name)
	}
	return strings.Join(names, ",")
}

// of returns the budgets of a Pod, by their names.
func (b *budgets) of(pod *corev1.Pod) (all []*policyv1.PodDisruptionBudget) {
	for _, key := range sorted(b.all) {
		budget := b.all[key]
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err == nil && key.Namespace == pod.Namespace && selector.Matches(apilabels.Set(pod.Labels)) {
			all = append(all, budget)
		}
	}
	return all
}

// counted reports whether a budget's status is about its present spec.
func counted(budget *policyv1.PodDisruptionBudget) bool {
	return budget.Status.ObservedGeneration >= budget.Generation
}

// sorted returns the names of objects in an order.
func sorted[T any](objects map[types.NamespacedName]T) []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(objects), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
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
	for _, budget := range b.of(pod) {
		if counted(budget) && budget.Status.DisruptionsAllowed == 0 {
			return "PodDisruptionBudget/" + budget.Name
		}
	}
	return ""
}
