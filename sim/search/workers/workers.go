// Package workers plays the schedules of a search in processes of their own, one for
// each core. A coordinator and its workers exchange values, as JSON: the story once,
// then batches of schedules one way and of results the other.
package workers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/fencelab/fencelab/scenarios/campaign"
)

// Pool is a number of worker processes. It implements search.Workers.
type Pool struct {
	// batch is the most schedules that a worker is given at once.
	batch   int
	jobs    chan campaign.Schedule
	results chan campaign.Result
	closed  sync.Once

	crew sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

const (
	// most bounds a batch. inHand is how many batches a worker has: the one that it plays, and the
	// next.
	most   = 25
	inHand = 2
	// lastWords is how long a stopped worker may take to report its findings. A schedule takes
	// milliseconds.
	lastWords = 5 * time.Second
)

// Start starts worker processes for a story: the command calls [Serve]. They stop when their input
// ends: when the pool is closed, when the context ends, or when this process is gone, however it
// ended.
func Start(ctx context.Context, n int, story *campaign.Story, command ...string) *Pool {
	p := &Pool{
		batch: min(max(1, campaign.Ahead/(2*inHand*n)), most),
		jobs:  make(chan campaign.Schedule, campaign.Ahead), results: make(chan campaign.Result, campaign.Ahead),
	}
	ctx, stop := context.WithCancel(ctx)
	for i := range n {
		p.crew.Go(func() {
			if err := p.work(ctx, story, command); err != nil {
				stop() // half a search proves nothing
				p.mu.Lock()
				defer p.mu.Unlock()
				p.errs = append(p.errs, fmt.Errorf("worker %d: %w", i, err))
			}
		})
	}
	go func() {
		p.crew.Wait()
		stop()
		close(p.results)
	}()
	return p
}

// Give implements search.Workers.
func (p *Pool) Give(s campaign.Schedule) { p.jobs <- s }

// Take implements search.Workers.
func (p *Pool) Take() (campaign.Result, bool) {
	r, ok := <-p.results
	return r, ok
}

// Close ends the workers and returns their errors. Results that were not taken yet are lost.
func (p *Pool) Close() error {
	p.closed.Do(func() { close(p.jobs) })
	for range p.results {
	}
	return errors.Join(p.errs...)
}

// work runs one worker process.
func (p *Pool) work(ctx context.Context, story *campaign.Story, command []string) error {
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
		sent = p.send(alive, json.NewEncoder(in), story, free)
	})
	received := p.receive(json.NewDecoder(out), free)
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
func (p *Pool) send(ctx context.Context, to *json.Encoder, story *campaign.Story, free chan<- struct{}) error {
	err := to.Encode(story)
	for err == nil {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		var batch []campaign.Schedule
		select {
		case s, ok := <-p.jobs:
			if !ok {
				return nil
			}
			batch = append(batch, s)
		case <-ctx.Done():
			return ctx.Err()
		}
		for more := true; more && len(batch) < p.batch; {
			select {
			case s, ok := <-p.jobs:
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
func (p *Pool) receive(from *json.Decoder, free <-chan struct{}) error {
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
			p.results <- r
		}
		<-free
	}
}
