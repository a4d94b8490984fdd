package deletion

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	key   = types.NamespacedName{Namespace: "metal3", Name: "worker-1"}
	epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

const providerID = "metal3://metal3/worker-1"

// bench is a Reconciler on a server of its own.
type bench struct {
	t     *testing.T
	c     client.WithWatch
	inner client.WithWatch // writes of others
	r     *Reconciler
	clock *clocktesting.FakeClock
	// did are the effects so far; told the Events.
	did, told []string
	// refuse has the Pods that a budget protects.
	refuse map[string]bool
	// before is called ahead of each write.
	before func(what string)
}

func newBench(t *testing.T, objs ...client.Object) *bench {
	t.Helper()
	b := &bench{t: t, clock: clocktesting.NewFakeClock(epoch), refuse: map[string]bool{}}
	note := func(format string, args ...any) {
		what := fmt.Sprintf(format, args...)
		if b.before != nil {
			b.before(what)
		}
		b.did = append(b.did, what)
	}
	builder := fake.NewClientBuilder().WithScheme(api.NewScheme()).WithStatusSubresource(&api.BareMetalHost{}, &clusterv1.Machine{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(obj client.Object) []string { return []string{obj.(*corev1.Pod).Spec.NodeName} }).
		WithObjects(objs...)
	b.inner = builder.Build()
	b.c = interceptor.NewClient(b.inner, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			note("patch %s", kind(obj))
			return c.Patch(ctx, obj, patch, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			note("patch %s/%s", kind(obj), sub)
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, obj, body client.Object, opts ...client.SubResourceCreateOption) error {
			eviction := body.(*policyv1.Eviction)
			note("evict %s", eviction.Name)
			if p := eviction.DeleteOptions.Preconditions; p == nil || p.UID == nil {
				t.Error("an eviction names no UID")
			}
			if b.refuse[eviction.Name] {
				return apierrors.NewTooManyRequests("its budget "+strings.Repeat("x", 5000), 10)
			}
			return c.SubResource(sub).Create(ctx, obj, body, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			note("delete %s", kind(obj))
			var o client.DeleteOptions
			o.ApplyOptions(opts)
			if p := o.Preconditions; p == nil || p.UID == nil || p.ResourceVersion == nil {
				t.Errorf("the deletion of %s has the preconditions %v", kind(obj), p)
			}
			return c.Delete(ctx, obj, opts...)
		},
	})
	b.r = &Reconciler{
		Client: b.c, Live: live{b.c}, Clock: b.clock, Settings: DefaultSettings(), Decide: Decide,
		Warn:   func(_ client.Object, reason, message string) { b.told = append(b.told, reason+": "+message) },
		Inform: func(_ client.Object, reason, message string) { b.told = append(b.told, reason+": "+message) },
	}
	return b
}

// live tells the live reader from the cache.
type live struct{ client.Reader }

func kind(obj client.Object) string {
	_, name, _ := strings.Cut(fmt.Sprintf("%T", obj), ".")
	return name
}

func machine(change ...func(*clusterv1.Machine)) *clusterv1.Machine {
	m := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, UID: "machine-uid", Finalizers: []string{"example.com/another", clusterv1.MachineFinalizer},
			Annotations: map[string]string{api.HostAnnotation: key.String()}, DeletionTimestamp: &metav1.Time{Time: epoch},
		},
		Spec:   clusterv1.MachineSpec{ClusterName: "c", ProviderID: providerID},
		Status: clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: "worker-1"}},
	}
	for _, c := range change {
		c(m)
	}
	return m
}

func host(change ...func(*api.BareMetalHost)) *api.BareMetalHost {
	h := &api.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec:       api.BareMetalHostSpec{Online: true, ConsumerRef: &corev1.ObjectReference{Kind: "Machine", Name: key.Name}},
		Status:     api.BareMetalHostStatus{PoweredOn: true, Provisioning: api.ProvisionStatus{State: api.StateProvisioned}},
	}
	for _, c := range change {
		c(h)
	}
	return h
}

// reported is the host whose system is known.
func reported() *api.BareMetalHost {
	return host(func(h *api.BareMetalHost) { h.Status.Hardware.SystemUUID = "system-1" })
}

func node(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", UID: "node-uid"}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	n.Status.NodeInfo.BootID = "boot-1"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, c := range change {
		c(n)
	}
	return n
}

func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid")}, Spec: corev1.PodSpec{NodeName: "worker-1"}}
	for _, c := range change {
		c(p)
	}
	return p
}

func (b *bench) step() (reconcile.Result, error) {
	return b.r.Reconcile(ctx, reconcile.Request{NamespacedName: key})
}

// run reconciles until nothing more is done.
func (b *bench) run() {
	b.t.Helper()
	for range 40 {
		before := len(b.did)
		if _, err := b.step(); err != nil {
			b.t.Fatal(err)
		}
		if len(b.did) == before {
			return
		}
		if len(b.did) > before+1 {
			b.t.Fatalf("one reconcile did %q", b.did[before:])
		}
	}
	b.t.Fatalf("it never rests: %q", b.did)
}

func (b *bench) get(obj client.Object, name types.NamespacedName) bool {
	b.t.Helper()
	err := b.c.Get(ctx, name, obj)
	if client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}
	return err == nil
}

func (b *bench) phase() (Phase, string) {
	var m clusterv1.Machine
	if !b.get(&m, key) {
		return "", ""
	}
	c := condition(&m)
	return Phase(c.Reason), c.Message
}

// answer is the reboot controller finding the host off.
func (b *bench) answer() {
	b.t.Helper()
	var h api.BareMetalHost
	b.get(&h, key)
	content, ok := h.Annotations[api.DeletionRebootAnnotation]
	if !ok {
		b.t.Fatal("nobody asked for the host to go off")
	}
	h.Status.PoweredOn = false
	h.Status.Provisioning.HeldOffFor = map[string]string{api.DeletionRebootKey: api.RequestID(content)}
	if err := b.c.Status().Update(ctx, &h); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) annotate(key string, value *string) {
	b.t.Helper()
	var m clusterv1.Machine
	b.get(&m, types.NamespacedName{Namespace: "metal3", Name: "worker-1"})
	if value == nil {
		delete(m.Annotations, key)
	} else {
		m.Annotations[key] = *value
	}
	if err := b.c.Update(ctx, &m); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) wants(phase Phase, did ...string) {
	b.t.Helper()
	if got, message := b.phase(); got != phase {
		b.t.Errorf("it waits at %s (%s), want %s", got, message, phase)
	}
	for _, what := range did {
		if !slices.Contains(b.did, what) {
			b.t.Errorf("it did %q, want %s among it", b.did, what)
		}
	}
}

// TestDeletion goes through all of it, with hooks at both points.
func TestDeletion(t *testing.T) {
	const drainHook, terminateHook = string(api.PreDrain) + "/move", string(api.PreTerminate) + "/backup"
	b := newBench(t, machine(func(m *clusterv1.Machine) {
		m.Annotations[drainHook], m.Annotations[terminateHook] = "mover", "backup-controller"
	}), host(), node(), pod("a"), pod("b"),
		&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "worker-1"}},
		&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "w"}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "worker-2"}})

	b.run()
	b.wants(WaitingForPreDrain)
	if _, message := b.phase(); !strings.Contains(message, drainHook+" (of mover)") {
		t.Errorf("the condition says %q", message)
	}
	b.clock.Step(time.Hour)
	b.run()
	b.wants(WaitingForPreDrain)

	b.annotate(drainHook, nil)
	b.run()
	b.wants(WaitingForDetach, "patch Node", "evict a", "evict b")
	if err := b.inner.Delete(ctx, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "v"}}); err != nil {
		t.Fatal(err)
	}
	b.did = nil
	b.run()
	b.wants(WaitingForTerminate)
	var m clusterv1.Machine
	b.get(&m, key)
	if d := m.Status.Deletion; d == nil || d.WaitForPreDrainHookStartTime.IsZero() || d.NodeDrainStartTime.IsZero() || d.WaitForNodeVolumeDetachStartTime.IsZero() ||
		!d.WaitForPreTerminateHookStartTime.Time.Equal(epoch.Add(time.Hour)) {
		t.Errorf("it says that it waits since %+v", d)
	}

	b.annotate(terminateHook, nil)
	b.run()
	b.wants(Terminating, "patch BareMetalHost")
	b.annotate(drainHook, ptr.To("too late"))
	b.run()
	b.wants(Terminating)
	if !b.get(&corev1.Node{}, types.NamespacedName{Name: "worker-1"}) {
		t.Fatal("the Node was deleted while its host was on")
	}

	b.answer()
	b.did = nil
	b.run()
	b.wants(Completed, "delete Node")
	if b.get(&corev1.Node{}, types.NamespacedName{Name: "worker-1"}) {
		t.Error("the Node is still there")
	}
	var h api.BareMetalHost
	b.get(&h, key)
	if _, held := h.Annotations[api.DeletionRebootAnnotation]; held || h.Spec.Online || h.Spec.ConsumerRef != nil {
		t.Errorf("the host is left as %+v, held: %t", h.Spec, held)
	}
	b.get(&m, key)
	if !slices.Equal(m.Finalizers, []string{"example.com/another"}) {
		t.Errorf("it leaves the finalizers %q", m.Finalizers)
	}
	for _, want := range []string{"WaitingForPreDrainHook: ", "DrainingNode: ", "DeletingNode: "} {
		if !slices.ContainsFunc(b.told, func(e string) bool { return strings.HasPrefix(e, want) }) {
			t.Errorf("the Events are %q, and %s is not among them", b.told, want)
		}
	}
}

// TestFinalizer gives it to every Machine that has none.
func TestFinalizer(t *testing.T) {
	b := newBench(t, machine(func(m *clusterv1.Machine) { m.DeletionTimestamp, m.Finalizers = nil, nil }), host(), node())
	b.run()
	var m clusterv1.Machine
	if b.get(&m, key); !slices.Equal(m.Finalizers, []string{clusterv1.MachineFinalizer}) || len(b.did) != 1 {
		t.Errorf("it has the finalizers %q after %q", m.Finalizers, b.did)
	}
	paused := newBench(t, machine(func(m *clusterv1.Machine) { m.Annotations[clusterv1.PausedAnnotation] = "" }), host(), node())
	if paused.run(); len(paused.did) > 0 {
		t.Errorf("of a paused Machine %q", paused.did)
	}
}

// TestDrain evicts what is a drain's to evict, and waits for the rest.
func TestDrain(t *testing.T) {
	daemon := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d", Controller: ptr.To(true)}}
	}
	b := newBench(t, machine(), host(), node(),
		pod("daemon", daemon), pod("static", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }),
		pod("elsewhere", func(p *corev1.Pod) { p.Spec.NodeName = "worker-2" }), pod("plain"), pod("guarded"),
		pod("stopping", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: epoch}, []string{"example.com/f"}
		}))
	b.refuse["guarded"] = true
	b.run()
	b.wants(Draining, "evict plain", "evict guarded")
	for _, not := range []string{"evict daemon", "evict static", "evict elsewhere", "evict stopping"} {
		if slices.Contains(b.did, not) {
			t.Errorf("it did %q", b.did)
		}
	}
	b.clock.Step(b.r.Settings.PollInterval.Duration)
	b.run()
	if _, message := b.phase(); !strings.Contains(message, "default/guarded is to be evicted, which was refused: ") || !strings.Contains(message, "default/stopping is stopping") || len(message) > 1000 {
		t.Errorf("the condition says %q", message)
	}

	asked := func() (n int) {
		for _, what := range b.did {
			if what == "evict guarded" {
				n++
			}
		}
		return n
	}
	before := asked()
	b.clock.Step(b.r.Settings.PollInterval.Duration)
	b.run()
	if asked() != before+1 {
		t.Errorf("the guarded Pod was asked for %d times, want once more than %d", asked(), before)
	}
	b.refuse["guarded"] = false
	b.clock.Step(b.r.Settings.PollInterval.Duration)
	b.run()
	b.wants(Draining) // for stopping has not stopped

	var n corev1.Node
	b.get(&n, types.NamespacedName{Name: "worker-1"})
	n.Status.Conditions[0].Status = corev1.ConditionUnknown
	if err := b.inner.Status().Update(ctx, &n); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.wants(Terminating) // nothing stops on a Node out of reach
}

// TestPodsComeBack has a scheduler that doesn't know of the cordon: whatever is evicted is
// there again at once, as another Pod. Nothing is written as fast as that, also by processes
// that keep dying, and other Pods have their turn.
func TestPodsComeBack(t *testing.T) {
	const pause, passes = 100 * time.Millisecond, 600
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprintf("the process dies: %t", dies), func(t *testing.T) {
			b := newBench(t, machine(), host(), node(), pod("a"), pod("b"), pod("z"))
			b.refuse["z"] = true
			comes := 0
			bind := func(name string) {
				comes++
				if err := b.inner.Create(ctx, pod(name, func(p *corev1.Pod) { p.UID = types.UID(fmt.Sprint("again-", comes)) })); err != nil {
					t.Fatal(err)
				}
			}
			for i := range passes {
				if _, err := b.step(); err != nil {
					t.Fatal(err)
				}
				switch what := b.did[len(b.did)-1]; what {
				case "evict a", "evict b":
					name := strings.TrimPrefix(what, "evict ")
					if !b.get(&corev1.Pod{}, types.NamespacedName{Namespace: "default", Name: name}) {
						bind(name)
					}
				}
				if dies && i%30 == 0 {
					b.r.machines = nil
				}
				b.clock.Step(pause)
			}
			count := map[string]int{}
			for _, what := range b.did {
				count[what]++
			}
			rounds := int(passes * pause / b.r.Settings.PollInterval.Duration)
			if dies {
				rounds += passes / 30
			}
			for _, what := range []string{"evict a", "evict b", "evict z"} {
				if n := count[what]; n < rounds/2 || n > rounds+2 {
					t.Errorf("%s: %d times in about %d rounds", what, n, rounds)
				}
			}
			if n := count["patch Machine/status"]; n == 0 || n > int(passes*pause/b.r.Settings.PollInterval.Duration)+2 {
				t.Errorf("it has written the Machine %d times", n)
			}
			b.wants(Draining)
		})
	}
}

// TestTheClockIsSet keeps nothing waiting that was put off by another clock.
func TestTheClockIsSet(t *testing.T) {
	b := newBench(t, machine(), host(), node(), pod("guarded"))
	b.refuse["guarded"] = true
	b.run()
	b.clock.SetTime(epoch.Add(-time.Hour))
	b.did = nil
	b.run()
	if !slices.Equal(b.did, []string{"patch Machine/status", "evict guarded"}) {
		t.Errorf("it did %q", b.did)
	}
}

func TestDrainIsSkipped(t *testing.T) {
	for name, change := range map[string]func(*clusterv1.Machine){
		"as the user wants": func(m *clusterv1.Machine) { m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation] = "" },
		"after its time": func(m *clusterv1.Machine) {
			m.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(60))
			m.Status.Deletion = &clusterv1.MachineDeletionStatus{NodeDrainStartTime: metav1.NewTime(epoch.Add(-time.Minute))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, machine(change), host(), node(), pod("guarded"))
			b.refuse["guarded"] = true
			b.run()
			b.wants(Terminating)
		})
	}
	b := newBench(t, machine(func(m *clusterv1.Machine) { m.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(60)) }), host(), node(), pod("guarded"))
	b.refuse["guarded"] = true
	b.run()
	b.wants(Draining)
	b.clock.Step(time.Minute)
	b.run()
	b.wants(Terminating)
}

// TestBadInput looks at what users get wrong: each has a condition or an Event that says
// so, and the host stays on where it is not known to be the Machine's.
func TestBadInput(t *testing.T) {
	many := func(m *clusterv1.Machine) {
		for i := range 50 {
			m.Annotations[fmt.Sprintf("%s/hook-%d", api.PreDrain, i)] = strings.Repeat("ä", 5000)
		}
	}
	for _, test := range []struct {
		name string
		objs []client.Object
		want Phase
		says string
	}{
		{"no host annotation", []client.Object{machine(func(m *clusterv1.Machine) { delete(m.Annotations, api.HostAnnotation) }), host(), node()}, WaitingForPerson, "no annotation metal3.io/BareMetalHost"},
		{"a host annotation that is none", []client.Object{machine(func(m *clusterv1.Machine) { m.Annotations[api.HostAnnotation] = "//" }), host(), node()}, WaitingForPerson, "no BareMetalHost //"},
		{"no host", []client.Object{machine(), node()}, WaitingForPerson, "There is no BareMetalHost metal3/worker-1"},
		{"the host of another", []client.Object{machine(), host(func(h *api.BareMetalHost) { h.Spec.ConsumerRef.Name = "other" }), node()}, WaitingForPerson, "is not used by this Machine"},
		{"the host of an earlier Machine of that name", []client.Object{machine(), host(func(h *api.BareMetalHost) { h.Spec.ConsumerRef.UID = "earlier" }), node()}, WaitingForPerson, "is not used by this Machine"},
		{"a host that is nobody's", []client.Object{machine(), host(func(h *api.BareMetalHost) { h.Spec.ConsumerRef = nil }), node()}, WaitingForPerson, "is not used by this Machine"},
		{"a host that is deprovisioned", []client.Object{machine(), host(func(h *api.BareMetalHost) { h.Status.Provisioning.State = api.StateDeprovisioning }), node()}, WaitingForPerson, "is deprovisioning"},
		{"a host that is being provisioned", []client.Object{machine(), host(func(h *api.BareMetalHost) { h.Status.Provisioning.State = "provisioning" })}, Terminating, "is provisioning"},
		{"nothing at all", []client.Object{machine(func(m *clusterv1.Machine) {
			m.Annotations, m.Spec.ProviderID, m.Status.NodeRef = nil, "", clusterv1.MachineNodeReference{}
		})}, Completed, "gone"},
		{"no Node yet", []client.Object{machine(func(m *clusterv1.Machine) { m.Status.NodeRef = clusterv1.MachineNodeReference{} }), host()}, Terminating, "has to go off"},
		{"the Node of another", []client.Object{machine(), host(), node(func(n *corev1.Node) { n.Spec.ProviderID = "metal3://metal3/other" }), pod("a")}, Terminating, "has to go off"},
		{"a Node that nobody can tell the owner of", []client.Object{machine(func(m *clusterv1.Machine) { m.Spec.ProviderID = "" }), host(), node()}, WaitingForProof, "Set spec.providerID of both"},
		{"a Node without an ID that the host reports", []client.Object{machine(), reported(), node(func(n *corev1.Node) {
			n.Spec.ProviderID, n.Status.NodeInfo.SystemUUID = "", "system-1"
		})}, Terminating, "has to go off"},
		{"a Node that nobody refers to, and that the host reports", []client.Object{
			machine(func(m *clusterv1.Machine) { m.Spec.ProviderID, m.Status.NodeRef.Name = "", "" }), reported(),
			node(func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID, n.Spec.Unschedulable = "SYSTEM-1", true }), pod("a"),
		}, Terminating, "has to go off"},
		{"a Node of another name", []client.Object{machine(func(m *clusterv1.Machine) { m.Status.NodeRef = clusterv1.MachineNodeReference{} }), host(), node(func(n *corev1.Node) { n.Name = "x" })}, Terminating, "has to go off"},
		{"fifty hooks of somebody verbose", []client.Object{machine(many), host(), node()}, WaitingForPreDrain, "and 45 more"},
		{"a hook of nobody", []client.Object{machine(func(m *clusterv1.Machine) { m.Annotations[string(api.PreTerminate)] = "" }), host(), node()}, WaitingForTerminate, "nobody says whose"},
		{"a request of somebody else", []client.Object{machine(), host(func(h *api.BareMetalHost) {
			h.Annotations = map[string]string{api.DeletionRebootAnnotation: "{'not': json"}
			h.Status.PoweredOn, h.Status.Provisioning.HeldOffFor = false, map[string]string{api.DeletionRebootKey: api.RequestID("{'not': json")}
		}), node()}, Terminating, "has to go off"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, test.objs...)
			b.run()
			phase, message := b.phase()
			if phase != test.want || !strings.Contains(message, test.says) || len(message) > 4000 {
				t.Errorf("it is %s: %.300s\nwant %s: %s", phase, message, test.want, test.says)
			}
			if slices.Contains(b.did, "delete Node") || phase == WaitingForPerson && slices.Contains(b.did, "patch BareMetalHost") {
				t.Errorf("it did %q", b.did)
			}
			if phase == WaitingForPerson && !slices.ContainsFunc(b.told, func(e string) bool { return strings.HasPrefix(e, "HostUnknown: ") && strings.Contains(e, "by hand") }) {
				t.Errorf("it told %q", b.told)
			}
		})
	}
}

// TestAPersonDecides finishes what waited for somebody to delete the Node.
func TestAPersonDecides(t *testing.T) {
	b := newBench(t, machine(), node())
	b.run()
	b.wants(WaitingForPerson)
	if err := b.inner.Delete(ctx, node()); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.wants(Completed)
}

func TestWarnings(t *testing.T) {
	b := newBench(t, machine(func(m *clusterv1.Machine) {
		m.Annotations["pre-drain.hook.machine.cluster-api.x-k8s.io/migrate-important-app"] = "my-app-migration-controller"
		m.Annotations[string(api.PreDrain)+"/x"] = ""
	}), host(), node(func(n *corev1.Node) { n.Spec.ProviderID = strings.Repeat("p", 10000) }))
	b.run()
	b.run()
	want := []string{"NotADeletionHook: ", "DeletionHookWithoutOwner: ", "NodeOfAnotherMachine: "}
	for _, reason := range want {
		n := 0
		for _, e := range b.told {
			if strings.HasPrefix(e, reason) {
				n++
			}
			if len(e) > 1000 {
				t.Errorf("an Event of %d bytes", len(e))
			}
		}
		if n != 1 {
			t.Errorf("%s %d times in %.2000q", reason, n, b.told)
		}
	}
}

// TestAHookInTheLastMoment is set between the reading that found none and the record of
// the next phase: that write fails, and the hook is honoured.
func TestAHookInTheLastMoment(t *testing.T) {
	for _, test := range []struct {
		point api.DeletionPoint
		pods  []client.Object
		want  Phase
	}{
		{api.PreDrain, []client.Object{pod("a")}, WaitingForPreDrain},
		{api.PreTerminate, nil, WaitingForTerminate},
	} {
		b := newBench(t, append([]client.Object{machine(), host(), node(func(n *corev1.Node) { n.Spec.Unschedulable = true })}, test.pods...)...)
		once := false
		b.before = func(what string) {
			if what == "patch Machine/status" && !once {
				once = true
				b.annotate(string(test.point)+"/late", ptr.To("somebody"))
			}
		}
		if _, err := b.step(); !apierrors.IsConflict(errors.Unwrap(err)) {
			t.Errorf("%s: the record did not fail: %v", test.point, err)
		}
		b.did = nil
		b.run()
		b.wants(test.want)
		if slices.Contains(b.did, "evict a") || slices.Contains(b.did, "patch BareMetalHost") {
			t.Errorf("%s: it did %q", test.point, b.did)
		}
	}
}

// TestOldAnswers deletes no Node by one.
func TestOldAnswers(t *testing.T) {
	for name, change := range map[string]func(*bench){
		"a boot's time has passed": func(b *bench) { b.clock.Step(b.r.Settings.AnswerWithin.Duration) },
		"after a crash": func(b *bench) {
			b.clock.Step(b.r.Settings.AnswerWithin.Duration)
			b.r.machines = nil
		},
		"the Node tells of another boot": func(b *bench) {
			var n corev1.Node
			b.get(&n, types.NamespacedName{Name: "worker-1"})
			n.Status.NodeInfo.BootID = "boot-2"
			if err := b.inner.Status().Update(ctx, &n); err != nil {
				b.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, machine(), host(), node())
			b.run()
			b.wants(Terminating)
			b.answer()
			change(b)
			b.did = nil
			b.run()
			if !slices.Contains(b.did, "patch BareMetalHost") || slices.Contains(b.did, "delete Node") {
				t.Errorf("it did %q", b.did)
			}
			b.answer()
			b.run()
			b.wants(Completed)
		})
	}
}

// TestTheHostChangesMeanwhile refuses to delete the Node of a host that was written since.
func TestTheHostChangesMeanwhile(t *testing.T) {
	b := newBench(t, machine(), host(), node())
	b.run()
	b.answer()
	b.did = nil
	if _, err := b.step(); err != nil { // records it
		t.Fatal(err)
	}
	reads := 0
	b.r.Live = live{interceptor.NewClient(b.c, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if _, ok := obj.(*api.BareMetalHost); ok {
			if reads++; reads == 2 {
				var h api.BareMetalHost
				b.get(&h, key)
				h.Spec.BootMACAddress = "02:00:00:00:00:01"
				if err := b.c.Update(ctx, &h); err != nil {
					t.Fatal(err)
				}
			}
		}
		return c.Get(ctx, k, obj, opts...)
	}})}
	if _, err := b.step(); err == nil || !strings.Contains(err.Error(), "changed while its Node was read") {
		t.Errorf("the error is %v after %q", err, b.did)
	}
	if !b.get(&corev1.Node{}, types.NamespacedName{Name: "worker-1"}) {
		t.Error("the Node is gone")
	}
}

func TestMaps(t *testing.T) {
	b := newBench(t, machine(), machine(func(m *clusterv1.Machine) { m.Name, m.DeletionTimestamp = "stays", nil }))
	for _, test := range []struct {
		of   client.Object
		got  []reconcile.Request
		want int
	}{
		{host(), MachineOfHost(ctx, b.c, host()), 1},
		{host(), MachineOfHost(ctx, b.c, host(func(h *api.BareMetalHost) { h.Spec.ConsumerRef = nil })), 0},
		{host(), MachineOfHost(ctx, b.c, host(func(h *api.BareMetalHost) { h.Spec.ConsumerRef.Kind = "Other" })), 0},
		{node(), MachineOfNode(ctx, b.c, node()), 1},
		{node(), MachineOfNode(ctx, b.c, node(func(n *corev1.Node) { n.Name, n.Spec.ProviderID = "x", "" })), 0},
	} {
		if len(test.got) != test.want || test.want == 1 && test.got[0].NamespacedName != key {
			t.Errorf("%T leads to %v", test.of, test.got)
		}
	}
}
