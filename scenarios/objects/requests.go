package objects

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios/play"
)

// Requests records every request to the BMCs as a line of JSON, in either world: when it was
// received, executed and answered, what was true and what was said. The times are the history's, in
// nanoseconds. It may be used concurrently.
type Requests struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

// Add appends a request.
func (q *Requests) Add(r fakebmc.Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := json.NewEncoder(&q.lines).Encode(r); err != nil {
		fmt.Fprintf(&q.lines, "{\"error\":%q}\n", err) // a record is plain data: this cannot be
	}
}

// Artifact returns the requests as a file of a report.
func (q *Requests) Artifact() play.Artifact {
	q.mu.Lock()
	defer q.mu.Unlock()
	return play.Artifact{Name: "bmc.jsonl", Data: bytes.Clone(q.lines.Bytes())}
}
