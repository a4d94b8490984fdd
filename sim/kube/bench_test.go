package kube_test

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/sim/kube"
)

var server = func() *kube.Server {
	server, err := kube.NewServer(api.NewScheme(), []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Node"), corev1.SchemeGroupVersion.WithKind("Pod"),
		corev1.SchemeGroupVersion.WithKind("Secret"), corev1.SchemeGroupVersion.WithKind("Event"),
		coordinationv1.SchemeGroupVersion.WithKind("Lease"),
	}, []kube.CustomResource{
		{GroupVersionKind: api.GroupVersion.WithKind("BareMetalHost"), Plural: "baremetalhosts", Status: true},
		{GroupVersionKind: clusterv1.GroupVersion.WithKind("Machine"), Plural: "machines", Status: true},
		{GroupVersionKind: clusterv1.GroupVersion.WithKind("MachineHealthCheck"), Plural: "machinehealthchecks", Status: true},
	})
	if err != nil {
		panic(err)
	}
	return server
}()

func kindOf(obj client.Object) *kube.Kind {
	k, err := server.KindOf(obj)
	if err != nil {
		panic(err)
	}
	return k
}

// A plainGate performs every call at once.
type plainGate struct{}

func (plainGate) Call(_ context.Context, c *kube.Call) error { return c.Execute() }

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func newStore() *kube.Store { return kube.NewStore(server, func() time.Time { return epoch }, nil) }

// a realistic Node has what a kubelet reports.
func newNode(name string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name,
		Labels: map[string]string{
			"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
			"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64", "node-role.kubernetes.io/worker": "",
		},
		Annotations: map[string]string{"cluster.x-k8s.io/machine": "m-" + name, "node.alpha.kubernetes.io/ttl": "0"},
	}}
	node.Spec.ProviderID = "metal3://" + name
	for _, c := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: c, Status: corev1.ConditionFalse, Reason: "KubeletHas", Message: "kubelet has sufficient resources",
			LastHeartbeatTime: metav1.NewTime(epoch), LastTransitionTime: metav1.NewTime(epoch),
		})
	}
	node.Status.Capacity = corev1.ResourceList{
		"cpu": resource.MustParse("8"), "memory": resource.MustParse("32Gi"), "pods": resource.MustParse("110"), "ephemeral-storage": resource.MustParse("100Gi"),
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeHostName, Address: name}}
	node.Status.NodeInfo = corev1.NodeSystemInfo{MachineID: "a", SystemUUID: "b", BootID: "c", KernelVersion: "6.1", KubeletVersion: "v1.36.3"}
	return node
}

func newHost(name string) *api.BareMetalHost {
	return &api.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{"a": "b"}, Finalizers: []string{"baremetalhost.metal3.io"}},
		Spec: api.BareMetalHostSpec{
			Online: true, BMC: api.BMCDetails{Address: "redfish+http://127.0.0.1:8000/redfish/v1/Systems/1", CredentialsName: name + "-bmc"},
			ConsumerRef: &corev1.ObjectReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "Metal3Machine", Namespace: "default", Name: name},
		},
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// BenchmarkEpisode is the API share of one fencing: three hosts with their
// Nodes, four processes that each have a View, 40 cached reads, 20 writes and
// about 100 deliveries.
func BenchmarkEpisode(b *testing.B) {
	ctx := context.Background()
	nodes, hosts := kindOf(&corev1.Node{}), kindOf(&api.BareMetalHost{})
	seeds := []client.Object{newNode("n0"), newHost("n0"), newNode("n1"), newHost("n1"), newNode("n2"), newHost("n2")}
	deliveries := 0
	b.ReportAllocs()
	for b.Loop() {
		store := newStore()
		for _, obj := range seeds {
			must(store.Create("setup", obj))
		}
		views := make([]*kube.View, 4)
		clients := make([]*kube.Client, 4)
		for i := range views {
			views[i] = kube.NewView(store, nodes, hosts)
			views[i].Relist(nodes)
			views[i].Relist(hosts)
			clients[i] = kube.NewClient(views[i], plainGate{}, "controller")
		}
		for step := range 20 {
			c, v := clients[step%4], views[step%4]
			var host api.BareMetalHost
			var node corev1.Node
			name := [3]string{"n0", "n1", "n2"}[step%3]
			check(c.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, &host))
			check(c.Get(ctx, client.ObjectKey{Name: name}, &node))
			switch step % 4 {
			case 0: // a merge patch with optimistic lock, as controllers write metadata
				from := host.DeepCopy()
				host.Annotations["reboot.metal3.io"] = string(rune('a' + step))
				check(c.Patch(ctx, &host, client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})))
			case 1:
				now := metav1.NewMicroTime(epoch.Add(time.Duration(step) * time.Second))
				host.Status.PoweredOn = step%8 == 1
				host.Status.Provisioning.PendingRebootSince = &now
				check(c.Status().Update(ctx, &host))
			case 2:
				host.Spec.Online = step%8 == 2
				check(c.Update(ctx, &host))
			case 3:
				node.Status.Conditions[3].Reason = string(rune('a' + step))
				check(c.Status().Update(ctx, &node))
			}
			for _, w := range views {
				for _, k := range []*kube.Kind{nodes, hosts} {
					for w.Pending(k) {
						w.Deliver(k)
						deliveries++
					}
				}
			}
			_ = v
		}
	}
	b.ReportMetric(float64(deliveries)/float64(b.N), "deliveries/op")
}

func BenchmarkNewStore(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		newStore()
	}
}

// BenchmarkRequest measures single requests of one client.
func BenchmarkRequest(b *testing.B) {
	ctx := context.Background()
	hosts, nodes := kindOf(&api.BareMetalHost{}), kindOf(&corev1.Node{})
	type fixture struct {
		view   *kube.View
		client *kube.Client
		host   *api.BareMetalHost
		node   *corev1.Node
		n      int
	}
	hostKey, nodeKey := client.ObjectKey{Namespace: "default", Name: "h"}, client.ObjectKey{Name: "n"}
	for _, bench := range []struct {
		name string
		do   func(*fixture)
	}{
		{"cached Get of a host", func(f *fixture) { check(f.client.Get(ctx, hostKey, f.host)) }},
		{"cached Get of a Node", func(f *fixture) { check(f.client.Get(ctx, nodeKey, f.node)) }},
		{"Update of a host", func(f *fixture) { f.host.Spec.Online = !f.host.Spec.Online; check(f.client.Update(ctx, f.host)) }},
		{"Update of a host that changes nothing", func(f *fixture) { check(f.client.Update(ctx, f.host)) }},
		{"status Update of a host", func(f *fixture) {
			f.host.Status.ErrorCount++
			check(f.client.Status().Update(ctx, f.host))
		}},
		{"status Update of a Node", func(f *fixture) {
			f.n++
			f.node.Status.Conditions[3].Reason = string(rune('a' + f.n%20))
			check(f.client.Status().Update(ctx, f.node))
		}},
		{"locked MergeFrom of an annotation of a host", func(f *fixture) {
			from := f.host.DeepCopy()
			f.n++
			f.host.Annotations["a"] = string(rune('a' + f.n%20))
			check(f.client.Patch(ctx, f.host, client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})))
		}},
		{"MergeFrom of the status of a host", func(f *fixture) {
			from := f.host.DeepCopy()
			f.host.Status.ErrorCount++
			check(f.client.Status().Patch(ctx, f.host, client.MergeFrom(from)))
		}},
		{"raw patch of an annotation of a host", func(f *fixture) {
			f.n++
			patch := []byte(`{"metadata":{"annotations":{"a":"` + string(rune('a'+f.n%20)) + `"}}}`)
			check(f.client.Patch(ctx, f.host, client.RawPatch("application/merge-patch+json", patch)))
		}},
		{"Create and Delete of a Node", func(f *fixture) {
			node := newNode("m")
			check(f.client.Create(ctx, node))
			check(f.client.Delete(ctx, node, client.Preconditions{UID: &node.UID}))
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			store := newStore()
			host := must(store.Create("setup", newHost("h"))).DeepCopyObject().(*api.BareMetalHost)
			host.Status.PoweredOn = true
			must(store.UpdateStatus("setup", host))
			must(store.Create("setup", newNode("n")))
			f := &fixture{view: kube.NewView(store, hosts, nodes), host: newHost("h"), node: newNode("n")}
			f.client = kube.NewClient(f.view, plainGate{}, "controller")
			f.view.Relist(hosts)
			f.view.Relist(nodes)
			check(f.client.Get(ctx, hostKey, f.host))
			check(f.client.Get(ctx, nodeKey, f.node))
			b.ReportAllocs()
			for b.Loop() {
				bench.do(f)
			}
		})
	}
}
