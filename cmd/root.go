// Package cmd is the command: one file for each of its verbs. A verb reads the command line, joins
// the packages that do the work, and prints by scenarios/report.
package cmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/cmd/incluster"
	"github.com/fencelab/fencelab/lab"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/version"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
)

// Execute is the whole program but for its process: results go to out, talk to
// talk.
func Execute(ctx context.Context, args []string, in io.Reader, out, talk io.Writer) (code int) {
	// Go's own exit code for a panic is that of a run without a verdict.
	defer func() {
		if bug := recover(); bug != nil {
			fmt.Fprintf(talk, "fencelab: internal error: %v\n%s", bug, debug.Stack())
			code = exit.Internal
		}
	}()
	root := command(args, talk)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(talk)
	err := root.ExecuteContext(ctx)
	if err != nil && err.Error() != "" {
		fmt.Fprintf(talk, "fencelab: %s\n", err)
	}
	return exit.Code(err)
}

// Verbs names the commands of fencelab, without the hidden ones.
func Verbs() (names []string) {
	for _, verb := range command(nil, io.Discard).Commands() {
		if !verb.Hidden {
			names = append(names, verb.Name())
		}
	}
	return names
}

// command is the command with all of its verbs.
func command(args []string, talk io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "fencelab",
		Short: "Test the controllers that fence bare-metal Kubernetes nodes",
		Long: `fencelab answers one question about a set of controllers: is a fenced host really
off, and does it boot again only after its Node is deleted, whatever goes wrong in
between? The same scenario runs in a deterministic simulator and in a real lab of
virtual machines, and the same guarantees judge both.

Exit codes: 0 held, 1 violated, 2 unknown, 3 invalid input, 4 environment
missing, 5 internal error.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          verbOnly,
		Version:       version.Built(),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	module := root.PersistentFlags().String(moduleFlag, "", moduleUsage)
	root.PersistentPreRunE = func(cmd *cobra.Command, given []string) error {
		wanted, err := settle(cmd, given, *module, talk)
		if err != nil || wanted == "" || *module == "" && os.Getenv(moduleVariable) != "" {
			return exit.BadInput(err)
		}
		return withModule(cmd.Context(), wanted, withoutModule(args), talk)
	}
	root.AddCommand(initCommand(), runCommand(), searchCommand(), marginCommand(), campaignCommand(), replayCommand(), bisectCommand(module), shrinkCommand(), showCommand(), listCommand(), lintCommand(),
		corpusCommand(), schemaCommand(), systemsCommand(), conformCommand(), labCommand(strings.Join(called(), " ")), doctorCommand(),
		incluster.Controllers(), incluster.Agent(), bmcCommand(), workerCommand())
	root.SetFlagErrorFunc(wrongFlag)
	root.SetHelpCommand(helpCommand())
	root.SetVersionTemplate("fencelab {{.Version}}\n")
	return root
}

// Vocabulary holds the names that scenario files of this program may use.
func Vocabulary() file.Vocabulary {
	vocabulary := objects.Vocabulary()
	vocabulary.Worlds, vocabulary.Strategies = Worlds, make(map[string]file.Strategy)
	for _, name := range search.Strategies() {
		vocabulary.Strategies[name] = file.Strategy(search.KindOf(name))
	}
	return vocabulary
}

// Worlds lists the capabilities of each world that scenarios run in.
var Worlds = []scenarios.Capabilities{sim.Capabilities, lab.Capabilities}
