// Package incluster has the commands that run fencelab's controllers and agents in a real
// cluster. The program fencelab has them, and so has the one in the image of make image,
// which has no worlds to test them in.
package incluster

import (
	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/manifests"
	"github.com/fencelab/fencelab/onhost"
	"github.com/fencelab/fencelab/scenarios/exit"
)

// Controllers is the command that runs the controllers.
func Controllers() *cobra.Command {
	var options controllers.Options
	var printManifests bool
	cmd := &cobra.Command{
		Use:   "controllers",
		Short: "Run fencelab's controllers against a cluster",
		Long: `Controllers runs fencelab's own fencing controllers against the cluster of a
kubeconfig, with leader election, health probes and metrics, like any other
controller. Install the CRDs, roles and policies first:

  fencelab controllers --print-manifests | kubectl create -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if printManifests {
				return manifests.Write(cmd.OutOrStdout())
			}
			if err := options.Complete(cmd.ErrOrStderr()); err != nil {
				return exit.BadInput(err)
			}
			return exit.Coded(exit.Internal, controllers.Run(cmd.Context(), options))
		},
	}
	flags := cmd.Flags()
	flags.AddGoFlagSet(options.Flags())
	flags.Lookup("overlay").Hidden = true // only the lab makes a controller wrong, and says so
	flags.BoolVar(&printManifests, "print-manifests", false, "print what the controllers need in a cluster, and exit")
	return cmd
}

// Agent is the command that runs the agent of one host.
func Agent() *cobra.Command {
	var options onhost.Options
	var printManifests bool
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run an agent on this host",
		Long: `Agent runs a program that belongs on every host, by default the poison pill of
seed 004, until it is stopped. It feeds the host's watchdog, answers its
peers over HTTPS with mutual TLS, and reads and writes the API server. Install the
CRDs and roles first, then a DaemonSet of agents, whose image make image builds:

  fencelab controllers --print-manifests | kubectl create -f -
  fencelab agent --print-manifests | kubectl create -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if printManifests {
				_, err := cmd.OutOrStdout().Write(manifests.Agent)
				return err
			}
			if err := options.Complete(cmd.ErrOrStderr()); err != nil {
				return exit.BadInput(err)
			}
			return exit.Coded(exit.Internal, onhost.Run(cmd.Context(), options))
		},
	}
	flags := cmd.Flags()
	flags.AddGoFlagSet(options.Flags())
	flags.BoolVar(&printManifests, "print-manifests", false, "print a DaemonSet of agents, and exit")
	return cmd
}
