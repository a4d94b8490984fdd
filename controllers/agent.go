package controllers

import (
	"context"
	"time"
)

// Place is the place where a program's processes run.
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
// is the Node of the host that asks. An answer may read what the last Step left, and write to the
// API server. It changes nothing that a Step or another answer reads: searches rely on it, and end
// with an error if they find otherwise.
type Answerer interface {
	Answer(ctx context.Context, from string, request []byte) (answer []byte, err error)
}

// Publisher is an Answerer whose answers read a part of what it knows. Published returns all that
// they read of what Steps change. It may be called at any time, and what it has returned never
// changes. A search tries an answer only behind the steps that published something else; without
// Published, behind all steps.
type Publisher interface{ Published() any }

// Retirer is an Agent that lets others know, before it is stopped in order, that they can't count
// on it any more. The watchdog is disarmed then, unless that fails.
type Retirer interface{ Retire(context.Context) error }

// Host identifies the host that a process runs on.
type Host struct {
	// Name is the host's name, and Node the name of its Node.
	Name, Node string
}

// Boot is the boot of the host that a process runs in.
type Boot interface {
	// ID is the boot ID that the boot's Node reports.
	ID() string
	// Uptime is how long the boot has lasted, by the host's own clock, which is never set.
	Uptime() time.Duration
	// Load returns what a process of the same program saved last in this boot, or nil. Saved data
	// lasts as long as the boot, and longer than the process.
	Load() ([]byte, error)
	Save([]byte) error
}

// Watchdog is the watchdog of the host that a process runs on.
type Watchdog interface {
	// Feed restarts the watchdog's timeout.
	Feed(ctx context.Context) error
	// Timeout is the watchdog's timeout; 0 if the host has no watchdog.
	Timeout() time.Duration
}

// Peers are the same program's processes on other hosts.
type Peers interface {
	// Ask sends a request at once to the processes on the hosts of several Nodes, given with their
	// addresses. It returns when all have answered or the time is over.
	Ask(ctx context.Context, peers map[string][]string, request []byte, within time.Duration) (answers map[string][]byte)
}

// leastPause keeps an agent from running hot.
const leastPause = 10 * time.Millisecond

// Pause returns the time to wait before the next step of an agent that asked for next.
func Pause(next time.Duration) time.Duration { return max(next, leastPause) }
