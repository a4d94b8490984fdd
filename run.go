package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/ci/lab"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
	"github.com/fencelab/fencelab/sim/search/workers"
)

// benign is the strategy of whoever plays the default schedule alone.
const benign = "benign"

// runner is one invocation of run or replay.
type runner struct {
	backend string
	search  search.Options
	workers int
	trace   bool

	console   report.Console
	talk      io.Writer
	simulator *sim.Simulator
}

func runCommand() *cobra.Command {
	r := &runner{}
	cmd := &cobra.Command{
		Use:   "run FILE|DIR...",
		Short: "Run scenarios and judge them",
		Long: `Run plays each scenario in a world and says which guarantees held.

The lab plays the scenario once, on virtual machines. The simulator plays the
schedules that a strategy chooses:

  benign    the default schedule, alone
` + search.Described() + `
What is needed to look into a run that did not come out as expected, and to play
it again, is saved below --out.`,
		Args: scenarioArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd, args) },
	}
	r.flags(cmd, "run", "directory for the reports of all runs (default: out, for those that fail)")
	flags := cmd.Flags()
	flags.Uint64Var(&r.search.Seed, "seed", 1, "what the scenario's and the strategy's choices are drawn from")
	flags.StringVar(&r.search.Strategy, "strategy", benign, "schedules to try in the simulator: "+choices())
	flags.IntVar(&r.search.Schedules, "schedules", 1000, "how many schedules to try for each scenario, with any strategy but benign and sweep")
	flags.IntVar(&r.workers, "workers", runtime.NumCPU(), "worker processes for a search")
	return cmd
}

// flags are those that run and replay have in common.
func (r *runner) flags(cmd *cobra.Command, verb, out string) {
	flags := cmd.Flags()
	flags.StringVar(&r.backend, "backend", "sim", "the world to "+verb+" in: "+oneOf(worldNames()))
	flags.StringVar(&r.console.Dir, "out", "", out)
	flags.BoolVarP(&r.trace, "trace", "v", false, "print every event as it happens")
}

// choices are the strategies: "benign, sweep or pairs".
func choices() string { return oneOf(append([]string{benign}, search.Strategies()...)) }

func worldNames() (names []string) {
	for _, world := range worlds {
		names = append(names, world.World)
	}
	return names
}

func oneOf(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// start checks what run and replay have in common, and makes what they need.
func (r *runner) start(cmd *cobra.Command) (err error) {
	r.console.Out, r.talk, r.console.Program = cmd.OutOrStdout(), cmd.ErrOrStderr(), os.Args[0]
	if names := worldNames(); !slices.Contains(names, r.backend) {
		return invalid(fmt.Errorf("--backend %s: choose %s", r.backend, oneOf(names)))
	}
	if dir := r.console.Dir; dir != "" {
		if err := report.Writable(dir); err != nil {
			return invalid(fmt.Errorf("--out %s: %w", dir, err))
		}
	}
	if r.backend == "sim" {
		if r.simulator, err = sim.New(); err != nil {
			return &exit{exitInternal, err}
		}
	}
	return nil
}

func (r *runner) run(cmd *cobra.Command, args []string) error {
	ctx, strategy := cmd.Context(), r.search.Strategy
	if strategy != benign && !slices.Contains(search.Strategies(), strategy) {
		return invalid(fmt.Errorf("--strategy %s: choose %s", strategy, choices()))
	}
	if r.backend == "lab" && strategy != benign {
		return invalid(fmt.Errorf("--strategy %s: only the simulator can choose among schedules", strategy))
	}
	if r.search.Schedules < 1 || r.workers < 1 {
		return invalid(errors.New("--schedules and --workers must be at least 1"))
	}
	loaded, err := scenarios.LoadFiles(args, vocabulary())
	if err != nil {
		return invalid(err)
	}
	if err := r.start(cmd); err != nil {
		return err
	}
	began := time.Now()
	ran, unexpected, worst := 0, 0, exitHeld
	for _, s := range loaded {
		if len(s.Spec.Worlds) > 0 && !slices.Contains(s.Spec.Worlds, r.backend) {
			fmt.Fprintf(r.talk, "skipped   %s: it can be told in %s only\n", s.Metadata.Name, strings.Join(s.Spec.Worlds, " and "))
			continue
		}
		plan, err := scenarios.Compile(s, r.search.Seed)
		if err != nil {
			return &exit{exitInternal, err}
		}
		code := exitHeld
		if strategy == benign {
			code, err = r.single(ctx, plan)
		} else {
			code, err = r.explore(ctx, s, plan)
		}
		if err != nil {
			return err
		}
		ran++
		if code != exitHeld {
			unexpected++
		}
		worst = worse(worst, code)
		if ctx.Err() != nil {
			break
		}
	}
	summary := "as expected"
	if unexpected > 0 {
		summary = fmt.Sprintf("%d not as expected", unexpected)
	}
	fmt.Fprintf(r.talk, "%s in %s: %s\n", report.Count(ran, "scenario"), time.Since(began).Round(time.Millisecond), summary)
	if ran == 0 && worst == exitHeld {
		return &exit{exitUnknown, fmt.Errorf("none of the scenarios can be told in the %s", r.backend)}
	}
	return ended(worst)
}

// single plays one schedule of a plan and reports on it.
func (r *runner) single(ctx context.Context, plan *scenarios.Plan) (int, error) {
	began := time.Now()
	outcome, err := r.play(ctx, plan)
	if err != nil {
		return 0, err
	}
	var took time.Duration
	if r.backend == "lab" {
		took = time.Since(began)
	}
	code := exitCode(outcome)
	if err := r.console.Outcome(outcome, took); err != nil {
		fmt.Fprintf(r.talk, "fencelab: %v\n", err)
		if code == exitHeld {
			code = exitInternal
		}
	}
	return code, nil
}

// play plays one schedule.
func (r *runner) play(ctx context.Context, plan *scenarios.Plan) (*scenarios.Outcome, error) {
	var backend scenarios.Backend
	if r.backend == "lab" {
		backend = lab.New(lab.Options{Log: r.talk})
	} else {
		world := r.simulator.Backend()
		world.Evidence = true
		backend = world
	}
	var listen func(history.Event)
	switch {
	case r.trace:
		listen = func(e history.Event) { fmt.Fprintf(r.talk, "%5d %s\n", e.Seq, e) }
	case r.backend == "lab":
		listen = func(e history.Event) {
			if layer := e.Kind.Layer(); layer == history.World || layer == history.Engine {
				fmt.Fprintf(r.talk, "  %s\n", e)
			}
		}
	}
	outcome, err := scenarios.Run(ctx, plan, backend, listen)
	var unsupported *scenarios.Unsupported
	var missing *lab.Missing
	switch {
	case errors.As(err, &unsupported):
		return nil, invalid(fmt.Errorf("%s: %w", plan.Metadata.Name, err))
	case errors.As(err, &missing):
		return nil, &exit{exitEnvironment, err}
	case err != nil && ctx.Err() != nil:
		return nil, &exit{exitUnknown, fmt.Errorf("%s: interrupted", plan.Metadata.Name)}
	case err != nil:
		return nil, &exit{exitInternal, fmt.Errorf("%s: %w", plan.Metadata.Name, err)}
	}
	outcome.World, outcome.Version = r.backend, version()
	return outcome, nil
}

// explore tries many schedules of a plan in worker processes.
func (r *runner) explore(ctx context.Context, scenario *scenarios.Scenario, plan *scenarios.Plan) (int, error) {
	s, first, err := search.New(ctx, r.simulator, scenario, plan, r.search)
	if err != nil {
		return 0, &exit{exitInternal, err}
	}
	if first.Meets() != "" || plan.Spec.Expect.Violated != "" || first.Err != nil {
		// Nothing to search for: the benign schedule breaks it already. It is
		// played again, for its evidence.
		return r.single(ctx, plan)
	}
	self, err := os.Executable()
	if err != nil {
		return 0, &exit{exitInternal, fmt.Errorf("find the own executable: %w", err)}
	}
	began := time.Now()
	pool := workers.Start(ctx, min(r.workers, max(1, s.Total)), s.Story, self, workerName)
	bar := report.NewProgress(r.talk, plan.Metadata.Name, s.Total)
	tally := s.Run(pool, bar.At)
	err = pool.Close()
	took := time.Since(began)
	bar.Clear()
	if err != nil && ctx.Err() == nil {
		return 0, &exit{exitInternal, err}
	}
	s.Report(&r.console, tally)
	fmt.Fprintf(r.talk, "  %.0f schedules/s\n", float64(tally.Tried)/took.Seconds())
	code := codeOf(tally.Verdict(s.Total))
	// What an interrupted search has found is still shown.
	ctx = context.WithoutCancel(ctx)
	err = s.ReportFailures(&r.console, tally, func(plan *scenarios.Plan) error {
		shown, err := r.single(ctx, plan)
		code = worse(code, shown)
		return err
	})
	return code, err
}

// workerName is the hidden command that is the other side of a search.
const workerName = "worker"

func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    workerName,
		Short:  "Play schedules for a search",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := workers.Serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout()); err != nil {
				return &exit{exitInternal, err}
			}
			return nil
		},
	}
}

func replayCommand() *cobra.Command {
	r := &runner{}
	cmd := &cobra.Command{
		Use:   "replay PLAN",
		Short: "Play a saved plan again",
		Long: `Replay plays the plan.txt of a saved run. In the simulator every event must come
out as before; where the plan has the digest of its history, that is checked, and
the first event that differs from the history.jsonl beside it is shown.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return r.replay(cmd, args[0]) },
	}
	r.flags(cmd, "replay", "directory for the report (default: none)")
	return cmd
}

func (r *runner) replay(cmd *cobra.Command, file string) error {
	if err := r.start(cmd); err != nil {
		return err
	}
	data, err := scenarios.ReadFile(file)
	if err != nil {
		return invalid(err)
	}
	plan, err := scenarios.LoadPlan(file, data, vocabulary())
	if err != nil {
		return invalid(err)
	}
	outcome, err := r.play(cmd.Context(), plan)
	if err != nil {
		return err
	}
	fmt.Fprintln(r.console.Out, outcome.Text(""))
	if dir := r.console.Dir; dir != "" {
		if err := outcome.Save(dir, r.console.Replay(r.backend, dir)); err != nil {
			return &exit{exitInternal, err}
		}
	}
	if r.backend == "sim" && plan.Digest != "" {
		var different *scenarios.Different
		err := outcome.Replayed(filepath.Join(filepath.Dir(file), "history.jsonl"))
		if errors.As(err, &different) && different.Plan {
			return invalid(err)
		} else if err != nil {
			return &exit{exitInternal, err}
		}
		fmt.Fprintf(r.console.Out, "replayed: %d events, every one as before\n", outcome.History.Len())
	}
	return ended(exitCode(outcome))
}

// ended is how a command ends whose result was printed.
func ended(code int) error {
	if code != exitHeld {
		return &exit{code: code}
	}
	return nil
}

// worse returns the exit code that counts when several runs end differently. A
// violation that was seen stands, whatever else is unknown.
func worse(a, b int) int {
	order := [...]int{exitHeld, exitUnknown, exitViolated, exitInvalid, exitEnvironment, exitInternal}
	return order[max(slices.Index(order[:], a), slices.Index(order[:], b))]
}

// exitCode is the exit code of one outcome.
func exitCode(o *scenarios.Outcome) int {
	if o.Meets() == "" {
		return exitHeld
	}
	verdict, _ := o.Verdict()
	switch {
	case o.Err != nil && !o.Interrupted() && verdict != invariant.Violated:
		return exitInternal
	case verdict == invariant.Unknown:
		return exitUnknown
	default:
		return exitViolated
	}
}

// codeOf is the exit code of a verdict on a search.
func codeOf(v invariant.Verdict) int {
	switch v {
	case invariant.Held:
		return exitHeld
	case invariant.Unknown:
		return exitUnknown
	}
	return exitViolated
}
