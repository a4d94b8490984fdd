package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fencelab/fencelab/ci/lab"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/explore"
)

// runner is one invocation of run or replay.
type runner struct {
	backend   string
	seed      uint64
	out       string
	strategy  string
	schedules int
	workers   int
	trace     bool

	stdout, talk io.Writer
	simulator    *sim.Simulator
	// worst is the exit code so far; unexpected is how many scenarios didn't come
	// out as expected.
	worst, unexpected int
}

func runCommand() *cobra.Command {
	r := &runner{}
	cmd := &cobra.Command{
		Use:   "run FILE|DIR...",
		Short: "Run scenarios and judge them",
		Long: `Run plays each scenario in a world and says which guarantees held.

The simulator plays one schedule (benign), each single deviation from it (every
delay, every fault and every crash point: sweep), a number of random pairs of those
(pairs), or a number of random schedules (random). The lab plays the scenario once, on virtual machines.

What is needed to look into a run that did not come out as expected, and to play
it again, is saved below --out.`,
		Args: scenarioArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			r.stdout, r.talk = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return r.run(cmd.Context(), args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.backend, "backend", "sim", "the world to run in: sim or lab")
	flags.Uint64Var(&r.seed, "seed", 1, "what the scenario's and the strategy's choices are drawn from")
	flags.StringVar(&r.out, "out", "", "directory for the reports of all runs (default: out, for those that fail)")
	flags.StringVar(&r.strategy, "strategy", "benign", "schedules to try in the simulator: benign, sweep, pairs or random")
	flags.IntVar(&r.schedules, "schedules", 1000, "how many schedules to try for each scenario, with pairs and random")
	flags.IntVar(&r.workers, "workers", runtime.NumCPU(), "worker processes for a search")
	flags.BoolVarP(&r.trace, "trace", "v", false, "print every event as it happens")
	return cmd
}

func (r *runner) run(ctx context.Context, args []string) error {
	if !slices.Contains([]string{"benign", "sweep", "pairs", "random"}, r.strategy) {
		return invalid(fmt.Errorf("--strategy %s: choose benign, sweep, pairs or random", r.strategy))
	}
	if err := r.checkBackend(); err != nil {
		return err
	}
	if r.backend == "lab" && r.strategy != "benign" {
		return invalid(fmt.Errorf("--strategy %s: only the simulator can choose among schedules", r.strategy))
	}
	if r.schedules < 1 || r.workers < 1 {
		return invalid(errors.New("--schedules and --workers must be at least 1"))
	}
	loaded, err := load(args)
	if err != nil {
		return invalid(err)
	}
	if r.out != "" {
		if err := writable(r.out); err != nil {
			return invalid(err)
		}
	}
	if r.backend == "sim" {
		if r.simulator, err = sim.New(); err != nil {
			return &exit{exitInternal, err}
		}
	}
	began := time.Now()
	ran := 0
	for _, s := range loaded {
		if len(s.Spec.Worlds) > 0 && !slices.Contains(s.Spec.Worlds, r.backend) {
			fmt.Fprintf(r.talk, "skipped   %s: it can be told in %s only\n", s.Metadata.Name, strings.Join(s.Spec.Worlds, " and "))
			continue
		}
		plan, err := scenarios.Compile(s, r.seed)
		if err != nil {
			return &exit{exitInternal, err}
		}
		before := r.worst
		r.worst = exitHeld
		if err := r.play(ctx, s, plan); err != nil {
			return err
		}
		ran++
		if r.worst != exitHeld {
			r.unexpected++
		}
		r.worst = worse(before, r.worst)
		if ctx.Err() != nil {
			break
		}
	}
	summary := "as expected"
	if r.unexpected > 0 {
		summary = fmt.Sprintf("%d not as expected", r.unexpected)
	}
	fmt.Fprintf(r.talk, "%s in %s: %s\n", count(ran, "scenario"), time.Since(began).Round(time.Millisecond), summary)
	if ran == 0 && r.worst == exitHeld {
		return &exit{exitUnknown, fmt.Errorf("none of the scenarios can be told in the %s", r.backend)}
	}
	return r.finish()
}

func (r *runner) checkBackend() error {
	if r.backend != "sim" && r.backend != "lab" {
		return invalid(fmt.Errorf("--backend %s: choose sim or lab", r.backend))
	}
	return nil
}

// count is a number of things: "1 scenario", "2 scenarios".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (r *runner) finish() error {
	if r.worst != exitHeld {
		return &exit{code: r.worst}
	}
	return nil
}

// play plays one plan by the chosen strategy.
func (r *runner) play(ctx context.Context, s *scenarios.Scenario, plan *scenarios.Plan) error {
	if r.strategy == "benign" {
		return r.single(ctx, plan)
	}
	return r.explore(ctx, s, plan)
}

// single plays one schedule of a plan and reports on it.
func (r *runner) single(ctx context.Context, plan *scenarios.Plan) error {
	began := time.Now()
	outcome, err := r.outcome(ctx, plan)
	if err != nil {
		return err
	}
	r.report(outcome, time.Since(began))
	return nil
}

// outcome plays one schedule.
func (r *runner) outcome(ctx context.Context, plan *scenarios.Plan) (*scenarios.Outcome, error) {
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

// report prints what came of a run and saves what is worth keeping.
func (r *runner) report(o *scenarios.Outcome, took time.Duration) {
	mismatch := o.Meets()
	verdict, _ := o.Verdict()
	word := string(verdict)
	if mismatch != "" {
		word = strings.ToUpper(word)
	}
	expected := ""
	if o.Plan.Spec.Expect.Violated != "" && mismatch == "" {
		expected = ", as expected: " + o.Plan.Spec.Expect.Violated
	}
	injected := o.Injected.String()
	if injected != "" {
		injected = ", " + injected
	}
	fmt.Fprintf(r.stdout, "%s  %-44s %s, %d events, digest %s%s%s\n", r.paint(word, verdict, mismatch == ""), o.Plan.Metadata.Name,
		o.Duration().Round(time.Millisecond), o.History.Len(), o.History.Digest(), injected, expected)
	if r.backend == "lab" {
		fmt.Fprintf(r.stdout, "  wall time %s\n", took.Round(100*time.Millisecond))
		for _, line := range o.Elapsed() {
			fmt.Fprintf(r.stdout, "  %s\n", line)
		}
	}
	dir := r.out
	if dir == "" && mismatch != "" {
		dir = "out"
	}
	replay := ""
	if dir != "" {
		dir = filepath.Join(dir, fmt.Sprintf("%s-%s-%s", o.Plan.Metadata.Name, r.backend, o.Plan.ID()))
		replay = replayOf(dir)
		if r.backend == "lab" {
			replay += " --backend lab"
		}
		if err := o.Save(dir, replay); err != nil {
			fmt.Fprintf(r.talk, "fencelab: %v\n", err)
			replay = "" // there is nothing to replay
			if exitCode(o) == exitHeld {
				r.worst = worse(r.worst, exitInternal)
			}
		}
	}
	if mismatch != "" {
		fmt.Fprintf(r.stdout, "\n%s\n", o.Text(replay))
	}
	r.worst = worse(r.worst, exitCode(o))
}

// replayOf is the command that plays a saved run again. It calls this program as
// the user did, so that it works where the user is.
func replayOf(dir string) string {
	return fmt.Sprintf("%s replay %s", quoted(os.Args[0]), quoted(filepath.Join(dir, "plan.txt")))
}

// quoted is a word as a shell reads it.
func quoted(word string) string {
	if word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./+:,@%=") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
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

// paint colours a word on a terminal: green when all is as expected, red when
// not.
func (r *runner) paint(word string, verdict invariant.Verdict, expected bool) string {
	padded := fmt.Sprintf("%-8s", word)
	f, ok := r.stdout.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("NO_COLOR") != "" {
		return padded
	}
	colour := "31"
	switch {
	case expected:
		colour = "32"
	case verdict == invariant.Unknown:
		colour = "33"
	}
	return "\x1b[" + colour + "m" + padded + "\x1b[0m"
}

// explore tries many schedules of a plan in worker processes.
func (r *runner) explore(ctx context.Context, scenario *scenarios.Scenario, plan *scenarios.Plan) error {
	search, benign, err := explore.NewSearch(ctx, r.simulator, scenario, plan, explore.Strategy(r.strategy), r.seed, r.schedules)
	if err != nil {
		return &exit{exitInternal, err}
	}
	if mismatch := benign.Meets(); mismatch != "" || plan.Spec.Expect.Violated != "" || benign.Err != nil {
		// Nothing to search for: the benign schedule breaks it already. It is
		// played again, for its evidence.
		return r.single(ctx, plan)
	}
	began := time.Now()
	tally, err := r.search(ctx, search)
	if err != nil {
		return err
	}
	took := time.Since(began)
	verdict, code := invariant.Held, exitHeld
	switch {
	case tally.Violated > 0:
		verdict, code = invariant.Violated, exitViolated
	case tally.Unknown > 0 || tally.Tried < search.Total:
		verdict, code = invariant.Unknown, exitUnknown
	}
	word := string(verdict)
	if code != exitHeld {
		word = strings.ToUpper(word)
	}
	failures := tally.Failures()
	fmt.Fprintf(r.stdout, "%s  %-44s %s: %d held, %d violated, %d unknown; %s simulated\n",
		r.paint(word, verdict, code == exitHeld), plan.Metadata.Name, search.Describe(tally.Tried), tally.Held, tally.Violated, tally.Unknown,
		tally.Simulated.Round(time.Second))
	if tally.Violated > 0 {
		fmt.Fprintf(r.stdout, "  it took %s to the first violation\n", count(failures[0].Schedule+1, "schedule"))
	}
	if tally.Idle > 0 {
		fmt.Fprintf(r.stdout, "  in %s a fault, a crash or a deviation had no effect\n", count(tally.Idle, "schedule"))
	}
	fmt.Fprintf(r.talk, "  %.0f schedules/s\n", float64(tally.Tried)/took.Seconds())
	for i, f := range failures {
		if i == failuresShown {
			fmt.Fprintf(r.stdout, "\nand %s of failure\n", count(len(failures)-i, "more kind"))
			break
		}
		// What an interrupted search has found is still shown.
		outcome, err := r.outcome(context.WithoutCancel(ctx), search.PlanOf(f.Schedule).With(f.Deviations))
		if err != nil {
			return err
		}
		fmt.Fprintf(r.stdout, "\n%s like this one, schedule %d:\n", count(f.Count, "schedule"), f.Schedule+1)
		r.report(outcome, 0)
	}
	r.worst = worse(r.worst, code)
	return nil
}

// failuresShown bounds how many kinds of failures a search reports.
const failuresShown = 10

// task is what a worker process is given on its standard input. It plays every
// Workers-th schedule, beginning with the Worker-th.
type task struct {
	*explore.Search
	Worker  int `json:"worker"`
	Workers int `json:"workers"`
}

// search shares the schedules out among worker processes, one for each core,
// and adds up what they found.
func (r *runner) search(ctx context.Context, search *explore.Search) (explore.Tally, error) {
	self, err := os.Executable()
	if err != nil {
		return explore.Tally{}, &exit{exitInternal, fmt.Errorf("find the own executable: %w", err)}
	}
	type share struct {
		tally explore.Tally
		err   error
	}
	shares := make([]chan share, min(r.workers, max(1, search.Total)))
	bar := newProgress(r.talk, search.Plan.Metadata.Name, search.Total)
	for i := range shares {
		shares[i] = make(chan share, 1)
		go func() {
			tally, err := task{search, i, len(shares)}.hand(ctx, self, bar)
			shares[i] <- share{tally, err}
		}()
	}
	var sum explore.Tally
	var failures []error
	for _, c := range shares {
		s := <-c
		sum.Merge(s.tally)
		failures = append(failures, s.err)
	}
	bar.clear()
	if err := errors.Join(failures...); err != nil && ctx.Err() == nil {
		return sum, &exit{exitInternal, err}
	}
	return sum, nil
}

// lastWords is how long a worker that was told to stop may take to say what it
// has found. A schedule takes milliseconds.
const lastWords = 5 * time.Second

// hand gives the task to a worker process and returns what it found. The worker
// stops when its input ends: when this run is interrupted, and when this process
// is gone, however it ended.
func (t task) hand(ctx context.Context, self string, bar *progress) (explore.Tally, error) {
	var tally explore.Tally
	failed := func(err error, output []byte) (explore.Tally, error) {
		return tally, fmt.Errorf("worker %d: %w\n%s", t.Worker, err, output)
	}
	task, err := json.Marshal(t)
	if err != nil {
		return failed(err, nil)
	}
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, self, "worker")
	cmd.Stderr, cmd.Env, cmd.WaitDelay = &errs, append(os.Environ(), "GOMAXPROCS=1"), lastWords
	in, err := cmd.StdinPipe()
	if err != nil {
		return failed(err, nil)
	}
	cmd.Cancel = in.Close
	out, err := cmd.StdoutPipe()
	if err != nil {
		return failed(err, nil)
	}
	if err := cmd.Start(); err != nil {
		return failed(err, nil)
	}
	_, err = in.Write(task)
	for found := json.NewDecoder(out); err == nil; {
		var part explore.Tally
		if err = found.Decode(&part); err == nil {
			tally.Merge(part)
			bar.add(part.Tried)
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		return failed(err, errs.Bytes())
	}
	if err != io.EOF {
		return failed(fmt.Errorf("read what it found: %w", err), errs.Bytes())
	}
	return tally, nil
}

// progress is a line on a terminal that says how far a search has come.
type progress struct {
	mu          sync.Mutex
	to          io.Writer // nil: not a terminal
	name        string
	done, total int
}

func newProgress(to io.Writer, name string, total int) *progress {
	if f, ok := to.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		to = nil
	}
	return &progress{to: to, name: name, total: total}
}

func (p *progress) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	if p.to != nil {
		fmt.Fprintf(p.to, "\r\x1b[K          %-44s %d of %d schedules", p.name, p.done, p.total)
	}
}

func (p *progress) clear() {
	if p.to != nil {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}

// workerMemory is when a worker collects its garbage.
const workerMemory = 200 << 20

// workerCommand is the other side of search.
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "Play schedules for a search",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// What a schedule allocates is dead by its end, so that the
			// collector has the less to do the later it runs.
			debug.SetGCPercent(-1)
			debug.SetMemoryLimit(workerMemory)
			var t task
			if err := json.NewDecoder(cmd.InOrStdin()).Decode(&t); err != nil {
				return &exit{exitInternal, fmt.Errorf("read the task: %w", err)}
			}
			ctx, stop := context.WithCancel(cmd.Context())
			defer stop()
			go func() {
				// Nothing more comes: this returns when nobody wants the result any more.
				io.Copy(io.Discard, cmd.InOrStdin())
				stop()
			}()
			s, err := sim.New()
			if err != nil {
				return &exit{exitInternal, err}
			}
			found := json.NewEncoder(cmd.OutOrStdout())
			if err := t.Run(ctx, s, t.Worker, t.Workers, part, func(tally explore.Tally) error { return found.Encode(tally) }); err != nil {
				return &exit{exitInternal, err}
			}
			return nil
		},
	}
}

// part is how many schedules a worker plays between two reports.
const part = 25

func replayCommand() *cobra.Command {
	r := &runner{strategy: "benign"}
	cmd := &cobra.Command{
		Use:   "replay PLAN",
		Short: "Play a saved plan again",
		Long: `Replay plays the plan.txt of a saved run. In the simulator every event must come
out as before; where the plan has the digest of its history, that is checked, and
the first event that differs from the history.jsonl beside it is shown.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.stdout, r.talk = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return r.replay(cmd.Context(), args[0])
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.backend, "backend", "sim", "the world to replay in: sim or lab")
	flags.StringVar(&r.out, "out", "", "directory for the report (default: none)")
	flags.BoolVarP(&r.trace, "trace", "v", false, "print every event as it happens")
	return cmd
}

func (r *runner) replay(ctx context.Context, file string) error {
	if err := r.checkBackend(); err != nil {
		return err
	}
	if r.out != "" {
		if err := writable(r.out); err != nil {
			return invalid(err)
		}
	}
	data, err := readFile(file)
	if err != nil {
		return invalid(err)
	}
	plan, err := scenarios.LoadPlan(file, data, vocabulary())
	if err != nil {
		return invalid(err)
	}
	if r.backend == "sim" {
		if r.simulator, err = sim.New(); err != nil {
			return &exit{exitInternal, err}
		}
	}
	outcome, err := r.outcome(ctx, plan)
	if err != nil {
		return err
	}
	fmt.Fprintln(r.stdout, outcome.Text(""))
	if r.out != "" {
		if err := outcome.Save(r.out, replayOf(r.out)); err != nil {
			return &exit{exitInternal, err}
		}
	}
	if digest := outcome.History.Digest(); r.backend == "sim" && plan.Digest != "" && digest != plan.Digest {
		return different(plan, outcome.History, filepath.Join(filepath.Dir(file), "history.jsonl"))
	} else if r.backend == "sim" && plan.Digest != "" {
		fmt.Fprintf(r.stdout, "replayed: %d events, every one as before\n", outcome.History.Len())
	}
	r.worst = exitCode(outcome)
	return r.finish()
}

// different says how a history differs from that of the plan's digest, and whose
// fault that is: the plan's, if it comes from another version or its digest is not
// that of the history saved with it, and else the simulator's.
func different(plan *scenarios.Plan, now *history.History, saved string) error {
	code := exitInternal
	text := fmt.Sprintf("the history came out differently (digest %s, was %s)", now.Digest(), plan.Digest)
	if own := version(); plan.Version != own {
		code = exitInvalid
		text += fmt.Sprintf(": the plan was saved by fencelab %s, and this is %s", cmp.Or(plan.Version, "of an unknown version"), own)
	}
	if f, err := os.Open(saved); err == nil {
		defer f.Close()
		before, err := history.Read(f)
		if err != nil {
			return &exit{exitInvalid, fmt.Errorf("%s; %s: %w", text, saved, err)}
		}
		i := history.Diff(before, now)
		if i < 0 {
			return invalid(fmt.Errorf("%s: the plan's digest is not that of %s, which came out as before", text, saved))
		}
		line := func(h *history.History) string {
			if i < h.Len() {
				return h.Events()[i].String()
			}
			return "(the end)"
		}
		text += fmt.Sprintf(":\nevent %d was %s\nnow it is   %s", i+1, line(before), line(now))
	}
	return &exit{code, errors.New(text)}
}
