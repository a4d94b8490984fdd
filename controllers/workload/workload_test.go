package workload

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
)

var (
	ctx = context.Background()
	key = types.NamespacedName{Namespace: "default", Name: "exclusive"}
)

func node(name, uid string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
}

func pod(nodeName, nodeUID string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, UID: "pod-uid",
			Annotations: map[string]string{api.NodeUIDAnnotation: nodeUID},
		},
		Spec: corev1.PodSpec{NodeName: nodeName},
	}
}

// serve returns an API server that takes bindings; deletes collects the options of Pod deletions.
func serve(deletes *[]client.DeleteOptions, objs ...client.Object) client.WithWatch {
	return interceptor.NewClient(fake.NewClientBuilder().WithScheme(api.NewScheme()).WithObjects(objs...).Build(), interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if deletes != nil {
				*deletes = append(*deletes, *(&client.DeleteOptions{}).ApplyOptions(opts))
			}
			return c.Delete(ctx, obj, opts...)
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, obj, body client.Object, _ ...client.SubResourceCreateOption) error {
			binding, pod := body.(*corev1.Binding), &corev1.Pod{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(obj), pod); err != nil {
				return err
			}
			if sub != "binding" || pod.Spec.NodeName != "" || binding.UID != pod.UID || binding.Target.Kind != "Node" {
				return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, pod.Name, errors.New("it can't be bound"))
			}
			pod.Spec.NodeName, pod.Annotations = binding.Target.Name, binding.Annotations
			return c.Update(ctx, pod)
		},
	})
}

// step has each of the three do a step, in the order in which they come to a Pod.
func step(t *testing.T, c client.Client, live client.Reader, settings Settings) {
	t.Helper()
	for _, r := range []reconcile.Reconciler{
		&Keeper{Client: c, Settings: settings}, &Binder{Client: c, Settings: settings},
		&Releaser{Client: c, Live: live, Clock: clock.RealClock{}, Settings: settings},
	} {
		for _, request := range []reconcile.Request{{}, {NamespacedName: key}} {
			if _, err := r.Reconcile(ctx, request); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func current(t *testing.T, c client.Client) *corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	err := c.Get(ctx, key, &pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return &pod
}

func TestPodIsBound(t *testing.T) {
	cordoned, tainted, leaving := node("a", "1", corev1.ConditionTrue), node("a", "1", corev1.ConditionTrue), node("a", "1", corev1.ConditionTrue)
	cordoned.Spec.Unschedulable = true
	tainted.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}
	leaving.DeletionTimestamp, leaving.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"f/f"}
	b, c := node("b", "2", corev1.ConditionTrue), node("c", "3", corev1.ConditionTrue)
	for name, tc := range map[string]struct {
		nodes     []client.Object
		preferred string
		want      string
	}{
		"first by name":           {[]client.Object{c, b}, "", "b"},
		"preferred":               {[]client.Object{b, c}, "c", "c"},
		"preferred before others": {[]client.Object{b, c}, "b", "b"},
		"preferred is not Ready":  {[]client.Object{node("a", "1", corev1.ConditionUnknown), b, c}, "a", "b"},
		"preferred is missing":    {[]client.Object{c, b}, "z", "b"},
		"cordoned":                {[]client.Object{cordoned, b}, "a", "b"},
		"tainted":                 {[]client.Object{tainted, b}, "", "b"},
		"being deleted":           {[]client.Object{leaving, b}, "", "b"},
		"none":                    {[]client.Object{cordoned}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(nil, tc.nodes...)
			settings := DefaultSettings()
			settings.PreferredNode = tc.preferred
			step(t, server, server, settings)
			pod := current(t, server)
			uid := map[string]string{"b": "2", "c": "3"}[tc.want] // of none if it is not bound
			if pod == nil || pod.Spec.NodeName != tc.want || pod.Annotations[api.NodeUIDAnnotation] != uid {
				t.Errorf("the Pod is %+v", pod)
			}
		})
	}
}

func TestOnlyADeletedNodeReleases(t *testing.T) {
	for name, tc := range map[string]struct {
		cached, live []client.Object
		released     bool
	}{
		"Ready":         {[]client.Object{node("a", "1", corev1.ConditionTrue)}, []client.Object{node("a", "1", corev1.ConditionTrue)}, false},
		"not Ready":     {[]client.Object{node("a", "1", corev1.ConditionUnknown)}, []client.Object{node("a", "1", corev1.ConditionUnknown)}, false},
		"deleted":       {nil, nil, true},
		"recreated":     {[]client.Object{node("a", "2", corev1.ConditionTrue)}, []client.Object{node("a", "2", corev1.ConditionTrue)}, true},
		"cache lags":    {nil, []client.Object{node("a", "1", corev1.ConditionTrue)}, false},
		"cache is late": {[]client.Object{node("a", "1", corev1.ConditionTrue)}, nil, false}, // its event will come
	} {
		t.Run(name, func(t *testing.T) {
			var deletes []client.DeleteOptions
			server := serve(&deletes, append(tc.cached, pod("a", "1"))...)
			step(t, server, serve(nil, tc.live...), DefaultSettings())
			if released := current(t, server) == nil; released != tc.released {
				t.Errorf("released %t", released)
			}
			for _, d := range deletes {
				if *d.GracePeriodSeconds != 0 || d.Preconditions == nil || *d.Preconditions.UID != "pod-uid" {
					t.Errorf("deleted with %+v", d)
				}
			}
		})
	}
}

func TestOthersAreLeftAlone(t *testing.T) {
	other := pod("gone", "1")
	other.Name = "other"
	waiting := other.DeepCopy()
	waiting.Name, waiting.Spec.NodeName = "waiting", ""
	var deletes []client.DeleteOptions
	server := serve(&deletes, node("a", "1", corev1.ConditionTrue), other, waiting)
	for _, of := range []*corev1.Pod{other, waiting} {
		request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(of)}
		for _, r := range []reconcile.Reconciler{
			&Keeper{Client: server, Settings: DefaultSettings()}, &Binder{Client: server, Settings: DefaultSettings()},
		} {
			if _, err := r.Reconcile(ctx, request); err != nil {
				t.Fatal(err)
			}
		}
	}
	var left corev1.Pod
	if err := server.Get(ctx, client.ObjectKeyFromObject(waiting), &left); err != nil || left.Spec.NodeName != "" || len(deletes) > 0 || current(t, server) != nil {
		t.Errorf("events of other Pods led to deeds: %v, %+v, %v", err, left, deletes)
	}
}

// TestOthersAreReleased: a Pod that somebody else has bound goes once no Node of the name is there.
func TestOthersAreReleased(t *testing.T) {
	for name, nodes := range map[string][]client.Object{"gone": nil, "made anew": {node("a", "2", corev1.ConditionTrue)}} {
		other := pod("a", "")
		other.Name, other.Annotations = "other", nil
		server := serve(nil, append(nodes, other)...)
		r := &Releaser{Client: server, Live: server, Clock: clock.RealClock{}, Settings: DefaultSettings()}
		if _, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(other)}); err != nil {
			t.Fatal(err)
		}
		if err := server.Get(ctx, client.ObjectKeyFromObject(other), other); apierrors.IsNotFound(err) != (name == "gone") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRequests: a Pod without a Node is the Binder's, one with a Node the Releaser's, and a Node
// leads to the Pods that it matters to.
func TestRequests(t *testing.T) {
	bound, unbound := pod("a", "1"), pod("", "")
	bound.Name = "bound"
	a, b := node("a", "1", corev1.ConditionTrue), node("b", "2", corev1.ConditionTrue)
	cache := serve(nil, bound, unbound, a, b)
	for _, c := range []struct {
		name string
		of   func(context.Context, client.Reader, client.Object) []reconcile.Request
		obj  client.Object
		want string
	}{
		{"Unbound", Unbound, unbound, "exclusive"}, {"Unbound", Unbound, bound, ""},
		{"Bound", Bound, unbound, ""}, {"Bound", Bound, bound, "bound"},
		{"AllUnbound", AllUnbound, b, "exclusive"}, {"BoundTo", BoundTo, a, "bound"}, {"BoundTo", BoundTo, b, ""},
	} {
		got := ""
		for _, request := range c.of(ctx, cache, c.obj) {
			got += request.Name
		}
		if got != c.want {
			t.Errorf("%s of %s requests %q, want %q", c.name, c.obj.GetName(), got, c.want)
		}
	}
}

// TestQuarantine: with a quarantine the Pod is kept for a while after its Node is
// gone, for good if a Node of that name comes back, and the last word is the API
// server's.
func TestQuarantine(t *testing.T) {
	settings := DefaultSettings()
	settings.Quarantine = metav1.Duration{Duration: time.Minute}
	other := node("other", "2", corev1.ConditionTrue)
	for _, c := range []struct {
		name string
		// cached and live are the Nodes that are there after the quarantine.
		cached, live []client.Object
		kept         bool
	}{
		{"gone", []client.Object{other}, []client.Object{other}, false},
		{"back", []client.Object{node("a", "9", corev1.ConditionTrue)}, nil, true},
		{"back, but not in the cache", nil, []client.Object{node("a", "9", corev1.ConditionTrue)}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
			p := pod("a", "1")
			request := reconcile.Request{NamespacedName: key}
			r := &Releaser{Client: serve(nil, p, other), Clock: now, Settings: settings}
			result, err := r.Reconcile(ctx, request)
			if err != nil || result.RequeueAfter != time.Minute {
				t.Fatalf("when its Node is gone, the Pod is looked at again after %s, %v", result.RequeueAfter, err)
			}
			now.SetTime(now.Now().Add(time.Minute))
			r.Client, r.Live = serve(nil, append(c.cached, p)...), serve(nil, c.live...)
			if _, err := r.Reconcile(ctx, request); err != nil {
				t.Fatal(err)
			}
			if kept := current(t, r.Client) != nil; kept != c.kept {
				t.Errorf("after the quarantine the Pod is kept: %t, want %t", kept, c.kept)
			}
		})
	}
}
