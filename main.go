// Command fencelab runs fencing scenarios in the deterministic simulator and in
// the real lab, and says which guarantees held.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/ci/keeper"
)

// Exit codes. Scripts rely on them.
const (
	exitHeld        = 0 // every guarantee held, or the expected one was violated
	exitViolated    = 1 // a guarantee was violated, or an expected violation did not happen
	exitUnknown     = 2 // no verdict: the story didn't happen, or evidence is missing
	exitInvalid     = 3 // the scenario, the plan or the command line is wrong
	exitEnvironment = 4 // this machine lacks what the world needs
	exitInternal    = 5 // fencelab itself failed
)

// exit is an error that carries an exit code. An empty text prints nothing more.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

func invalid(err error) error { return &exit{exitInvalid, err} }

func main() {
	keeper.Main() // does not return in the process that cleans up after us
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command is the whole program but for its process: results go to out, talk to
// talk.
func command(ctx context.Context, args []string, in io.Reader, out, talk io.Writer) int {
	root := &cobra.Command{
		Use:   "fencelab",
		Short: "Test the controllers that fence bare-metal Kubernetes nodes",
		Long: `fencelab answers one question about a set of controllers: is a fenced host really
off, is its Node deleted, and only then does it boot again, whatever goes wrong
in between? The same scenario runs in a deterministic simulator and in a real
lab of virtual machines, and the same guarantees judge both.

Exit codes: 0 held, 1 violated, 2 unknown, 3 invalid input, 4 environment
missing, 5 internal error.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q; see fencelab --help", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(runCommand(), replayCommand(), listCommand(), lintCommand(), schemaCommand(), doctorCommand(),
		controllersCommand(), bmcCommand(), workerCommand())
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(talk)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitHeld
	}
	if text := err.Error(); text != "" {
		fmt.Fprintf(talk, "fencelab: %s\n", text)
	}
	var e *exit
	if errors.As(err, &e) {
		return e.code
	}
	// What is left are errors of the command line.
	return exitInvalid
}
