// Package program defines the configuration that the lab gives to the program in a guest.
package program

import (
	"encoding/json"

	"github.com/fencelab/fencelab/controllers"
)

// Config says which agent to run, and where it finds what it needs. It is a file of JSON.
type Config struct {
	Kubeconfig []byte             `json:"kubeconfig"`
	Agent      string             `json:"agent"`
	Settings   json.RawMessage    `json:"settings,omitempty"`
	Overlay    []controllers.Rule `json:"overlay,omitempty"`
	Host       controllers.Host   `json:"host"`
	// Watchdog is the device that the agent feeds; empty for none.
	Watchdog string `json:"watchdog,omitempty"`
	// InPod says that it runs in a Pod of a real node, where PID 1 is reached by a socket.
	InPod bool `json:"inPod,omitempty"`
	// Identity is who the host is among the agent's peers; nil for an agent that asks none.
	Identity *Identity `json:"identity,omitempty"`
}

// Identity is the certificate of a host with its key, and that of the authority which has
// made those of all hosts, in PEM.
type Identity struct {
	Certificate []byte `json:"certificate"`
	Key         []byte `json:"key"`
	Authority   []byte `json:"authority"`
}
