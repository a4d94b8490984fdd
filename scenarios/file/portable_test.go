package file_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
)

// TestPlansOfSystems: the plan of a system is played in another clone. It names no directory of the
// first, and a program may play further parts.
func TestPlansOfSystems(t *testing.T) {
	const story = `apiVersion: fencelab.dev/v1alpha1
kind: Scenario
metadata: {name: story, description: A host is cut off.}
spec:
  topology: {hosts: [{name: worker-1}]}
  healthCheck: {unhealthyAfter: 3s, nodeStartupTimeout: 60s}
  controllers: [{name: reboot}, {name: remediation}, {name: healthcheck}]
  steps: [{do: {cut: {host: worker-1}}}]
`
	const system = `apiVersion: fencelab.dev/v1alpha1
kind: System
metadata: {name: acme, description: A fencer that marks the Machines itself.}
spec:
  controllers:
    - {name: acme, plays: remediation, also: [healthcheck], program: {image: %s}}
`
	for image, want := range map[string]string{"controller.tar": "ci/controller.tar", "../controller.tar": "controller.tar", "acme/fencer:v1": ""} {
		one, other := t.TempDir(), t.TempDir()
		t.Chdir(one)
		if err := os.Mkdir("ci", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("ci/system.yaml", []byte(strings.Replace(system, "%s", image, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("story.yaml", []byte(story), 0o644); err != nil {
			t.Fatal(err)
		}
		loaded, err := file.LoadFiles([]string{"story.yaml"}, vocabulary(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := file.LoadSystemFrom("ci/system.yaml", nil, vocabulary())
		if err == nil {
			_, err = s.UnderTest(loaded)
		}
		if err != nil {
			t.Fatal(err)
		}
		plan, err := scenarios.Compile(loaded[0], 1)
		if err != nil {
			t.Fatal(err)
		}
		text := plan.Portable(one).Text()
		if strings.Contains(string(text), one) {
			t.Errorf("the plan names %s:\n%s", one, text)
		}
		t.Chdir(other)
		if err := os.WriteFile("plan.txt", text, 0o644); err != nil {
			t.Fatal(err)
		}
		again, err := file.LoadPlanFile("plan.txt", vocabulary())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range again.Spec.Controllers {
			if p := c.Program; p != nil && (p.Dir != filepath.Join(other, "ci") || want != "" && string(p.Image) != filepath.Join(other, want) || want == "" && string(p.Image) != image) {
				t.Errorf("the image %s is %s from %s", image, p.Image, p.Dir)
			}
		}
	}
}
