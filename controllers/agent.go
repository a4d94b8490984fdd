package controllers

import (
	"context"
	"time"
)

// Place is where the processes of a program run.
type Place string

// The places.
const (
	// Cluster: one process, beside the API server.
	Cluster Place = "cluster"
	// EveryHost: one process on each host, which lives the host's life. It starts with a
	// boot and dies with it, stands still when the host does, goes by its clock, and
	// reaches the API server and its peers over its links.
	EveryHost Place = "every host"
)

// Agent is a program that is a loop with a timer of its own.
type Agent interface {
	// Step does what is due by now, and says when to come again. It runs to its end
	// before the next one begins. After an error the next step comes all the same.
	Step(ctx context.Context) (next time.Duration, err error)
}

// Answerer is an Agent that answers requests of its peers, also while a Step waits. From
// is the Node of the host that asks.
type Answerer interface {
	Answer(ctx context.Context, from string, request []byte) (answer []byte, err error)
}

// Host is where a process on a host finds itself.
type Host struct {
	// Name is the host's, Node the name of its Node.
	Name, Node string
}

// Boot is the boot of the host that a process runs in.
type Boot interface {
	// ID is what the boot's Node tells of it.
	ID() string
	// Uptime is how long it has lasted, by the host's own clock, which nobody sets.
	Uptime() time.Duration
	// Load returns what a process of the same program saved last in this boot, nil if
	// none has. What is saved ends with the boot, and not with the process.
	Load() ([]byte, error)
	Save([]byte) error
}

// Watchdog is the watchdog of the host that a process runs on.
type Watchdog interface {
	// Feed lets it wait for its whole time again.
	Feed(ctx context.Context) error
	// Timeout is that time; 0 if the host has no watchdog.
	Timeout() time.Duration
}

// Peers are the same program's processes on other hosts.
type Peers interface {
	// Ask sends a request to the processes on the hosts of some Nodes, which have these
	// addresses, at once. It returns the answers that have come when all have, or when
	// the time is over.
	Ask(ctx context.Context, peers map[string][]string, request []byte, within time.Duration) (answers map[string][]byte)
}

// leastPause keeps an agent from running hot.
const leastPause = 10 * time.Millisecond

// Pause is how long to wait for the next step of an agent that has asked for next.
func Pause(next time.Duration) time.Duration { return max(next, leastPause) }
