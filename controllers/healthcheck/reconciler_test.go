package healthcheck

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
)

var (
	ctx   = context.Background()
	epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	key   = types.NamespacedName{Namespace: "metal3", Name: "workers"}
)

// ward is a MachineHealthCheck over n Machines worker-1 to worker-n, whose Nodes
// are Ready.
type ward struct {
	t          *testing.T
	clock      *clocktesting.FakePassiveClock
	client     client.WithWatch
	reconciler *Reconciler
	warnings   []string
	writes     int
}

func newWard(t *testing.T, n int, change func(*clusterv1.MachineHealthCheck)) *ward {
	w := &ward{t: t, clock: clocktesting.NewFakePassiveClock(epoch)}
	check := &clusterv1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "check", Generation: 1},
		Spec: clusterv1.MachineHealthCheckSpec{
			ClusterName: "c",
			Selector:    metav1.LabelSelector{MatchLabels: map[string]string{"pool": "workers"}},
		},
	}
	check.Spec.Checks.NodeStartupTimeoutSeconds = ptr.To(int32(60))
	check.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, TimeoutSeconds: ptr.To(int32(10))},
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, TimeoutSeconds: ptr.To(int32(20))},
	}
	if change != nil {
		change(check)
	}
	objs := []client.Object{check}
	for i := range n {
		name := fmt.Sprintf("worker-%d", i+1)
		objs = append(objs,
			&clusterv1.Machine{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: key.Namespace, Name: name, Labels: map[string]string{"pool": "workers"},
					Annotations: map[string]string{api.HostAnnotation: key.Namespace + "/" + name},
				},
				Spec:   clusterv1.MachineSpec{ClusterName: "c"},
				Status: clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: name}},
			},
			&api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name}, Spec: api.BareMetalHostSpec{Online: true}},
			readyNode(name),
		)
	}
	w.client = interceptor.NewClient(
		fake.NewClientBuilder().WithScheme(api.NewScheme()).WithObjects(objs...).
			WithStatusSubresource(&clusterv1.Machine{}, &corev1.Node{}).Build(),
		interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				w.writes++
				return c.Patch(ctx, obj, patch, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				w.writes++
				return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
			},
		})
	w.restart(Settings{})
	return w
}

func readyNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{BootID: name + "#1"},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(epoch)},
			},
		},
	}
}

func (w *ward) restart(settings Settings) {
	w.reconciler = &Reconciler{
		Client: w.client, Live: w.client, Clock: w.clock, Steady: w.clock, Settings: settings, Decide: Decide,
		Warn: func(_ client.Object, reason, message string) { w.warnings = append(w.warnings, message) },
	}
}

// settle reconciles until nothing is written any more, with at most one write at
// a time, and returns the wait that was asked for.
func (w *ward) settle() time.Duration {
	w.t.Helper()
	for range 20 {
		before := w.writes
		result, err := w.reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: key})
		if err != nil {
			w.t.Fatal(err)
		}
		switch w.writes - before {
		case 0:
			return result.RequeueAfter
		case 1:
		default:
			w.t.Fatalf("%d writes in one reconcile", w.writes-before)
		}
	}
	w.t.Fatal("it never settles")
	return 0
}

func (w *ward) pass(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

func (w *ward) setReady(name string, status corev1.ConditionStatus) {
	w.t.Helper()
	var node corev1.Node
	w.must(w.client.Get(ctx, types.NamespacedName{Name: name}, &node))
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(w.clock.Now())},
	}
	w.must(w.client.Status().Update(ctx, &node))
}

func (w *ward) deleteNode(name string) {
	w.t.Helper()
	w.must(w.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

func (w *ward) machine(name string) *clusterv1.Machine {
	w.t.Helper()
	var machine clusterv1.Machine
	w.must(w.client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: name}, &machine))
	return &machine
}

func (w *ward) unmark(name string) {
	w.t.Helper()
	m := w.machine(name)
	w.must(w.client.Patch(ctx, m, api.RemoveAnnotations(m, api.ExternalRemediationAnnotation)))
}

func (w *ward) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *ward) wantMarked(want ...string) {
	w.t.Helper()
	var machines clusterv1.MachineList
	w.must(w.client.List(ctx, &machines))
	var got []string
	for _, m := range machines.Items {
		if value, marked := m.Annotations[api.ExternalRemediationAnnotation]; marked {
			got = append(got, m.Name)
			if value != "" {
				w.t.Errorf("the mark's value is %q", value)
			}
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		w.t.Errorf("%s: marked are %v, want %v", w.clock.Now().Sub(epoch), got, want)
	}
}

func (w *ward) wantWait(got, want time.Duration) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("looks again after %s, want %s", got, want)
	}
}

func TestHealthyMachinesCostNothing(t *testing.T) {
	w := newWard(t, 3, nil)
	w.wantWait(w.settle(), 0)
	if w.writes != 0 {
		t.Errorf("%d writes", w.writes)
	}
}

func TestSickNode(t *testing.T) {
	for status, timeout := range map[corev1.ConditionStatus]time.Duration{
		corev1.ConditionUnknown: 10 * time.Second, corev1.ConditionFalse: 20 * time.Second,
	} {
		w := newWard(t, 2, nil)
		w.setReady("worker-2", status)
		w.wantWait(w.settle(), timeout)
		w.pass(timeout - time.Second)
		w.wantWait(w.settle(), time.Second)
		w.wantMarked()
		w.pass(time.Second)
		w.wantWait(w.settle(), lookAgain) // a cache may miss the end of the remediation
		w.wantMarked("worker-2")
	}
}

// TestClockIsWrong: Nodes are written by other clocks than the health check's, which somebody may
// set besides. A condition counts from when it was seen first, and one that comes back is another.
func TestClockIsWrong(t *testing.T) {
	for _, ahead := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		w := newWard(t, 2, nil)
		wall := clocktesting.NewFakePassiveClock(epoch.Add(ahead))
		w.reconciler.Clock = wall
		w.setReady("worker-1", corev1.ConditionUnknown)
		w.wantWait(w.settle(), 10*time.Second)
		w.pass(9 * time.Second)
		w.wantMarked()
		w.setReady("worker-1", corev1.ConditionTrue)
		w.settle()
		w.setReady("worker-1", corev1.ConditionUnknown)
		wall.SetTime(epoch.Add(-ahead))
		w.wantWait(w.settle(), 10*time.Second)
		w.pass(10 * time.Second)
		w.settle()
		w.wantMarked("worker-1")
	}
}

func TestMissingNodeHasItsStartupTime(t *testing.T) {
	for name, lose := range map[string]func(*ward){
		"deleted": func(w *ward) { w.deleteNode("worker-1") },
		"never registered": func(w *ward) {
			m := w.machine("worker-1")
			m.Status.NodeRef = clusterv1.MachineNodeReference{}
			w.must(w.client.Status().Update(ctx, m))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t, 2, nil)
			lose(w)
			w.wantWait(w.settle(), 60*time.Second)
			w.pass(30 * time.Second)
			w.restart(Settings{}) // the time is kept in the Machine
			w.wantWait(w.settle(), 30*time.Second)
			w.wantMarked()
			w.pass(30 * time.Second)
			w.settle()
			w.wantMarked("worker-1")
		})
	}
}

func TestNodeReturns(t *testing.T) {
	w := newWard(t, 1, nil)
	w.deleteNode("worker-1")
	w.settle()
	w.pass(59 * time.Second)
	w.must(w.client.Create(ctx, readyNode("worker-1")))
	w.wantWait(w.settle(), 0)
	if verdict, _ := recorded(w.machine("worker-1")); verdict != Healthy {
		t.Errorf("recorded is %s", verdict)
	}
	w.pass(time.Hour)
	w.settle()
	w.wantMarked()
}

// TestNodeThatNoKubeletHasMade: an agent of seed 004 makes the Node of a host that boots
// again, and nobody has registered with it yet. That is no Node that is sick.
func TestNodeThatNoKubeletHasMade(t *testing.T) {
	w := newWard(t, 2, nil)
	w.deleteNode("worker-1")
	blank := readyNode("worker-1")
	blank.Status.NodeInfo.BootID, blank.Status.Conditions[0].Status = "", corev1.ConditionUnknown
	w.must(w.client.Create(ctx, blank))
	w.wantWait(w.settle(), 60*time.Second)
	w.pass(59 * time.Second)
	w.settle()
	w.wantMarked()
	w.pass(time.Second)
	w.settle()
	w.wantMarked("worker-1")
}

func TestStartupTimeBeginsAgainAfterRemediation(t *testing.T) {
	w := newWard(t, 1, nil)
	w.setReady("worker-1", corev1.ConditionUnknown)
	w.settle()
	w.pass(10 * time.Second)
	w.settle()
	w.wantMarked("worker-1")
	w.pass(time.Hour) // a slow remediation
	w.deleteNode("worker-1")
	w.settle()
	w.unmark("worker-1")
	w.wantWait(w.settle(), 60*time.Second)
	w.pass(30 * time.Second)
	// The kubelet registers, but is not ready at once. The Node's short timeout
	// doesn't count while the host starts.
	node := readyNode("worker-1")
	node.Status.Conditions[0].Status = corev1.ConditionFalse
	w.must(w.client.Create(ctx, node))
	w.setReady("worker-1", corev1.ConditionFalse)
	w.wantWait(w.settle(), 30*time.Second)
	w.wantMarked()
	w.pass(30 * time.Second)
	w.settle()
	w.wantMarked("worker-1")
}

func TestRemediatedHostIsNotMarkedTwice(t *testing.T) {
	w := newWard(t, 1, nil)
	w.reconciler.Settings.MissingNodeUnhealthyAtOnce = true
	host := &api.BareMetalHost{}
	w.must(w.client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: "worker-1"}, host))
	w.must(w.client.Patch(ctx, host, api.SetAnnotation(host, api.RemediationRebootAnnotation, "")))
	w.deleteNode("worker-1")
	w.settle()
	w.wantMarked()
	w.must(w.client.Patch(ctx, host, api.RemoveAnnotations(host, api.RemediationRebootAnnotation)))
	w.settle()
	w.wantMarked("worker-1")
}

func TestHastyVariant(t *testing.T) {
	w := newWard(t, 1, nil)
	w.restart(Settings{MissingNodeUnhealthyAtOnce: true})
	w.deleteNode("worker-1")
	w.settle()
	w.wantMarked("worker-1")
}

func TestNeverMoreThanAllowed(t *testing.T) {
	for _, tc := range []struct {
		limit  intstr.IntOrString
		sick   int
		marked []string
	}{
		{intstr.FromInt32(1), 1, []string{"worker-1"}},
		{intstr.FromInt32(1), 2, nil},
		{intstr.FromInt32(2), 2, []string{"worker-1", "worker-2"}},
		{intstr.FromInt32(0), 1, nil},
		{intstr.FromString("40%"), 1, []string{"worker-1"}}, // of 3: rounded down to 1
		{intstr.FromString("40%"), 2, nil},
		{intstr.FromString("100%"), 3, []string{"worker-1", "worker-2", "worker-3"}},
	} {
		t.Run(fmt.Sprintf("%d of 3 with %s", tc.sick, tc.limit.String()), func(t *testing.T) {
			w := newWard(t, 3, func(c *clusterv1.MachineHealthCheck) {
				c.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = &tc.limit
			})
			for i := range tc.sick {
				w.setReady(fmt.Sprintf("worker-%d", i+1), corev1.ConditionUnknown)
			}
			w.settle()
			w.pass(time.Minute)
			w.settle()
			w.wantMarked(tc.marked...)
		})
	}
}

func TestMachinesInRemediationCount(t *testing.T) {
	w := newWard(t, 3, func(c *clusterv1.MachineHealthCheck) {
		c.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.FromInt32(1))
	})
	w.setReady("worker-1", corev1.ConditionUnknown)
	w.settle()
	w.pass(10 * time.Second)
	w.settle()
	w.wantMarked("worker-1")
	w.setReady("worker-2", corev1.ConditionUnknown)
	w.settle()
	w.pass(time.Hour)
	w.settle()
	w.wantMarked("worker-1")
	// Its Node is deleted and it is unmarked: it still is no capacity.
	w.deleteNode("worker-1")
	w.unmark("worker-1")
	w.settle()
	w.wantMarked()
	w.must(w.client.Create(ctx, readyNode("worker-1")))
	w.settle()
	w.wantMarked("worker-2")
}

// TestRemediationWhileAway is a remediation that came and went before its mark was
// recorded: the Node has its start-up time from when its host is powered on.
func TestRemediationWhileAway(t *testing.T) {
	w := newWard(t, 1, nil)
	w.deleteNode("worker-1")
	w.settle()
	w.pass(60 * time.Second)
	host := &api.BareMetalHost{}
	w.must(w.client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: "worker-1"}, host))
	status := func(fields string) {
		w.must(w.client.Patch(ctx, host, client.RawPatch(types.MergePatchType, []byte(`{"status":{"provisioning":{`+fields+`}}}`))))
	}
	at := func(d time.Duration) string { return `"` + w.clock.Now().Add(d).Format(metav1.RFC3339Micro) + `"` }
	for _, fields := range []string{`"heldOffFor":{"a":"b"}`, `"heldOffFor":null,"pendingRebootSince":` + at(0), `"lastPoweredOn":` + at(time.Microsecond)} {
		w.pass(time.Second)
		status(fields)
		w.settle()
		w.wantMarked()
	}
	w.pass(57 * time.Second)
	w.settle()
	w.wantMarked()
	w.pass(2 * time.Second)
	w.settle()
	w.wantMarked("worker-1")
}

// TestPoweredOnByAnotherClock is a host that was powered on while the health check was away, by the
// record of a clock that is an hour ahead, or behind: its Node has its start-up time.
func TestPoweredOnByAnotherClock(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		w := newWard(t, 1, nil)
		w.deleteNode("worker-1")
		w.settle()
		w.pass(58 * time.Second)
		host := &api.BareMetalHost{}
		w.must(w.client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: "worker-1"}, host))
		w.must(w.client.Patch(ctx, host, client.RawPatch(types.MergePatchType,
			[]byte(`{"status":{"provisioning":{"lastPoweredOn":"`+w.clock.Now().Add(ahead).Format(metav1.RFC3339Micro)+`"}}}`))))
		w.restart(Settings{})
		w.settle()
		w.pass(3 * time.Second)
		w.settle()
		w.wantMarked()
		w.pass(58 * time.Second)
		w.settle()
		w.wantMarked("worker-1")
	}
}

// TestLaggingCacheWritesNothing shows a cache in which a host is still held for its
// remediation, while another Machine is to be marked.
func TestLaggingCacheWritesNothing(t *testing.T) {
	live, stale := newWard(t, 2, nil), newWard(t, 2, nil)
	for _, w := range []*ward{live, stale} {
		w.setReady("worker-2", corev1.ConditionUnknown)
	}
	host := &api.BareMetalHost{}
	live.must(stale.client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: "worker-1"}, host))
	live.must(stale.client.Patch(ctx, host, api.SetAnnotation(host, api.RemediationRebootAnnotation, "")))
	live.reconciler.Client = mixed{live.client, stale.client}
	live.settle()
	live.pass(10 * time.Second)
	live.settle()
	live.wantMarked("worker-2")
}

// mixed is a client whose cache of BareMetalHosts lags.
type mixed struct {
	client.WithWatch
	hosts client.Reader
}

func (m mixed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*api.BareMetalHostList); ok {
		return m.hosts.List(ctx, list, opts...)
	}
	return m.WithWatch.List(ctx, list, opts...)
}

// TestLaggingCacheMarksNobody shows a cache in which only the second of two sick
// Machines is, and a limit of one.
func TestLaggingCacheMarksNobody(t *testing.T) {
	limit := func(c *clusterv1.MachineHealthCheck) {
		c.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.FromInt32(1))
	}
	live, stale := newWard(t, 2, limit), newWard(t, 2, limit)
	live.setReady("worker-1", corev1.ConditionUnknown)
	live.setReady("worker-2", corev1.ConditionUnknown)
	stale.setReady("worker-2", corev1.ConditionUnknown)
	stale.pass(time.Minute)
	stale.reconciler.Live = live.client
	stale.settle()
	stale.wantMarked()
}

func TestWhoIsNotSelected(t *testing.T) {
	for name, change := range map[string]func(*clusterv1.Machine){
		"another pool":    func(m *clusterv1.Machine) { m.Labels["pool"] = "control-plane" },
		"another cluster": func(m *clusterv1.Machine) { m.Spec.ClusterName = "d" },
		"skipped":         func(m *clusterv1.Machine) { m.Annotations[clusterv1.MachineSkipRemediationAnnotation] = "" },
		"paused":          func(m *clusterv1.Machine) { m.Annotations[clusterv1.PausedAnnotation] = "" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t, 1, nil)
			m := w.machine("worker-1")
			change(m)
			w.must(w.client.Update(ctx, m))
			w.setReady("worker-1", corev1.ConditionUnknown)
			w.pass(time.Hour)
			w.settle()
			w.wantMarked()
			if w.writes != 0 {
				t.Errorf("%d writes", w.writes)
			}
		})
	}
}

func TestCheckThatCannotBeActedOnMarksNobodyAndSaysSo(t *testing.T) {
	inRange := func(text string) func(*clusterv1.MachineHealthCheck) {
		return func(c *clusterv1.MachineHealthCheck) { c.Spec.Remediation.TriggerIf.UnhealthyInRange = text }
	}
	for want, change := range map[string]func(*clusterv1.MachineHealthCheck){
		`unhealthyInRange "0-1" is not a range such as [2-3]`:   inRange("0-1"),
		`unhealthyInRange "[1]" is not a range such as [2-3]`:   inRange("[1]"),
		`unhealthyInRange "[-1-3]" is not a range`:              inRange("[-1-3]"),
		`unhealthyInRange "[0-99999999999999999999]" is not a`:  inRange("[0-99999999999999999999]"),
		`unhealthyInRange [3-2] is an empty range`:              inRange("[3-2]"),
		"spec.remediation.templateRef is not supported: no Mac": func(c *clusterv1.MachineHealthCheck) { c.Spec.Remediation.TemplateRef.Kind = "T" },
		`parse unhealthyLessThanOrEqualTo`: func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.FromString("half"))
		},
	} {
		w := newWard(t, 1, change)
		w.setReady("worker-1", corev1.ConditionUnknown)
		w.pass(time.Hour)
		w.settle()
		w.settle()
		w.wantMarked()
		if len(w.warnings) != 1 || !strings.Contains(w.warnings[0], want) {
			t.Errorf("warnings %q, want one about %s", w.warnings, want)
		}
	}
}

// TestRange acts on two or three unhealthy Machines of five, whatever the plain limit
// says: on one, or on more, a person has to look.
func TestRange(t *testing.T) {
	for unhealthy, want := range [][]string{1: nil, 2: {"worker-1", "worker-2"}, 3: {"worker-1", "worker-2", "worker-3"}, 4: nil} {
		w := newWard(t, 5, func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Remediation.TriggerIf.UnhealthyInRange = "[2-3]"
			c.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.FromInt32(1))
		})
		for i := range unhealthy {
			w.setReady(fmt.Sprintf("worker-%d", i+1), corev1.ConditionUnknown)
		}
		w.settle()
		w.pass(10 * time.Second)
		w.settle()
		w.wantMarked(want...)
	}
}

func TestMachineConditions(t *testing.T) {
	w := newWard(t, 2, func(c *clusterv1.MachineHealthCheck) {
		c.Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{
			{Type: "InfrastructureReady", Status: metav1.ConditionFalse, TimeoutSeconds: ptr.To(int32(5))},
		}
	})
	m := w.machine("worker-2")
	m.Status.Conditions = []metav1.Condition{
		{Type: "InfrastructureReady", Status: metav1.ConditionFalse, Reason: "R", LastTransitionTime: metav1.NewTime(epoch)},
		{Type: "BootstrapConfigReady", Status: metav1.ConditionFalse, Reason: "R", LastTransitionTime: metav1.NewTime(epoch)},
	}
	w.must(w.client.Status().Update(ctx, m))
	w.wantWait(w.settle(), 5*time.Second)
	w.wantMarked()
	w.pass(5 * time.Second)
	w.settle()
	w.wantMarked("worker-2")
}

func TestOtherConditionsAreKept(t *testing.T) {
	w := newWard(t, 1, nil)
	m := w.machine("worker-1")
	other := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "R", LastTransitionTime: metav1.NewTime(epoch)}
	m.Status.Conditions = []metav1.Condition{other}
	w.must(w.client.Status().Update(ctx, m))
	w.deleteNode("worker-1")
	w.settle()
	got := w.machine("worker-1").Status.Conditions
	if len(got) != 2 || got[1].Type != "Ready" || !got[1].LastTransitionTime.Equal(&other.LastTransitionTime) {
		t.Errorf("conditions %+v", got)
	}
}

func TestChecksOf(t *testing.T) {
	w := newWard(t, 1, nil)
	if got := ChecksOf(ctx, w.client, w.machine("worker-1")); len(got) != 1 || got[0].NamespacedName != key {
		t.Errorf("checks %v", got)
	}
}

// TestSharedNode: two Machines name one Node that is silent. Neither is marked before the other one
// names it no more, and a third, which shares nothing, is marked meanwhile.
func TestSharedNode(t *testing.T) {
	w := newWard(t, 3, nil)
	rename := func(node string) {
		var m clusterv1.Machine
		w.must(w.client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: "worker-2"}, &m))
		m.Status.NodeRef.Name = node
		w.must(w.client.Status().Update(ctx, &m))
	}
	marked := func(want string) {
		t.Helper()
		wait := w.settle()
		var machines clusterv1.MachineList
		w.must(w.client.List(ctx, &machines))
		got := ""
		for _, m := range machines.Items {
			if _, ok := m.Annotations[api.ExternalRemediationAnnotation]; ok {
				got += m.Name + " "
			}
		}
		if got != want || wait <= 0 || wait > lookAgain {
			t.Errorf("marked are %q, want %q; it looks again after %s", got, want, wait)
		}
	}
	rename("worker-1")
	w.setReady("worker-1", corev1.ConditionUnknown)
	w.setReady("worker-3", corev1.ConditionUnknown)
	w.settle()
	w.pass(30 * time.Second)
	marked("worker-3 ")
	if len(w.warnings) == 0 || !strings.Contains(w.warnings[0], "is named by Machine metal3/worker-2 as well") {
		t.Errorf("warned %q", w.warnings)
	}
	rename("worker-2")
	marked("worker-1 worker-3 ")
}
