package cmd

import (
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim/search"
	"github.com/fencelab/fencelab/sim/search/workers"
)

func searchCommand() *cobra.Command {
	r := &runner{}
	r.World, r.search.Strategy = "sim", "portfolio"
	cmd := &cobra.Command{
		Use:   "search FILE|DIR...",
		Short: "Search the schedules of scenarios, and say what was covered",
		Long: `Search plays each scenario's schedules in the simulator: each step once after each step
that depends on it, each fault of each step, other lengths of what takes its time by
itself, late answers before decisions, and beyond these what coverage and chance lead to.
It says beforehand how many that are and how long they take, and afterwards what a verdict
of held is worth: what was played of what there is, how often each guarantee was put to
the test, and which checks of the simulator itself have passed.

Without --schedules and --for it plays all that there is around the default schedule: with
--depth 2 also each two deviations that meet, or of which one makes the other possible.`,
		Example: "  fencelab search scenarios/catalog/reboot-annotation --for 10m --resume found",
		Args:    scenarioArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed
			for _, least := range []struct {
				flag string
				some bool
			}{
				{"schedules", r.search.Schedules > 0}, {"for", r.search.For > 0}, {"workers", r.workers > 0},
				{"depth", r.search.Depth > 0}, {"within", r.search.Within > 0},
			} {
				if given(least.flag) && !least.some {
					return exit.BadInput(fmt.Errorf("--%s %s: must be more than 0", least.flag, cmd.Flags().Lookup(least.flag).Value))
				}
			}
			if given("schedules") && given("for") {
				return exit.BadInput(errors.New("--schedules and --for: both say how much to play, so leave one out"))
			}
			loaded, err := file.LoadFiles(args, Vocabulary(), r.set)
			if err == nil {
				loaded, err = r.filter.Of(loaded)
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
			ledger, out := r.Ledger(r.search.Strategy, r.search.Seed), r.Out
			if r.Format == "json" {
				r.Out = io.Discard // the ledger has it all
			}
			ended := r.session.Suite(cmd.Context(), ledger, loaded, func(s *scenarios.Scenario, plan *scenarios.Plan) (int, error) {
				return search.Explore(cmd.Context(), &r.session, r.simulator, s, plan, r.search, workers.Of(cmd.Context(), r.workers))
			})
			return r.Finish(ledger, out, ended)
		},
	}
	flags := cmd.Flags()
	flags.Var(&r.filter, "filter", file.FilterUsage)
	flags.StringToStringVar(&r.set, "set", nil, "parameter of the scenarios, as NAME=VALUE, overriding their matrices; may be repeated")
	choose(cmd, &r.Format, "output", "o", "output format: "+phrase.OneOf(report.Formats), choice{of: report.Formats})
	flags.StringVar(&r.Dir, "out", "", "directory for the reports of all failures that are shown (default: out)")
	flags.StringVar(&r.search.Resume, "resume", "", "directory that keeps what came of each schedule; a search that finds it there goes on where it was")
	flags.Uint64Var(&r.search.Seed, "seed", 1, "seed for the choices of the scenario and the search")
	flags.IntVar(&r.search.Schedules, "schedules", 0, "how many schedules to try for each scenario")
	flags.DurationVar(&r.search.For, "for", 0, "how long to search for each scenario")
	flags.IntVar(&r.search.Depth, "depth", 0, "how many deviations are combined (default: 1, and 2 with --schedules or --for)")
	flags.DurationVar(&r.search.Within, "within", 0, "how late a step comes at most in these (default: 1m30s)")
	flags.StringVar(&r.search.Reach, "reach", "", "look for schedules that bring this about, which a search says in the same words never came about")
	flags.BoolVar(&r.asFound, "no-shrink", false, "show failing schedules as they were found, with deviations that they don't need")
	flags.IntVar(&r.workers, "workers", runtime.NumCPU(), "how many worker processes it uses")
	return cmd
}
