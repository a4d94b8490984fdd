package lab

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/ci/cluster"
	"github.com/fencelab/fencelab/ci/lab/gate"
	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/fakebmc/wall"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
)

// version is an object with what each manager owns, written at a second.
func version(entries ...metav1.ManagedFieldsEntry) metav1.Object {
	return &api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", ManagedFields: entries}}
}

func owns(manager string, second int, fields string) metav1.ManagedFieldsEntry {
	at := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC))
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: &at, FieldsV1: metav1.NewFieldsV1(fields)}
}

// TestManager: the record of managed fields tells who set a field, and must not be
// taken to tell who removed one: its entry only loses it, whoever did that.
func TestManager(t *testing.T) {
	const a, ab = `{"f:metadata":{"f:annotations":{"f:a":{}}}}`, `{"f:metadata":{"f:annotations":{"f:a":{},"f:b":{}}}}`
	for _, tc := range []struct {
		name          string
		before, after metav1.Object
		want          string
	}{
		{"created", nil, version(owns("user", 1, a)), "user"},
		{"a new manager", version(owns("user", 1, a)), version(owns("user", 1, a), owns("reboot", 1, ab)), "reboot"},
		{"one more field", version(owns("user", 1, a)), version(owns("user", 1, ab)), "user"},
		{"another value", version(owns("user", 1, a)), version(owns("user", 2, a)), "user"},
		{"one field less", version(owns("user", 1, ab)), version(owns("user", 1, a)), ""},
		{"taken over", version(owns("user", 1, ab)), version(owns("user", 1, a), owns("reboot", 2, ab)), "reboot"},
		{"none left", version(owns("user", 1, a)), version(), ""},
		{"deleted", version(owns("user", 1, a)), nil, ""},
	} {
		if got := manager(tc.before, tc.after); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestWriters(t *testing.T) {
	var w writers
	host := version()
	host.SetResourceVersion("7")
	if got := w.of(nil, host); got != "" {
		t.Errorf("nobody wrote it, but %q", got)
	}
	w.wrote("7", "reboot")
	w.wrote("7", "remediation") // which changed nothing
	if got := w.of(nil, host); got != "reboot" {
		t.Errorf("version 7 is %q's", got)
	}
	if got := w.of(host, nil); got != "" {
		t.Errorf("nobody deletes it, but %q", got)
	}
	w.deletes("BareMetalHost/worker-1", "user")
	w.deletes("Node/worker-1", "remediation")
	if got := w.await(host, nil); got != "user" {
		t.Errorf("%q deletes it", got)
	}
	w.deletes("BareMetalHost/", "remediation")
	if got := w.of(host, nil); got != "remediation" {
		t.Errorf("%q deletes it after all of them were to be deleted", got)
	}
	w.deletes("BareMetalHost/worker-1", "user")
	if got := w.of(host, nil); got != "user" {
		t.Errorf("%q deletes it again", got)
	}

	// Who asked for a deletion has not made an object go that a finalizer held up.
	now := metav1.Now()
	deleting := version()
	deleting.SetDeletionTimestamp(&now)
	deleting.SetFinalizers([]string{"fencelab.dev/test"})
	if got := w.of(deleting, nil); got != "" {
		t.Errorf("nobody is known to have taken its finalizer, but %q", got)
	}
	w.released("BareMetalHost/worker-1", "deletion")
	if got := w.of(deleting, nil); got != "deletion" {
		t.Errorf("%q has taken its finalizer", got)
	}
	if got := w.of(deleting, nil); got != "" {
		t.Errorf("the next of its name is %q's", got)
	}

	// An eviction is answered without a version. One that was refused is none, and a kubelet ends what it began.
	pod, evicted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app"}}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app", DeletionTimestamp: &now}}
	w.asks("evict Pod/app", "deletion")
	w.refused("evict Pod/app", "deletion")
	if got := w.of(pod, evicted); got != "" {
		t.Errorf("%q evicts it, but was refused", got)
	}
	w.asks("evict Pod/app", "deletion")
	if got := w.of(pod, evicted); got != "deletion" {
		t.Errorf("%q evicts it", got)
	}
	if got := w.of(evicted, nil); got != "" {
		t.Errorf("%q deletes it, not its kubelet", got)
	}
}

// TestObserversKnowWhoWrote removes annotations and deletes a Node of a real API
// server, as the user and as a controller.
func TestObserversKnowWhoWrote(t *testing.T) {
	for _, f := range cluster.Preflight(t.Context(), cluster.Options{}) {
		if f.Remedy != "" && os.Getenv("FENCELAB_REQUIRE_LAB") != "1" {
			t.Skipf("%s: %s; %s", f.Name, f.State, f.Remedy)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	spec := &scenarios.Spec{Topology: scenarios.Topology{Hosts: []scenarios.Host{{Name: "worker-1"}}}}
	b := &Backend{set: controllers.Default(), kinds: objects.KindsOf(controllers.Default()), ctx: t.Context(), clock: wall.Clock(), plan: &scenarios.Plan{Spec: *spec}}
	b.stream = newStream(b.since)
	b.door = newDoor(b.stream, gate.API(b.kinds))
	must(b.startControlPlane())
	t.Cleanup(func() { must(b.plane.Stop()) })
	for _, obj := range objects.Topology(spec, func(string) api.BMCDetails { return api.BMCDetails{} }, func(string) string { return "" }) {
		must(b.admin.Create(t.Context(), obj))
	}
	must(b.admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}))
	must(b.watchAPI())

	config, l := b.as("reboot"), &life{p: &process{b: b, name: "reboot"}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &gate.Gate{Judge: l, Read: gate.API(b.kinds), Next: next, UserAgent: "reboot"}
	})
	controller, err := client.New(config, client.Options{Scheme: api.NewScheme()})
	must(err)

	const host, plain = "BareMetalHost/worker-1", api.RebootAnnotation
	value, user := "", operations{b, t.Context()}
	for range 2 {
		must(user.annotate(&scenarios.AnnotateOp{Object: host, Key: plain}, &value))
		must(user.annotate(&scenarios.AnnotateOp{Object: host, Key: plain + "/a", As: "backup"}, &value))
		must(user.annotate(&scenarios.AnnotateOp{Object: host, Key: plain + "/a"}, nil))
		var bmh api.BareMetalHost
		must(controller.Get(t.Context(), client.ObjectKey{Namespace: objects.Namespace, Name: "worker-1"}, &bmh))
		must(controller.Patch(t.Context(), &bmh, api.RemoveAnnotations(&bmh, plain)))
	}
	must(controller.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}))
	// It lets a Machine go that the user deletes, and evicts a Pod.
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: objects.Namespace, Name: "worker-1"}}
	must(controller.Patch(t.Context(), machine, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["fencelab.dev/test"]}}`))))
	must(user.Delete(&scenarios.ObjectOp{Object: "Machine/worker-1"}))
	must(controller.Patch(t.Context(), machine, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: objects.Namespace, Name: "app"},
		Spec:       corev1.PodSpec{NodeName: "worker-1", Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	must(b.admin.Create(t.Context(), pod))
	must(controller.SubResource("eviction").Create(t.Context(), pod, &policyv1.Eviction{}))

	once := []string{
		"annotation-set reboot.metal3.io by user", "annotation-set reboot.metal3.io/a by user/backup",
		"annotation-removed reboot.metal3.io/a by user", "annotation-removed reboot.metal3.io by reboot",
	}
	want := slices.Concat(once, once)
	// Hosts and Nodes are watched apart from each other: on a busy machine the two
	// may be told of in either order.
	var got []string
	by := make(map[history.Kind]string)
	_, err = b.stream.advance(t.Context(), b.since()+time.Minute, func(e history.Event) bool {
		switch e.Kind {
		case history.AnnotationSet, history.AnnotationRemoved:
			got = append(got, strings.Join([]string{string(e.Kind), e.Key, "by " + e.Actor}, " "))
		case history.NodeDeleted, history.MachineDeleted, history.PodTerminating:
			by[e.Kind] = e.Actor
		}
		return len(by) == 3 && len(got) >= len(want)
	})
	must(err)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, kind := range []history.Kind{history.NodeDeleted, history.MachineDeleted, history.PodTerminating} {
		if by[kind] != "reboot" {
			t.Errorf("%s by %q", kind, by[kind])
		}
	}
}

// TestWriterWhoseAnswerIsLate: on a busy machine a change is seen long before its request is answered, and later events wait.
func TestWriterWhoseAnswerIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w writers
		before, after := version(), version()
		after.SetResourceVersion("7")
		w.sends("BareMetalHost/worker-1", "user")
		time.AfterFunc(time.Second, func() {
			w.wrote("7", "user")
			w.done("BareMetalHost/worker-1", "user")
		})
		if got := w.await(before, after); got != "user" {
			t.Errorf("%q wrote it", got)
		}
		after.SetResourceVersion("8")
		began := time.Now()
		if got := w.await(before, after); got != "" || time.Since(began) > lag {
			t.Errorf("nobody is to be waited for, but %q wrote it after %s", got, time.Since(began))
		}
		w.sends("BareMetalHost/worker-2", "user")
		if w.await(before, after); time.Since(began) > 2*lag {
			t.Error("a request about another object is waited for")
		}
	})
}

// TestEventsAreHeld: what happened after an event whose actor is not known yet is handed over after it.
func TestEventsAreHeld(t *testing.T) {
	now := time.Second
	s := newStream(func() time.Duration { return now })
	s.await(&scenarios.Plan{}, nil)
	release := s.hold(now)
	now += time.Millisecond
	s.now(history.Event{Kind: history.PowerOn, Host: "worker-1"})
	now += time.Minute
	if known := s.known(now); known >= time.Second {
		t.Errorf("events are known up to %s while one of 1 s is held", known)
	}
	release()
	if known := s.known(now); known != now-lag {
		t.Errorf("events are known up to %s at %s", known, now)
	}
}
