package conform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/fencelab/fencelab/lab"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/scenarios/version"
)

// Options holds the settings of one invocation.
type Options struct {
	// Dir is the directory for the report, and for what is needed to look into each run.
	Dir string
	// Release names the release of the system in the report; empty: the one that its file says it
	// was tried with.
	Release string
	// Workers is how many labs there are at a time.
	Workers int
	// Filter chooses among the stories; the report says if it is a part.
	Filter file.Filter
	// Images replaces the images of the system's programs, as in [scenarios.System.UseImages].
	Images []string
}

// Run plays the set with the system in a file, in labs of model hosts, and writes the report. The
// error has an exit code.
func Run(ctx context.Context, out, talk io.Writer, path string, vocabulary file.Vocabulary, o Options) error {
	if o.Workers < 1 {
		return exit.BadInput(fmt.Errorf("--workers must be at least 1"))
	}
	system, err := file.LoadSystemFrom(path, o.Images, vocabulary)
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
	told, err := chosen(all, &o.Filter)
	if err != nil {
		return exit.BadInput(err)
	}
	unfit, err := system.UnderTest(scenariosOf(told))
	if err != nil {
		return exit.BadInput(err)
	}
	if err := lab.Check(ctx, options()); err != nil {
		return exit.Coded(exit.Environment, err)
	}
	tested, err := about(system, path, o.Release)
	if err != nil {
		return exit.Coded(exit.Environment, err)
	}
	if err := report.Writable(o.Dir); err != nil {
		return exit.BadInput(fmt.Errorf("--out %s: %w", o.Dir, err))
	}
	s := &suite{
		console: &report.Console{Out: out, Talk: talk, World: "lab", Dir: o.Dir, Program: os.Args[:1], Parts: []*report.Part{{Flag: "hosts", Of: []string{lab.Guest, lab.Model}, Value: lab.Model}}},
		world:   func() play.Backend { return lab.New(options()) },
		workers: o.Workers, unfit: unfit,
	}
	r := &Report{Partial: len(told) < len(all), Fencelab: version.Built(), System: tested, Lab: "embedded control plane, model hosts"}
	if r.Results, err = s.tell(ctx, told); err != nil {
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

// options returns the options of each lab. There is no log: the lines of many labs at once would
// interleave.
func options() lab.Options { return lab.Options{Hosts: lab.Model} }

// chosen are the stories that fit the filter.
func chosen(all []story, filter *file.Filter) (told []story, err error) {
	fit, err := filter.Of(scenariosOf(all))
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
