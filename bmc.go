package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/fleet"
	"github.com/fencelab/fencelab/fakebmc/libvirt"
	"github.com/fencelab/fencelab/vms/keeper"
)

// passwordVariable keeps the password off the command line, which others can
// read.
const passwordVariable = "FENCELAB_BMC_PASSWORD"

func bmcCommand() *cobra.Command {
	o := fleet.Options{}
	var uri, certificate, key, rulesFile string
	var names, presets []string
	cmd := &cobra.Command{
		Use:   "bmc",
		Short: "Serve Redfish and IPMI BMCs that can misbehave",
		Long: `Bmc serves a BMC for each of a number of hosts in memory (--fake), or for the
domains of a libvirt (--libvirt), where it takes the place of sushy-emulator: all
domains behind one address, by UUID or name, also those defined later. What they do
wrong is said from the start (--preset, --rules), or while they run through the
admin API (--admin).

The password of --username is read from ` + passwordVariable + `. On loopback
none is needed; elsewhere there is no default.`,
		Example: `  fencelab bmc --fake 3 --listen 127.0.0.1:8000
  fencelab bmc --libvirt qemu:///system --media http://127.0.0.1:8080/images/
  fencelab bmc faults`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (runErr error) {
			o.Ready, o.Password = cmd.OutOrStdout(), os.Getenv(passwordVariable)
			var err error
			if o.Rules, err = faultRules(presets, rulesFile); err != nil {
				return invalid(err)
			}
			if (certificate == "") != (key == "") {
				return invalid(errors.New("--tls-certificate and --tls-key go together"))
			}
			if certificate != "" {
				pair, err := tls.LoadX509KeyPair(certificate, key)
				if err != nil {
					return invalid(fmt.Errorf("read the certificate: %w", err))
				}
				o.TLS, o.Certificate = true, &pair
			}
			if uri == "" && len(names) > 0 {
				return invalid(errors.New("--domain needs --libvirt"))
			}
			if uri == "" && o.Fake < 1 {
				return invalid(errors.New("there is no host to serve: use --fake or --libvirt"))
			}
			if uri != "" {
				// Ironic and others are told one address for all domains.
				o.Shared = o.Shared || !cmd.Flags().Changed("shared") && o.IPMI == ""
				disconnect, err := serveDomains(cmd.Context(), &o, uri, names)
				if err != nil {
					return &exit{exitEnvironment, err}
				}
				defer func() { runErr = errors.Join(runErr, disconnect()) }()
			}
			err = fleet.Run(cmd.Context(), o)
			var network *net.OpError
			var file *fs.PathError
			switch {
			case err == nil:
				return nil
			case errors.As(err, &network), errors.As(err, &file):
				return &exit{exitEnvironment, err}
			}
			return invalid(err) // what else can be wrong is in the options
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Fake, "fake", 0, "serve so many hosts in memory")
	flags.StringVar(&uri, "libvirt", "", "serve the domains of this libvirt, such as qemu:///system")
	flags.StringSliceVar(&names, "domain", nil, "serve only these domains of --libvirt")
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:8000", "address of the first host's Redfish service; each further host is one port up")
	flags.BoolVar(&o.Shared, "shared", false, "serve all hosts behind the one address (default with --libvirt, unless there is IPMI)")
	flags.StringVar(&o.IPMI, "ipmi", "", "address of the first host's IPMI service (default: none)")
	flags.StringVar(&o.Username, "username", "", "account of Redfish and IPMI (default: none)")
	flags.BoolVar(&o.TLS, "tls", false, "serve HTTPS with a generated certificate")
	flags.StringVar(&certificate, "tls-certificate", "", "serve HTTPS with the certificate in this file")
	flags.StringVar(&key, "tls-key", "", "private key of --tls-certificate")
	flags.StringSliceVar(&o.Media, "media", nil, "URL prefixes of the images that may be inserted as virtual media (default: none)")
	flags.StringVar(&o.Admin, "admin", "", "address of the admin API, on loopback (default: none)")
	flags.StringSliceVar(&presets, "preset", nil, "misbehave like this from the start: see fencelab bmc faults")
	flags.StringVar(&rulesFile, "rules", "", "file with a JSON array of fault rules that are in force from the start")
	flags.DurationVar(&o.RestartTime, "restart-time", 0, "how long a BMC is away after a Manager.Reset (default: fakebmc's)")
	flags.DurationVar(&o.Timing.On, "on-time", 2*time.Second, "how long a host in memory takes to power on")
	flags.DurationVar(&o.Timing.Off, "off-time", time.Second, "how long it takes to be forced off")
	flags.DurationVar(&o.Timing.Shutdown, "shutdown-time", 3*time.Second, "how long it takes to shut down")
	cmd.AddCommand(&cobra.Command{
		Use:   "faults",
		Short: "List the misbehaviours of real BMCs that have a name",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return fakebmc.WritePresets(cmd.OutOrStdout()) },
	})
	return cmd
}

// faultRules are the rules of presets, and those of a file.
func faultRules(presets []string, file string) ([]fakebmc.Rule, error) {
	var rules []fakebmc.Rule
	for _, name := range presets {
		r := fakebmc.Rule{Name: name, Preset: name}
		if err := r.Validate(); err != nil {
			return nil, fmt.Errorf("--preset %s: %w", name, err)
		}
		rules = append(rules, r)
	}
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		more, err := fakebmc.ParseRules(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Clean(file), err)
		}
		rules = append(rules, more...)
	}
	return rules, nil
}

// serveDomains has a fleet serve the domains of a libvirt. disconnect leaves the
// domains as they are, and nothing of ours in them.
func serveDomains(ctx context.Context, o *fleet.Options, uri string, names []string) (disconnect func() error, err error) {
	k, err := keeper.Start()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx) // nobody takes the changes when the fleet has ended
	options := libvirt.Options{URI: uri, Names: names}
	host := func(d *libvirt.Domain) fleet.Host { return fleet.Host{Name: d.Name(), UUID: d.UUID(), System: d} }
	if o.Shared {
		changes := make(chan fleet.Change)
		o.Changes = changes
		options.Change = func(d *libvirt.Domain, gone bool) {
			select {
			case changes <- fleet.Change{Host: host(d), Gone: gone}:
			case <-ctx.Done():
			}
		}
	}
	if len(o.Media) > 0 {
		if options.Images, err = k.TempDir("fencelab-images"); err == nil {
			err = os.Chmod(options.Images, 0o711) // the hypervisor opens what is in it as another user
		}
	}
	var l *libvirt.Domains
	var now []*libvirt.Domain
	if err == nil {
		l, now, err = libvirt.Open(ctx, options)
	}
	if err != nil {
		cancel()
		return nil, errors.Join(err, k.Close())
	}
	for _, d := range now {
		o.Hosts = append(o.Hosts, host(d))
	}
	return func() error {
		cancel()
		return errors.Join(l.Close(), k.Close())
	}, nil
}
