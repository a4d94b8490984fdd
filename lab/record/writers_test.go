package record

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// version is an object with what each manager owns, written at a second.
func version(entries ...metav1.ManagedFieldsEntry) metav1.Object {
	return &api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", ManagedFields: entries}}
}

func owns(manager string, second int, fields string) metav1.ManagedFieldsEntry {
	at := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC))
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: &at, FieldsV1: metav1.NewFieldsV1(fields)}
}

// TestManager: the record of managed fields shows who set a field. It must not be taken to show
// who removed one: the entry of the field's manager loses it, whoever removed it.
// TestCollector: who had a Pod fail has deleted it, if that was kube-controller-manager.
func TestCollector(t *testing.T) {
	for _, c := range []struct {
		manager, field string
		phase          corev1.PodPhase
		want           string
	}{
		{"kube-controller-manager[a]", "f:phase", corev1.PodFailed, "kube-controller-manager[a]"},
		{"kubelet", "f:phase", corev1.PodFailed, ""},
		{"kube-controller-manager[a]", "f:conditions", corev1.PodFailed, ""},
		{"kube-controller-manager[a]", "f:phase", corev1.PodRunning, ""},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{Phase: c.phase}}
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: c.manager, FieldsV1: metav1.NewFieldsV1(`{"f:status":{"` + c.field + `":{}}}`)}}
		if got := collector(pod); got != c.want {
			t.Errorf("%+v: deleted by %q", c, got)
		}
	}
}

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
	w.Wrote("7", "reboot")
	w.Wrote("7", "remediation") // which changed nothing
	if got := w.of(nil, host); got != "reboot" {
		t.Errorf("version 7 is %q's", got)
	}
	if got := w.of(host, nil); got != "" {
		t.Errorf("nobody deletes it, but %q", got)
	}
	w.Deletes("BareMetalHost/worker-1", "user")
	w.Deletes("Node/worker-1", "remediation")
	if got := w.await(host, nil); got != "user" {
		t.Errorf("%q deletes it", got)
	}
	w.Deletes("BareMetalHost/", "remediation")
	if got := w.of(host, nil); got != "remediation" {
		t.Errorf("%q deletes it after all of them were to be deleted", got)
	}
	w.Deletes("BareMetalHost/worker-1", "user")
	if got := w.of(host, nil); got != "user" {
		t.Errorf("%q deletes it again", got)
	}

	// An object that a finalizer held up does not go by whoever asked for its deletion.
	now := metav1.Now()
	deleting := version()
	deleting.SetDeletionTimestamp(&now)
	deleting.SetFinalizers([]string{"fencelab.dev/test"})
	if got := w.of(deleting, nil); got != "" {
		t.Errorf("nobody is known to have taken its finalizer, but %q", got)
	}
	w.Released("BareMetalHost/worker-1", "deletion")
	if got := w.of(deleting, nil); got != "deletion" {
		t.Errorf("%q has taken its finalizer", got)
	}
	if got := w.of(deleting, nil); got != "" {
		t.Errorf("the next of its name is %q's", got)
	}

	// An eviction is answered without a version. One that was refused is none, and a kubelet ends
	// what it began.
	pod, evicted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app"}}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app", DeletionTimestamp: &now}}
	w.Asks("evict Pod/app", "deletion")
	w.Refused("evict Pod/app", "deletion")
	if got := w.of(pod, evicted); got != "" {
		t.Errorf("%q evicts it, but was refused", got)
	}
	w.Asks("evict Pod/app", "deletion")
	if got := w.of(pod, evicted); got != "deletion" {
		t.Errorf("%q evicts it", got)
	}
	if got := w.of(evicted, nil); got != "" {
		t.Errorf("%q deletes it, not its kubelet", got)
	}

	// Nor has the answer to a binding a version.
	bound := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: corev1.PodSpec{NodeName: "worker-1"}}
	for _, refused := range []bool{true, false} {
		w.Asks("bind Pod/app", "workload")
		want := "workload"
		if refused {
			w.Refused("bind Pod/app", "workload")
			want = ""
		}
		for _, c := range []struct {
			before *corev1.Pod
			want   string
		}{{bound, ""}, {pod, want}, {pod, ""}} {
			if got := w.of(c.before, bound); got != c.want {
				t.Errorf("refused %t: %q binds it, want %q", refused, got, c.want)
			}
		}
	}
}

// TestWriterWhoseAnswerIsLate: on a busy machine a change is seen long before its request is
// answered, and later events wait.
func TestWriterWhoseAnswerIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w writers
		before, after := version(), version()
		after.SetResourceVersion("7")
		w.Sends("BareMetalHost/worker-1", "user")
		time.AfterFunc(time.Second, func() {
			w.Wrote("7", "user")
			w.Done("BareMetalHost/worker-1", "user")
		})
		if got := w.await(before, after); got != "user" {
			t.Errorf("%q wrote it", got)
		}
		after.SetResourceVersion("8")
		began := time.Now()
		if got := w.await(before, after); got != "" || time.Since(began) > lag {
			t.Errorf("nobody is to be waited for, but %q wrote it after %s", got, time.Since(began))
		}
		w.Sends("BareMetalHost/worker-2", "user")
		if w.await(before, after); time.Since(began) > 2*lag {
			t.Error("a request about another object is waited for")
		}
	})
}

// TestEventsAreHeld: what happened after an event whose actor is not known yet is handed over after
// it.
func TestEventsAreHeld(t *testing.T) {
	now := time.Second
	s := NewStream(func() time.Duration { return now })
	s.Await(&scenarios.Plan{}, nil)
	release := s.hold(now)
	now += time.Millisecond
	s.Now(history.Event{Kind: history.PowerOn, Host: "worker-1"})
	now += time.Minute
	if known := s.known(now); known >= time.Second {
		t.Errorf("events are known up to %s while one of 1 s is held", known)
	}
	release()
	if known := s.known(now); known != now-lag {
		t.Errorf("events are known up to %s at %s", known, now)
	}
}
