// Command fencelab runs fencing scenarios in the deterministic simulator and in
// the real lab, and says which guarantees held.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/ci/conform"
	"github.com/fencelab/fencelab/ci/container"
	"github.com/fencelab/fencelab/ci/corpus"
	"github.com/fencelab/fencelab/ci/lab/kept"
	"github.com/fencelab/fencelab/controllers/cli"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/scenarios/version"
	"github.com/fencelab/fencelab/sim/search/workers"
	"github.com/fencelab/fencelab/vms/keeper"
)

func main() {
	container.Main() // does not return in a process that becomes the program of an image
	keeper.Main()    // does not return in the process that cleans up after us
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command is the whole program but for its process: results go to out, talk to
// talk.
func command(ctx context.Context, args []string, in io.Reader, out, talk io.Writer) (code int) {
	// Go's own exit code for a panic is that of a run without a verdict.
	defer func() {
		if bug := recover(); bug != nil {
			fmt.Fprintf(talk, "fencelab: internal error: %v\n%s", bug, debug.Stack())
			code = exit.Internal
		}
	}()
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
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return report.UnknownCommand(cmd, args[0])
			}
			return nil
		},
		Version: version.Built(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(runCommand(), replayCommand(), showCommand(), listCommand(), report.LintCommand(vocabulary),
		corpus.Command(vocabulary), report.SchemaCommand(vocabulary), report.SystemsCommand(vocabulary), conform.Command(vocabulary), kept.Command(os.Args[0], vocabulary), doctorCommand(),
		cli.Controllers(), cli.Agent(), bmcCommand(), workers.Command())
	root.SetFlagErrorFunc(report.WrongFlag)
	root.SetHelpCommand(report.HelpCommand())
	root.SetVersionTemplate("fencelab {{.Version}}\n")
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
