package nodelifecycle

import (
	"context"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
)

var (
	ctx   = context.Background()
	epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	grace = DefaultSettings().NodeMonitorGracePeriod.Duration
)

type lab struct {
	t          *testing.T
	clock      *clocktesting.FakePassiveClock
	client     client.Client
	reconciler *Reconciler
}

func newLab(t *testing.T, ready corev1.ConditionStatus, renewed *time.Time) *lab {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "worker-1", CreationTimestamp: metav1.NewTime(epoch)},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
			{Type: corev1.NodeReady, Status: ready},
		}},
	}
	objs := []client.Object{node}
	if renewed != nil {
		objs = append(objs, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "worker-1"},
			Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: *renewed}},
		})
	}
	l := &lab{t: t, clock: clocktesting.NewFakePassiveClock(epoch)}
	l.client = fake.NewClientBuilder().WithScheme(api.NewScheme()).WithObjects(objs...).WithStatusSubresource(node).Build()
	l.reconciler = &Reconciler{Client: l.client, Live: l.client, Clock: l.clock, Settings: DefaultSettings()}
	return l
}

func (l *lab) step() time.Duration {
	l.t.Helper()
	result, err := l.reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: "worker-1"}})
	if err != nil {
		l.t.Fatal(err)
	}
	return result.RequeueAfter
}

func (l *lab) node() *corev1.Node {
	l.t.Helper()
	var node corev1.Node
	if err := l.client.Get(ctx, types.NamespacedName{Name: "worker-1"}, &node); err != nil {
		l.t.Fatal(err)
	}
	return &node
}

func (l *lab) renew(at time.Time) {
	l.t.Helper()
	var lease coordinationv1.Lease
	if err := l.client.Get(ctx, types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: "worker-1"}, &lease); err != nil {
		l.t.Fatal(err)
	}
	lease.Spec.RenewTime = &metav1.MicroTime{Time: at}
	if err := l.client.Update(ctx, &lease); err != nil {
		l.t.Fatal(err)
	}
}

func TestLeaseThatIsNotRenewed(t *testing.T) {
	renewed := epoch.Add(10 * time.Second)
	l := newLab(t, corev1.ConditionTrue, &renewed)
	l.clock.SetTime(epoch.Add(20 * time.Second))
	if got := l.step(); got != grace-10*time.Second {
		t.Errorf("looks again after %s, want %s", got, grace-10*time.Second)
	}
	l.clock.SetTime(renewed.Add(grace - time.Millisecond))
	l.step()
	if got := readyStatus(l.node()); got != corev1.ConditionTrue {
		t.Fatalf("Ready is %s a moment too early", got)
	}
	l.clock.SetTime(renewed.Add(grace))
	if l.step(); readyStatus(l.node()) != corev1.ConditionUnknown {
		t.Fatalf("Ready is %s, want Unknown", readyStatus(l.node()))
	}
	conditions := l.node().Status.Conditions
	if len(conditions) != 2 || conditions[0].Type != corev1.NodeMemoryPressure ||
		!conditions[1].LastTransitionTime.Time.Equal(renewed.Add(grace)) {
		t.Errorf("conditions %+v", conditions)
	}
	l.step() // the taint
	before := l.node().ResourceVersion
	if after := l.step(); after != 0 || l.node().ResourceVersion != before {
		t.Errorf("an unknown Node is written again, or looked at after %s", after)
	}
}

func TestRenewalInTheFutureDelaysNoMoreThanTheGracePeriod(t *testing.T) {
	renewed := epoch.Add(time.Hour)
	if got := newLab(t, corev1.ConditionTrue, &renewed).step(); got != grace {
		t.Errorf("looks again after %s", got)
	}
}

// TestLeaseOfTheBootBefore has no Lease of this Node: it gets its time from when
// it registered.
func TestLeaseOfTheBootBefore(t *testing.T) {
	old := epoch.Add(-time.Hour)
	for name, renewed := range map[string]*time.Time{"none": nil, "old": &old} {
		l := newLab(t, corev1.ConditionTrue, renewed)
		if got := l.step(); got != grace {
			t.Errorf("%s: looks again after %s", name, got)
		}
		l.clock.SetTime(epoch.Add(grace))
		if l.step(); readyStatus(l.node()) != corev1.ConditionUnknown {
			t.Errorf("%s: Ready is %s", name, readyStatus(l.node()))
		}
	}
}

// TestKubeletWhoseClockIsBehind has a host that stood still, as one that was paused, or whose clock
// was set back to before its Node was there: each renewal is older than the grace period when it is
// written.
func TestKubeletWhoseClockIsBehind(t *testing.T) {
	for _, behind := range []time.Duration{grace + 20*time.Second, 2 * time.Hour} {
		l := newLab(t, corev1.ConditionTrue, &epoch)
		l.step()
		now := epoch.Add(time.Hour)
		for range 5 {
			now = now.Add(grace)
			l.clock.SetTime(now)
			l.renew(now.Add(-behind))
			if got := l.step(); got != grace || readyStatus(l.node()) != corev1.ConditionTrue {
				t.Fatalf("%s behind, %s: Ready is %s, looks again after %s", behind, now.Sub(epoch), readyStatus(l.node()), got)
			}
		}
		l.clock.SetTime(now.Add(grace)) // and now it is dead
		if l.step(); readyStatus(l.node()) != corev1.ConditionUnknown {
			t.Errorf("%s behind: Ready is %s", behind, readyStatus(l.node()))
		}
	}
}

// TestStatusBeforeTheLease has a kubelet that comes back and says Ready before it
// renews its Lease.
func TestStatusBeforeTheLease(t *testing.T) {
	l := newLab(t, corev1.ConditionTrue, &epoch)
	l.step()
	l.clock.SetTime(epoch.Add(grace))
	l.step() // Unknown
	l.step() // the taint
	l.clock.SetTime(epoch.Add(2 * grace))
	node := l.node()
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			c.Status, c.LastTransitionTime = corev1.ConditionTrue, metav1.NewTime(l.clock.Now())
		}
	}
	if err := l.client.Status().Update(ctx, node); err != nil {
		t.Fatal(err)
	}
	l.step() // the taint
	if got := l.step(); got != grace || readyStatus(l.node()) != corev1.ConditionTrue {
		t.Errorf("Ready is %s, looks again after %s", readyStatus(l.node()), got)
	}
	l.clock.SetTime(epoch.Add(3 * grace)) // its Lease was never renewed
	if l.step(); readyStatus(l.node()) != corev1.ConditionUnknown {
		t.Errorf("Ready is %s", readyStatus(l.node()))
	}
}

func TestTaintsFollowReady(t *testing.T) {
	other := corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoSchedule}
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	unreachable := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}
	for _, tc := range []struct {
		ready     corev1.ConditionStatus
		has, want []corev1.Taint
	}{
		{corev1.ConditionTrue, nil, nil},
		{corev1.ConditionTrue, []corev1.Taint{notReady, other}, []corev1.Taint{other}},
		{corev1.ConditionTrue, []corev1.Taint{unreachable}, nil},
		{corev1.ConditionFalse, []corev1.Taint{other}, []corev1.Taint{other, notReady}},
		{corev1.ConditionFalse, []corev1.Taint{notReady}, []corev1.Taint{notReady}},
		{corev1.ConditionUnknown, []corev1.Taint{notReady}, []corev1.Taint{unreachable}},
	} {
		l := newLab(t, tc.ready, nil)
		node := l.node()
		node.Spec.Taints = tc.has
		if err := l.client.Update(ctx, node); err != nil {
			t.Fatal(err)
		}
		before := l.node().ResourceVersion
		l.step()
		node = l.node()
		if !slices.EqualFunc(node.Spec.Taints, tc.want, func(a, b corev1.Taint) bool { return a.MatchTaint(&b) }) {
			t.Errorf("Ready %s with %v: %v", tc.ready, tc.has, node.Spec.Taints)
		}
		if same := len(tc.has) == len(tc.want) && slices.Equal(tc.has, tc.want); same != (node.ResourceVersion == before) {
			t.Errorf("Ready %s with %v: written %t", tc.ready, tc.has, !same)
		}
	}
}
