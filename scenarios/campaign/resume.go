package campaign

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencelab/fencelab/scenarios"
)

// resumed is a pool that plays no schedule again of which a file has the result. Since a strategy
// chooses by nothing but results, a search goes on where it was.
type resumed struct {
	Pool
	file   *os.File
	lines  *bufio.Writer
	known  map[int]played
	under  map[int]Schedule
	ready  []Result
	failed error
}

// played is a line of the file.
type played struct {
	Schedule Schedule `json:"schedule"`
	Result   Result   `json:"result"`
}

// Resume returns a pool that keeps the results of a plan's schedules in a directory, and begins
// with those that are there. Digest is that of the plan's default schedule: where it differs, other
// programs have played.
func Resume(pool Pool, dir string, plan *scenarios.Plan, digest string) (Pool, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("keep what a search finds: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "search-"+plan.ID()+"-"+digest+".jsonl"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("keep what a search finds: %w", err)
	}
	r := &resumed{Pool: pool, file: file, known: make(map[int]played), under: make(map[int]Schedule)}
	whole, in := int64(0), bufio.NewReader(file)
	for {
		line, err := in.ReadBytes('\n')
		var p played
		if err != nil || json.Unmarshal(line, &p) != nil {
			break // the rest was never written
		}
		r.known[p.Schedule.Number] = p
		whole += int64(len(line))
	}
	if err = file.Truncate(whole); err == nil {
		_, err = file.Seek(whole, 0)
	}
	if err != nil {
		_ = file.Close() // nothing was written
		return nil, fmt.Errorf("go on with %s: %w", file.Name(), err)
	}
	r.lines = bufio.NewWriter(file)
	return r, nil
}

// Give implements Workers.
func (r *resumed) Give(s Schedule) {
	if s.Variant == 0 && s.Plan == nil {
		if p, ok := r.known[s.Number]; ok && same(p.Schedule, s) {
			r.ready = append(r.ready, p.Result)
			return
		}
		r.under[s.Number] = s
	}
	r.Pool.Give(s)
}

// Take implements Workers.
func (r *resumed) Take() (Result, bool) {
	if len(r.ready) > 0 {
		next := r.ready[0]
		r.ready = r.ready[1:]
		return next, true
	}
	result, ok := r.Pool.Take()
	s, searched := r.under[result.Number]
	if !ok || !searched || result.Variant != 0 {
		return result, ok
	}
	delete(r.under, result.Number)
	line, err := json.Marshal(played{s, result})
	if err == nil {
		_, err = r.lines.Write(append(line, '\n'))
	}
	if r.failed == nil {
		r.failed = err
	}
	return result, true
}

// Close implements Pool.
func (r *resumed) Close() error {
	err := r.Pool.Close()
	kept := r.lines.Flush()
	if closed := r.file.Close(); kept == nil {
		kept = closed
	}
	if r.failed != nil {
		kept = r.failed
	}
	if err == nil && kept != nil {
		err = fmt.Errorf("keep what a search finds: %w", kept)
	}
	return err
}

func same(a, b Schedule) bool {
	one, err := json.Marshal(a)
	other, also := json.Marshal(b)
	return err == nil && also == nil && bytes.Equal(one, other)
}
