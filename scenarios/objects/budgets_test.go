package objects

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// TestPassedOver: a Pod that is marked for deletion has passed over a budget which forbids that,
// unless it was evicted, isn't Ready, or isn't one of those that the budget is about.
func TestPassedOver(t *testing.T) {
	kind := func(name string) *Kind {
		for i := range kinds {
			if kinds[i].GVK.Kind == name {
				return &kinds[i]
			}
		}
		t.Fatalf("there is no kind %s", name)
		return nil
	}
	is := func(condition corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue}
	}
	forbids := policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1}
	for name, test := range map[string]struct {
		conditions []corev1.PodCondition
		namespace  string
		status     policyv1.PodDisruptionBudgetStatus
		selects    map[string]string
		want       string
	}{
		"forbidden":                 {[]corev1.PodCondition{is(corev1.PodReady)}, "default", forbids, map[string]string{"app": "db"}, "PodDisruptionBudget/all"},
		"evicted":                   {[]corev1.PodCondition{is(corev1.PodReady), is(corev1.DisruptionTarget)}, "default", forbids, nil, ""},
		"not Ready":                 {nil, "default", forbids, nil, ""},
		"of another namespace":      {[]corev1.PodCondition{is(corev1.PodReady)}, "other", forbids, nil, ""},
		"of other labels":           {[]corev1.PodCondition{is(corev1.PodReady)}, "default", forbids, map[string]string{"app": "web"}, ""},
		"allowed":                   {[]corev1.PodCondition{is(corev1.PodReady)}, "default", policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: 1}, nil, ""},
		"of a budget not yet heard": {[]corev1.PodCondition{is(corev1.PodReady)}, "default", policyv1.PodDisruptionBudgetStatus{}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			names := NamesOf(&scenarios.Topology{}, nil)
			budget := &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Name: "all", Namespace: test.namespace, Generation: 1},
				Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: test.selects}},
				Status:     test.status,
			}
			names.Changes(kind("PodDisruptionBudget"), nil, budget, nil)
			before := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0", Namespace: "default", Labels: map[string]string{"app": "db"}}, Spec: corev1.PodSpec{NodeName: "worker-1"}}
			before.Status.Conditions = test.conditions
			after := before.DeepCopy()
			after.DeletionTimestamp = new(metav1.Time)
			mark := func(want string) {
				var got []history.Event
				names.Changes(kind("Pod"), before, after, func(e history.Event) { got = append(got, e) })
				if len(got) != 1 || got[0].Kind != history.PodTerminating || got[0].Key != want {
					t.Errorf("events %v, want one with the key %q", got, want)
				}
			}
			mark(test.want)
			names.Changes(kind("PodDisruptionBudget"), budget, nil, nil)
			mark("")
		})
	}
}
