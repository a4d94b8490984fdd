package scenarios_test

import (
	"testing"

	"github.com/fencelab/fencelab/scenarios"
)

func TestParseDeed(t *testing.T) {
	for _, good := range []string{
		"remediation/delete Node/worker-1/1", "worker-1.poisonpill/get Node/worker-1/12.3", "reboot/bmc ForceOff worker-1/2",
		"remediation/deliver annotation-set Machine/worker-1 host.metal3.io/external-remediation/2", "a/list Machine//0.1", "a/start Process/a/1",
	} {
		if d, err := scenarios.ParseDeed(good); err != nil || d.String() != good || !scenarios.NamesDeed(good) {
			t.Errorf("%s is read as %+v, %v", good, d, err)
		}
	}
	for _, bad := range []string{"", "remediation", "remediation/delete Node/worker-1", "a/delete Node/x/0", "a/delete Node/x/01", "a/delete Node/x/1.1", "a/get Node/x/1", "a/get Node/x/-1.1"} {
		if d, err := scenarios.ParseDeed(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, d)
		}
	}
}
