package hosts

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestForeignBMCServesItsHost: a host's address serves no other host, although the program serves
// them all. The history couldn't say who acted on the other host.
func TestForeignBMCServesItsHost(t *testing.T) {
	to := &toForeignBMC{b: &BMCs{Systems: map[string]string{"worker-1": "/redfish/v1/Systems/a", "worker-2": "/redfish/v1/Systems/ab"}}, host: "worker-1"}
	for path, want := range map[string]bool{
		"/redfish/v1/Systems":                                  false,
		"/redfish/v1/Systems/a":                                false,
		"/redfish/v1/Systems/a/Actions/ComputerSystem.Reset":   false,
		"/redfish/v1/Systems/ab":                               true,
		"/redfish/v1/Systems/ab/Actions/ComputerSystem.Reset":  true,
		"/redfish/v1/Systems/abc/Actions/ComputerSystem.Reset": false,
	} {
		if got := to.anothers(path); got != want {
			t.Errorf("%s is another's: %t, want %t", path, got, want)
		}
	}
	response, err := to.RoundTrip(httptest.NewRequest(http.MethodPost, "/redfish/v1/Systems/ab/Actions/ComputerSystem.Reset", nil))
	if err != nil || response.StatusCode != http.StatusNotFound {
		t.Errorf("a reset of another host is answered %v, %v", response, err)
	}
}
