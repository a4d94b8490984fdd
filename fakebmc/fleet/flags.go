package fleet

import (
	"flag"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
)

// Flags are the options that a command line can say as they are; they have their
// defaults then.
func (o *Options) Flags() *flag.FlagSet {
	flags := flag.NewFlagSet("bmc", flag.ContinueOnError)
	flags.IntVar(&o.Fake, "fake", 0, "serve so many hosts in memory")
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:8000", "address of the first host's Redfish service; each further host is one port up")
	flags.BoolVar(&o.Shared, "shared", false, "serve all hosts behind the one address (default with --libvirt, unless there is IPMI)")
	flags.StringVar(&o.IPMI, "ipmi", "", "address of the first host's IPMI service (default: none)")
	flags.StringVar(&o.Username, "username", "", "account of Redfish and IPMI (default: none)")
	flags.DurationVar(&o.SessionTimeout, "session-timeout", 30*time.Minute, "how long a Redfish session lives without being used: 30s to 24h")
	flags.BoolVar(&o.TLS, "tls", false, "serve HTTPS with a generated certificate")
	flags.StringVar(&o.Admin, "admin", "", "address of the admin API, on loopback (default: none)")
	flags.DurationVar(&o.RestartTime, "restart-time", fakebmc.DefaultRestartTime, "how long a BMC is away after a Manager.Reset")
	flags.DurationVar(&o.Timing.On, "on-time", 2*time.Second, "how long a host in memory takes to power on")
	flags.DurationVar(&o.Timing.Off, "off-time", time.Second, "how long it takes to be forced off")
	flags.DurationVar(&o.Timing.Shutdown, "shutdown-time", 3*time.Second, "how long it takes to shut down")
	return flags
}
