package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/fleet"
	"github.com/fencelab/fencelab/vms"
)

// passwordVariable keeps the password off the command line, which others can
// read.
const passwordVariable = "FENCELAB_BMC_PASSWORD"

func bmcCommand() *cobra.Command {
	o := fleet.Options{}
	var uri, certificate, key, rulesFile string
	var domains, presets []string
	var byUUID bool
	cmd := &cobra.Command{
		Use:   "bmc",
		Short: "Serve Redfish and IPMI BMCs that can misbehave",
		Long: `Bmc serves a BMC for each of a number of hosts in memory (--fake), or for the
domains of a libvirt (--libvirt). What they do wrong is said from the start
(--preset, --rules), or while they run through the admin API (--admin).

The password of --username is read from ` + passwordVariable + `. On loopback
none is needed; elsewhere there is no default.`,
		Example: `  fencelab bmc --fake 3 --listen 127.0.0.1:8000
  fencelab bmc --libvirt qemu:///system --by-uuid --shared --listen 127.0.0.1:8000
  fencelab bmc faults`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
			if uri != "" {
				machines, disconnect, err := vms.Machines(uri, domains...)
				if err != nil {
					return &exit{exitEnvironment, err}
				}
				defer disconnect()
				for _, m := range machines {
					name := m.Name()
					if byUUID {
						name = m.UUID()
					}
					o.Hosts = append(o.Hosts, fleet.Host{Name: name, System: machine{m}})
				}
			} else if len(domains) > 0 {
				return invalid(errors.New("--domain needs --libvirt"))
			}
			if len(o.Hosts) == 0 && o.Fake < 1 {
				return invalid(errors.New("there is no host to serve: use --fake, or --libvirt with a libvirt that has domains"))
			}
			if err := fleet.Run(cmd.Context(), o); err != nil {
				return &exit{exitEnvironment, err}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Fake, "fake", 0, "serve so many hosts in memory")
	flags.StringVar(&uri, "libvirt", "", "serve the domains of this libvirt, such as qemu:///system")
	flags.StringSliceVar(&domains, "domain", nil, "serve only these domains of --libvirt")
	flags.BoolVar(&byUUID, "by-uuid", false, "name the systems of --libvirt by their UUID, as sushy-emulator does")
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:8000", "address of the first host's Redfish service; each further host is one port up")
	flags.BoolVar(&o.Shared, "shared", false, "serve all hosts behind the one address")
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

// machine is a libvirt domain as the system behind a BMC.
type machine struct{ *vms.Machine }

// PowerState implements fakebmc.System.
func (m machine) PowerState() (fakebmc.PowerState, error) {
	state, err := m.State()
	return fakebmc.PowerState(state), err
}

// Resets implements fakebmc.Resetter.
func (m machine) Resets() []fakebmc.ResetType {
	return []fakebmc.ResetType{fakebmc.ResetOn, fakebmc.ResetForceOff, fakebmc.ResetGracefulShutdown,
		fakebmc.ResetGracefulRestart, fakebmc.ResetForceRestart, fakebmc.ResetNmi}
}

// Reset implements fakebmc.System.
func (m machine) Reset(t fakebmc.ResetType) error {
	operations := map[fakebmc.ResetType]func() error{
		fakebmc.ResetOn: m.On, fakebmc.ResetForceOff: m.ForceOff, fakebmc.ResetGracefulShutdown: m.Shutdown,
		fakebmc.ResetGracefulRestart: m.Reboot, fakebmc.ResetForceRestart: m.Restart, fakebmc.ResetNmi: m.Interrupt,
	}
	operation := operations[t]
	if operation == nil {
		return fmt.Errorf("%s of %s: %w", cmp.Or(string(t), "a reset without a type"), m.Name(), fakebmc.ErrUnsupported)
	}
	needsPower := slices.Contains([]fakebmc.ResetType{fakebmc.ResetGracefulRestart, fakebmc.ResetForceRestart, fakebmc.ResetNmi}, t)
	if state, err := m.State(); err != nil {
		return err
	} else if needsPower && state == vms.StateOff {
		return fmt.Errorf("%s of %s, which is off: %w", t, m.Name(), fakebmc.ErrConflict)
	}
	return operation()
}
