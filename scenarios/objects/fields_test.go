package objects

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// What two versions of an object mean for the fields that a story asks for.
func TestFields(t *testing.T) {
	is := func(object, key string) scenarios.Trigger {
		return scenarios.Trigger{Event: string(history.FieldIs), Object: object, Key: key}
	}
	spec := &scenarios.Spec{Steps: []scenarios.Step{
		{When: is("Node/w1", `status.conditions[?(@.type=="Ready")].status`)},
		{When: scenarios.Trigger{AllOf: []scenarios.Trigger{is("Node/w1", ".spec.unschedulable"), is("Node/w2", "spec.unschedulable")}}},
		{When: is("Node/w1", `metadata.labels.a\.b/c`)},
		{When: is("Node/w1", `status.addresses`)},
	}}
	fields, err := FieldsOf(spec)
	if err != nil {
		t.Fatal(err)
	}
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w1", UID: "u", Labels: map[string]string{"a.b/c": "x"}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: "Disk", Status: "False"}, {Type: "Ready", Status: "True"}}
		if change != nil {
			change(n)
		}
		return n
	}
	var kind *Kind
	for _, k := range KindsOf(controllers.Default()) {
		if k.Name == "Node" {
			kind = k
		}
	}
	for _, tc := range []struct {
		name          string
		before, after metav1.Object
		want          string
	}{
		{"created", nil, node(nil), `metadata.labels.a\.b/c=x status.conditions[?(@.type=="Ready")].status=True`},
		{"no longer Ready", node(nil), node(func(n *corev1.Node) { n.Status.Conditions[1].Status = "Unknown" }), `status.conditions[?(@.type=="Ready")].status=Unknown`},
		{"cordoned", node(nil), node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), ".spec.unschedulable=true"},
		{"a list", node(nil), node(func(n *corev1.Node) { n.Status.Addresses = []corev1.NodeAddress{{Type: "Hostname", Address: "w"}} }), `status.addresses=[{"address":"w","type":"Hostname"}]`},
		{"the condition is gone", node(nil), node(func(n *corev1.Node) { n.Status.Conditions = nil }), `status.conditions[?(@.type=="Ready")].status=`},
		{"deleted", node(nil), nil, `metadata.labels.a\.b/c= status.conditions[?(@.type=="Ready")].status=`},
		{"nothing that is asked for", node(nil), node(func(n *corev1.Node) { n.Labels["d"] = "y" }), ""},
		{"another's", node(func(n *corev1.Node) { n.Name = "w3" }), nil, ""},
	} {
		var got []string
		fields.Changes(Names{nodes: map[string][]string{"w1": {"host-1"}}}, kind, tc.before, tc.after, func(e history.Event) {
			if e.Host != "host-1" || e.Object != "Node/w1" || e.UID != "u" || e.Kind != history.FieldIs {
				t.Errorf("%s: %v", tc.name, e)
			}
			got = append(got, fmt.Sprintf("%s=%s", e.Key, e.Value))
		})
		if text := strings.Join(got, " "); text != tc.want {
			t.Errorf("%s: got  %s\nwant %s", tc.name, text, tc.want)
		}
	}
}

// What a kind has no field for is found before anything runs.
func TestCheckField(t *testing.T) {
	kinds := KindsOf(controllers.Default())
	for _, tc := range []struct{ kind, path, want string }{
		{"Machine", "status.phase", ""},
		{"Machine", `.status.conditions[?(@.type=="Ready")].status`, ""},
		{"Machine", `metadata.annotations.a\.b/c`, ""},
		{"Machine", "status.conditions[0].reason", ""},
		{"BareMetalHost", "status.provisioning.lastPoweredOn", ""},
		{"MachineHealthCheck", "status.currentHealthy", ""},
		{"Machine", "status.fase", `a Machine has no field "fase" there`},
		{"Machine", "status.phase.x", `a Machine has no field "x" there`},
		{"Machine", "status.phase[0]", "a Machine has no field"},
		{"Machine", "status.conditions.reason", `a Machine has no field "reason" there`},
		{"Machine", "status.conditions[?(", "is not a JSONPath such as status.phase"},
	} {
		err := kinds.checkField(tc.kind, tc.path)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s of %s: %v, want %q", tc.path, tc.kind, err, tc.want)
		}
	}
}

// TestMeant: what the objects of a kind mean to a host is one event when it begins and one when it
// ends, whatever else changes.
func TestMeant(t *testing.T) {
	const taint = `spec.taints[?(@.key=="out")].value`
	spec := &scenarios.Spec{Requests: map[string]scenarios.Request{
		"Node":           {Releases: "metadata.name", When: taint + "=down"},
		"Sick.a.example": {Marks: "spec.machine", Fences: "spec.machine", When: "spec.mode=real", Done: "status.phase=Done"},
	}}
	fields, err := FieldsOf(spec)
	if err != nil {
		t.Fatal(err)
	}
	sick := func(machine, mode, phase string) metav1.Object {
		return &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "s"}, "spec": map[string]any{"machine": machine, "mode": mode}, "status": map[string]any{"phase": phase},
		}}
	}
	node := func(value string) metav1.Object {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w1"}}
		if value != "" {
			n.Spec.Taints = []corev1.Taint{{Key: "other", Value: "down"}, {Key: "out", Value: value}}
		}
		return n
	}
	nodes, sicks := &Kind{Kind: scenarios.Kind{Name: "Node"}}, &Kind{Kind: scenarios.Kind{Name: "Sick"}}
	nodes.GVK.Kind, sicks.GVK.Group, sicks.GVK.Kind = "Node", "a.example", "Sick"
	other := &Kind{Kind: sicks.Kind}
	other.GVK.Group, other.GVK.Kind = "b.example", "Sick"
	for _, tc := range []struct {
		name          string
		kind          *Kind
		before, after metav1.Object
		want          string
	}{
		{"released", nodes, node(""), node("down"), "host-released host-1"},
		{"released from the first", nodes, nil, node("down"), "host-released host-1"},
		{"another value", nodes, node(""), node("up"), ""},
		{"released before", nodes, node("down"), node("down"), ""},
		{"taken back", nodes, node("down"), node(""), ""},
		{"marked", sicks, nil, sick("ns/m1", "real", ""), "marking=wanted host-1 fencing=wanted host-1"},
		{"only tried", sicks, nil, sick("m1", "dry", ""), ""},
		{"meant from now on", sicks, sick("m1", "dry", ""), sick("m1", "real", ""), "marking=wanted host-1 fencing=wanted host-1"},
		{"meant no more", sicks, sick("m1", "real", ""), sick("m1", "dry", ""), "marking=gone host-1 fencing=gone host-1"},
		{"in work", sicks, sick("m1", "real", ""), sick("m1", "real", "Working"), ""},
		{"done", sicks, sick("m1", "real", "Working"), sick("m1", "real", "Done"), "marking=done host-1 fencing=done host-1"},
		{"gone when it was done", sicks, sick("m1", "real", "Done"), nil, ""},
		{"gone", sicks, sick("m1", "real", ""), nil, "marking=gone host-1 fencing=gone host-1"},
		{"another host's", sicks, sick("m1", "real", ""), sick("m2", "real", ""), "marking=gone host-1 marking=wanted m2 fencing=gone host-1 fencing=wanted m2"},
		{"of another group", other, nil, sick("m1", "real", ""), ""},
	} {
		var got []string
		names := Names{nodes: map[string][]string{"w1": {"host-1"}}, machines: map[string]string{"m1": "host-1"}}
		fields.Changes(names, tc.kind, tc.before, tc.after, func(e history.Event) {
			what := e.Key + "=" + e.Value
			if e.Kind != history.FieldIs {
				what = string(e.Kind)
			}
			got = append(got, what+" "+e.Host)
		})
		if text := strings.Join(got, " "); text != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, text, tc.want)
		}
	}
}
