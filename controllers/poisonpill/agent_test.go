package poisonpill

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/api/fence"
)

// rig is an agent on worker-1 of three hosts, with an API server that can be away.
type rig struct {
	client.Client
	agent *Agent
	away  bool

	now   time.Duration
	kept  []byte
	fed   int
	boots int
	say   map[string]string
}

var errAway = errors.New("no route to host")

func (r *rig) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if r.away {
		return errAway
	}
	return r.Client.List(ctx, list, opts...)
}

func (r *rig) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if r.away {
		return errAway
	}
	return r.Client.Patch(ctx, obj, patch, opts...)
}

func (r *rig) ID() string                 { return "b1" }
func (r *rig) Uptime() time.Duration      { return r.now }
func (r *rig) Load() ([]byte, error)      { return r.kept, nil }
func (r *rig) Save(state []byte) error    { r.kept = state; return nil }
func (r *rig) Feed(context.Context) error { r.fed++; return nil }
func (r *rig) Timeout() time.Duration     { return 30 * time.Second }

func (r *rig) Ask(_ context.Context, peers map[string][]string, _ []byte, _ time.Duration) map[string][]byte {
	answers := map[string][]byte{}
	for peer := range peers { // order does not matter: into a map
		if said, ok := r.say[peer]; ok {
			answers[peer] = []byte(`{"reply":"` + said + `"}`)
		}
	}
	return answers
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{say: map[string]string{}}
	var objs []client.Object
	for _, name := range []string{"worker-1", "worker-2", "worker-3"} {
		node := &corev1.Node{}
		node.Name = name
		node.Status.NodeInfo.BootID = "b1"
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		machine := &clusterv1.Machine{}
		machine.Namespace, machine.Name, machine.Status.NodeRef.Name = "default", name, name
		machine.Spec.ProviderID, node.Spec.ProviderID = "metal3://"+name, "metal3://"+name
		objs = append(objs, node, machine)
	}
	r.Client = fake.NewClientBuilder().WithScheme(api.NewScheme()).WithObjects(objs...).Build()
	r.agent = r.newAgent()
	return r
}

func (r *rig) newAgent() *Agent {
	return &Agent{
		API: r, Clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)), Boot: r, Watchdog: r, Peers: r, Node: "worker-1",
		Reboot: func(context.Context) error { r.boots++; return nil }, Settings: DefaultSettings(), Decide: Decide,
	}
}

// run lets the agent take steps for a time, and reports whether the last of them fed the
// watchdog.
func (r *rig) run(t *testing.T, d time.Duration) (fed bool) {
	t.Helper()
	for until := r.now + d; r.now < until; {
		before := r.fed
		next, err := r.agent.Step(t.Context())
		if err != nil && !errors.Is(err, errAway) {
			t.Fatal(err)
		}
		fed = r.fed > before
		r.now += max(next, 10*time.Millisecond)
	}
	return fed
}

func (r *rig) node(t *testing.T) *corev1.Node {
	t.Helper()
	var node corev1.Node
	if err := r.Client.Get(t.Context(), client.ObjectKey{Name: "worker-1"}, &node); err != nil {
		t.Fatal(err)
	}
	return &node
}

func (r *rig) mark(t *testing.T, name string) {
	t.Helper()
	var machine clusterv1.Machine
	if err := r.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &machine); err != nil {
		t.Fatal(err)
	}
	machine.Annotations = map[string]string{api.ExternalRemediationAnnotation: ""}
	if err := r.Client.Update(t.Context(), &machine); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) fence(t *testing.T, name string) *fence.NodeFence {
	t.Helper()
	var f fence.NodeFence
	if client.IgnoreNotFound(r.Client.Get(t.Context(), client.ObjectKey{Name: name}, &f)) != nil || f.Name == "" {
		return nil
	}
	return &f
}

// TestAgentAnnounces what others may count on, before they could.
func TestAgentAnnounces(t *testing.T) {
	r := newRig(t)
	if !r.run(t, 20*time.Second) {
		t.Error("the watchdog is not fed")
	}
	a := announced(r.node(t))
	if a.Boot != "b1" || strings.Join(a.Peers, " ") != "worker-2 worker-3" || a.Reset.Duration != 30*time.Second || a.Patience() != r.agent.m.patience() {
		t.Errorf("announced %+v", a)
	}
}

// TestAgentDiesOfSilence, and of the word of too few; a majority and one that knows better
// let it live on; and the next agent of the boot goes on where this one was.
func TestAgentDiesOfSilence(t *testing.T) {
	for _, c := range []struct {
		what  string
		say   map[string]string
		lives bool
	}{
		{"silence", nil, false},
		{"one of two is cut off", map[string]string{"worker-2": "cut off"}, false},
		{"both are", map[string]string{"worker-2": "cut off", "worker-3": "cut off"}, true},
		{"one says healthy", map[string]string{"worker-3": "healthy"}, true},
		{"one says unhealthy", map[string]string{"worker-2": "unhealthy"}, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := newRig(t)
			r.run(t, 20*time.Second)
			r.away, r.say = true, c.say
			r.run(t, 20*time.Second)
			r.agent = r.newAgent() // it died, and knows all the same
			if fed := r.run(t, 10*time.Minute); fed != c.lives {
				t.Errorf("fed %t", fed)
			}
			if !c.lives && r.boots == 0 {
				t.Error("a watchdog that does not fire is not made up for")
			}
		})
	}
}

// TestAgentReadsItsMark, makes the NodeFence that the others wait for, and dies of it for
// good, whatever peers say.
func TestAgentReadsItsMark(t *testing.T) {
	r := newRig(t)
	r.run(t, 20*time.Second)
	r.mark(t, "worker-1")
	if r.run(t, 20*time.Second) {
		t.Error("it is still fed")
	}
	f := r.fence(t, "worker-1")
	if f == nil || f.Spec.Boot != "b1" || f.Spec.Machine.Name != "worker-1" {
		t.Fatalf("the NodeFence is %+v", f)
	}
	if _, ok := f.Spec.Backup.Annotations[AgentAnnotation]; ok {
		t.Error("the backup has what was about the boot that ends")
	}
	r.away, r.say = true, map[string]string{"worker-2": "cut off", "worker-3": "cut off"}
	if r.run(t, time.Minute) {
		t.Error("it is fed again because the others are cut off")
	}
	if err := r.agent.Retire(t.Context()); err == nil {
		t.Error("its watchdog may be disarmed")
	}
}

// TestMarkOfTheBootBefore: while the Node still reports the previous boot, a mark is about that
// boot. A NodeFence of the present boot would look like one of a boot that is over, and the
// present boot would run on.
func TestMarkOfTheBootBefore(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"worker-1", "worker-2"} {
		var node corev1.Node
		if err := r.Client.Get(t.Context(), client.ObjectKey{Name: name}, &node); err != nil {
			t.Fatal(err)
		}
		node.Status.NodeInfo.BootID = "b0"
		if err := r.Client.Status().Update(t.Context(), &node); err != nil {
			t.Fatal(err)
		}
		r.mark(t, name)
	}
	said, err := r.agent.Answer(t.Context(), "worker-2", question{"worker-2", "b1"}.encode())
	if err != nil || parseReply(said) != Healthy {
		t.Errorf("a peer that has booted since hears %s, %v", said, err)
	}
	if !r.run(t, time.Minute) {
		t.Error("it lets its host be reset once more")
	}
	if f := r.fence(t, "worker-1"); f == nil || f.Spec.Boot != "b0" {
		t.Errorf("its own NodeFence is %+v", f)
	}
	if f := r.fence(t, "worker-2"); f == nil || f.Spec.Boot != "b0" {
		t.Errorf("that of the peer is %+v", f)
	}
}

// TestLateFence: a NodeFence of an earlier boot that is made late answers no mark that was
// set since, and one that was taken away leaves nothing behind.
func TestLateFence(t *testing.T) {
	r := newRig(t)
	r.run(t, 20*time.Second)
	late := &fence.NodeFence{}
	late.Name, late.Spec.Boot, late.Spec.Machine = "worker-2", "b0", fence.MachineReference{Namespace: "default", Name: "worker-2"}
	if err := r.Client.Create(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	r.mark(t, "worker-2")
	r.run(t, 20*time.Second)
	if f := r.fence(t, "worker-2"); f == nil || f.Spec.Boot != "b1" {
		t.Errorf("the NodeFence is %+v, and the mark is about b1", f)
	}
	var machine clusterv1.Machine
	key := client.ObjectKey{Namespace: "default", Name: "worker-2"}
	if err := r.Client.Get(t.Context(), key, &machine); err != nil {
		t.Fatal(err)
	}
	if !isMarked(&machine) || machine.Annotations[api.MarkedBootAnnotation] != "b1" {
		t.Errorf("the Machine has the annotations %q", machine.Annotations)
	}

	delete(machine.Annotations, api.ExternalRemediationAnnotation)
	if err := r.Client.Update(t.Context(), &machine); err != nil {
		t.Fatal(err)
	}
	if err := r.Client.Delete(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	r.run(t, 20*time.Second)
	if err := r.Client.Get(t.Context(), key, &machine); err != nil || len(machine.Annotations) > 0 {
		t.Errorf("the Machine keeps the annotations %q, %v", machine.Annotations, err)
	}
}

// TestAgentRetires: others no longer count on an agent whose watchdog is disarmed.
func TestAgentRetires(t *testing.T) {
	r := newRig(t)
	r.run(t, 20*time.Second)
	r.away = true
	if err := r.agent.Retire(t.Context()); err == nil {
		t.Error("it retires while nobody hears of it")
	}
	r.away = false
	if err := r.agent.Retire(t.Context()); err != nil {
		t.Error(err)
	}
	if a := announced(r.node(t)); a.Boot != "" {
		t.Errorf("it still announces %+v", a)
	}
}

// TestAnswers are given to whom they are about, and rest on a look.
func TestAnswers(t *testing.T) {
	r := newRig(t)
	r.run(t, 20*time.Second)
	ask := func(from, node string) string {
		said, err := r.agent.Answer(t.Context(), from, question{node, "b1"}.encode())
		if err != nil {
			return "error"
		}
		return string(parseReply(said))
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	expect("a peer that is well", ask("worker-2", "worker-2"), "healthy")
	expect("a peer that asks about another", ask("worker-2", "worker-3"), "error")
	if _, err := r.agent.Answer(t.Context(), "worker-2", []byte("garbage")); err == nil {
		t.Error("garbage is answered")
	}
	r.away = true
	expect("while cut off", ask("worker-2", "worker-2"), "cut off")
	r.away = false
	r.mark(t, "worker-2")
	expect("a peer that is marked", ask("worker-2", "worker-2"), "unhealthy")
	if r.fence(t, "worker-2") == nil {
		t.Error("unhealthy is said without a NodeFence")
	}
	r.run(t, 20*time.Second) // it reads that
	r.away = true
	expect("a fenced peer, while cut off", ask("worker-2", "worker-2"), "unhealthy")
	expect("another one", ask("worker-3", "worker-3"), "cut off")
	fresh := &Agent{API: r, Boot: r, Node: "worker-1", Settings: DefaultSettings(), Decide: Decide}
	if _, err := fresh.Answer(t.Context(), "worker-3", question{"worker-3", "b1"}.encode()); err == nil {
		t.Error("an agent that knows nothing yet calls itself cut off")
	}
}
