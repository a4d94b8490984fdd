package remediation

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/api/hold"
)

var (
	ctx   = context.Background()
	key   = types.NamespacedName{Namespace: "metal3", Name: "worker-1"}
	epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

// asked is the content of a request.
const asked = `{"mode":"hard","request":"1"}`

// reconciler makes a Reconciler on c that remembers what s says it does.
func reconciler(cache, live client.WithWatch, s State, decide func(State) Action) *Reconciler {
	r := &Reconciler{
		Client: cache, Live: live, Clock: clocktesting.NewFakePassiveClock(epoch), Steady: clocktesting.NewFakePassiveClock(epoch), Settings: DefaultSettings(), Decide: decide,
		hosts: map[types.NamespacedName]*memory{key: {}},
	}
	m := r.hosts[key]
	if s.Outdated {
		m.request.Look(asked, epoch.Add(-r.Settings.AnswerWithin.Duration))
	}
	if s.Overdue {
		m.released = epoch.Add(-r.Settings.NodeTimeout.Duration)
	}
	return r
}

// objects are the three objects of a remediation in the state s.
func objects(s State) (*api.BareMetalHost, *clusterv1.Machine, *corev1.Node) {
	host := &api.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Annotations: map[string]string{}},
		Spec: api.BareMetalHostSpec{
			Online:      true,
			ConsumerRef: &corev1.ObjectReference{Kind: "Machine", Name: "worker-1", Namespace: key.Namespace},
		},
		Status: api.BareMetalHostStatus{PoweredOn: s.StatusOn, Provisioning: api.ProvisionStatus{State: api.StateProvisioned}},
	}
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: "worker-1", UID: "machine-uid",
			Annotations: map[string]string{api.HostAnnotation: key.String()},
		},
		Spec:   clusterv1.MachineSpec{ProviderID: "metal3://metal3/worker-1"},
		Status: clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: "worker-1"}},
	}
	if s.RebootAnnotation {
		host.Annotations[api.RemediationRebootAnnotation] = asked
	}
	if s.AnswersRequest {
		host.Status.Provisioning.HeldOffFor = map[string]string{api.RemediationRebootKey: api.RequestID(asked)}
	}
	if s.NeedsRemediation {
		machine.Annotations[api.ExternalRemediationAnnotation] = ""
	}
	if s.PoweredOffMark {
		machine.Annotations[api.PoweredOffForRemediationAnnotation] = ""
	}
	var node *corev1.Node
	if s.NodeExists {
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", UID: "node-uid"}, Spec: corev1.NodeSpec{ProviderID: machine.Spec.ProviderID}}
	}
	return host, machine, node
}

func server(hooks interceptor.Funcs, objs ...client.Object) client.WithWatch {
	builder := fake.NewClientBuilder().WithScheme(api.NewScheme()).WithStatusSubresource(&api.BareMetalHost{})
	for _, obj := range objs {
		builder.WithObjects(obj)
	}
	return interceptor.NewClient(builder.Build(), hooks)
}

func serve(s State, hooks interceptor.Funcs) client.WithWatch {
	host, machine, node := objects(s)
	if node == nil {
		return server(hooks, host, machine)
	}
	return server(hooks, host, machine, node)
}

func step(t *testing.T, r *Reconciler) {
	t.Helper()
	if _, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
}

func current(t *testing.T, c client.Client) State {
	t.Helper()
	found, err := read(ctx, c, key)
	if err != nil {
		t.Fatal(err)
	}
	return found.state()
}

// TestEffects checks for every state that it is read as it is, and that one reconcile changes
// exactly what its action says.
func TestEffects(t *testing.T) {
	for name, decide := range map[string]func(State) Action{"Decide": Decide, "KeepMark": KeepMark} {
		everyState(func(s State) {
			c := serve(s, interceptor.Funcs{})
			want := s
			want.Outdated, want.Overdue = false, false // not in the objects
			if got := current(t, c); got != want {
				t.Fatalf("%+v is read as %+v", s, got)
			}
			switch decide(s) {
			case AddReboot:
				want.RebootAnnotation, want.AnswersRequest = true, false
			case AskAgain:
				want.AnswersRequest = false
			case DeleteNode:
				want.NodeExists = false
			case RemoveNeedsRemediation:
				want.NeedsRemediation = false
			case RemoveReboot:
				want.RebootAnnotation, want.AnswersRequest = false, false
			case AddPoweredOffMark:
				want.PoweredOffMark = true
			case Finish:
				want.NeedsRemediation, want.PoweredOffMark = false, false
			}
			step(t, reconciler(c, c, s, decide))
			if got := current(t, c); got != want {
				t.Errorf("%s: %s of %+v led to %+v", name, decide(s), s, got)
			}
		})
	}
}

func TestRequestIsHardAndTraceable(t *testing.T) {
	c := serve(State{NodeExists: true, NeedsRemediation: true, StatusOn: true}, interceptor.Funcs{})
	step(t, reconciler(c, c, State{}, Decide))
	var host api.BareMetalHost
	if err := c.Get(ctx, key, &host); err != nil {
		t.Fatal(err)
	}
	value := host.Annotations[api.RemediationRebootAnnotation]
	if mode, err := api.ParseRebootMode(value); mode != api.RebootHard || err != nil || !strings.Contains(value, "machine-uid") {
		t.Errorf("the annotation's value is %s: %s, %v", value, mode, err)
	}
}

var answered = State{NodeExists: true, NeedsRemediation: true, RebootAnnotation: true, AnswersRequest: true}

// TestTrustPoweredOn: a status that says off is an answer only where nothing better is to be had,
// and only to a request.
func TestTrustPoweredOn(t *testing.T) {
	off := State{NodeExists: true, NeedsRemediation: true, RebootAnnotation: true}
	asked, on := off, off
	asked.RebootAnnotation, on.StatusOn = false, true
	for _, c := range []struct {
		state         State
		trust, exists bool
	}{{off, false, true}, {off, true, false}, {asked, true, true}, {on, true, true}} {
		server := serve(c.state, interceptor.Funcs{})
		r := reconciler(server, server, c.state, Decide)
		r.Settings.TrustPoweredOn = c.trust
		step(t, r)
		if got := current(t, server).NodeExists; got != c.exists {
			t.Errorf("%+v, and poweredOn is trusted: %v. The Node is still there: %v", c.state, c.trust, got)
		}
	}
}

func TestCacheOnlyProposes(t *testing.T) {
	// The cache still shows the host held off; it was let go of since.
	stale := serve(answered, interceptor.Funcs{})
	live := serve(State{NodeExists: true, NeedsRemediation: true, StatusOn: true, RebootAnnotation: true}, interceptor.Funcs{})
	step(t, reconciler(stale, live, answered, Decide))
	if !current(t, stale).NodeExists || !current(t, live).NodeExists {
		t.Error("a Node was deleted because of what the cache said")
	}
}

// TestDeletedNodeIsLookedAtAgain: the cache never had the Node, so no event will report its end.
func TestDeletedNodeIsLookedAtAgain(t *testing.T) {
	unaware := answered
	unaware.NodeExists = false
	live := serve(answered, interceptor.Funcs{})
	cache := serve(unaware, interceptor.Funcs{
		Delete: func(ctx context.Context, _ client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return live.Delete(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, _ client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return live.Patch(ctx, obj, patch, opts...)
		},
	})
	r := reconciler(cache, live, answered, Decide)
	result, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: key})
	if err != nil || current(t, live).NodeExists || result.RequeueAfter == 0 {
		t.Fatalf("the Node is there: %t; %+v, %v", current(t, live).NodeExists, result, err)
	}
	if result, err = r.Reconcile(ctx, reconcile.Request{NamespacedName: key}); err != nil || current(t, live).NeedsRemediation || result.RequeueAfter != 0 {
		t.Errorf("it is still to be remediated: %t; %+v, %v", current(t, live).NeedsRemediation, result, err)
	}
}

func TestNodeOfNextBootIsSpared(t *testing.T) {
	for name, change := range map[string]func(client.Client){
		"recreated": func(c client.Client) {
			_, _, node := objects(answered)
			must(t, c.Delete(ctx, node))
			must(t, c.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", UID: "next-boot"}, Spec: node.Spec}))
		},
		"written by its kubelet again": func(c client.Client) {
			var node corev1.Node
			must(t, c.Get(ctx, types.NamespacedName{Name: "worker-1"}, &node))
			node.Labels = map[string]string{"boot": "next"}
			must(t, c.Update(ctx, &node))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(answered, interceptor.Funcs{
				Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
					options := (&client.DeleteOptions{}).ApplyOptions(opts)
					change(c)
					// The fake client doesn't check the UID.
					var node corev1.Node
					must(t, c.Get(ctx, client.ObjectKeyFromObject(obj), &node))
					if p := options.Preconditions; p != nil && (*p.UID != node.UID || *p.ResourceVersion != node.ResourceVersion) {
						return apierrors.NewConflict(corev1.Resource("nodes"), node.Name, nil)
					}
					return c.Delete(ctx, obj, opts...)
				},
			})
			r := reconciler(c, c, answered, Decide)
			if _, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: key}); !apierrors.IsConflict(err) {
				t.Errorf("error %v, want a conflict", err)
			}
			if !current(t, c).NodeExists {
				t.Error("the Node of the next boot was deleted")
			}
		})
	}
}

func TestHostThatChangedSinceKeepsItsNode(t *testing.T) {
	gets := 0
	c := serve(answered, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*corev1.Node); ok {
				if gets++; gets == 2 { // the live read: somebody lets the host go
					var host api.BareMetalHost
					must(t, c.Get(ctx, types.NamespacedName{Namespace: "metal3", Name: "worker-1"}, &host))
					must(t, c.Patch(ctx, &host, api.RemoveAnnotations(&host, api.RemediationRebootAnnotation)))
				}
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	r := reconciler(c, c, answered, Decide)
	if _, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: key}); err == nil {
		t.Error("no error")
	}
	if gets != 2 || !current(t, c).NodeExists {
		t.Errorf("after %d reads the Node exists: %t", gets, current(t, c).NodeExists)
	}
}

func TestHostIsReleasedWithoutItsMachine(t *testing.T) {
	for name, change := range map[string]func(*api.BareMetalHost, *clusterv1.Machine) []client.Object{
		"machine vanished": func(h *api.BareMetalHost, _ *clusterv1.Machine) []client.Object { return []client.Object{h} },
		"no consumer": func(h *api.BareMetalHost, m *clusterv1.Machine) []client.Object {
			h.Spec.ConsumerRef = nil
			return []client.Object{h, m}
		},
		"deprovisioned": func(h *api.BareMetalHost, m *clusterv1.Machine) []client.Object {
			h.Status.Provisioning.State = api.StateDeprovisioning
			return []client.Object{h, m}
		},
		"machine names another host": func(h *api.BareMetalHost, m *clusterv1.Machine) []client.Object {
			m.Annotations[api.HostAnnotation] = "metal3/worker-2"
			return []client.Object{h, m}
		},
	} {
		t.Run(name, func(t *testing.T) {
			host, machine, node := objects(answered)
			c := server(interceptor.Funcs{}, append(change(host, machine), node)...)
			step(t, reconciler(c, c, answered, Decide))
			if got := current(t, c); got.RebootAnnotation {
				t.Error("the host is held for ever")
			}
			must(t, c.Get(ctx, types.NamespacedName{Name: "worker-1"}, &corev1.Node{}))
		})
	}
}

// TestDeprovisionedHostIsNotAskedAgain: the reboot controller removes the annotation
// of such a host, and neither must ever write again.
func TestDeprovisionedHostIsNotAskedAgain(t *testing.T) {
	for _, state := range []api.ProvisioningState{api.StateDeprovisioning, api.StateAvailable, "inspecting", ""} {
		host, machine, node := objects(State{NodeExists: true, NeedsRemediation: true, StatusOn: true})
		host.Status.Provisioning.State = state
		c := server(interceptor.Funcs{}, host, machine, node)
		step(t, reconciler(c, c, State{}, Decide))
		if current(t, c).RebootAnnotation {
			t.Errorf("a host that is %q was asked to reboot", state)
		}
	}
}

// TestAnswersAge: the answer to a request is worth nothing when the host could have booted since,
// or when its age is unknown.
func TestAnswersAge(t *testing.T) {
	c := serve(answered, interceptor.Funcs{})
	clock := clocktesting.NewFakePassiveClock(epoch)
	outdated := answered
	outdated.Outdated = true
	r := reconciler(c, c, outdated, Decide)
	r.Clock = clock
	content := func() string {
		var host api.BareMetalHost
		must(t, c.Get(ctx, key, &host))
		return host.Annotations[api.RemediationRebootAnnotation]
	}
	answer := func() {
		var host api.BareMetalHost
		must(t, c.Get(ctx, key, &host))
		host.Status.Provisioning.HeldOffFor = map[string]string{api.RemediationRebootKey: api.RequestID(content())}
		must(t, c.Status().Update(ctx, &host))
	}
	step(t, r)
	if !current(t, c).NodeExists {
		t.Fatal("the Node was deleted by an answer that is older than it knows")
	}
	first := content()
	answer()
	clock.SetTime(clock.Now().Add(r.Settings.AnswerWithin.Duration))
	step(t, r)
	if second := content(); second == first {
		t.Fatal("it was not asked again after the answer had become too old")
	}
	step(t, r) // the old answer is none to the new content
	if !current(t, c).NodeExists {
		t.Fatal("the Node was deleted by the answer to an earlier request")
	}
	answer()
	clock.SetTime(clock.Now().Add(r.Settings.AnswerWithin.Duration - time.Millisecond))
	step(t, r)
	if current(t, c).NodeExists {
		t.Error("the Node was not deleted by a fresh answer")
	}
}

// TestRequestNamesTheBoot: a process that starts doesn't know how old a request is,
// but it sees that the host has booted since.
func TestRequestNamesTheBoot(t *testing.T) {
	host, machine, node := objects(answered)
	host.Annotations[api.RemediationRebootAnnotation] = `{"mode":"hard","boot":"first"}`
	host.Status.Provisioning.HeldOffFor[api.RemediationRebootKey] = api.RequestID(host.Annotations[api.RemediationRebootAnnotation])
	node.Status.NodeInfo.BootID = "second"
	c := server(interceptor.Funcs{}, host, machine, node)
	step(t, reconciler(c, c, State{}, Decide))
	if !current(t, c).NodeExists {
		t.Error("the Node of the next boot was deleted")
	}
	must(t, c.Get(ctx, key, host))
	if got := hold.Parse(host.Annotations[api.RemediationRebootAnnotation]); got.Boot != "second" || got.Mode != api.RebootHard {
		t.Errorf("asked again with %+v", got)
	}
}

// TestRequestTellsItsAge: a process that starts when the answer has come doesn't know
// how long that took.
func TestRequestTellsItsAge(t *testing.T) {
	for age, kept := range map[time.Duration]bool{0: false, 4 * time.Second: false, 5 * time.Second: true, -time.Hour: false} {
		host, machine, node := objects(answered)
		at := epoch.Add(-age).Format(metav1.RFC3339Micro)
		host.Annotations[api.RemediationRebootAnnotation] = `{"mode":"hard","at":"` + at + `"}`
		host.Status.Provisioning.HeldOffFor[api.RemediationRebootKey] = api.RequestID(host.Annotations[api.RemediationRebootAnnotation])
		c := server(interceptor.Funcs{}, host, machine, node)
		step(t, reconciler(c, c, State{}, Decide))
		if current(t, c).NodeExists != kept {
			t.Errorf("the Node is kept: %t, by an answer to a request of %s ago", !kept, age)
		}
	}
}

// TestAnswerAgesWhileItIsRead: the API server may take its time.
func TestAnswerAgesWhileItIsRead(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(epoch)
	gets := 0
	c := serve(answered, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*api.BareMetalHost); ok {
				if gets++; gets == 3 { // before it is deleted
					clock.SetTime(clock.Now().Add(time.Minute))
				}
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	r := reconciler(c, c, answered, Decide)
	r.Clock = clock
	if _, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: key}); err == nil || gets != 3 {
		t.Errorf("after %d reads: error %v", gets, err)
	}
	if !current(t, c).NodeExists {
		t.Error("the Node was deleted by an answer that is a minute old")
	}
}

// TestNodeThatNeverReturns: the health check's mark stays, so somebody has to go on.
func TestNodeThatNeverReturns(t *testing.T) {
	c := serve(State{NeedsRemediation: true, StatusOn: true, PoweredOffMark: true}, interceptor.Funcs{})
	clock := clocktesting.NewFakePassiveClock(epoch)
	r := reconciler(c, c, State{}, KeepMark)
	r.Steady = clock
	result, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: key})
	if err != nil || result.RequeueAfter != r.Settings.NodeTimeout.Duration {
		t.Fatalf("it looks again after %s: %v", result.RequeueAfter, err)
	}
	clock.SetTime(clock.Now().Add(result.RequeueAfter))
	step(t, r)
	if !current(t, c).RebootAnnotation {
		t.Error("the host was not asked to reboot again")
	}
}

// TestAnothersNodeIsSpared: nodeRef is a name, and names are used again.
func TestAnothersNodeIsSpared(t *testing.T) {
	for name, state := range map[string]State{
		"marked":    {NodeExists: true, NeedsRemediation: true, StatusOn: true},
		"off":       answered,
		"withdrawn": {NodeExists: true, RebootAnnotation: true, AnswersRequest: true},
	} {
		t.Run(name, func(t *testing.T) {
			host, machine, node := objects(state)
			machine.Spec.ProviderID, node.Spec.ProviderID = "metal3://metal3/worker-1/worker-1", "metal3://metal3/worker-2/worker-2"
			c := server(interceptor.Funcs{}, host, machine, node)
			_, err := reconciler(c, c, state, Decide).Reconcile(ctx, reconcile.Request{NamespacedName: key})
			if state.NeedsRemediation && (err == nil || !strings.Contains(err.Error(), "correct the reference")) {
				t.Errorf("error %v", err)
			}
			must(t, c.Get(ctx, types.NamespacedName{Name: "worker-1"}, &corev1.Node{}))
			must(t, c.Get(ctx, key, host))
			if _, held := host.Annotations[api.RemediationRebootAnnotation]; held != (state.NeedsRemediation && state.RebootAnnotation) {
				t.Errorf("held off: %t, error %v", held, err)
			}
		})
	}
}

func TestHostsOf(t *testing.T) {
	_, machine, node := objects(answered)
	other := machine.DeepCopy()
	other.Name, other.Status.NodeRef.Name = "worker-2", "worker-2"
	other.Annotations[api.HostAnnotation] = "metal3/worker-2"
	c := server(interceptor.Funcs{}, machine, other)
	if got := HostOfNode(ctx, c, node); len(got) != 1 || got[0].NamespacedName != key {
		t.Errorf("the Node's hosts are %v", got)
	}
	for _, value := range []string{"", "worker-1", "/worker-1", "metal3/"} {
		machine.Annotations[api.HostAnnotation] = value
		if got := HostOfMachine(ctx, c, machine); got != nil {
			t.Errorf("the host %q is %v", value, got)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestDelayAndDivision: a fencer leaves the hosts of another alone, and waits with those of its own
// until it has seen them marked for long enough, but not with what is under way.
func TestDelayAndDivision(t *testing.T) {
	marked := State{NodeExists: true, NeedsRemediation: true, StatusOn: true}
	asks := func(r *Reconciler) bool {
		t.Helper()
		step(t, r)
		return current(t, r.Client).RebootAnnotation
	}
	fencer := func() *Reconciler {
		c := serve(marked, interceptor.Funcs{})
		return reconciler(c, c, marked, Decide)
	}
	r := fencer()
	if r.Settings.Fences = []string{"worker-2"}; asks(r) {
		t.Error("it fences the host of another")
	}
	if r.Settings.Fences = []string{"worker-2", "worker-1"}; !asks(r) {
		t.Error("it doesn't fence its own")
	}
	r = fencer()
	r.Settings.Delay.Duration = 20 * time.Second
	if asks(r) {
		t.Error("it doesn't wait")
	}
	if r.Steady.(*clocktesting.FakePassiveClock).SetTime(epoch.Add(20 * time.Second)); !asks(r) {
		t.Error("it waits for longer than its delay")
	}
}
