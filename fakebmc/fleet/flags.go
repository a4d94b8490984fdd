package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/redfish"
)

// Flags are the options that a command line can say; they have their defaults then.
// Complete the options when they are parsed.
func (o *Options) Flags() *flag.FlagSet {
	flags := flag.NewFlagSet("bmc", flag.ContinueOnError)
	flags.IntVar(&o.Fake, "fake", 0, "serve this many hosts in memory")
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:8000", "address of the first host's Redfish service; each further host is one port up")
	flags.BoolVar(&o.Shared, "shared", false, "serve all hosts behind one address (default with --libvirt, unless there is IPMI)")
	flags.StringVar(&o.IPMI, "ipmi", "", "address of the first host's IPMI service (default: none)")
	flags.StringVar(&o.Username, "username", "", "account of Redfish and IPMI (default: none)")
	flags.BoolVar(&o.AnyPassword, "any-password", false, "let in whoever names any user and any password, on loopback")
	flags.DurationVar(&o.SessionTimeout, "session-timeout", 30*time.Minute, "how long an unused Redfish session lives: 30s to 24h")
	flags.BoolVar(&o.TLS, "tls", false, "serve HTTPS with a generated certificate")
	flags.Func("tls-versions", "serve HTTPS in these `versions` only, one or FROM-TO, of 1.0 to 1.3 (default 1.2-1.3)", o.tlsVersions)
	flags.IntVar(&o.MaxSessions, "max-sessions", 16, "how many sessions a service has at most, over Redfish and over IPMI")
	flags.Func("ipmi-suites", "cipher `suites` that IPMI offers, of 3 and 17 (default both)", o.suites)
	flags.StringVar(&o.Admin, "admin", "", "address of the admin API, on loopback (default: none)")
	flags.StringVar(&o.platform, "platform", "", "take the times that machines of this `make` take: "+platforms())
	flags.Float64Var(&o.speed, "speed", 1, "so many times as fast as these times")
	flags.DurationVar(&o.RestartTime, "restart-time", fakebmc.DefaultRestartTime, "how long a BMC is away after a Manager.Reset")
	flags.DurationVar(&o.Timing.On, "on-time", 2*time.Second, "how long a host in memory takes to power on")
	flags.DurationVar(&o.Timing.Off, "off-time", time.Second, "how long it takes to be forced off")
	flags.StringVar(&o.certificate, "tls-certificate", "", "serve HTTPS with the certificate in this file")
	flags.StringVar(&o.key, "tls-key", "", "private key of --tls-certificate")
	flags.Func("media", "URL `prefixes` of the images that may be inserted as virtual media (default: none)", list(&o.Media))
	flags.Func("events-to", "URL `prefixes` to which clients may have events pushed (default: none)", list(&o.Destinations))
	flags.Func("mockup", "look like the Redfish service in this `directory`, as DMTF's mockup tools and fencelab bmc record write it", func(dir string) (err error) {
		o.Mockup, err = redfish.LoadMockup(dir)
		return err
	})
	flags.Func("preset", "misbehave like this from the start: `names` of fencelab bmc faults", list(&o.presets))
	flags.StringVar(&o.rulesFile, "rules", "", "file with a list of fault rules, in YAML or JSON, in force from the start")
	flags.StringVar(&o.logFile, "log", "", "file to which each request is appended as a line of JSON, with what was reported and what was true")
	flags.DurationVar(&o.Timing.Shutdown, "shutdown-time", 3*time.Second, "how long it takes to shut down")
	return flags
}

// versions are those of TLS, by their names.
var versions = map[string]uint16{"1.0": tls.VersionTLS10, "1.1": tls.VersionTLS11, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

func (o *Options) tlsVersions(text string) error {
	oldest, newest, ok := strings.Cut(text, "-")
	if !ok {
		newest = oldest
	}
	o.TLS, o.OldestTLS, o.NewestTLS = true, versions[oldest], versions[newest]
	if o.OldestTLS == 0 || o.NewestTLS == 0 || o.OldestTLS > o.NewestTLS {
		return errors.New("write one of 1.0, 1.1, 1.2 and 1.3, or two with a dash, the older one first")
	}
	return nil
}

func (o *Options) suites(text string) error {
	for id := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(id)
		if err != nil {
			return fmt.Errorf("suite %q is no number", id)
		}
		o.Suites = append(o.Suites, n)
	}
	return nil
}

// list adds what is separated by commas.
func list(to *[]string) func(string) error {
	return func(some string) error {
		*to = append(*to, strings.Split(some, ",")...)
		return nil
	}
}

// PasswordVariable keeps the password off the command line, which others can read.
const PasswordVariable = "FENCELAB_BMC_PASSWORD"

// platforms are their names.
func platforms() string {
	var names []string
	for _, p := range memory.Platforms {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

// useTimes has the hosts and their BMCs take the times of the platform, and all of them pass
// faster. A time that its own flag has given stays.
func (o *Options) useTimes(given func(flag string) bool) error {
	if o.speed <= 0 || math.IsInf(o.speed, 0) || math.IsNaN(o.speed) {
		return fmt.Errorf("--speed %g: it must be more than 0", o.speed)
	}
	var p memory.Platform
	if o.platform != "" {
		var err error
		if p, err = memory.PlatformNamed(o.platform); err != nil {
			return fmt.Errorf("--platform: %w", err)
		}
	}
	timing := p.Timing()
	for _, x := range []struct {
		flag     string
		into     *time.Duration
		platform time.Duration
	}{
		{"on-time", &o.Timing.On, timing.On}, {"off-time", &o.Timing.Off, timing.Off}, {"shutdown-time", &o.Timing.Shutdown, 0},
		{"restart-time", &o.RestartTime, p.Restart},
	} {
		if given(x.flag) {
			continue
		}
		if p.Name != "" && x.platform != 0 {
			*x.into = x.platform
		}
		*x.into = time.Duration(float64(*x.into) / o.speed)
	}
	return nil
}

// Complete reads what the flags name, but for the log, and the password; given reports which flags
// were given. When ctx ends it waits for no file any longer.
func (o *Options) Complete(ctx context.Context, given func(flag string) bool) error {
	if err := o.useTimes(given); err != nil {
		return err
	}
	var err error
	if o.Password, err = PasswordOf(o.Username); err != nil {
		return err
	}
	return errors.Join(o.useRules(ctx), o.useCertificate())
}

// PasswordOf is the password of the account that --username names, which is empty without one.
func PasswordOf(username string) (string, error) {
	password := os.Getenv(PasswordVariable)
	if (username == "") != (password == "") {
		return "", fmt.Errorf("--username and the environment variable %s go together: set both or none", PasswordVariable)
	}
	return password, nil
}
