package objects

import (
	"strings"
	"testing"

	"github.com/fencelab/fencelab/controllers"
)

func TestCheckPatch(t *testing.T) {
	for _, c := range []struct{ kind, merge, wrong string }{
		{"Node", `{"spec":{"unschedulable":true,"taints":null}}`, ""},
		{"Machine", `{"status":{"nodeRef":{"name":"worker-2"}},"metadata":{"annotations":{"cluster.x-k8s.io/paused":""}}}`, ""},
		{"BareMetalHost", `{"spec":{"consumerRef":null},"status":{"provisioning":{"state":"deprovisioning"}}}`, ""},
		{"MachineHealthCheck", `{"spec":{"remediation":{"triggerIf":{"unhealthyLessThanOrEqualTo":"40%"}}}}`, ""},
		{"Node", `{"spec":{"unscheduleable":true}}`, `unknown field "spec.unscheduleable"`},
		{"BareMetalHost", `{"spec":{"online":"yes"}}`, "cannot unmarshal"},
		{"Secret", `{}`, "users do not change objects of this kind"},
	} {
		err := KindsOf(controllers.Default()).checkPatch(c.kind, []byte(c.merge))
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("patch a %s with %s: %v, want %q", c.kind, c.merge, err, c.wrong)
		}
	}
}
