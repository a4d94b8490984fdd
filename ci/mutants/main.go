// Command mutants measures how well scenarios and searches protect the controllers:
// it builds the simulator with plausible mistakes in them, and looks with one after the
// other for a schedule in which a guarantee breaks. Unit tests don't count.
//
//	go run ./ci/mutants [-only ID,...] [-limit 30s] [-table docs/measured/mutants.md]
//	go run ./ci/mutants -compare 9 [-schedules 1500]
//	go run ./ci/mutants -combine 30 [-only ID,...]
//	go run ./ci/mutants -twofold 60s [-only ID,...] [-table docs/measured/twofold.md]
//	go run ./ci/mutants -divide 900 [-only ID,...] [-table docs/measured/divides.md]
//	go run ./ci/mutants -leads [-only ID,...] [-limit 60s]
//	go run ./ci/mutants -audit [-only ID,...] [-limit 4s] [-table docs/measured/excuses.md]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fencelab/fencelab/ci/mutants/finding"
	"github.com/fencelab/fencelab/scenarios/campaign/pool"
	"github.com/fencelab/fencelab/sim/corpus/source"
	"github.com/fencelab/fencelab/vms/keeper"
)

// options hold the flags of the command line.
type options struct {
	from, only, table                 string
	limit, two                        time.Duration
	seeds, schedules, combine, divide int
	audit, leads                      bool
}

func main() {
	keeper.Main() // does not return in the process that cleans up after us
	var o options
	flag.StringVar(&o.only, "only", "", "only the mutants whose IDs begin with one of these, separated by commas; -table then updates their lines")
	flag.DurationVar(&o.limit, "limit", 30*time.Second, "how long to search for each")
	flag.StringVar(&o.table, "table", "", "write the tables to this file")
	flag.IntVar(&o.seeds, "compare", 0, "compare strategies instead, with this many seeds, by some mutants")
	flag.IntVar(&o.schedules, "schedules", 1500, "how many schedules each strategy has then")
	flag.BoolVar(&o.audit, "audit", false, "look instead for excuses that right controllers do without")
	flag.BoolVar(&o.leads, "leads", false, "look instead for leads of the mutants that nothing finds, or that are chosen")
	flag.StringVar(&o.from, "mutants", "ci/mutants", "directory of the mutants")
	flag.IntVar(&o.combine, "combine", 0, "play instead one generated story out of this number with the mutants that nothing finds, or that are chosen")
	flag.IntVar(&o.divide, "divide", 0, "print instead what divides the failures of those mistakes in this many schedules of a search")
	flag.DurationVar(&o.two, "twofold", 0, "search instead this long for each mistake that takes two deviations")
	flag.Parse()
	if o.table != "" && (o.leads || o.combine > 0 || o.seeds > 0) {
		fmt.Fprintln(os.Stderr, "mutants: -leads, -combine and -compare only print: leave out -table")
		os.Exit(3)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "mutants: %v\n", err)
		os.Exit(1)
	}
}

// result is a mutant and what was found.
type result struct {
	mutant  Mutant
	finding *finding.Finding
	err     error
}

func run(ctx context.Context, o options) error {
	all, err := Load(o.from)
	if err != nil {
		return err
	}
	var chosen []Mutant
	for _, m := range all {
		if isChosen(o.only, m.ID) {
			chosen = append(chosen, m)
		}
	}
	dir, done, err := source.Workshop("fencelab-mutants")
	if err != nil {
		return err
	}
	defer done()

	if o.combine > 0 {
		return combineAll(ctx, all, o.only, dir, o.combine)
	}
	if o.audit {
		return auditAll(ctx, all, dir, o.only, o.limit, o.table)
	}
	if o.leads {
		return leadAll(ctx, all, dir, o.only, o.limit)
	}
	if o.divide > 0 {
		return divideAll(ctx, all, dir, o.only, o.divide, o.table)
	}
	if o.two > 0 {
		return twofold(ctx, dir, o.only, o.two, o.table)
	}
	if o.seeds > 0 {
		return compare(ctx, all, dir, o.seeds, o.schedules)
	}
	p, err := build(ctx, judgeOf, dir, mistakes(chosen))
	if err != nil {
		return err
	}
	results := make([]result, len(chosen))
	inParallel(ctx, len(chosen), func(i int) {
		f, err := p.judge(ctx, chosen[i], o.limit)
		results[i] = result{chosen[i], f, err}
		fmt.Println(results[i])
	})
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}

	caught, alive, failed := 0, 0, 0
	for _, r := range results {
		switch {
		case r.err != nil:
			failed++
		case r.finding.Broken != "":
			caught++
		case r.mutant.Equivalent == "":
			alive++
		}
	}
	fmt.Printf("%d mutants: %d caught, %d alive, %d equivalent, %d could not be judged\n",
		len(results), caught, alive, len(results)-caught-alive-failed, failed)
	if failed > 0 {
		return errors.New("some mutants could not be judged")
	}
	if o.table == "" {
		return nil
	}
	page := Tables(results, o.limit)
	if o.only != "" {
		before, err := os.ReadFile(o.table)
		if err != nil {
			return err
		}
		if page, err = Update(before, results); err != nil {
			return err
		}
	}
	if page, err = WithKinds(page, all); err != nil {
		return err
	}
	return os.WriteFile(o.table, page, 0o644)
}

// isChosen reports whether an ID begins with one of some prefixes, separated by commas.
func isChosen(only, id string) bool {
	return slices.ContainsFunc(strings.Split(only, ","), func(prefix string) bool { return strings.HasPrefix(id, prefix) })
}

// inParallel does something n times, as often at once as there are cores, unless ctx ends before.
func inParallel(ctx context.Context, n int, do func(i int)) {
	_ = pool.Each(ctx, runtime.GOMAXPROCS(0), n, func(ctx context.Context, _, i int) error {
		if ctx.Err() == nil {
			do(i)
		}
		return ctx.Err()
	}, nil) // who calls this asks ctx
}

// programs make a mistake each; right makes none.
type programs struct {
	*source.Programs
	right string
}

// judgeOf is the program that searches the catalogue with the controllers that it is built with.
const judgeOf = "./ci/mutants/judge"

// build builds a program of this module for all mistakes, and the right one.
func build(ctx context.Context, pkg, dir string, all []source.Mistake) (programs, error) {
	right, err := source.Build(ctx, ".", pkg, dir, "right")
	if err != nil {
		return programs{}, err
	}
	wrong, err := source.Together(ctx, ".", pkg, dir, all)
	return programs{wrong, right}, err
}

func (m *Mutant) mistake() source.Mistake {
	return source.Mistake{Name: m.ID, Changes: []source.Change{m.Change}}
}

// mistakes lists the mutants for [source.Together].
func mistakes(all []Mutant) (some []source.Mistake) {
	for _, m := range all {
		some = append(some, m.mistake())
	}
	return some
}

// ask runs the program that makes a mistake, and reads the JSON that it prints.
func (p programs) ask(ctx context.Context, mistake string, answer any, args ...string) error {
	command, done, err := p.Command(ctx, mistake)
	if err != nil {
		return err
	}
	defer done()
	return finding.Ask(exec.CommandContext(ctx, command[0], append(command[1:], args...)...), answer)
}

// judge lets the simulator search with one mutant.
func (p programs) judge(ctx context.Context, m Mutant, limit time.Duration) (*finding.Finding, error) {
	f := new(finding.Finding)
	if err := p.ask(ctx, m.ID, f, "-right", p.right, "-first", m.Story, "-limit", limit.String()); err != nil {
		return nil, fmt.Errorf("search with mutant %s: %w", m.ID, err)
	}
	return f, nil
}

func (r result) String() string {
	f := r.finding
	switch {
	case r.err != nil:
		return fmt.Sprintf("FAILED  %-36s %v", r.mutant.ID, r.err)
	case f.Broken != "":
		return fmt.Sprintf("caught  %-36s %s: %s (%s, schedule %d, %s) %s", r.mutant.ID, f.Scenario, f.Broken, f.Strategy, f.Schedules,
			f.Took.Round(100*time.Millisecond), strings.Join(f.Deviations, "; "))
	case r.mutant.Equivalent != "":
		return fmt.Sprintf("same    %-36s %s", r.mutant.ID, r.mutant.Equivalent)
	}
	return fmt.Sprintf("ALIVE   %-36s after %d schedules: %s", r.mutant.ID, f.Schedules, r.mutant.Mistake)
}
