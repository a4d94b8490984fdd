package corpus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/campaign/pool"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/corpus/source"
	"github.com/fencelab/fencelab/sim/search"
	"github.com/fencelab/fencelab/sim/search/workers"
)

// Finding is the result of trying a pair.
type Finding struct {
	Pair
	// Schedules is how many were played until the mistake broke its guarantee, and Took how long
	// that took.
	Schedules int
	Took      time.Duration
	// Cause are the deviations of the schedule that broke it, or none if it was the default
	// schedule.
	Cause []scenarios.Deviation
	// Problem says what is wrong with the pair, or is empty.
	Problem string
	// Broken is the schedule in which the right half doesn't hold, if that is the problem.
	Broken *scenarios.Plan
}

// Run tries all pairs of files and directories, one at a time on each core, and reports them in
// order. If all is as expected it writes the [Record] to the file table, unless that is empty. It
// needs the module's source in the working directory when a mistake is in the source. The error
// has an exit code.
func Run(ctx context.Context, to *report.Console, paths []string, vocabulary file.Vocabulary, table string) error {
	simulator, err := sim.New()
	if err != nil {
		return exit.Coded(exit.Internal, err)
	}
	session := &campaign.Session{World: to.World, To: to, Now: time.Now, Another: simulator.Evident}
	pairs, err := Load(paths, vocabulary)
	if err != nil {
		return &exit.Error{Code: exit.Invalid, Err: err}
	}
	began := time.Now()
	findings, err := tryAll(ctx, ".", pairs, func(f Finding) {
		text := fmt.Sprintf("%s of %s in %s; right: held", f.Breaks, f.Right.Metadata.Upstream, f.cause())
		verdict := invariant.Violated
		if f.Problem != "" {
			text, verdict = f.Problem, invariant.Unknown
		}
		to.Line(verdict, f.Problem == "", f.Right.Metadata.Name, text)
	})
	if err != nil {
		return err
	}
	wrong := 0
	for _, f := range findings {
		if f.Problem != "" {
			wrong++
		}
		if f.Broken != nil {
			if _, err := session.Single(ctx, f.Broken, simulator.Evident()); err != nil {
				return err
			}
		}
	}
	summary := "every bug was found, and every right controller held"
	if wrong > 0 {
		summary = fmt.Sprintf("%d not as expected", wrong)
	}
	fmt.Fprintf(to.Talk, "%s in %s: %s\n", phrase.Count(len(findings), "pair"), time.Since(began).Round(time.Millisecond), summary)
	if wrong > 0 {
		return exit.Ended(exit.Violated)
	}
	if table == "" {
		return nil
	}
	if err := os.WriteFile(table, Record(findings), 0o644); err != nil {
		return &exit.Error{Code: exit.Environment, Err: err}
	}
	return nil
}

// tryAll tries pairs with the module at root, and reports them in order.
func tryAll(ctx context.Context, root string, pairs []Pair, tell func(Finding)) ([]Finding, error) {
	dir, done, err := source.Workshop("fencelab-corpus")
	if err != nil {
		return nil, &exit.Error{Code: exit.Environment, Err: err}
	}
	defer done()
	wrong, err := build(ctx, root, dir, pairs)
	if err != nil {
		return nil, err
	}
	findings := make([]Finding, len(pairs))
	simulators := make([]*sim.Simulator, runtime.NumCPU()) // one plays one schedule at a time
	err = pool.Each(ctx, len(simulators), len(pairs), func(ctx context.Context, worker, i int) (err error) {
		if simulators[worker] == nil {
			if simulators[worker], err = sim.New(); err != nil {
				return err
			}
		}
		findings[i], err = try(ctx, simulators[worker], wrong, pairs[i])
		return err
	}, func(i int) { tell(findings[i]) })
	if err != nil {
		return nil, err
	}
	return findings, nil
}

// build builds the workers that make the mistakes in the source, or none if there are none.
func build(ctx context.Context, root, dir string, pairs []Pair) (*source.Programs, error) {
	var mistakes []source.Mistake
	for _, p := range pairs {
		if p.Overlaid == nil {
			mistakes = append(mistakes, source.Mistake{Name: p.Right.Metadata.Name, Changes: p.Changes})
		}
	}
	if len(mistakes) == 0 {
		return nil, nil
	}
	programs, err := source.Together(ctx, root, "./sim/corpus/worker", dir, mistakes)
	switch {
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist):
		err = fmt.Errorf("%s has a mistake in the source, so this needs go and the directory with fencelab's source: %w", mistakes[0].Name, err)
		return nil, &exit.Error{Code: exit.Environment, Err: err}
	case err != nil:
		return nil, exit.Coded(exit.Internal, err)
	}
	return programs, nil
}

// try plays the right half, looks for a schedule in which the mistake breaks its guarantee, and
// plays the right half once more in that schedule.
func try(ctx context.Context, simulator *sim.Simulator, programs *source.Programs, p Pair) (Finding, error) {
	f := Finding{Pair: p}
	if ctx.Err() != nil {
		return f, &exit.Error{Code: exit.Unknown, Err: errors.New("interrupted")}
	}
	internal := func(err error) (Finding, error) {
		return f, &exit.Error{Code: exit.Internal, Err: fmt.Errorf("%s: %w", p.File, err)}
	}
	right, err := scenarios.Compile(p.Right, 1)
	if err != nil {
		return internal(err)
	}
	sweep, benign, err := search.New(ctx, simulator, p.Right, right, search.Options{Strategy: "sweep", Seed: 1})
	if err != nil {
		return internal(err)
	}
	if why := benign.Meets(); why != "" {
		f.Problem, f.Broken = "the right half: "+why, right
		return f, nil
	}
	story := *sweep.Story
	var wrong campaign.Pool
	if p.Overlaid != nil {
		if story.Plan, err = scenarios.Compile(p.Overlaid, 1); err != nil {
			return internal(err)
		}
		wrong = search.NewAlone(simulator, &story)
	} else {
		command, done, err := programs.Command(ctx, p.Right.Metadata.Name)
		if err != nil {
			return internal(err)
		}
		defer done()
		wrong = workers.Start(ctx, 1, &story, command...)
	}
	began := time.Now()
	schedule, found := f.hunt(wrong, sweep)
	f.Took = time.Since(began)
	if err := wrong.Close(); err != nil {
		return internal(err)
	}
	if !found {
		return f, nil
	}
	f.Cause = schedule.Deviations
	// If the right controllers break it as well, the mistake is not the cause.
	outcome, _, err := search.NewPlayer(simulator, sweep.Story).Play(schedule)
	if err != nil {
		return internal(err)
	}
	if verdict, why := outcome.VerdictOfSchedule(); verdict != invariant.Held {
		f.Problem, f.Broken = fmt.Sprintf("the right half in %s: %s", f.cause(), why), outcome.Plan
	}
	return f, nil
}

// defaultFirst tries the default schedule before those of another strategy.
type defaultFirst struct{ campaign.Strategy }

// Next implements campaign.Strategy.
func (d defaultFirst) Next(n int) (campaign.Schedule, bool) {
	if n == 0 {
		return campaign.Schedule{}, true
	}
	schedule, ok := d.Strategy.Next(n - 1)
	schedule.Number = n
	return schedule, ok
}

// hunt plays the default schedule, and then every single deviation from it until the guarantee is
// broken. So no smaller cause exists than the one that it finds. A mistake in an overlay shows in
// the default schedule.
func (f *Finding) hunt(wrong campaign.Pool, sweep *campaign.Search) (cause campaign.Schedule, found bool) {
	hunt := campaign.Search{Strategy: defaultFirst{sweep.Strategy}, Story: sweep.Story, Total: 1}
	if f.Overlaid == nil {
		hunt.Total += sweep.Total
	}
	hunt.Until = func(s campaign.Schedule, r campaign.Result) bool {
		found = slices.Contains(r.Broke, f.Breaks)
		switch {
		case found:
			cause = s
		case r.Number == 0 && r.Invariant != "":
			f.Problem = fmt.Sprintf("the wrong half breaks %s, not %s", r.Invariant, f.Breaks)
			return true
		}
		return found
	}
	f.Schedules = hunt.Run(wrong, nil).Tried
	if !found && f.Problem == "" {
		f.Problem = fmt.Sprintf("the wrong half broke %s in none of %s", f.Breaks, phrase.Count(f.Schedules, "schedule"))
	}
	return cause, found
}

// cause names the schedule in which the guarantee was broken.
func (f *Finding) cause() string {
	if len(f.Cause) == 0 {
		return "the default schedule"
	}
	return f.Cause[0].String()
}
