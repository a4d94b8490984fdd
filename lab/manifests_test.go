package lab_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/manifests"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/redfish"
	"github.com/fencelab/fencelab/fakebmc/wall"
	"github.com/fencelab/fencelab/lab"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/scenarios/objects"
)

const namespace = "metal3"

// install launches a control plane with the manifests and the namespace of the
// hosts.
func install(t *testing.T) (*cluster.Cluster, client.WithWatch) {
	t.Helper()
	lab.NeedControlPlane(t)
	c, err := cluster.Launch(t.Context(), cluster.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, c.Stop()) })
	for range 2 { // again: it updates
		must(t, c.Install(t.Context(), manifests.FS))
	}
	admin := clientOf(t, c.Config())
	must(t, admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	return c, admin
}

func clientOf(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	scheme := api.NewScheme()
	utilruntime.Must(rbacv1.AddToScheme(scheme))
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	must(t, err)
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// grant gives a user a ClusterRole everywhere.
func grant(t *testing.T, admin client.Client, user, role string) {
	t.Helper()
	must(t, admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}))
}

// annotate is a merge patch of the annotations; null removes one.
func annotate(annotations map[string]any) client.Patch {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	utilruntime.Must(err)
	return client.RawPatch("application/merge-patch+json", body)
}

// TestManifests holds the manifests against one real kube-apiserver.
func TestManifests(t *testing.T) {
	c, admin := install(t)
	for name, holds := range map[string]func(*testing.T, *cluster.Cluster, client.WithWatch){
		"only named roles may request":         onlyNamedRolesMayRequest,
		"kinds are served":                     kindsAreServed,
		"controllers run with their own roles": controllersRunWithTheirOwnRoles,
	} {
		t.Run(name, func(t *testing.T) { holds(t, c, admin) })
	}
}

// onlyNamedRolesMayRequest is a risk of seed 002.
func onlyNamedRolesMayRequest(t *testing.T, c *cluster.Cluster, admin client.WithWatch) {
	must(t, admin.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "editor"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"metal3.io"}, Resources: []string{"baremetalhosts"}, Verbs: []string{"get", "create", "update", "patch", "delete"}},
			{APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"machines"}, Verbs: []string{"get", "create", "update", "patch", "delete"}},
		},
	}))
	grant(t, admin, "rebooter", "fencelab-reboot-requester")
	grant(t, admin, "remediator", "fencelab-remediation-requester")
	users := map[string]client.Client{}
	for _, user := range []string{"editor", "rebooter", "remediator"} {
		grant(t, admin, user, "editor")
		users[user] = clientOf(t, c.ConfigFor(user))
	}
	const plain, keyed, mark = api.RebootAnnotation, api.RebootAnnotation + "/a", api.ExternalRemediationAnnotation

	host := func(annotations map[string]string) client.Object {
		return &api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "h", Annotations: annotations}}
	}
	machine := func(annotations map[string]string) client.Object {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m", Annotations: annotations}}
		m.Spec.ClusterName = "c"
		m.Spec.Bootstrap.DataSecretName = ptr.To("s")
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "K", Name: "n"}
		return m
	}
	type has = map[string]string
	type set = map[string]any

	// Roles and policies need a moment to be known.
	must(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		known := true
		for _, user := range users {
			known = known && user.Create(ctx, host(nil), client.DryRunAll) == nil && user.Create(ctx, machine(nil), client.DryRunAll) == nil
		}
		known = known && users["rebooter"].Create(ctx, host(has{plain: ""}), client.DryRunAll) == nil
		known = known && users["remediator"].Create(ctx, machine(has{mark: ""}), client.DryRunAll) == nil
		return known && deniedByPolicy(users["editor"].Create(ctx, host(has{plain: ""}), client.DryRunAll)) &&
			deniedByPolicy(users["editor"].Create(ctx, machine(has{mark: ""}), client.DryRunAll)), nil
	}))
	for name, tc := range map[string]struct {
		user    string
		object  client.Object
		change  set // nil creates the object
		allowed bool
	}{
		"an editor edits":                         {"editor", host(has{plain: "", "a": "b"}), set{"a": "c"}, true},
		"an editor creates":                       {"editor", host(has{"a": "b"}), nil, true},
		"an editor creates without annotations":   {"editor", host(nil), nil, true},
		"an editor creates with a request":        {"editor", host(has{keyed: ""}), nil, false},
		"an editor asks for a reboot":             {"editor", host(nil), set{plain: ""}, false},
		"an editor asks for a hold":               {"editor", host(has{"a": "b"}), set{keyed: `{"mode":"hard"}`}, false},
		"an editor makes a request hard":          {"editor", host(has{keyed: ""}), set{keyed: `{"mode":"hard"}`}, false},
		"an editor lets a host go":                {"editor", host(has{keyed: ""}), set{keyed: nil}, false},
		"an editor replaces a hold by another":    {"editor", host(has{keyed: ""}), set{keyed: nil, keyed + "b": ""}, false},
		"an editor sets something alike":          {"editor", host(nil), set{"reboot.metal3.iox": "", "x.reboot.metal3.io": ""}, true},
		"a requester asks for a reboot":           {"rebooter", host(nil), set{plain: ""}, true},
		"a requester asks for a hold":             {"rebooter", host(has{plain: ""}), set{keyed: ""}, true},
		"a requester makes a request hard":        {"rebooter", host(has{keyed: ""}), set{keyed: `{"mode":"hard"}`}, true},
		"a requester lets a host go":              {"rebooter", host(has{keyed: "", plain: ""}), set{keyed: nil}, true},
		"an editor edits a Machine":               {"editor", machine(has{mark: "", "a": "b"}), set{"a": "c"}, true},
		"an editor creates a Machine":             {"editor", machine(nil), nil, true},
		"an editor creates a marked Machine":      {"editor", machine(has{mark: ""}), nil, false},
		"an editor marks a Machine":               {"editor", machine(nil), set{mark: ""}, false},
		"an editor unmarks a Machine":             {"editor", machine(has{mark: ""}), set{mark: nil}, false},
		"an editor marks a Machine as off":        {"editor", machine(has{"a": "b"}), set{api.PoweredOffForRemediationAnnotation: ""}, false},
		"a reboot requester marks a Machine":      {"rebooter", machine(nil), set{mark: ""}, false},
		"a remediation requester marks a Machine": {"remediator", machine(nil), set{mark: ""}, true},
		"a remediation requester unmarks one":     {"remediator", machine(has{mark: ""}), set{mark: nil}, true},
		"a remediation requester reboots a host":  {"remediator", host(nil), set{plain: ""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			user, object := users[tc.user], tc.object
			var err error
			if tc.change == nil {
				if err = user.Create(t.Context(), object); err == nil {
					defer func() { must(t, admin.Delete(context.Background(), object)) }()
				}
			} else {
				must(t, admin.Create(t.Context(), object))
				defer func() { must(t, admin.Delete(context.Background(), object)) }()
				err = user.Patch(t.Context(), object, annotate(tc.change))
			}
			if tc.allowed && err != nil || !tc.allowed && !deniedByPolicy(err) {
				t.Errorf("allowed should be %t: %v", tc.allowed, err)
			}
		})
	}
}

// kindsAreServed: what the lab watches, dumps and understands is there.
func kindsAreServed(t *testing.T, c *cluster.Cluster, admin client.WithWatch) {
	server, err := discovery.NewDiscoveryClientForConfig(c.Config())
	must(t, err)
	for _, k := range objects.KindsOf(controllers.Default()) {
		mapping, err := admin.RESTMapper().RESTMapping(k.GVK.GroupKind(), k.GVK.Version)
		if err != nil {
			t.Error(err)
			continue
		}
		if namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace; mapping.Resource.Resource != k.Resource || namespaced != k.Namespaced {
			t.Errorf("the table of kinds has %s as %s, namespaced %t; the server as %s, namespaced %t", k.GVK, k.Resource, k.Namespaced, mapping.Resource.Resource, namespaced)
		}
		served, err := server.ServerResourcesForGroupVersion(k.GVK.GroupVersion().String())
		must(t, err)
		status := func(r metav1.APIResource) bool { return r.Name == k.Resource+"/status" }
		if has := slices.ContainsFunc(served.APIResources, status); has != k.Status {
			t.Errorf("the table of kinds has %s with status %t; the server with status %t", k.GVK, k.Status, has)
		}
		if err := admin.List(t.Context(), k.NewList()); err != nil {
			t.Error(err)
		}
	}
}

func deniedByPolicy(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'fencelab-request-")
}

// controllersRunWithTheirOwnRoles runs the three controllers as their ServiceAccount, with a BMC
// with TLS, through one whole remediation.
func controllersRunWithTheirOwnRoles(t *testing.T, c *cluster.Cluster, admin client.WithWatch) {
	account := "system:serviceaccount:fencelab-system:fencelab-controllers"
	config := c.ConfigFor(account, "system:serviceaccounts", "system:serviceaccounts:fencelab-system", "system:authenticated")
	must(t, admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bmc"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "fencelab-bmc-credentials"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "fencelab-system", Name: "fencelab-controllers"}},
	}))
	machine := sickMachine(t, admin, serveBMC(t))

	health, metrics := freeAddress(t), freeAddress(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- controllers.Run(ctx, controllers.Options{
			Config:                  config,
			LeaderElectionNamespace: "fencelab-system",
			HealthAddress:           health,
			MetricsAddress:          metrics,
			Settings:                map[string]json.RawMessage{"reboot": json.RawMessage(`{"pollInterval":"100ms"}`)},
			Logger:                  testr.New(t),
		})
	}()
	defer func() {
		stop()
		must(t, <-ended)
	}()

	hosts, err := admin.Watch(t.Context(), &api.BareMetalHostList{}, client.InNamespace(namespace))
	must(t, err)
	defer hosts.Stop()
	requested := false
	deadline := time.After(60 * time.Second)
	for remediated := false; !remediated; {
		select {
		case event := <-hosts.ResultChan():
			host, ok := event.Object.(*api.BareMetalHost)
			if !ok {
				t.Fatalf("watch: %+v", event)
			}
			value := host.Annotations[api.RemediationRebootAnnotation]
			requested = requested || strings.Contains(value, string(machine.UID))
			remediated = requested && value == "" && host.Status.PoweredOn && host.Status.Provisioning.LastPoweredOn != nil
		case err := <-ended:
			t.Fatalf("the controllers ended: %v", err)
		case <-deadline:
			t.Fatal("no remediation")
		}
	}
	must(t, admin.Get(t.Context(), client.ObjectKeyFromObject(machine), machine))
	if _, marked := machine.Annotations[api.ExternalRemediationAnnotation]; marked {
		t.Error("the Machine is still marked")
	}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "worker-1"}, &corev1.Node{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Node: %v", err)
	}
	for _, url := range []string{"http://" + health + "/healthz", "http://" + health + "/readyz", "http://" + metrics + "/metrics"} {
		response, err := http.Get(url)
		must(t, err)
		if response.Body.Close(); response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", url, response.Status)
		}
	}
}

// serveBMC serves the BMC of a host that is on and returns its address.
func serveBMC(t *testing.T) string {
	t.Helper()
	certificate, err := redfish.SelfSigned("127.0.0.1")
	must(t, err)
	server, err := redfish.NewServer(redfish.Config{Username: "admin", Password: "secret", Certificate: certificate})
	must(t, err)
	t.Cleanup(func() { must(t, server.Close()) })
	clock := wall.Clock()
	host := memory.New(clock, memory.Timing{On: 200 * time.Millisecond, Off: 200 * time.Millisecond}, true)
	url, err := server.Listen("127.0.0.1:0", fakebmc.New("worker-1", host, clock))
	must(t, err)
	return "redfish+" + url + "/redfish/v1/Systems/worker-1"
}

// sickMachine makes a Machine whose Node has been unreachable for an hour.
func sickMachine(t *testing.T, admin client.Client, address string) *clusterv1.Machine {
	t.Helper()
	create := func(obj client.Object) {
		t.Helper()
		status := obj.DeepCopyObject().(client.Object)
		must(t, admin.Create(t.Context(), obj))
		if hasStatus(obj) {
			status.SetResourceVersion(obj.GetResourceVersion())
			status.SetUID(obj.GetUID())
			must(t, admin.Status().Update(t.Context(), status))
		}
	}
	hourAgo := metav1.NewTime(time.Now().Add(-time.Hour))
	create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bmc"},
		StringData: map[string]string{"username": "admin", "password": "secret"},
	})
	create(&api.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "worker-1"},
		Spec: api.BareMetalHostSpec{
			Online:      true,
			BMC:         api.BMCDetails{Address: address, CredentialsName: "bmc", DisableCertificateVerification: true},
			ConsumerRef: &corev1.ObjectReference{Kind: "Machine", Namespace: namespace, Name: "worker-1"},
		},
		Status: api.BareMetalHostStatus{PoweredOn: true, Provisioning: api.ProvisionStatus{State: api.StateProvisioned}},
	})
	create(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "worker-1"},
		Spec:       corev1.NodeSpec{ProviderID: "metal3://worker-1"},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "worker-1#0"}, Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: hourAgo},
		}},
	})
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "worker-1", Labels: map[string]string{"pool": "workers"},
			Annotations: map[string]string{api.HostAnnotation: namespace + "/worker-1"},
		},
		Spec: clusterv1.MachineSpec{
			ClusterName:       "c",
			ProviderID:        "metal3://worker-1",
			Bootstrap:         clusterv1.Bootstrap{DataSecretName: ptr.To("s")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "K", Name: "n"},
		},
		Status: clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: "worker-1"}},
	}
	create(machine)
	check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "workers"}}
	check.Spec.ClusterName = "c"
	check.Spec.Selector.MatchLabels = map[string]string{"pool": "workers"}
	check.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, TimeoutSeconds: ptr.To(int32(5))},
	}
	must(t, admin.Create(t.Context(), check))
	return machine
}

// hasStatus reports whether a status was given that Create doesn't store.
func hasStatus(obj client.Object) bool {
	switch obj.(type) {
	case *api.BareMetalHost, *corev1.Node, *clusterv1.Machine:
		return true
	}
	return false
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}
