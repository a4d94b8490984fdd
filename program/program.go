// Package program is the command fencelab with controllers of one's own. A program of five lines
// has them in all of its verbs:
//
//	func main() { program.Main(fencer.Module) }
//
// fencelab --module DIR writes and builds that program itself.
package program

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fencelab/fencelab/cmd"
	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/lab/container"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/vms/keeper"
)

// Main is the command, from its arguments to its exit code: it does not return. Each module is a
// [controllers.Module], several of them, or a function that returns either.
func Main(given ...any) {
	container.Main() // does not return in a process that becomes the program of an image
	keeper.Main()    // does not return in the process that cleans up after us
	if err := add(given); err != nil {
		fmt.Fprintf(os.Stderr, "fencelab: %v\n", err)
		os.Exit(exit.Invalid)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cmd.Execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func add(given []any) error {
	var all []controllers.Module
	for _, g := range given {
		modules, err := controllers.ModulesOf(g)
		if err != nil {
			return fmt.Errorf("take the controllers that program.Main is given: %w; --module DIR:NAME takes those of another NAME in the package", err)
		}
		all = append(all, modules...)
	}
	if len(all) == 0 {
		return nil
	}
	return controllers.Add(all...)
}
