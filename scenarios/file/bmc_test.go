package file_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelab/fencelab/scenarios"
)

const someBMC = `apiVersion: fencelab.dev/v1alpha1
kind: System
metadata: {name: acme, description: Somebody's BMCs.}
spec:
  bmc: {command: [./bmcs, "--port=${PORT}"]}
`

// TestSystemsBMC: a program in the place of the BMCs is under test in every story, but for those
// that are about fencelab's own.
func TestSystemsBMC(t *testing.T) {
	s, dir, err := system(t, someBMC)
	if err != nil {
		t.Fatal(err)
	}
	if files := s.Files(); len(files) != 1 || files[0] != filepath.Join(dir, "bmcs") {
		t.Errorf("it runs %v", files)
	}
	for name, c := range map[string]struct {
		story scenarios.Spec
		err   string
	}{
		"without a part": {story: scenarios.Spec{}},
		"a BMC misbehaves": {
			story: scenarios.Spec{Steps: []scenarios.Step{{}, {Do: &scenarios.Op{AddFault: &scenarios.FaultOp{Host: "worker-1", Name: "f"}}}}},
			err:   "spec.steps[1].do.addFault is about fencelab's own BMCs",
		},
		"AC power returns": {
			story: scenarios.Spec{Topology: scenarios.Topology{Hosts: []scenarios.Host{{Name: "worker-1", PowerRestore: "AlwaysOn"}}}},
			err:   "spec.topology.hosts[0].powerRestore is about",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.Takes(&c.story)
			switch {
			case c.err != "":
				if err == nil || !strings.Contains(err.Error(), c.err) || c.story.Topology.BMC != nil {
					t.Errorf("got %v, want an error with %q", err, c.err)
				}
			case err != nil:
				t.Error(err)
			case c.story.Topology.BMC != s.Spec.BMC:
				t.Error("the story has other BMCs")
			}
		})
	}
	for text, want := range map[string]string{
		strings.Replace(someBMC, "./bmcs", `""`, 1):                                        "spec.bmc.command: name the executable",
		strings.Replace(someBMC, "PORT", "PROT", 1):                                        `spec.bmc.command[1]: unknown variable "PROT"`,
		strings.Replace(someBMC, "command:", "system: '/x/${HOTS}', command:", 1):          `spec.bmc.system: unknown variable "HOTS"`,
		strings.Replace(someBMC, "command:", "env: {HOSTS: x}, command:", 1):               "spec.bmc.env.HOSTS: HOSTS is set by fencelab",
		strings.Replace(someBMC, "bmc: {", "ironic: {}\n  # {", 1):                         "spec: nothing is under test",
		strings.Replace(someBMC, "command:", "system: /redfish/v1/Systems/1, command:", 1): "spec.bmc.system: \"/redfish/v1/Systems/1\" is the same for all hosts",
	} {
		if _, _, err := system(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// TestSystemOf: a host's System is where the file says.
func TestSystemOf(t *testing.T) {
	for system, want := range map[string]string{
		"":                        "/redfish/v1/Systems/42",
		"kvm/${DOMAIN}/${HOST}/":  "/kvm/lab-w/w",
		"/redfish/v1/Systems/${}": "/redfish/v1/Systems/${}",
	} {
		if got := (&scenarios.BMC{System: system}).SystemOf("w", "lab-w", "42"); got != want {
			t.Errorf("%q is %q, want %q", system, got, want)
		}
	}
	if got := new(scenarios.BMC).AddressIn(map[string]string{"PORT": "8000"}); got != "http://127.0.0.1:8000" {
		t.Errorf("it serves at %s", got)
	}
}
