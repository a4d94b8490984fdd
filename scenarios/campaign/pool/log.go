package pool

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
)

// Log keeps the results of schedules in a file that outlives the sweep.
type Log struct {
	mu   sync.Mutex
	file *os.File // nil without one
	of   map[string]campaign.Result
}

// entry is a line of it.
type entry struct {
	// Plan is the ID of the schedule's plan, and Deviation says what it is to people.
	Plan      string          `json:"plan"`
	Deviation string          `json:"deviation"`
	Result    campaign.Result `json:"result"`
}

// Open reads the log of a plan's sweep in a directory, and goes on with it. Without a directory
// nothing is kept.
func Open(dir string, plan *scenarios.Plan) (*Log, error) {
	l := &Log{of: make(map[string]campaign.Result)}
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

// Find returns what came of a plan, if it was played before.
func (l *Log) Find(plan *scenarios.Plan) (campaign.Result, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.of[plan.ID()]
	return r, ok
}

// Add keeps what came of a plan.
func (l *Log) Add(plan *scenarios.Plan, r campaign.Result) error {
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

// Close closes the file.
func (l *Log) Close() {
	if l.file != nil {
		_ = l.file.Close() // each line was written
	}
}
