// Package conform plays the stories of scenarios/conformance with a system under test. It writes a
// report that can be published: which stories the system holds, with what versions and digests,
// and for each that it doesn't hold which guarantee broke.
package conform

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/campaign/pool"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
)

// Stories is the directory of the stories.
const Stories = "scenarios/conformance"

// seed determines the stories' choices: every system gets the same stories.
const seed = 1

// story is one of the set.
type story struct {
	scenario *scenarios.Scenario
	digest   string
}

// load reads the stories in a directory.
func load(dir string, vocabulary file.Vocabulary) (all []story, err error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("find the stories: %w; change to the directory with fencelab's source", err)
	}
	err = file.EachFile([]string{dir}, func(path string, data []byte) error {
		told, err := file.LoadFiles([]string{path}, vocabulary, nil)
		for _, s := range told {
			all = append(all, story{s, digestOf(data)})
		}
		return err
	})
	return all, err
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// files returns the files that a system runs, with their digests.
func files(s *scenarios.System) (all []File, err error) {
	for _, name := range s.Files() {
		at, err := scenarios.Locate(name)
		if err != nil {
			return nil, fmt.Errorf("find what the system runs: %w; build it first", err)
		}
		f, err := os.Open(at)
		if err != nil {
			return nil, fmt.Errorf("read what the system runs: %w", err)
		}
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("read what the system runs: %w", err)
		}
		all = append(all, File{filepath.Base(name), hex.EncodeToString(sum.Sum(nil))})
	}
	return all, nil
}

// suite plays stories in worlds.
type suite struct {
	console *report.Console
	world   func() play.Backend
	workers int
	// unfit returns the reason why a scenario can't be played with the system, or nothing.
	unfit func(*scenarios.Scenario) string
}

// tell plays the stories, as many at a time as there are workers, and returns the result of each,
// in order. The error, which has an exit code, says that a story could not be played at all: what
// one world lacks, the next does.
func (s *suite) tell(ctx context.Context, all []story) ([]Result, error) {
	results, outcomes := make([]Result, len(all)), make([]*play.Outcome, len(all))
	err := pool.Each(ctx, s.workers, len(all), func(ctx context.Context, _, i int) (err error) {
		results[i], outcomes[i], err = s.one(ctx, all[i])
		return err
	}, func(i int) {
		s.say(results[i], outcomes[i])
		outcomes[i] = nil // it is large
	})
	return results, err
}

// one plays a story.
func (s *suite) one(ctx context.Context, told story) (Result, *play.Outcome, error) {
	meta := &told.scenario.Metadata
	r := Result{Story: meta.Name, Digest: told.digest}
	if len(meta.Labels) > 0 {
		r.Topic = meta.Labels[0]
	}
	if why := s.unfit(told.scenario); why != "" {
		r.Verdict, r.Reason = skipped, why
		return r, nil, nil
	}
	r.Verdict, r.Reason = invariant.Unknown, "it was not told: the invocation ended before"
	if ctx.Err() != nil {
		return r, nil, nil
	}
	plan, err := scenarios.Compile(told.scenario, seed)
	if err != nil {
		return r, nil, exit.Coded(exit.Internal, err)
	}
	session := campaign.Session{World: s.console.World, To: s.console}
	outcome, err := session.Play(ctx, plan, s.world())
	if err != nil {
		r.Reason = err.Error()
		if ctx.Err() != nil || exit.Code(err) == exit.Internal {
			err = nil // other stories can be played all the same
		}
		return r, nil, err
	}
	r.Verdict, r.Reason = outcome.Verdict()
	if v := outcome.Violation(); v != nil {
		r.Guarantee = v.Invariant
	}
	r.Seconds = outcome.Duration().Round(time.Millisecond).Seconds()
	r.History = outcome.History.Digest()
	if s.console.Dir != "" {
		r.Directory = meta.Name + "-" + plan.ID()
		dir := filepath.Join(s.console.Dir, r.Directory)
		again := *s.console
		again.Real = s.console.World != "sim"
		if err := report.Save(outcome, dir, again.Replay(dir)); err != nil {
			return r, nil, exit.Coded(exit.Internal, err)
		}
	}
	return r, outcome, nil
}

// say prints a line of the table.
func (s *suite) say(r Result, outcome *play.Outcome) {
	text := fmt.Sprintf("%-10s  ", r.Topic)
	switch {
	case r.Verdict == skipped:
		fmt.Fprintf(s.console.Out, "skipped   %-44s %s%s\n", r.Story, text, r.Reason)
		return
	case outcome != nil:
		text += outcome.Duration().Round(time.Millisecond).String()
	}
	s.console.Line(r.Verdict, r.Verdict == invariant.Held, r.Story, text)
	if r.Reason != "" {
		fmt.Fprintf(s.console.Out, "  %s\n", r.Reason)
	}
}
