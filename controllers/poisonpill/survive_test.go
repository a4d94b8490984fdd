package poisonpill

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fencelab/fencelab/controllers/api/fence"
)

// TestAmended: a Node that a kubelet has made gets what it lacks of the backup, and keeps
// what it has (seed 004; design, decision 12).
func TestAmended(t *testing.T) {
	mine := corev1.Taint{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}
	theirs := corev1.Taint{Key: "team", Value: "b", Effect: corev1.TaintEffectNoSchedule}
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w", Labels: map[string]string{"host": "w"}}}
		if change != nil {
			change(n)
		}
		return n
	}
	for name, c := range map[string]struct {
		backup fence.Backup
		node   *corev1.Node
		want   *corev1.Node // nil: it lacks nothing
	}{
		"nothing to give": {fence.Backup{Labels: map[string]string{"host": "w"}}, node(nil), nil},
		"a label": {fence.Backup{Labels: map[string]string{"host": "w", "rack": "b7"}}, node(nil),
			node(func(n *corev1.Node) { n.Labels["rack"] = "b7" })},
		"a label that has another value by now": {fence.Backup{Labels: map[string]string{"host": "v"}}, node(nil), nil},
		"an annotation, where there was none": {fence.Backup{Annotations: map[string]string{"a": "b"}}, node(nil),
			node(func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} })},
		"a taint": {fence.Backup{Taints: []corev1.Taint{mine}}, node(nil),
			node(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{mine} })},
		"a taint that has another value by now": {fence.Backup{Taints: []corev1.Taint{mine}},
			node(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{theirs} }), nil},
		"a cordon":                 {fence.Backup{Unschedulable: true}, node(nil), node(func(n *corev1.Node) { n.Spec.Unschedulable = true })},
		"a cordon that came since": {fence.Backup{}, node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.node.DeepCopy()
			got := amended(c.node, &fence.NodeFence{Spec: fence.NodeFenceSpec{Backup: c.backup}})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, c.node); diff != "" {
				t.Errorf("what was read has changed: %s", diff)
			}
		})
	}
}

// TestMadeAnew: the Node that was fenced is never amended, for what it lacks a user has
// taken away.
func TestMadeAnew(t *testing.T) {
	at := func(s int) metav1.ObjectMeta {
		return metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Unix(int64(s), 0))}
	}
	for _, c := range []struct {
		node, fence int
		want        bool
	}{{1, 2, false}, {2, 2, false}, {3, 2, true}} {
		if got := madeAnew(&corev1.Node{ObjectMeta: at(c.node)}, &fence.NodeFence{ObjectMeta: at(c.fence)}); got != c.want {
			t.Errorf("a Node of %d s is made anew after a NodeFence of %d s: %v", c.node, c.fence, got)
		}
	}
}
