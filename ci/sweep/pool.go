package sweep

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim/search"
)

// pool plays schedules in worlds, several at a time. It implements search.Workers.
type pool struct {
	jobs    chan search.Schedule
	results chan search.Result
	crew    sync.WaitGroup
	closed  sync.Once
	mu      sync.Mutex
	errs    []error
}

func start(ctx context.Context, n int, story *search.Story, known *log, world func() play.Backend) *pool {
	p := &pool{jobs: make(chan search.Schedule, search.Ahead), results: make(chan search.Result, search.Ahead)}
	ctx, stop := context.WithCancel(ctx)
	for range n {
		p.crew.Go(func() {
			if err := p.work(ctx, story, known, world); err != nil {
				stop() // a machine that can't run one world can't run others
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

// work plays schedules until there are none, or somebody has had enough.
func (p *pool) work(ctx context.Context, story *search.Story, known *log, world func() play.Backend) error {
	for {
		var schedule search.Schedule
		var more bool
		select {
		case <-ctx.Done():
			return nil
		case schedule, more = <-p.jobs:
		}
		if !more {
			return nil
		}
		result, err := playOne(ctx, story, schedule, known, world)
		switch {
		case ctx.Err() != nil:
			return nil // half a schedule says nothing
		case err != nil:
			return err
		}
		p.results <- result
	}
}

// attempts is how often a world is started that fails to start: a busy machine may be too slow for one.
const attempts = 3

func playOne(ctx context.Context, story *search.Story, schedule search.Schedule, known *log, world func() play.Backend) (search.Result, error) {
	plan := story.PlanOf(schedule)
	if result, ok := known.find(plan); ok {
		result.Number = schedule.Number
		return result, nil
	}
	var outcome *play.Outcome
	var err error
	for range attempts {
		if outcome, err = play.Run(ctx, plan, world(), nil); err == nil || ctx.Err() != nil || play.CodeOfUnplayed(err) != exit.Internal {
			break
		}
	}
	if err != nil {
		return search.Result{}, fmt.Errorf("play %s: %w", plan.Deviations[0], err)
	}
	result := search.ResultOf(outcome)
	result.Number = schedule.Number
	if outcome.Err != nil {
		return result, nil // a lab that failed says nothing, and is tried again when the sweep goes on
	}
	return result, known.add(plan, result)
}

// Give implements search.Workers.
func (p *pool) Give(s search.Schedule) { p.jobs <- s }

// Take implements search.Workers.
func (p *pool) Take() (search.Result, bool) {
	r, ok := <-p.results
	return r, ok
}

// close ends the worlds and returns what went wrong with them.
func (p *pool) close() error {
	p.closed.Do(func() { close(p.jobs) })
	for range p.results {
	}
	return errors.Join(p.errs...)
}

// log has what came of schedules, in a file that outlives the sweep.
type log struct {
	mu   sync.Mutex
	file *os.File // nil without one
	of   map[string]search.Result
}

// entry is a line of it.
type entry struct {
	// Plan is the ID of the schedule's plan, and Deviation says what it is to people.
	Plan      string        `json:"plan"`
	Deviation string        `json:"deviation"`
	Result    search.Result `json:"result"`
}

// open reads the log of a plan's sweep, and goes on with it.
func open(dir string, plan *scenarios.Plan) (*log, error) {
	l := &log{of: make(map[string]search.Result)}
	if dir == "" {
		return l, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("keep what a sweep has found: %w", err)
	}
	name := filepath.Join(dir, "sweep-"+plan.ID()+".jsonl")
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("keep what a sweep has found: %w", err)
	}
	l.file = file
	lines := bufio.NewScanner(file)
	whole := true
	for lines.Scan() {
		var e entry
		if whole = json.Unmarshal(lines.Bytes(), &e) == nil; whole {
			l.of[e.Plan] = e.Result
		}
	}
	if err = lines.Err(); err == nil && !whole { // the last line is half of one
		_, err = file.WriteString("\n")
	}
	return l, err
}

func (l *log) find(plan *scenarios.Plan) (search.Result, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.of[plan.ID()]
	return r, ok
}

func (l *log) add(plan *scenarios.Plan, r search.Result) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	line, err := json.Marshal(entry{plan.ID(), plan.Deviations[0].String(), r})
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("keep what a sweep has found: %w", err)
	}
	return nil
}

func (l *log) close() {
	if l.file != nil {
		_ = l.file.Close() // each line was written
	}
}
