package objects

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// changesOf finds the kind of the objects.
func changesOf(before, after metav1.Object, emit func(history.Event)) {
	some := after
	if some == nil {
		some = before
	}
	kind, err := KindsOf(controllers.Default()).Of(some.(client.Object))
	if err != nil {
		panic(err)
	}
	new(Names).Changes(kind, before, after, emit)
}

// A host, its Machine and its Node may have three names, and each of them may be another
// host's.
func TestNames(t *testing.T) {
	names := NamesOf(&scenarios.Topology{Hosts: []scenarios.Host{
		{Name: "a", NodeName: "b", MachineName: "c"}, {Name: "b", NodeName: "c", MachineName: "a"}, {Name: "c", NodeName: "a", MachineName: "b"},
	}}, nil)
	machine := func(host string) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
		if host != "" {
			m.Annotations = map[string]string{api.HostAnnotation: Namespace + "/" + host}
		}
		return m
	}
	for _, tc := range []struct {
		name  string
		after client.Object
		want  string
	}{
		{"a BareMetalHost", &api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, "c"},
		{"a Node", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, "b"},
		{"a Pod", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: corev1.PodSpec{NodeName: "a"}}, "c"},
		{"a Machine of no host", machine(""), "a"},
		{"a Machine of another host", machine("b"), "b"},
	} {
		kind, err := KindsOf(controllers.Default()).Of(tc.after)
		if err != nil {
			t.Fatal(err)
		}
		seen := false
		names.Changes(kind, nil, tc.after, func(e history.Event) {
			if seen = true; e.Host != tc.want {
				t.Errorf("%s: %s is of %s, not of %s", tc.name, e.Kind, e.Host, tc.want)
			}
		})
		if !seen {
			t.Errorf("%s: no event", tc.name)
		}
	}
}

// TestNamesakes: a name is about the host whose kubelet has written to its Node last, and before
// that about the first of the topology.
func TestNamesakes(t *testing.T) {
	names := NamesOf(&scenarios.Topology{Hosts: []scenarios.Host{
		{Name: "a", NodeName: "n"}, {Name: "b", NodeName: "n"}, {Name: "c", NodeName: "n"}, {Name: "d"},
	}}, nil)
	for _, tc := range []struct{ node, host, want string }{
		{"n", "", "a"}, {"n", "c", "c"}, {"n", "", "c"}, {"n", "b", "b"}, {"n", "d", "b"}, {"n", "a", "a"}, {"d", "a", "d"}, {"x", "a", ""},
	} {
		names.Reported(tc.node, tc.host)
		if got := names.OfNode(tc.node); got != tc.want {
			t.Errorf("after %q wrote to %s, that is of %q, not of %q", tc.host, tc.node, got, tc.want)
		}
	}
}

// TestTakeovers: only one host of a name takes its Node over from another. A Node whose status was
// lost, or that names a machine by its firmware's own ID, stays whose it is.
func TestTakeovers(t *testing.T) {
	names := NamesOf(&scenarios.Topology{Hosts: []scenarios.Host{{Name: "a", NodeName: "n"}, {Name: "b", NodeName: "n"}, {Name: "c"}}}, nil)
	kind, err := KindsOf(controllers.Default()).Of(&corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	by := func(system string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}
		n.Status.NodeInfo.SystemUUID = system
		return n
	}
	for _, tc := range []struct{ before, after, want string }{
		{"a", "b", "a -> b"}, {"b", "a", "b -> a"}, {"a", "a", ""}, {"", "a", ""}, {"a", "", ""}, {"a", "c", ""}, {"9f-2b", "a", ""},
	} {
		names.Reported("n", tc.after)
		got := ""
		names.Changes(kind, by(tc.before), by(tc.after), func(e history.Event) {
			if e.Kind == history.NodeTakenOver {
				got = e.Value + " -> " + e.Host
			}
		})
		if got != tc.want {
			t.Errorf("after %q it tells of %q: %q, not %q", tc.before, tc.after, got, tc.want)
		}
	}
}

func TestChanges(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w1", UID: "u1", Labels: map[string]string{"b": "2", "a": "1"}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if change != nil {
			change(n)
		}
		return n
	}
	host := func(change func(*api.BareMetalHost)) *api.BareMetalHost {
		h := &api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "w1", UID: "h1"}}
		h.Spec.Online, h.Status.PoweredOn = true, true
		if change != nil {
			change(h)
		}
		return h
	}
	machine := func(annotations map[string]string) *clusterv1.Machine {
		return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1", Annotations: annotations}}
	}
	pod := func(node string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "exclusive", UID: "p1", Annotations: map[string]string{api.NodeUIDAnnotation: "u1"}}}
		p.Spec.NodeName = node
		return p
	}
	at := func(second int) *metav1.MicroTime {
		t := metav1.NewMicroTime(time.Date(2026, 1, 1, 1, 0, second, 0, time.FixedZone("", 3600)))
		return &t
	}
	withNode := func(m *clusterv1.Machine) *clusterv1.Machine {
		m.Status.NodeRef.Name = "w1"
		return m
	}
	for _, tc := range []struct {
		name          string
		before, after metav1.Object
		want          string
	}{
		{"node created", nil, node(nil), "node-created w1 | node-labels w1 a=1,b=2 | node-ready w1 True"},
		{"node deleted", node(nil), nil, "node-deleted w1"},
		{"nothing", node(nil), node(nil), ""},
		{"lost contact", node(nil), node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }), "node-not-ready w1 Unknown"},
		{"a detector sees something", node(nil), node(func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "KernelDeadlock", Status: corev1.ConditionTrue})
		}), "node-condition w1 KernelDeadlock True"},
		{"a detector has gone", node(func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "KernelDeadlock", Status: corev1.ConditionTrue})
		}), node(nil), "node-condition w1 KernelDeadlock"},
		{"cordoned", node(nil), node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), "node-cordoned w1"},
		{"relabelled", node(nil), node(func(n *corev1.Node) { delete(n.Labels, "a") }), "node-labels w1 b=2"},
		{"tainted", node(nil), node(func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/unreachable", Effect: "NoSchedule"}, {Key: "gpu", Value: "yes", Effect: "NoSchedule"}, {Key: "a/b", Effect: "NoExecute"}}
		}), "node-taints w1 a/b:NoExecute=,gpu:NoSchedule=yes"},
		{"tainted by Kubernetes", node(nil), node(func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/unreachable", Effect: "NoSchedule"}}
		}), ""},
		{"annotated", node(nil), node(func(n *corev1.Node) {
			n.Annotations = map[string]string{"b": "2", "example.com/a": "1,2", "poison-pill.fencelab.dev/agent": "{}", "csi.volume.kubernetes.io/nodeid": "{}"}
		}), "node-annotations w1 b=2,example.com/a=sha256:17f8af97ad4a7f76"},
		{"annotated no more", node(func(n *corev1.Node) { n.Annotations = map[string]string{"b": "2"} }), node(nil), "node-annotations w1"},
		{"host appears", nil, host(nil), "baremetalhost-created w1 | online-wanted w1 true | power-reported w1 true"},
		{"host appears off", nil, host(func(h *api.BareMetalHost) { h.Status.PoweredOn = false }), "baremetalhost-created w1 | online-wanted w1 true | power-reported w1 false"},
		{"request", host(nil), host(func(h *api.BareMetalHost) {
			h.Annotations = map[string]string{"reboot.metal3.io/z": "x", "reboot.metal3.io": "", "other": ""}
		}), "spec-changed w1 annotations[other] | annotation-set w1 reboot.metal3.io | annotation-set w1 reboot.metal3.io/z x"},
		{"request changed", host(func(h *api.BareMetalHost) { h.Annotations = map[string]string{"reboot.metal3.io": ""} }),
			host(func(h *api.BareMetalHost) { h.Annotations = map[string]string{"reboot.metal3.io": "{}"} }), "annotation-set w1 reboot.metal3.io {}"},
		{"request gone", host(func(h *api.BareMetalHost) { h.Annotations = map[string]string{"reboot.metal3.io": ""} }), host(nil), "annotation-removed w1 reboot.metal3.io"},
		{"deprovisioned", host(nil), host(func(h *api.BareMetalHost) { h.Status.Provisioning.State = api.StateDeprovisioning }), "provisioning-state w1 deprovisioning"},
		{"machine marked", machine(map[string]string{api.HostAnnotation: "default/w1"}),
			machine(map[string]string{api.HostAnnotation: "default/w1", api.ExternalRemediationAnnotation: ""}), "annotation-set w1 host.metal3.io/external-remediation"},
		{"marked machine deleted", machine(map[string]string{api.HostAnnotation: "default/w1", api.ExternalRemediationAnnotation: ""}), nil,
			"annotation-removed w1 host.metal3.io/external-remediation | machine-deleted w1"},
		{"recorded request", host(nil), host(func(h *api.BareMetalHost) { h.Status.Provisioning.PendingRebootSince = at(3) }), "pending-reboot-since w1 2026-01-01T00:00:03.000000Z"},
		{"the same request", host(func(h *api.BareMetalHost) { h.Status.Provisioning.PendingRebootSince = at(3) }),
			host(func(h *api.BareMetalHost) { h.Status.Provisioning.PendingRebootSince = at(3) }), ""},
		{"forgotten request", host(func(h *api.BareMetalHost) { h.Status.Provisioning.PendingRebootSince = at(3) }), host(nil), "pending-reboot-since w1"},
		{"recorded boot", host(nil), host(func(h *api.BareMetalHost) { h.Status.Provisioning.LastPoweredOn = at(4) }), "last-powered-on w1 2026-01-01T00:00:04.000000Z"},
		{"held off", host(nil), host(func(h *api.BareMetalHost) {
			h.Status.Provisioning.HeldOffFor = map[string]string{"b": "2", "a": "1"}
		}), "held-off-for w1 a=1,b=2"},
		{"let go", host(func(h *api.BareMetalHost) { h.Status.Provisioning.HeldOffFor = map[string]string{"a": "1"} }), host(nil), "held-off-for w1"},
		{"failing BMC", host(nil), host(func(h *api.BareMetalHost) { h.Status.ErrorType = api.PowerManagementError }), "power-error w1 true"},
		{"failing on", host(func(h *api.BareMetalHost) { h.Status.ErrorType, h.Status.ErrorCount = api.PowerManagementError, 1 }),
			host(func(h *api.BareMetalHost) { h.Status.ErrorType, h.Status.ErrorCount = api.PowerManagementError, 2 }), ""},
		{"consumed", host(nil), host(func(h *api.BareMetalHost) {
			h.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Machine", Name: "m1"}
		}), "host-consumer w1 Machine/m1"},
		{"consumed from elsewhere", host(nil), host(func(h *api.BareMetalHost) {
			h.Namespace, h.Spec.ConsumerRef = "here", &corev1.ObjectReference{Kind: "Machine", Namespace: "there", Name: "m1"}
		}), "host-consumer w1 Machine/there/m1"},
		{"paused", host(nil), host(func(h *api.BareMetalHost) { h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }), "annotation-set w1 cluster.x-k8s.io/paused"},
		{"host deleted while asked", host(func(h *api.BareMetalHost) { h.Annotations = map[string]string{"reboot.metal3.io": ""} }), nil,
			"annotation-removed w1 reboot.metal3.io | baremetalhost-deleted w1"},
		{"host deleted that said something", host(func(h *api.BareMetalHost) {
			h.Annotations, h.Spec.ConsumerRef = map[string]string{api.DetachedAnnotation: ""}, &corev1.ObjectReference{Kind: "Machine", Name: "m1"}
			h.Status.ErrorType, h.Status.PoweredOn, h.Status.Provisioning = api.PowerManagementError, false, api.ProvisionStatus{PendingRebootSince: at(3), LastPoweredOn: at(4), HeldOffFor: map[string]string{"a": "1"}}
		}), nil, "host-consumer w1 | pending-reboot-since w1 | last-powered-on w1 | held-off-for w1 | power-error w1 false | baremetalhost-deleted w1"},
		{"machine created", nil, machine(map[string]string{api.HostAnnotation: "default/w1"}), "machine-created w1"},
		{"machine that names no host", nil, machine(nil), "machine-created m1"},
		{"machine lets go of its host", machine(map[string]string{api.HostAnnotation: "default/w1", api.ExternalRemediationAnnotation: ""}), machine(nil),
			"annotation-removed w1 host.metal3.io/external-remediation"},
		{"machine changes its host", machine(map[string]string{api.HostAnnotation: "default/w1", api.ExternalRemediationAnnotation: ""}),
			machine(map[string]string{api.HostAnnotation: "default/w2", api.ExternalRemediationAnnotation: ""}),
			"annotation-removed w1 host.metal3.io/external-remediation | annotation-set w2 host.metal3.io/external-remediation"},
		{"machine gets its Node", machine(map[string]string{api.HostAnnotation: "default/w1"}), withNode(machine(map[string]string{api.HostAnnotation: "default/w1"})), "machine-node w1 w1"},
		{"machine loses its Node", withNode(machine(map[string]string{api.HostAnnotation: "default/w1"})), machine(map[string]string{api.HostAnnotation: "default/w1"}), "machine-node w1"},
		{"pod bound", nil, pod("w1"), "pod-bound w1 u1"},
		{"pod waits", nil, pod(""), ""},
		{"pod scheduled", pod(""), pod("w1"), "pod-bound w1 u1"},
		{"pod deleted", pod("w1"), nil, "pod-deleted w1 u1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			changesOf(tc.before, tc.after, func(e history.Event) {
				if e.Kind.Layer() != history.API {
					t.Errorf("%s is not an API event", e.Kind)
				}
				got = append(got, strings.Join(strings.Fields(strings.Join([]string{string(e.Kind), e.Host, e.Key, e.Value, e.Note}, " ")), " "))
			})
			if text := strings.Join(got, " | "); text != tc.want {
				t.Errorf("got  %s\nwant %s", text, tc.want)
			}
		})
	}
}

func TestDate(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	since := func(age time.Duration) *corev1.Node {
		n := new(corev1.Node)
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now.Add(-age))}}
		return n
	}
	for _, c := range []struct {
		name string
		kind history.Kind
		node metav1.Object
		want string
	}{
		{"written late", history.NodeNotReady, since(3200 * time.Millisecond), "3.2s"},
		{"written at once", history.NodeNotReady, since(time.Second), ""},
		{"by a clock that is ahead", history.NodeNotReady, since(-time.Minute), ""},
		{"without a time", history.NodeNotReady, &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady}}}}, ""},
		{"without a condition", history.NodeNotReady, new(corev1.Node), ""},
		{"another event", history.NodeReady, since(time.Minute), ""},
		{"a Node that is gone", history.NodeDeleted, nil, ""},
	} {
		e := history.Event{Kind: c.kind}
		if Date(&e, c.node, now); e.Value != c.want {
			t.Errorf("%s: %q, want %q", c.name, e.Value, c.want)
		}
	}
}

// TestReservation: an object that keeps its host no longer releases it, and so does one that is
// gone or stands for another host. One that never kept it, or goes on to, does not.
func TestReservation(t *testing.T) {
	kept := func(host, tenant string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "s1", UID: "u", Labels: map[string]string{"host": host, "tenant": tenant}}}
	}
	changes := reservation("Server", controllers.Reservation{
		For:   &corev1.ConfigMap{},
		Host:  func(o client.Object) string { return o.GetLabels()["host"] },
		Keeps: func(o client.Object) bool { return o.GetLabels()["tenant"] != "" },
	})
	for _, tc := range []struct {
		name          string
		before, after client.Object
		releases      string
	}{
		{"made for a tenant", nil, kept("w1", "a"), ""},
		{"made without one", nil, kept("w1", ""), ""},
		{"given to a tenant", kept("w1", ""), kept("w1", "a"), ""},
		{"kept", kept("w1", "a"), kept("w1", "a"), ""},
		{"handed to another tenant without a pause", kept("w1", "a"), kept("w1", "b"), ""},
		{"given back", kept("w1", "a"), kept("w1", ""), "w1"},
		{"deleted while it is kept", kept("w1", "a"), nil, "w1"},
		{"deleted when it is free", kept("w1", ""), nil, ""},
		{"another host's now", kept("w1", "a"), kept("w2", "a"), "w1"},
		{"of no host", kept("", "a"), nil, ""},
	} {
		var released []string
		changes(tc.before, tc.after, func(e history.Event) {
			if e.Kind != history.HostReleased || e.Object != "Server/s1" || e.UID != "u" {
				t.Errorf("%s: there is %+v", tc.name, e)
			}
			released = append(released, e.Host)
		})
		if got := strings.Join(released, " "); got != tc.releases {
			t.Errorf("%s: it releases %q, want %q", tc.name, got, tc.releases)
		}
	}
}
