package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencelab/fencelab/fakebmc/fleet"
)

// stranger is a flag, or a command, by which users of another emulator start theirs.
type stranger struct {
	of, name, shorthand string
	// same is the flag of ours that it sets; empty if advice says what to do instead.
	same   string
	advice string
}

const (
	sushyEmulator = "sushy-emulator"
	virtualBMC    = "VirtualBMC"
	vbmctl        = "vbmctl"
)

// strangers are all that are known; docs/fakebmc.md lists them.
var strangers = []stranger{
	{sushyEmulator, "interface", "i", "listen", ""},
	{sushyEmulator, "port", "p", "listen", ""},
	{sushyEmulator, "ssl-certificate", "", "tls-certificate", ""},
	{sushyEmulator, "ssl-key", "", "tls-key", ""},
	{sushyEmulator, "libvirt-uri", "", "libvirt", ""},
	{sushyEmulator, "config", "", "", "its settings are flags here: --listen, --username, --tls-certificate, --media"},
	{sushyEmulator, "debug", "", "", "use --log FILE, which has each request with its answer"},
	{sushyEmulator, "feature-set", "", "", "leave it out: all that a host can do is served"},
	{sushyEmulator, "os-cloud", "", "", "instances of OpenStack are not served; use --libvirt or --fake"},
	{virtualBMC, "address", "", "", "use --ipmi ADDRESS:PORT, with --username and the password in " + fleet.PasswordVariable},
	{virtualBMC, "password", "", "", "set " + fleet.PasswordVariable + ": others can read a command line"},
	{virtualBMC, "libvirt-sasl-username", "", "", "put the credentials into libvirt's own auth.conf"},
	{virtualBMC, "libvirt-sasl-password", "", "", "put the credentials into libvirt's own auth.conf"},
	{virtualBMC, "foreground", "", "", "leave it out: it always runs in the foreground"},
	{virtualBMC, "add", "", "", "use --libvirt URI --domain NAME --ipmi ADDRESS:PORT, which serves it at once"},
	{virtualBMC, "start", "", "", "use --libvirt URI --domain NAME --ipmi ADDRESS:PORT, which serves it at once"},
	{virtualBMC, "stop", "", "", "end the command"},
	{virtualBMC, "list", "", "", "read what it prints at the start, or GET /v1/hosts of --admin"},
	{vbmctl, "create", "", "", "define the domains with virsh, and use --libvirt URI --media URL; or use --fake N, which needs none"},
	{vbmctl, "delete", "", "", "end the command"},
	{vbmctl, "status", "", "", "GET /v1/hosts of --admin"},
	{vbmctl, "", "c", "", "its settings are flags here: --libvirt, --listen, --media"},
}

// understand gives a command the flags of strangers that mean one of its own, hidden. The function
// that it returns makes one address of its parts.
func understand(cmd *cobra.Command) (settle func() error) {
	flags := cmd.Flags()
	var host, port string
	parts := map[string]*string{"interface": &host, "port": &port}
	for _, s := range strangers {
		switch part := parts[s.name]; {
		case s.same == "":
			continue
		case part != nil:
			flags.StringVarP(part, s.name, s.shorthand, "", "")
		default:
			flags.Var(flags.Lookup(s.same).Value, s.name, "")
		}
		flags.Lookup(s.name).Hidden = true
	}
	return func() error {
		if host == "" && port == "" {
			return nil
		}
		if flags.Changed("listen") {
			return errors.New("--listen has an address and a port: leave --interface and --port out")
		}
		return flags.Set("listen", net.JoinHostPort(cmp.Or(host, "127.0.0.1"), cmp.Or(port, "8000")))
	}
}

// advise answers a flag of a stranger's by what to use instead.
func advise(cmd *cobra.Command, err error) error {
	var absent *pflag.NotExistError
	var valueless *pflag.ValueRequiredError
	if errors.As(err, &valueless) && valueless.GetFlag() != nil && valueless.GetFlag().Name == "fake" {
		return fmt.Errorf("%w: say how many hosts in memory, as in --fake 1", err)
	}
	if errors.As(err, &absent) {
		name := absent.GetSpecifiedName()
		if i := slices.IndexFunc(strangers, func(s stranger) bool { return s.name == name || s.shorthand == name }); i >= 0 && strangers[i].same == "" {
			return fmt.Errorf("%s is %s's: %s", "-"+strings.Repeat("-", min(len(name)-1, 1))+name, strangers[i].of, strangers[i].advice)
		}
	}
	return wrongFlag(cmd, err)
}

// noCommand refuses arguments, those of strangers with what to use instead.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		if i := slices.IndexFunc(strangers, func(s stranger) bool { return s.name == args[0] && s.same == "" && s.of != sushyEmulator }); i >= 0 {
			return fmt.Errorf("%s is %s's: %s", args[0], strangers[i].of, strangers[i].advice)
		}
	}
	return cobra.NoArgs(cmd, args)
}
