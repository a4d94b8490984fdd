package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/lab"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/lab/sweep"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/campaign/pool"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
	"github.com/fencelab/fencelab/sim/search/workers"
)

// benign is the strategy of whoever plays the default schedule alone, and sweeping the one that
// labs know, too.
const benign, sweeping = "benign", "sweep"

// runner is one invocation of run or replay.
type runner struct {
	report.Console
	session     campaign.Session
	search      search.Options
	workers     int
	filter      file.Filter
	set         map[string]string
	ironic      string
	cluster     string // its kubeconfig
	system      string
	images      []string // of the system's programs
	own         string   // the image of an Ironic that the lab starts, as it was given
	ironicImage scenarios.Image
	twin        bool
	leads       string // the reference: own, or a directory
	failOnLeads bool
	asFound     bool
	shelf       *cluster.Shelf // nil where there is one lab
	simulator   *sim.Simulator
}

func runCommand() *cobra.Command {
	r := &runner{}
	cmd := &cobra.Command{
		Use:   "run FILE|DIR...",
		Short: "Run scenarios and judge them",
		Long: `Run plays each scenario in a world and reports which guarantees held.

The lab plays the scenario once, on virtual machines; with --strategy sweep it then
repeats it, each time with one deed of the system under test deviating at its gate.
The simulator plays the schedules that a strategy chooses:

  benign    the default schedule, alone
` + search.Described() + `
Everything needed to investigate and replay a run that did not come out as expected
is saved below --out.`,
		Args:              scenarioArgs,
		ValidArgsFunction: completeScenarios,
		RunE:              func(cmd *cobra.Command, args []string) error { return r.run(cmd, args) },
	}
	r.flags(cmd, "run", "directory for the reports of all runs (default: out, for those that fail)")
	flags := cmd.Flags()
	flags.Var(&r.filter, "filter", file.FilterUsage)
	flags.StringToStringVar(&r.set, "set", nil, "parameter of the scenarios, as NAME=VALUE, overriding their matrices; may be repeated")
	choose(cmd, &r.Format, "output", "o", "output format: "+phrase.OneOf(report.Formats), choice{of: report.Formats})
	flags.StringVar(&r.system, "system", "", "file that lists the programs to test in place of the scenarios' controllers (--backend lab)")
	flags.StringArrayVar(&r.images, "image", nil, scenarios.ImagesUsage)
	flags.Uint64Var(&r.search.Seed, "seed", 1, "seed for the choices of the scenario and the strategy")
	all := append([]string{benign}, search.Strategies()...)
	choose(cmd, &r.search.Strategy, "strategy", "", "schedules to try: "+phrase.OneOf(all)+" in the simulator, "+benign+" or "+sweeping+" in the lab", choice{of: all})
	flags.IntVar(&r.search.Schedules, "schedules", 1000, "how many schedules to try for each scenario; with sweep and orders the maximum, and without this flag all")
	flags.StringVar(&r.search.Resume, "resume", "", "directory that keeps what came of each schedule of a search in the simulator; one that finds it there goes on where it was")
	flags.StringVar(&r.leads, "leads", "", "print what the controllers of runs that held did and a reference in the same schedule did not: fencelab's own controllers (in the simulator), the runs that an earlier version saved in a directory with --out, or, for retold, the same story with hosts renamed, a bystander added, in another order, and slower")
	flags.Lookup("leads").NoOptDefVal = ownLeads
	flags.BoolVar(&r.failOnLeads, "fail-on-leads", false, "end with exit code 2 if there is a lead that "+file.ProjectFile+" doesn't accept")
	flags.BoolVarP(&r.Quiet, "quiet", "q", false, "print no line for a scenario that came out as expected, but how far the run has come")
	flags.BoolVar(&r.asFound, "no-shrink", false, "show failing schedules as they were found, with deviations that they don't need")
	flags.IntVar(&r.workers, "workers", runtime.NumCPU(), "how many stories the simulator plays at a time, how many worker processes a search uses, or how many labs of model hosts a sweep")
	return cmd
}

// flags adds the flags that run and replay share.
func (r *runner) flags(cmd *cobra.Command, verb, out string) {
	flags := cmd.Flags()
	choose(cmd, &r.World, "backend", "", "the world to "+verb+" in: "+phrase.OneOf(worldNames()), choice{of: worldNames()})
	for _, part := range lab.Parts {
		p := &report.Part{Flag: part.Flag, Of: part.Of}
		choose(cmd, &p.Value, p.Flag, "", fmt.Sprintf(part.Help, phrase.OneOf(p.Of)), choice{of: p.Of, where: ", in the lab"})
		r.Parts = append(r.Parts, p)
	}
	flags.StringVar(&r.cluster, "kubeconfig", "", lab.KubeconfigUsage)
	flags.StringVar(&r.ironic, "ironic-endpoint", "", lab.IronicUsage)
	flags.StringVar(&r.own, "ironic-image", "", lab.IronicImageUsage)
	flags.StringVar(&r.Dir, "out", "", out)
	flags.BoolVar(&r.twin, "twin", false, "play a run that did not come out as expected again with fencelab's own controllers in the same parts, and show both side by side (in the simulator)")
	flags.BoolVarP(&r.Trace, "trace", "v", false, "print every event as it happens")
}

// start checks what run and replay have in common, and makes what they need.
func (r *runner) start(cmd *cobra.Command) (err error) {
	r.Out, r.Talk, r.Program = cmd.OutOrStdout(), cmd.ErrOrStderr(), called()
	if err := r.Check(worldNames()); err != nil {
		return exit.BadInput(err)
	}
	r.Real = r.World != "sim"
	if r.ironicImage, err = file.ImageHere(r.own); err != nil {
		return exit.BadInput(err)
	}
	r.session.AsFound = r.asFound
	r.session.World, r.session.To, r.session.Now = r.World, &r.Console, time.Now
	if err := directory("resume", r.search.Resume); err != nil {
		return exit.BadInput(err)
	}
	switch {
	case r.own != "" && r.ironic != "":
		return exit.BadInput(errors.New("--ironic-image is for an Ironic that the lab starts: leave out --ironic-endpoint"))
	case r.Real && r.twin:
		return exit.BadInput(errors.New("--twin: only the simulator plays the same schedule twice; leave out --backend"))
	case !r.Real:
		r.simulator, err = sim.New()
		r.session.Another = r.backend
		r.session.Bare = func() play.Backend { return r.simulator.Backend() }
		if r.twin {
			r.session.Twin = r.simulator.Twin
		}
	}
	return exit.Coded(exit.Internal, err)
}

func (r *runner) run(cmd *cobra.Command, args []string) (err error) {
	ctx, strategy := cmd.Context(), r.search.Strategy
	switch {
	case r.World != "sim" && strategy != benign && strategy != sweeping:
		return exit.BadInput(fmt.Errorf("--strategy %s: in the lab, choose %s or %s", strategy, benign, sweeping))
	case r.search.Schedules < 1 || r.workers < 1:
		return exit.BadInput(errors.New("--schedules and --workers must be at least 1"))
	case len(r.images) > 0 && r.system == "":
		return exit.BadInput(errors.New("--image is for a program of a system: name its file with --system"))
	case !cmd.Flags().Changed("schedules") && (r.World != "sim" || search.KindOf(strategy).Ends):
		r.search.Schedules = 0
	}
	loaded, err := file.LoadFiles(args, Vocabulary(), r.set)
	if err == nil {
		loaded, err = r.filter.Of(loaded)
	}
	if err == nil {
		err = r.unused(cmd, loaded)
	}
	if err == nil && r.system != "" {
		var system *scenarios.System
		if system, err = file.LoadSystemFrom(r.system, r.images, Vocabulary()); err == nil {
			r.session.Unfit, err = system.UnderTest(loaded)
		}
	}
	if err == nil {
		err = warn(cmd.ErrOrStderr(), args, Vocabulary())
	}
	if err != nil {
		return exit.BadInput(err)
	}
	if err := r.start(cmd); err != nil {
		return err
	}
	if err := r.compare(args); err != nil {
		return exit.BadInput(err)
	}
	if r.Real && (len(loaded) > 1 || strategy == sweeping) {
		r.shelf = new(cluster.Shelf)
		defer func() {
			if failed := r.shelf.Close(); failed != nil {
				err = errors.Join(err, exit.Coded(exit.Internal, failed))
			}
		}()
	}
	r.Total = len(loaded)
	ledger, out := r.Ledger(strategy, r.search.Seed), r.Out
	if r.Format == "json" {
		r.Out = io.Discard // the ledger has it all
	}
	if strategy == benign && !r.Real && !r.Trace {
		r.session.Early = r.early
	}
	ended := r.session.Suite(ctx, ledger, loaded, func(s *scenarios.Scenario, plan *scenarios.Plan) (int, error) {
		switch {
		case strategy == benign:
			return r.session.Single(ctx, plan, r.backend())
		case r.Real:
			return sweep.Run(ctx, &r.session, plan, r.sweepable, r.bounds())
		}
		return search.Explore(ctx, &r.session, r.simulator, s, plan, r.search, workers.Of(ctx, r.workers))
	})
	if led := r.session.Led(); led > 0 && r.failOnLeads {
		ended = exit.Ended(exit.Worse(exit.Code(ended), exit.Unknown))
	}
	return r.Finish(ledger, out, ended)
}

// ownLeads compares with fencelab's own controllers, as --leads does without a value.
const ownLeads = "own"

// retoldLeads compares with the story itself, in which something is changed that must not matter.
const retoldLeads = "retold"

// compare has the session compare runs with the reference that was asked for.
func (r *runner) compare(args []string) error {
	if r.leads == "" {
		return nil
	}
	r.session.Leads = &campaign.Leads{Reference: r.simulator.Reference}
	switch r.leads {
	case ownLeads:
	case retoldLeads:
		r.session.Leads.Retold = r.simulator.Retold
	default:
		if info, err := os.Stat(r.leads); err != nil || !info.IsDir() {
			return fmt.Errorf("--leads=%s: it is no directory with saved runs: make one with run --out, or leave out the value, or say retold", r.leads)
		}
		r.session.Leads.Reference = report.Saved(r.leads, r.World)
	}
	p, err := project(args)
	if p != nil {
		r.session.Leads.Accepted = p.Leads
	}
	return err
}

// worldNames lists the names of worlds on the command line.
func worldNames() (names []string) {
	for _, world := range Worlds {
		names = append(names, world.World)
	}
	return names
}

// backend returns a world of the chosen kind.
func (r *runner) backend() play.Backend {
	if r.Real {
		return lab.New(r.lab())
	}
	return r.simulator.Evident()
}

// early plays plans in the simulator on several cores, each with a simulator of its own.
func (r *runner) early(ctx context.Context, plans []*scenarios.Plan) (take func() campaign.Played) {
	debug.SetGCPercent(400) // what a story allocates is dead by its end
	simulators := make([]*sim.Simulator, r.workers)
	return pool.Ahead(ctx, r.workers, len(plans), func(ctx context.Context, worker, i int) (played campaign.Played) {
		if simulators[worker] == nil {
			if simulators[worker], played.Err = sim.New(); played.Err != nil {
				return played
			}
		}
		own := simulators[worker]
		return r.session.PlayEarly(ctx, plans[i], func() play.Backend { return own.Backend() }, own.Evident)
	})
}

// lab are the options of a lab with the chosen parts.
func (r *runner) lab() lab.Options {
	options := lab.Options{Log: r.Talk, IronicEndpoint: r.ironic, IronicImage: r.ironicImage, Kubeconfig: r.cluster, Shelf: r.shelf}
	for _, p := range r.Parts {
		options.Choose(p.Flag, p.Value)
	}
	return options
}

// sweepable makes a lab for a sweep. It has no log: those of many labs at once would interleave.
func (r *runner) sweepable(record bool) sweep.World {
	options := r.lab()
	if options.Record = record; !record {
		options.Log = nil
	}
	return lab.New(options)
}

// violationsAgain is how often a sweep plays again what broke a guarantee.
const violationsAgain = 5

// bounds returns the limits of a sweep in the lab. Virtual machines want a machine for themselves.
func (r *runner) bounds() sweep.Options {
	o := sweep.Options{Schedules: r.search.Schedules, Workers: r.workers, Again: violationsAgain, Dir: r.Dir}
	if r.Chosen("hosts") != lab.Model {
		o.Workers = 1
	}
	return o
}
