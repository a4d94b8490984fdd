package cmd

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/fleet"
	"github.com/fencelab/fencelab/fakebmc/libvirt"
	"github.com/fencelab/fencelab/fakebmc/recording"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// recordCommand takes a mockup of a BMC.
func recordCommand() *cobra.Command {
	o := recording.Options{}
	cmd := &cobra.Command{
		Use:   "record URL DIR",
		Short: "Take a mockup of a BMC, by reads alone",
		Long: `Record reads a Redfish service, one resource at a time and with pauses, and writes it to
a directory that --mockup serves. Nothing is changed at the BMC. Secrets, serial numbers,
UUIDs, MAC and IP addresses, names of hosts, users and places, and certificates have other
values in the directory, the same wherever they stand. What was replaced is listed at the
end, without the values; look through the directory before you publish it.

An interrupted recording goes on with the same command; until it is whole, what was
read is in DIR/.raw, as it was read. The password of --username is read from ` + fleet.PasswordVariable + `.`,
		Example: `  fencelab bmc record https://bmc.example.org DIR --username root --insecure`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Password, err = fleet.PasswordOf(o.Username); err != nil {
				return exit.BadInput(err)
			}
			o.URL = args[0]
			o.Say = func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
			recorded, err := recording.Record(cmd.Context(), args[1], o)
			if errors.Is(err, recording.ErrInput) {
				return exit.BadInput(err)
			}
			if err != nil {
				return exit.UnlessEnded(cmd.Context(), exit.Coded(exit.Environment, err))
			}
			for _, refused := range recorded.Refused {
				fmt.Fprintln(cmd.OutOrStdout(), "not read:", refused)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s are in %s\n", phrase.Count(recorded.Resources, "resource"), args[1])
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, r := range recorded.Replaced {
				fmt.Fprintf(table, "replaced\t%s\t%s\tof %s\n", r.Kind, phrase.Count(r.Values, "value"), strings.Join(r.Where, ", "))
			}
			return table.Flush()
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Username, "username", "", "account to read with (default: none)")
	flags.BoolVar(&o.Insecure, "insecure", false, "accept any certificate")
	flags.DurationVar(&o.Pause, "pause", 200*time.Millisecond, "how long to wait between two reads")
	flags.StringSliceVar(&o.Keep, "keep", nil, "`kinds` of values that are written as they are: "+strings.Join(recording.Kinds(), ", "))
	flags.StringSliceVar(&o.Skip, "skip", recording.Volatile, "patterns of paths that are not read, nor what is below them")
	return cmd
}

func bmcCommand() *cobra.Command {
	o := fleet.Options{}
	var uri string
	var names []string
	settle := func() error { return nil }
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
  fencelab bmc --fake 1 --mockup DIR
  fencelab bmc --fake 100 --shared --platform dell-r750 --speed 10
  fencelab bmc record https://bmc.example.org DIR --username root
  fencelab bmc faults`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) (runErr error) {
			if err := settle(); err != nil {
				return exit.BadInput(err)
			}
			o.Ready = cmd.OutOrStdout()
			o.Warn = func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+text) }
			if err := o.Complete(cmd.Context(), cmd.Flags().Changed); err != nil {
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
				// All domains share one address unless the user says otherwise: Ironic and other
				// clients are configured with it.
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
	settle = understand(cmd)
	cmd.SetFlagErrorFunc(advise)
	cmd.AddCommand(recordCommand(), &cobra.Command{
		Use:   "faults",
		Short: "List the named faults of real BMCs",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return fakebmc.WritePresets(cmd.OutOrStdout()) },
	})
	return cmd
}
