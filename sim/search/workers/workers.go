// Package workers plays the schedules of a search in processes of their own, one for
// each core. A coordinator and its workers exchange values, as JSON: the story once,
// then batches of schedules one way and of results the other.
package workers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/campaign/pool"
)

const (
	// most bounds a batch. inHand is how many batches a worker has: the one that it plays, and the
	// next.
	most   = 25
	inHand = 2
	// lastWords is how long a stopped worker may take to report its findings. A schedule takes
	// milliseconds.
	lastWords = 5 * time.Second
)

// Start starts n worker processes for a story: the command calls [Serve]. They stop when their
// input ends: when the pool is closed, when the context ends, or when this process is gone, however
// it ended.
func Start(ctx context.Context, n int, story *campaign.Story, command ...string) *pool.Pool {
	batch := min(max(1, campaign.Ahead/(2*inHand*n)), most)
	return pool.Start(ctx, n, func(ctx context.Context, i int, jobs <-chan campaign.Schedule, results chan<- campaign.Result) error {
		w := process{batch: batch, jobs: jobs, results: results}
		if err := w.run(ctx, story, command); err != nil {
			return fmt.Errorf("worker %d: %w", i, err)
		}
		return nil
	})
}

// process is one worker process, as the coordinator sees it.
type process struct {
	// batch is the most schedules that it gets at once.
	batch   int
	jobs    <-chan campaign.Schedule
	results chan<- campaign.Result
}

// run runs the process until its jobs are done.
func (w *process) run(ctx context.Context, story *campaign.Story, command []string) error {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr, cmd.Env, cmd.WaitDelay = &said, append(os.Environ(), "GOMAXPROCS=1"), lastWords
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	cmd.Cancel = in.Close
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	alive, gone := context.WithCancel(ctx)
	free := make(chan struct{}, inHand)
	var sent error
	var sender sync.WaitGroup
	sender.Go(func() {
		defer in.Close()
		sent = w.send(alive, json.NewEncoder(in), story, free)
	})
	received := w.receive(json.NewDecoder(out), free)
	gone()
	sender.Wait()
	ended := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		// It was stopped.
		return nil
	case ended != nil:
		return fmt.Errorf("%w\n%s", ended, said.Bytes())
	case received != nil:
		return fmt.Errorf("read what it found: %w\n%s", received, said.Bytes())
	case sent != nil:
		return fmt.Errorf("it ended before it was told to\n%s", said.Bytes())
	}
	return nil
}

// send sends a worker the story, and then batches until there are no more.
func (w *process) send(ctx context.Context, to *json.Encoder, story *campaign.Story, free chan<- struct{}) error {
	err := to.Encode(story)
	for err == nil {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		var batch []campaign.Schedule
		select {
		case s, ok := <-w.jobs:
			if !ok {
				return nil
			}
			batch = append(batch, s)
		case <-ctx.Done():
			return ctx.Err()
		}
		for more := true; more && len(batch) < w.batch; {
			select {
			case s, ok := <-w.jobs:
				if more = ok; ok {
					batch = append(batch, s)
				}
			default:
				more = false
			}
		}
		err = to.Encode(batch)
	}
	return err
}

// receive takes over a worker's results, until its output ends.
func (w *process) receive(from *json.Decoder, free <-chan struct{}) error {
	for {
		var found []campaign.Result
		switch err := from.Decode(&found); err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
		for _, r := range found {
			w.results <- r
		}
		<-free
	}
}
