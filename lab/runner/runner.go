// Package runner runs controllers as their users would: under a manager in this process, as a
// process of fencelab's, or as a foreign program. Each incarnation can be killed alone, and sends
// all requests through its own gates.
package runner

import (
	"context"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/lab/container"
	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/scenarios/play"
)

// Runner starts controllers, as their users would.
type Runner interface {
	// Start starts a controller under a name, which acts only while it holds a lease, if there is
	// one. All that it asks of the API goes the way through, and to the BMCs that the API names.
	Start(ctx context.Context, name string, c controllers.Selection, lease string, through gate.Way) (Incarnation, error)
	// Logs returns the logs of the controllers.
	Logs() []play.Artifact
}

// Incarnation is a controller that was started.
type Incarnation interface {
	// Kill ends it as SIGKILL does, and doesn't wait for that.
	Kill()
	// Ended is closed when it has ended, and then failure says why it ended by itself.
	Ended() <-chan struct{}
	Failure() error
	// Pause lets it stand still as SIGSTOP does.
	Pause() error
	Resume() error
	// Ready is where it says that it is up, and the network in which that is, nil for the host's;
	// empty for one that is up when it asks for something.
	Ready() (at string, in *container.Network)
}

// UserOf is the user that a controller authenticates as.
func UserOf(controller string) string { return "fencelab:" + controller }
