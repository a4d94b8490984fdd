package reboot

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Settings are the times of the reboot controller.
type Settings struct {
	// SoftTimeout is how long a soft shutdown may take before the host is
	// powered off hard. It counts from pendingRebootSince.
	SoftTimeout metav1.Duration `json:"softTimeout"`
	// PollInterval is how often a host is looked at while a change of its power
	// is expected, or it has to be held off.
	PollInterval metav1.Duration `json:"pollInterval"`
	// SteadyInterval is how often a host is looked at otherwise: its button may have been pressed.
	SteadyInterval metav1.Duration `json:"steadyInterval"`
	// CommandInterval is how long an accepted PowerOff or PowerOn may take to show, and to have
	// had its effect, before it is sent again. BMCs ignore commands, but a slow one may carry out
	// each, and a second PowerOff could hit the next boot.
	CommandInterval metav1.Duration `json:"commandInterval"`
	// BootTimeout is how long a host that was powered on may be reported off
	// before that is believed again, should its BMC not let the boot be called off:
	// a request must not be answered by an Off from before.
	BootTimeout metav1.Duration `json:"bootTimeout"`
	// BMCTimeout bounds every call to a BMC.
	BMCTimeout metav1.Duration `json:"bmcTimeout"`
	// MaxBackoff bounds the interval between attempts at a BMC that fails,
	// which starts at PollInterval and doubles.
	MaxBackoff metav1.Duration `json:"maxBackoff"`
	// Ironic owns the BMCs, if an Ironic does.
	Ironic Ironic `json:"ironic,omitzero"`
}

// Ironic is an Ironic through which the power of hosts is commanded.
type Ironic struct {
	// Endpoint is the URL of its API, without the version; empty for BMCs that are
	// commanded directly. IRONIC_USERNAME and IRONIC_PASSWORD in the environment are for
	// an Ironic that asks for them.
	Endpoint string `json:"endpoint,omitempty"`
	// TrustRecord believes Ironic's record of a host's power without asking the BMC, for
	// BMCs that only Ironic reaches. It is not safe: a host that powers off, or that was
	// switched on past Ironic, is taken for off.
	TrustRecord bool `json:"trustRecord,omitempty"`
}

// Validate returns the faults of the settings.
func (s *Settings) Validate() error {
	var errs []error
	for _, d := range [...]struct {
		name  string
		value metav1.Duration
		least time.Duration
	}{
		{"softTimeout", s.SoftTimeout, 0}, {"pollInterval", s.PollInterval, shortest}, {"steadyInterval", s.SteadyInterval, shortest},
		{"commandInterval", s.CommandInterval, shortest}, {"bootTimeout", s.BootTimeout, 0}, {"bmcTimeout", s.BMCTimeout, shortest},
		{"maxBackoff", s.MaxBackoff, shortest},
	} {
		if d.value.Duration < d.least {
			errs = append(errs, fmt.Errorf("%s %s is too short: use at least %s", d.name, d.value.Duration, d.least))
		}
	}
	if u, err := url.Parse(s.Ironic.Endpoint); s.Ironic.Endpoint != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		errs = append(errs, fmt.Errorf("ironic.endpoint %q is no URL such as http://HOST:6385", s.Ironic.Endpoint))
	}
	return errors.Join(errs...)
}

// shortest is the least time between two looks at a host, so that a controller finds time for
// other work.
const shortest = 10 * time.Millisecond

// DefaultSettings returns the settings that upstream's baremetal-operator uses
// where it has them.
func DefaultSettings() Settings {
	return Settings{
		SoftTimeout:     metav1.Duration{Duration: 180 * time.Second},
		PollInterval:    metav1.Duration{Duration: 2 * time.Second},
		SteadyInterval:  metav1.Duration{Duration: 60 * time.Second},
		CommandInterval: metav1.Duration{Duration: 10 * time.Second},
		BootTimeout:     metav1.Duration{Duration: 5 * time.Minute},
		BMCTimeout:      metav1.Duration{Duration: 10 * time.Second},
		MaxBackoff:      metav1.Duration{Duration: 30 * time.Second},
	}
}
