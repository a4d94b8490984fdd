// Command fencelab, as it is in the image of make image: a static program that runs
// fencelab's controllers and agents in a real cluster, and nothing else. The worlds to test
// them in need libvirt, which a static program can't load.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/cmd/incluster"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := &cobra.Command{
		Use:           "fencelab",
		Short:         "Run fencelab's controllers and agents in a cluster",
		Version:       version.Built(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetVersionTemplate("fencelab {{.Version}}\n")
	root.AddCommand(incluster.Controllers(), incluster.Agent())
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil && err.Error() != "" {
		fmt.Fprintf(os.Stderr, "fencelab: %s\n", err)
	}
	os.Exit(exit.Code(err))
}
