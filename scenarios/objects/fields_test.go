package objects

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		fields.Changes(Names{nodes: map[string]string{"w1": "host-1"}}, kind, tc.before, tc.after, func(e history.Event) {
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
