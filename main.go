// Command fencelab runs fencing scenarios in the deterministic simulator and in
// the real lab, and says which guarantees held.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fencelab/fencelab/ci/container"
	"github.com/fencelab/fencelab/cmd"
	"github.com/fencelab/fencelab/vms/keeper"
)

func main() {
	container.Main() // does not return in a process that becomes the program of an image
	keeper.Main()    // does not return in the process that cleans up after us
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cmd.Execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
