// Package cli is the command fencelab with controllers of one's own. A program of five lines has them in all of its verbs:
//
//	func main() { cli.Main(fencer.Module) }
//
// fencelab --module DIR writes and builds that program itself.
package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fencelab/fencelab/ci/container"
	"github.com/fencelab/fencelab/cmd"
	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/vms/keeper"
)

// Main is the command, from its arguments to its exit code: it does not return. Each module is a [controllers.Module], several
// of them, or a function that returns either.
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
	all, err := modules(given)
	if err != nil || len(all) == 0 {
		return err
	}
	return controllers.Add(all...)
}

// modules are those that were given, in any of their forms.
func modules(given []any) (all []controllers.Module, err error) {
	for _, m := range given {
		switch m := m.(type) {
		case controllers.Module:
			all = append(all, m)
		case []controllers.Module:
			all = append(all, m...)
		case func() controllers.Module:
			all = append(all, m())
		case func() []controllers.Module:
			all = append(all, m()...)
		default:
			return nil, fmt.Errorf("a module is a controllers.Module, several, or a function without arguments that returns them; this is a %T", m)
		}
	}
	return all, nil
}
