package gate

import (
	"encoding/json"
	"net/http"
	"strings"
)

// PowerTargets maps the power targets of Ironic's API to resets of Redfish.
var PowerTargets = map[string]string{"power on": "On", "power off": "ForceOff", "soft power off": "GracefulShutdown"}

// Ironic understands requests to the API of an Ironic, given which host a node is, by its name or
// its UUID, or "". Commands to switch a host are effects, called as those to its BMC are.
func Ironic(host func(node string) string) func(*http.Request, []byte) Request {
	return func(request *http.Request, body []byte) Request {
		node, is := strings.CutPrefix(strings.TrimSuffix(request.URL.Path, "/states/power"), "/v1/nodes/")
		if request.Method != http.MethodPut || !is || !strings.HasSuffix(request.URL.Path, "/states/power") || host(node) == "" {
			return Request{}
		}
		var command struct{ Target string }
		_ = json.Unmarshal(body, &command) // Ironic will complain
		effect := "bmc " + PowerTargets[command.Target] + " " + host(node)
		return Request{Effect: effect, Deed: effect}
	}
}
