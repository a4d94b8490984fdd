package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// past describes an earlier run of the suites on this machine, from which the time of the next is
// estimated.
type past struct {
	Wall   float64            `json:"wall"`   // seconds
	Slow   float64            `json:"slow"`   // the machine's slowness then
	Suites map[string]samples `json:"suites"` // by name
}

// samples are a suite's tests that ended, and their seconds together.
type samples struct {
	Tests   int     `json:"tests"`
	Seconds float64 `json:"seconds"`
}

// reference is a run on the machine that docs/performance.md describes, for one that has had none.
var reference = past{Wall: 1357, Slow: 1, Suites: map[string]samples{
	"stories": {36, 4700}, "bmc": {812, 320}, "command": {26, 3600}, "lab": {261, 4300}, "browser": {24, 14}, "fidelity": {54, 3},
}}

// remember reads what the last run on this machine was like.
func remember(file string) past {
	var p past
	data, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(data, &p) != nil || p.Wall <= 0 || p.Slow <= 0 {
		return reference
	}
	return p
}

// keep records a run that was whole.
func (p past) keep(file string) error {
	data, err := json.Marshal(p)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(file, data, 0o644)
	}
	if err != nil {
		return fmt.Errorf("record how long the suites took: %w", err)
	}
	return nil
}

// left is how long suites will still run on a machine as slow as this one is now: what is done
// counts by how many tests ended.
func (p past) left(suites []*suite, slow float64) time.Duration {
	var all, left float64
	for _, known := range p.Suites {
		all += known.Seconds
	}
	for _, s := range suites {
		known := p.Suites[s.Name]
		if !s.Ended.IsZero() || known.Tests == 0 {
			continue
		}
		done := 0
		for _, t := range s.cases() {
			if t.over() && t.Outcome != skipped {
				done++
			}
		}
		left += known.Seconds * max(0, 1-float64(done)/float64(known.Tests))
	}
	if all == 0 {
		return 0
	}
	return time.Duration(left / all * p.Wall * slow / p.Slow * float64(time.Second))
}

// pastOf returns the facts to remember of a run.
func pastOf(suites []*suite, took time.Duration, slow float64) past {
	p := past{Wall: took.Seconds(), Slow: slow, Suites: make(map[string]samples)}
	for _, s := range suites {
		var of samples
		for _, t := range s.cases() {
			if t.over() && t.Outcome != skipped {
				of.Tests++
				of.Seconds += t.Took.Seconds()
			}
		}
		p.Suites[s.Name] = of
	}
	return p
}
