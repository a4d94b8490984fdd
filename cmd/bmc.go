package cmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/fleet"
	"github.com/fencelab/fencelab/fakebmc/libvirt"
	"github.com/fencelab/fencelab/scenarios/exit"
)

func bmcCommand() *cobra.Command {
	o := fleet.Options{}
	var uri string
	var names []string
	cmd := &cobra.Command{
		Use:   "bmc",
		Short: "Serve Redfish and IPMI BMCs that can misbehave",
		Long: `Bmc serves a BMC for each of a number of hosts in memory (--fake), or for the
domains of a libvirt (--libvirt), replacing sushy-emulator: all domains behind one
address, by UUID or name, including those defined later. Their faults are set at the
start (--preset, --rules) or, while they run, through the admin API (--admin), which
also shows what the hosts really do.

The password of --username is read from ` + fleet.PasswordVariable + `. On loopback
none is needed; elsewhere there is no default.`,
		Example: `  fencelab bmc --fake 3 --listen 127.0.0.1:8000
  fencelab bmc --libvirt qemu:///system --media http://127.0.0.1:8080/images/
  fencelab bmc faults`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (runErr error) {
			o.Ready = cmd.OutOrStdout()
			o.Warn = func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+text) }
			if err := o.Complete(cmd.Context()); err != nil {
				return exit.UnlessEnded(cmd.Context(), exit.BadInput(err))
			}
			log, err := o.OpenLog()
			if err != nil {
				return exit.Coded(exit.Environment, err)
			}
			defer func() { runErr = errors.Join(runErr, log.Close()) }()
			if uri == "" && len(names) > 0 {
				return exit.BadInput(errors.New("--domain needs --libvirt"))
			}
			if uri == "" && o.Fake < 1 {
				return exit.BadInput(errors.New("there are no hosts to serve: use --fake or --libvirt"))
			}
			if uri != "" {
				// Ironic and others are told one address for all domains.
				o.Shared = o.Shared || !cmd.Flags().Changed("shared") && o.IPMI == ""
				disconnect, err := libvirt.Serve(cmd.Context(), &o, libvirt.Options{URI: uri, Names: names})
				if err != nil {
					return exit.UnlessEnded(cmd.Context(), exit.Coded(exit.Environment, err))
				}
				defer func() { runErr = errors.Join(runErr, disconnect()) }()
			}
			err = fleet.Run(cmd.Context(), o)
			if fleet.Environmental(err) {
				return exit.Coded(exit.Environment, err)
			}
			return exit.BadInput(err) // what else can be wrong is in the options
		},
	}
	flags := cmd.Flags()
	flags.AddGoFlagSet(o.Flags())
	flags.StringVar(&uri, "libvirt", "", "serve the domains of this libvirt, such as qemu:///system")
	flags.StringSliceVar(&names, "domain", nil, "serve only these domains of --libvirt")
	cmd.AddCommand(&cobra.Command{
		Use:   "faults",
		Short: "List the named faults of real BMCs",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return fakebmc.WritePresets(cmd.OutOrStdout()) },
	})
	return cmd
}
