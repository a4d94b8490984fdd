package cluster

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func TestManifestOrder(t *testing.T) {
	manifests, err := readManifests(os.DirFS("testdata/install"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range manifests {
		got = append(got, m.String())
	}
	want := []string{
		"CustomResourceDefinition /gauges.test.fencelab.dev (gauges.yaml, document 2)",
		"Namespace /meters (a-gauge.yaml, document 2)",
		"Gauge meters/steam (a-gauge.yaml, document 1)",
		"ValidatingAdmissionPolicy /gauge-limit (policy/limit.yaml, document 1)",
		"ValidatingAdmissionPolicyBinding /gauge-limit (policy/limit.yaml, document 2)",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestManifestErrors(t *testing.T) {
	const good = "{apiVersion: v1, kind: Namespace, metadata: {name: x}}\n---\n"
	tests := []struct{ name, file, text, want string }{
		{"nothing", "a.yaml", "# only a comment", "no object"},
		{"not a manifest's name", "a.txt", good, "no object"},
		{"not YAML", "a.yaml", good + "a: b: c", "a.yaml, document 2: "},
		{"key twice", "a.yaml", good + "{apiVersion: v1, kind: Pod, kind: Pod}", `a.yaml, document 2: yaml: unmarshal errors`},
		{"no kind", "a.yaml", "{apiVersion: v1, metadata: {name: x}}", "a.yaml, document 1: Object 'Kind' is missing"},
		{"no name", "a.yaml", "{apiVersion: v1, kind: Pod}", "a.yaml, document 1: apiVersion and metadata.name are needed"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := readManifests(fstest.MapFS{test.file: {Data: []byte(test.text)}})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %q", err, test.want)
			}
		})
	}
}
