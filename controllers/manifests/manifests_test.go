package manifests_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/manifests"
)

// documents returns every YAML document of FS that matches the pattern.
func documents(t *testing.T, pattern string) (found [][]byte) {
	t.Helper()
	files, err := fs.Glob(manifests.FS, pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	for _, file := range files {
		data, err := manifests.FS.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			found = append(found, document)
		}
	}
	return found
}

func definitions(t *testing.T) map[string]apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all := map[string]apiextensionsv1.CustomResourceDefinition{}
	for _, document := range documents(t, "crds/*.yaml") {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(document, &crd); err != nil {
			t.Fatal(err)
		}
		all[crd.Name] = crd
	}
	return all
}

func TestDefinitions(t *testing.T) {
	versions := map[string]string{}
	for name, crd := range definitions(t) {
		if len(crd.Spec.Versions) != 1 || crd.Spec.Conversion != nil {
			t.Errorf("%s: %d versions, conversion %v", name, len(crd.Spec.Versions), crd.Spec.Conversion)
		}
		v := crd.Spec.Versions[0]
		status := v.Subresources != nil && v.Subresources.Status != nil
		if !v.Served || !v.Storage || status != (name != "nodefences.fencelab.dev") { // which never changes
			t.Errorf("%s: served %t, stored %t, subresources %v", name, v.Served, v.Storage, v.Subresources)
		}
		versions[name] = v.Name
	}
	want := map[string]string{
		"baremetalhosts.metal3.io":             "v1alpha1",
		"machines.cluster.x-k8s.io":            "v1beta2",
		"machinehealthchecks.cluster.x-k8s.io": "v1beta2",
		"nodefences.fencelab.dev":              "v1alpha1",
		"storagefences.fencelab.dev":           "v1alpha1",
	}
	if !reflect.DeepEqual(versions, want) {
		t.Errorf("definitions %v, want %v", versions, want)
	}
}

// TestDefinitionIsOfTheGoType finds fields that were added to the Go type, or
// removed, without go generate.
func TestDefinitionIsOfTheGoType(t *testing.T) {
	crd := definitions(t)["baremetalhosts.metal3.io"]
	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	for field, typ := range map[string]reflect.Type{
		"spec": reflect.TypeFor[api.BareMetalHostSpec](), "status": reflect.TypeFor[api.BareMetalHostStatus](),
	} {
		compare(t, field, schema.Properties[field], typ)
	}
}

func compare(t *testing.T, at string, schema apiextensionsv1.JSONSchemaProps, typ reflect.Type) {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[metav1.MicroTime]() {
		return
	}
	var fields []string
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		fields = append(fields, name)
		compare(t, at+"."+name, schema.Properties[name], typ.Field(i).Type)
	}
	var properties []string
	for name := range schema.Properties {
		properties = append(properties, name)
	}
	slices.Sort(fields)
	if slices.Sort(properties); !slices.Equal(fields, properties) {
		t.Errorf("%s has the fields %v and is defined with %v: go generate ./controllers/manifests", at, fields, properties)
	}
}

// roles returns the ClusterRoles by name.
// TestAgents reads what runs the agents: on every host, privileged for its watchdog, and
// with a role of its own.
func TestAgents(t *testing.T) {
	parts := bytes.Split(manifests.Agent, []byte("\n---\n"))
	var set appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(parts[len(parts)-1], &set); err != nil {
		t.Fatal(err)
	}
	pod := set.Spec.Template.Spec
	if !slices.Contains(pod.Containers[0].Args, "agent") || !*pod.Containers[0].SecurityContext.Privileged || pod.Tolerations[0].Operator != "Exists" {
		t.Errorf("the Pod of an agent is %+v", pod)
	}
	if pod.ServiceAccountName != "fencelab-agents" || !bytes.Contains(manifests.Agent, []byte("name: fencelab-poisonpill")) {
		t.Error("agents have no role")
	}
}

func roles(t *testing.T) map[string]rbacv1.ClusterRole {
	t.Helper()
	all := map[string]rbacv1.ClusterRole{}
	for _, document := range documents(t, "rbac.yaml") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		if kind.Kind != "ClusterRole" {
			continue
		}
		var role rbacv1.ClusterRole
		if err := yaml.UnmarshalStrict(document, &role); err != nil {
			t.Fatal(err)
		}
		all[role.Name] = role
	}
	return all
}

func TestRolesAreNamedAndNarrow(t *testing.T) {
	for name, role := range roles(t) {
		for _, rule := range role.Rules {
			for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs) {
				if strings.Contains(word, "*") {
					t.Errorf("%s grants everything: %v", name, rule)
				}
			}
			if slices.Contains(rule.Resources, "secrets") && !slices.Equal(rule.Verbs, []string{"get"}) {
				t.Errorf("%s may %v secrets", name, rule.Verbs)
			}
		}
	}
}

// TestOnlyRequestersMayRequest lists who holds the verbs that the policies ask
// for.
func TestOnlyRequestersMayRequest(t *testing.T) {
	holders := map[string][]string{}
	for name, role := range roles(t) {
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				if strings.HasPrefix(verb, "request-") {
					holders[verb] = append(holders[verb], name)
				}
			}
		}
	}
	for _, names := range holders {
		slices.Sort(names)
	}
	want := map[string][]string{
		"request-reboot":      {"fencelab-deletion", "fencelab-reboot", "fencelab-reboot-requester", "fencelab-remediation"},
		"request-remediation": {"fencelab-healthcheck", "fencelab-poisonpill", "fencelab-remediation", "fencelab-remediation-requester"},
	}
	if !reflect.DeepEqual(holders, want) {
		t.Errorf("the verbs are held by %v, want %v", holders, want)
	}
	policy, err := manifests.FS.ReadFile("policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{
		"'" + api.RebootAnnotation + "'", "'" + api.RebootAnnotation + "/'", "'" + api.ExternalRemediationAnnotation + "'",
		"'" + api.PoweredOffForRemediationAnnotation + "'", "check('request-reboot')", "check('request-remediation')",
	} {
		if !strings.Contains(string(policy), word) {
			t.Errorf("no policy mentions %s", word)
		}
	}
}
