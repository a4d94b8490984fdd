package healthcheck

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/fencelab/fencelab/controllers/api"
)

// TestGuard: of three members, the host of one is given up only if the other two are there.
func TestGuard(t *testing.T) {
	type world struct {
		*ward
		budget *policyv1.PodDisruptionBudget
		pods   []*corev1.Pod
	}
	for _, test := range []struct {
		name   string
		change func(*world)
		marks  bool
	}{
		{"the others are there", func(*world) {}, true},
		{"its own Pod is called unready", func(w *world) { w.pods[0].Status.Conditions = nil }, true},
		{"its own Pod alone is ready, and the budget allows a disruption", func(w *world) {
			w.pods[1].Status.Conditions, w.budget.Status.DisruptionsAllowed = nil, 1
		}, false},
		{"another Pod is called unready", func(w *world) { w.pods[2].Status.Conditions = nil }, false},
		{"another Pod is gone", func(w *world) { w.pods = w.pods[:2] }, false},
		{"another Pod is on its way out", func(w *world) {
			w.pods[1].DeletionTimestamp, w.pods[1].Finalizers = &metav1.Time{Time: epoch}, []string{"fencelab.dev/test"}
		}, false},
		{"the kubelet of another is silent", func(w *world) { w.setReady("worker-2", corev1.ConditionUnknown) }, false},
		{"another is being remediated", func(w *world) {
			var m clusterv1.Machine
			w.must(w.client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: "worker-2"}, &m))
			m.Annotations[api.ExternalRemediationAnnotation] = ""
			w.must(w.client.Update(ctx, &m))
		}, false},
		{"another, which no check selects, is being remediated", func(w *world) {
			var m clusterv1.Machine
			w.must(w.client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: "worker-2"}, &m))
			m.Annotations[api.ExternalRemediationAnnotation], m.Annotations[clusterv1.MachineSkipRemediationAnnotation] = "", ""
			w.must(w.client.Update(ctx, &m))
		}, false},
		{"another is in deletion", func(w *world) {
			var m clusterv1.Machine
			w.must(w.client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: "worker-2"}, &m))
			m.Finalizers = []string{"fencelab.dev/test"}
			w.must(w.client.Update(ctx, &m))
			w.must(w.client.Delete(ctx, &m))
		}, false},
		{"a user has another host rebooted", func(w *world) {
			var h api.BareMetalHost
			w.must(w.client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: "worker-2"}, &h))
			h.Annotations = map[string]string{api.RebootAnnotation: ""}
			w.must(w.client.Update(ctx, &h))
		}, false},
		{"there is no guard", func(w *world) { w.budget.Name = "another" }, false},
		{"nobody has counted yet", func(w *world) { w.budget.Generation = 2 }, false},
		{"the guard wants no Pod", func(w *world) { w.budget.Status.DesiredHealthy = 0 }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &world{ward: newWard(t, 3, nil)}
			w.restart(Settings{Guard: "guard"})
			w.budget = &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "guard", Generation: 1},
				Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
				Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DesiredHealthy: 2},
			}
			for _, on := range []string{"worker-1", "worker-2", "worker-3"} {
				w.pods = append(w.pods, &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: on}, Spec: corev1.PodSpec{NodeName: on},
					Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
				})
			}
			w.setReady("worker-1", corev1.ConditionUnknown)
			test.change(w)
			w.must(w.client.Create(ctx, w.budget))
			for _, pod := range w.pods {
				deleted := pod.DeletionTimestamp != nil
				pod.DeletionTimestamp = nil
				w.must(w.client.Create(ctx, pod))
				if deleted {
					w.must(w.client.Delete(ctx, pod))
				}
			}
			w.settle()
			w.pass(30 * time.Second)
			wait := w.settle()
			var m clusterv1.Machine
			w.must(w.client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: "worker-1"}, &m))
			if _, marked := m.Annotations[api.ExternalRemediationAnnotation]; marked != test.marks {
				t.Errorf("the Machine is marked: %t", marked)
			}
			if !test.marks && (wait <= 0 || wait > lookAgain) {
				t.Errorf("it looks again after %s", wait)
			}
		})
	}
}
