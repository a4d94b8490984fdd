package play

import (
	"strings"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// Awaited holds the parts of a plan's topology that are missing before its story can begin, in
// every world: the Node of each host that is on, the controllers, the workload if there is one, and
// whatever a world awaits by a name of its own.
type Awaited map[string]bool

// Await returns the Nodes and the workload that a story's beginning waits for. The world adds its
// controllers, by the names of their processes.
func Await(t *scenarios.Topology) Awaited {
	a := make(Awaited)
	for i := range t.Hosts {
		if !t.Hosts[i].Off {
			a["Node/"+t.Hosts[i].Node()] = true
		}
	}
	if t.Workload.Host != "" {
		a[AwaitedWorkload] = true
	}
	return a
}

// AwaitedWorkload stands for the process of the topology's workload, which comes up last.
const AwaitedWorkload = "workload process"

// Saw notes what an event says has come up, and reports whether that was awaited.
func (a Awaited) Saw(e *history.Event) bool {
	switch e.Kind {
	case history.NodeReady:
		return a.Came(e.Object)
	case history.ControllerStarted:
		return a.Came(e.Actor)
	case history.WorkloadStarted:
		return a.Came(AwaitedWorkload)
	}
	return false
}

// Came notes that something has come up, and reports whether it was awaited.
func (a Awaited) Came(what string) bool {
	awaited := a[what]
	delete(a, what)
	return awaited
}

// Only reports whether nothing else is awaited.
func (a Awaited) Only(what string) bool { return len(a) == 1 && a[what] }

// Nodes reports whether a Node is still awaited.
func (a Awaited) Nodes() bool {
	for what := range a { // order does not matter: asking for any
		if strings.HasPrefix(what, "Node/") {
			return true
		}
	}
	return false
}
