// Package pool plays several schedules at a time, and does other things side by side.
package pool

import (
	"context"
	"errors"
	"sync"

	"github.com/fencelab/fencelab/scenarios/campaign"
)

// Pool plays schedules. It implements campaign.Pool.
type Pool struct {
	jobs    chan campaign.Schedule
	results chan campaign.Result
	crew    sync.WaitGroup
	closed  sync.Once
	mu      sync.Mutex // of errs
	errs    []error
}

// Worker is one of a pool's n, by its number. It takes schedules from jobs, and sends what came of
// each to results, until there are no more jobs or the context ends.
type Worker func(ctx context.Context, i int, jobs <-chan campaign.Schedule, results chan<- campaign.Result) error

// Try plays a schedule and says what came of it.
type Try func(context.Context, campaign.Schedule) (campaign.Result, error)

// Start starts a pool of n workers. It ends when it is closed, when the context ends, and when a
// worker fails: a machine that can't run one world can't run others.
func Start(ctx context.Context, n int, worker Worker) *Pool {
	p := &Pool{jobs: make(chan campaign.Schedule, campaign.Ahead), results: make(chan campaign.Result, campaign.Ahead)}
	ctx, stop := context.WithCancel(ctx)
	for i := range n {
		p.crew.Go(func() {
			if err := worker(ctx, i, p.jobs, p.results); err != nil {
				stop()
				p.mu.Lock()
				defer p.mu.Unlock()
				p.errs = append(p.errs, err)
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

// Here is a worker of this process, which plays one schedule after the other.
func Here(try Try) Worker {
	return func(ctx context.Context, _ int, jobs <-chan campaign.Schedule, results chan<- campaign.Result) error {
		for {
			var schedule campaign.Schedule
			var more bool
			select {
			case <-ctx.Done():
				return nil
			case schedule, more = <-jobs:
			}
			if !more {
				return nil
			}
			result, err := try(ctx, schedule)
			switch {
			case ctx.Err() != nil:
				return nil // half a schedule says nothing
			case err != nil:
				return err
			}
			results <- result
		}
	}
}

// Give implements campaign.Pool.
func (p *Pool) Give(s campaign.Schedule) { p.jobs <- s }

// Take implements campaign.Pool.
func (p *Pool) Take() (campaign.Result, bool) {
	r, ok := <-p.results
	return r, ok
}

// Close ends the pool and returns what went wrong. Results that nothing took are lost.
func (p *Pool) Close() error {
	p.closed.Do(func() { close(p.jobs) })
	for range p.results {
	}
	return errors.Join(p.errs...)
}

// Each calls do for each of the things, with n goroutines at a time; worker is the goroutine's
// number. Then, which may be nil, is called for each thing that was done, one at a time and in
// order, as soon as all before it are done. When one fails, Each cancels the context of the others,
// doesn't begin the rest, and returns the first error.
func Each(ctx context.Context, n, things int, do func(ctx context.Context, worker, i int) error, then func(i int)) error {
	if then == nil {
		then = func(int) {}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	next := make(chan int, things)
	for i := range things {
		next <- i
	}
	close(next)
	var crew sync.WaitGroup
	var mu sync.Mutex // of what follows
	var failed error
	done, told := make([]bool, things), 0
	for worker := range min(max(1, n), things) {
		crew.Go(func() {
			for i := range next {
				err := do(ctx, worker, i)
				mu.Lock()
				if failed == nil && err != nil {
					failed = err
					stop()
				}
				for done[i] = true; failed == nil && told < things && done[told]; told++ {
					then(told)
				}
				ended := failed != nil
				mu.Unlock()
				if ended {
					return
				}
			}
		})
	}
	crew.Wait()
	return failed
}

// ahead bounds how many results of [Ahead] wait for their turn.
const ahead = 64

// Ahead does n things with the given number of goroutines, before their results are asked for, and
// returns the function that asks: it waits for the result of the next thing, in their order. Worker
// is a goroutine's number. When the context ends, what was not begun is not done, and its result is
// the zero value.
func Ahead[T any](ctx context.Context, workers, n int, do func(ctx context.Context, worker, i int) T) (take func() T) {
	results, next := make(chan chan T, ahead), make(chan func(worker int))
	go func() {
		defer close(next)
		for i := range n {
			result := make(chan T, 1)
			results <- result
			next <- func(worker int) {
				var done T
				if ctx.Err() == nil {
					done = do(ctx, worker, i)
				}
				result <- done
			}
		}
	}()
	for worker := range workers {
		go func() {
			for do := range next {
				do(worker)
			}
		}()
	}
	return func() T { return <-<-results }
}
