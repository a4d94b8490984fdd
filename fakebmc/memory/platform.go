package memory

import (
	"fmt"
	"strings"
	"time"
)

// Platform is how long machines of a make take, as NVIDIA's machine-a-tron has measured it
// (dsx-ai-factory/infra-controller, lifecycle_timings.rs): to be forced off, to reboot, and of
// their BMCs to restart.
type Platform struct {
	Name            string
	Reboot, Restart time.Duration
}

// forcedOff is how long each of them takes to be forced off.
const forcedOff = 5 * time.Second

// Platforms have known times.
var Platforms = []Platform{
	{"dell-r750", 390 * time.Second, 90 * time.Second},
	{"dell-r760", 390 * time.Second, 90 * time.Second},
	{"hpe-dl380a-gen11", 390 * time.Second, 60 * time.Second},
	{"ami", 420 * time.Second, 90 * time.Second},
	{"supermicro", 480 * time.Second, 90 * time.Second},
	{"lenovo-gb300", 510 * time.Second, 120 * time.Second},
	{"dgx-h100", 540 * time.Second, 120 * time.Second},
	{"wiwynn-gb200", 600 * time.Second, 120 * time.Second},
	{"dgx-gb300", 630 * time.Second, 120 * time.Second},
}

// PlatformNamed is the one of a name.
func PlatformNamed(name string) (Platform, error) {
	var names []string
	for _, p := range Platforms {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Platform{}, fmt.Errorf("no platform is called %q; there are %s", name, strings.Join(names, ", "))
}

// Timing is that of its hosts. A reboot is an off and an on.
func (p Platform) Timing() Timing { return Timing{Off: forcedOff, On: p.Reboot - forcedOff} }
