package gate

import (
	"encoding/json"
	"net/http"
	"strings"
)

// BMC understands requests to the Redfish service of a host, whose System is at a path. Resets of
// the host are its effects, and looks at the host its reads.
func BMC(host, system string) func(*http.Request, []byte) Request {
	return func(request *http.Request, body []byte) Request {
		if request.Method == http.MethodGet && strings.TrimSuffix(request.URL.Path, "/") == system {
			return Request{Deed: "read BMC/" + host}
		}
		if request.Method != http.MethodPost || !strings.HasPrefix(request.URL.Path, system+"/") ||
			!strings.HasSuffix(strings.TrimSuffix(request.URL.Path, "/"), "/ComputerSystem.Reset") {
			return Request{}
		}
		var reset struct{ ResetType string }
		_ = json.Unmarshal(body, &reset) // the BMC will complain
		effect := "bmc " + reset.ResetType + " " + host
		return Request{Effect: effect, Deed: effect}
	}
}
