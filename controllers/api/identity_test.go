package api

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestWhoseNode: no ID is no consent (design, decision 23).
func TestWhoseNode(t *testing.T) {
	type objects struct {
		machine, other *clusterv1.Machine
		node           *corev1.Node
		host, second   *BareMetalHost
	}
	for _, test := range []struct {
		name   string
		change func(*objects)
		want   Owner
		says   string
	}{
		{"the IDs are the same", func(*objects) {}, Own, ""},
		{"they differ, and the host reports the boot", func(o *objects) { o.node.Spec.ProviderID = "p2" }, Anothers, "the provider ID p2, not p1"},
		{"the Machine has none, and the host reports the boot", func(o *objects) { o.machine.Spec.ProviderID = "" }, Own, ""},
		{"the Node has none, and the host reports the boot", func(o *objects) { o.node.Spec.ProviderID = "" }, Own, ""},
		{"the UUID is spelled in capitals", func(o *objects) { o.node.Spec.ProviderID, o.node.Status.NodeInfo.SystemUUID = "", "S1" }, Own, ""},
		{"the boot is another system's", func(o *objects) { o.machine.Spec.ProviderID, o.node.Status.NodeInfo.SystemUUID = "", "s2" }, Anothers, "is run by the system s2"},
		{"nobody knows the host's system", func(o *objects) { o.node.Spec.ProviderID, o.host.Status.Hardware.SystemUUID = "", "" }, Unproven, "has not reported"},
		{"the Node tells of no system", func(o *objects) { o.node.Spec.ProviderID, o.node.Status.NodeInfo.SystemUUID = "", "" }, Unproven, "has not reported"},
		{"two hosts have the UUID", func(o *objects) { o.node.Spec.ProviderID, o.second.Status.Hardware.SystemUUID = "", "s1" }, Unproven, "has not reported"},
		{"the Node tells of no boot", func(o *objects) { o.node.Spec.ProviderID, o.node.Status.NodeInfo.BootID = "", "" }, Unproven, "has not reported"},
		{"the Machine has no host", func(o *objects) { o.node.Spec.ProviderID, o.host = "", nil }, Unproven, "has not reported"},
		{"another Machine names it, too", func(o *objects) { o.node.Spec.ProviderID, o.other.Status.NodeRef.Name = "", "n" }, Unproven, "is named by Machine default/other as well"},
		{"another Machine has its ID", func(o *objects) { o.machine.Spec.ProviderID, o.other.Spec.ProviderID = "", "p1" }, Anothers, "has the provider ID of Machine default/other"},
	} {
		t.Run(test.name, func(t *testing.T) {
			named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
			o := objects{
				machine: &clusterv1.Machine{ObjectMeta: named("m"), Spec: clusterv1.MachineSpec{ProviderID: "p1"}, Status: clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: "n"}}},
				other:   &clusterv1.Machine{ObjectMeta: named("other")},
				node:    &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: "p1"}},
				host:    &BareMetalHost{ObjectMeta: named("h"), Status: BareMetalHostStatus{Hardware: HardwareDetails{SystemUUID: "s1"}}},
				second:  &BareMetalHost{ObjectMeta: named("second"), Status: BareMetalHostStatus{Hardware: HardwareDetails{SystemUUID: "s2"}}},
			}
			o.node.Status.NodeInfo.BootID, o.node.Status.NodeInfo.SystemUUID = "b1", "s1"
			test.change(&o)
			builder := fake.NewClientBuilder().WithScheme(NewScheme()).WithObjects(o.machine, o.other, o.second)
			if o.host != nil {
				builder.WithObjects(o.host)
			}
			proof, err := WhoseNode(t.Context(), builder.Build(), o.machine, o.node, o.host)
			if err != nil || proof.Owner != test.want || !strings.Contains(proof.Why, test.says) || (proof.Why == "") != (test.want == Own) {
				t.Errorf("it is %+v, %v; want %s, since it %s", proof, err, test.want, test.says)
			}
		})
	}
}

// TestSharer: a provider ID says who made the Node, and not who runs it (design, decision 25).
func TestSharer(t *testing.T) {
	for _, test := range []struct {
		name, system, ref, want string
	}{
		{"its own system reports it", "S1", "other", ""},
		{"no system reports it", "", "other", ""},
		{"an unknown system reports it", "s3", "other", ""}, // firmware and inspection may spell a UUID in two ways
		{"the system of another host reports it", "S2", "other", "is run by the system of BareMetalHost default/second as well"},
		{"another Machine names it", "s1", "n", "is named by Machine default/other as well"},
	} {
		t.Run(test.name, func(t *testing.T) {
			named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
			host := func(name, system string) *BareMetalHost {
				return &BareMetalHost{ObjectMeta: named(name), Status: BareMetalHostStatus{Hardware: HardwareDetails{SystemUUID: system}}}
			}
			machine := func(name, node string) *clusterv1.Machine {
				return &clusterv1.Machine{ObjectMeta: named(name), Status: clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: node}}}
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			node.Status.NodeInfo.SystemUUID = test.system
			own, mine := host("h", "s1"), machine("m", "n")
			cache := fake.NewClientBuilder().WithScheme(NewScheme()).WithObjects(own, host("second", "s2"), mine, machine("other", test.ref)).Build()
			got, err := Sharer(t.Context(), cache, mine, node, own)
			if err != nil || got != test.want {
				t.Errorf("it %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

// TestConsumer: a reference that names no Machine leads to none.
func TestConsumer(t *testing.T) {
	for _, test := range []struct {
		ref  *corev1.ObjectReference
		want string
	}{
		{nil, ""},
		{&corev1.ObjectReference{Kind: "Machine"}, ""},
		{&corev1.ObjectReference{Kind: "Other", Name: "m"}, ""},
		{&corev1.ObjectReference{Kind: "Machine", Name: "m"}, "default/m"},
		{&corev1.ObjectReference{Kind: "Machine", Namespace: "n", Name: "m"}, "n/m"},
	} {
		key, ok := Consumer(&BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: BareMetalHostSpec{ConsumerRef: test.ref}})
		if ok != (test.want != "") || ok && key.String() != test.want {
			t.Errorf("%v leads to %s, %t", test.ref, key, ok)
		}
	}
}
