package objects

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/manifests"
	"github.com/fencelab/fencelab/scenarios"
)

// TestKinds finds a kind that lacks something.
func TestKinds(t *testing.T) {
	all := KindsOf(controllers.Default())
	for _, k := range all {
		i := slices.IndexFunc(kinds, func(row Kind) bool { return row.GVK == k.GVK })
		if i < 0 {
			t.Errorf("the manifests define %s: it needs a row in the table of kinds", k.GVK)
			continue
		}
		row := &kinds[i]
		switch {
		case k.Definition == nil && k.Resource == "":
			t.Errorf("%s has neither a definition in the manifests nor a resource", k.GVK)
		case k.Definition != nil && (row.Resource != "" || row.Namespaced || row.Status || row.Name != ""):
			t.Errorf("%s: its definition says the resource, whether it is namespaced, and whether it has a status", k.GVK)
		case k.Unmade && (k.Named == scenarios.Freely || !k.Made):
			t.Errorf("%s: Unmade says that users make it, although the topology has none", k.GVK)
		case k.Annotated && !k.Changed:
			t.Errorf("%s: who may annotate it may change it", k.GVK)
		}
		obj, list := k.New(), k.NewList() // which panics without a type in the scheme
		if items, ok := reflect.TypeOf(list).Elem().FieldByName("Items"); !ok || items.Type.Elem() != reflect.TypeOf(obj).Elem() {
			t.Errorf("%T is no list of %T", list, obj)
		}
		if found, err := all.Of(obj); err != nil || found != k {
			t.Errorf("the kind of a %T is %v, %v", obj, found, err)
		}
		if all.Resource(k.GVK.Group, k.Resource) != k {
			t.Errorf("%s: another kind has the resource %s", k.GVK, k.Resource)
		}
	}
}

// TestKindsOfControllers: all that controllers watch and read is in the table, and their
// roles are about nothing else, but Events.
func TestKindsOfControllers(t *testing.T) {
	all := KindsOf(controllers.Default())
	roles := rolesIn(t)
	for name, role := range roles {
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					resource, sub, _ := strings.Cut(resource, "/")
					kind := all.Resource(group, resource)
					switch {
					case resource == "events":
					case kind == nil:
						t.Errorf("%s is about %s of %q, which is in no row of the table of kinds", name, resource, group)
					case sub == "status" && !kind.Status:
						t.Errorf("%s is about the status of %s, which has none", name, resource)
					}
				}
			}
		}
	}
	for _, r := range controllers.Default().All() {
		role, ok := roles["fencelab-"+r.Name]
		if !ok {
			t.Errorf("the controller %s has no role", r.Name)
			continue
		}
		for _, obj := range r.Cached() {
			kind, err := all.Of(obj)
			if err != nil {
				t.Errorf("%s: %v", r.Name, err)
				continue
			}
			for _, verb := range []string{"get", "list", "watch"} {
				if !grants(role, kind.GVK.Group, kind.Resource, verb) {
					t.Errorf("%s may not %s %s", role.Name, verb, kind.Resource)
				}
			}
		}
	}
}

// rolesIn are the ClusterRoles of fencelab's manifests, by name.
func rolesIn(t *testing.T) map[string]rbacv1.ClusterRole {
	t.Helper()
	data, err := manifests.FS.ReadFile("rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	roles := make(map[string]rbacv1.ClusterRole)
	for _, document := range bytes.Split(data, []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(document, &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind == "ClusterRole" {
			roles[role.Name] = role
		}
	}
	if len(roles) == 0 {
		t.Fatal("the manifests have no roles")
	}
	return roles
}

func grants(role rbacv1.ClusterRole, group, resource, verb string) bool {
	return slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, verb)
	})
}

// TestTopologyHasItsKinds: what a topology creates is in the table, and what users create
// by a name of the topology's is in the topology.
func TestTopologyHasItsKinds(t *testing.T) {
	all := KindsOf(controllers.Default())
	spec := &scenarios.Spec{
		Topology:    scenarios.Topology{Hosts: []scenarios.Host{{Name: "worker-1"}}},
		HealthCheck: new(scenarios.HealthCheck),
	}
	has := make(map[string]bool)
	objs := Topology(spec, func(string) api.BMCDetails { return api.BMCDetails{} }, func(host string) string { return host })
	for _, obj := range objs {
		kind, err := all.Of(obj)
		if err != nil {
			t.Fatal(err)
		}
		has[kind.Name] = true
	}
	for _, k := range all {
		if k.Made && !k.Unmade && k.Named != scenarios.Freely && !has[k.Name] {
			t.Errorf("users make a %s that is called like something in the topology, and it has none", k.Name)
		}
		var own client.Object
		for _, obj := range objs {
			if kind, _ := all.Of(obj); kind == k {
				own = obj
			}
		}
		if own == nil || !k.Made {
			continue
		}
		if _, made, err := all.Create(&scenarios.CreateOp{Object: k.Name + "/" + own.GetName()}, objs); err != nil || made != own {
			t.Errorf("create %s as the topology has it: %v, %v", k.Name, made, err)
		}
	}
}

// TestCreateWith: users create objects with the fields that they give, and a BareMetalHost without
// a BMC gets that of its host.
func TestCreateWith(t *testing.T) {
	all := KindsOf(controllers.Default())
	spec := &scenarios.Spec{Topology: scenarios.Topology{Hosts: []scenarios.Host{{Name: "worker-1"}, {Name: "worker-2"}}}}
	objs := Topology(spec, func(host string) api.BMCDetails { return api.BMCDetails{Address: "redfish://" + host} }, func(host string) string { return host })
	for with, want := range map[string]string{
		`{"spec":{"online":true}}`: "redfish://worker-2",
		`{"spec":{"online":true,"bmc":{"address":"redfish://elsewhere"}}}`: "redfish://elsewhere",
	} {
		op := &scenarios.CreateOp{Object: "BareMetalHost/worker-2", With: json.RawMessage(with)}
		_, made, err := all.Create(op, objs)
		if err != nil {
			t.Fatal(err)
		}
		host := made.(*api.BareMetalHost)
		if host.Spec.BMC.Address != want || host.Spec.ConsumerRef != nil || host.Status.PoweredOn {
			t.Errorf("create %s with %s: %+v", op.Object, with, host)
		}
	}
	for with, want := range map[string]bool{"": true, `{"spec":{}}`: false, `{"status":{"poweredOn":false}}`: true} {
		if op := (&scenarios.CreateOp{With: json.RawMessage(with)}); op.SaysStatus() != want {
			t.Errorf("an object created with %q has a status: %v", with, !want)
		}
	}
}
