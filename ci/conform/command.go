package conform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/ci/lab"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/scenarios/version"
)

// Command tells the set with a system, in labs of model hosts.
func Command(vocabulary func() file.Vocabulary) *cobra.Command {
	var c command
	cmd := &cobra.Command{
		Use:   "conform SYSTEM",
		Short: "Tell the stories of conformance with a system under test",
		Long: `Conform tells the fixed set of stories in ` + Stories + ` with the programs that the
file SYSTEM names, in labs of model hosts: what comes first, holds, several clients,
crashes, BMCs that lie, and partitions. It prints a table, and writes a report that can
be published: conformance.json and conformance.md, below --out.

Exit codes: 0 every story held, 1 a guarantee was violated, 2 a story has no verdict, 3 the
system has no part in any.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd, args[0], vocabulary()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&c.dir, "out", "out/conformance", "directory for the report, and for what is needed to look into each run")
	flags.StringVar(&c.release, "release", "", "what the report calls the release of the system (default: what its file says that it was tried with)")
	flags.IntVar(&c.workers, "workers", runtime.NumCPU(), "how many labs at a time")
	flags.Var(&c.filter, "filter", file.FilterUsage+"; the report says that it is a part")
	return cmd
}

// command is one invocation.
type command struct {
	dir, release string
	workers      int
	filter       file.Filter
}

func (c *command) run(cmd *cobra.Command, path string, vocabulary file.Vocabulary) error {
	if c.workers < 1 {
		return exit.BadInput(fmt.Errorf("--workers must be at least 1"))
	}
	system, err := file.LoadSystem(path, vocabulary)
	if errors.Is(err, fs.ErrNotExist) {
		return exit.BadInput(fmt.Errorf("%w; name the file of a system, such as one of fencelab systems list", err))
	}
	if err != nil {
		return exit.BadInput(err)
	}
	if system.Spec.BMC != nil {
		return exit.BadInput(fmt.Errorf("%s: its bmc drives domains, and conformance is told of model hosts: use fencelab run %s --backend lab --system %s", path, Stories, path))
	}
	all, err := load(Stories, vocabulary)
	if err != nil {
		return exit.BadInput(err)
	}
	told, err := c.chosen(all)
	if err != nil {
		return exit.BadInput(err)
	}
	unfit, err := system.UnderTest(scenariosOf(told))
	if err != nil {
		return exit.BadInput(err)
	}
	if err := lab.Check(cmd.Context(), options()); err != nil {
		return exit.Coded(exit.Environment, err)
	}
	tested, err := about(system, path, c.release)
	if err != nil {
		return exit.Coded(exit.Environment, err)
	}
	if err := report.Writable(c.dir); err != nil {
		return exit.BadInput(fmt.Errorf("--out %s: %w", c.dir, err))
	}
	s := &suite{
		console: &report.Console{Out: cmd.OutOrStdout(), Talk: cmd.ErrOrStderr(), World: "lab", Dir: c.dir, Program: os.Args[0], Parts: []*report.Part{{Flag: "hosts", Of: []string{lab.Guest, lab.Model}, Value: lab.Model}}},
		world:   func() play.Backend { return lab.New(options()) },
		workers: c.workers, unfit: unfit,
	}
	r := &Report{Partial: len(told) < len(all), Fencelab: version.Built(), System: tested, Lab: "embedded control plane, model hosts"}
	if r.Results, err = s.tell(cmd.Context(), told); err != nil {
		return err
	}
	return r.finish(s.console)
}

// finish sums the report up, saves it, and returns how the command ends.
func (r *Report) finish(to *report.Console) error {
	r.judge()
	if err := r.save(to.Dir); err != nil {
		return exit.Coded(exit.Internal, err)
	}
	fmt.Fprintf(to.Out, "%s: %s\n", r.System.Name, r.Counts)
	fmt.Fprintf(to.Talk, "the report is %s/conformance.md\n", to.Dir)
	return exit.Ended(play.CodeOfVerdict(r.Verdict))
}

// options are those of each lab. What many have to say at a time nobody can read.
func options() lab.Options { return lab.Options{Hosts: lab.Model} }

// chosen are the stories that fit the filter.
func (c *command) chosen(all []story) (told []story, err error) {
	fit, err := c.filter.Of(scenariosOf(all))
	if err != nil {
		return nil, err
	}
	for _, scenario := range fit {
		for _, s := range all {
			if s.scenario == scenario {
				told = append(told, s)
			}
		}
	}
	return told, nil
}

func scenariosOf(stories []story) (all []*scenarios.Scenario) {
	for _, s := range stories {
		all = append(all, s.scenario)
	}
	return all
}
