package ipmi

import (
	"slices"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
)

// The parameters of the System Boot Options (section 28.13) that are there. What
// firmware and agents tell one another by the others has no reader here.
const (
	bootProgress = 0
	bootClearing = 3 // when the flags are cleared without a boot
	bootAck      = 4
	bootFlags    = 5
)

// bootParameters are how many bytes each has at least.
var bootParameters = map[byte]int{bootProgress: 1, bootClearing: 1, bootAck: 2, bootFlags: 5}

// Bits of the parameters.
const (
	bootParameterVersion = 1
	setComplete          = 0
	setInProgress        = 1
	keepByButton         = 0x01 // of bootClearing, as those that follow
	keepByWatchdog       = 0x04
	keepWithoutControl   = 0x08
	keepings             = 0x1f

	flagsValid      = 0x80
	flagsPersistent = 0x40
	flagsUEFI       = 0x20
)

// bootTimeout is for how long boot flags wait for a Chassis Control, unless
// keepWithoutControl is set.
const bootTimeout = 60 * time.Second

// Completion codes of the boot options.
const (
	codeNoParameter = 0x80
	codeInProgress  = 0x81
)

// bootDevices maps IPMI's device selectors to boot targets. A remote drive has the target of the
// local one. IPMI reports an override with any other target as no override.
var bootDevices = map[byte]string{
	0: fakebmc.BootNone, 1: fakebmc.BootPxe, 2: fakebmc.BootHdd, 5: fakebmc.BootCd, 6: fakebmc.BootBIOS, 8: fakebmc.BootCd,
}

// bootOptions are what a BMC knows of them beside the override, which is the System's.
type bootOptions struct {
	setter   *session // who has them in progress, or nil
	set      bool     // by IPMI: the override is not Redfish's
	clearing byte
	ack      byte
	round    int // of the flags' timer; an older one is void
}

// getBoot is the body of Get System Boot Options. What it answers is also told of an
// override that was set over Redfish.
func (s *Server) getBoot(b []byte) (code byte, body []byte) {
	booter, ok := s.bmc.System().(fakebmc.Booter)
	if !ok {
		return codeInvalidCommand, nil
	}
	s.mu.Lock()
	options := s.boot
	held := s.holds(options.setter)
	s.mu.Unlock()
	parameter := b[0] & 0x7f
	body = []byte{bootParameterVersion, parameter}
	switch parameter {
	case bootProgress:
		if held {
			return codeOK, append(body, setInProgress)
		}
		return codeOK, append(body, setComplete)
	case bootClearing:
		return codeOK, append(body, options.clearing)
	case bootAck:
		return codeOK, append(body, 0, options.ack)
	case bootFlags:
		boot, err := booter.Boot()
		if err != nil {
			return codeUnspecified, nil
		}
		return codeOK, append(body, flags(boot)...)
	}
	return codeNoParameter, nil
}

func flags(boot fakebmc.Boot) []byte {
	var first, device byte
	for n, target := range bootDevices {
		if target == boot.Target && n < 8 {
			device = n
		}
	}
	switch boot.Enabled {
	case fakebmc.BootOnce:
		first = flagsValid
	case fakebmc.BootContinuous:
		first = flagsValid | flagsPersistent
	}
	if boot.Mode == fakebmc.BootUEFI {
		first |= flagsUEFI
	}
	return []byte{first, device << 2, 0, 0, 0}
}

// setBoot executes Set System Boot Options.
func (s *Server) setBoot(x *session, b []byte) byte {
	booter, ok := s.bmc.System().(fakebmc.Booter)
	if !ok {
		return codeInvalidCommand
	}
	parameter, data := b[0], b[1:]
	switch length, known := bootParameters[parameter]; {
	case parameter&0x80 != 0:
		return codeInvalidField // it is to be locked
	case !known:
		return codeNoParameter
	case len(data) == 0:
		return codeOK // it is valid, as it always is
	case len(data) < length:
		return codeShort
	}
	switch parameter {
	case bootFlags:
		return s.setBootFlags(x, booter, data)
	case bootProgress:
		return s.setProgress(x, data[0]&3)
	case bootClearing:
		if data[0]&^keepings != 0 {
			return codeInvalidField
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.boot.clearing = data[0]
		return codeOK
	default: // bootAck
		s.mu.Lock()
		defer s.mu.Unlock()
		s.boot.ack = s.boot.ack&^data[0] | data[1]&data[0]
		return codeOK
	}
}

// setProgress: one session at a time sets options, as long as it lives.
func (s *Server) setProgress(x *session, progress byte) byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch progress {
	case setInProgress:
		if s.holds(s.boot.setter) && s.boot.setter != x {
			return codeInProgress
		}
		s.boot.setter = x
	case setComplete:
		s.boot.setter = nil
	default: // nothing is rolled back, so that there is nothing to commit
		return codeInvalidField
	}
	return codeOK
}

// forget is what becomes of the boot options when the BMC loses its memory: they outlive any boot
// of the host, but not that (section 28.13, "semi-volatile"). An override that Redfish has set
// since then is in force all the same.
func (s *Server) forget(mains bool) {
	s.mu.Lock()
	s.failed = s.failed || mains
	set := s.boot.set
	s.boot = bootOptions{round: s.boot.round + 1}
	s.mu.Unlock()
	if set {
		s.clearFlags(fakebmc.BootOnce, fakebmc.BootContinuous)
	}
}

// aboutToReset clears flags that are valid for a restart by Chassis Control alone (section 28.12),
// unless those who set them have said otherwise. A reset by Redfish is as good. Whoever was about
// to change options is done with it.
func (s *Server) aboutToReset(r fakebmc.Request, t fakebmc.ResetType) {
	if t == fakebmc.ResetNmi {
		return
	}
	s.mu.Lock()
	s.boot.setter = nil
	s.failed = s.failed && r.Client == fakebmc.ClientRestore
	keep := byte(0)
	switch {
	case t == fakebmc.ResetForceOff, t == fakebmc.ResetGracefulShutdown: // no restart
	case r.Client == fakebmc.ClientWatchdog:
		s.cause, keep = causeWatchdog, keepByWatchdog
	case r.Client == fakebmc.ClientRestore && s.bmc.RestorePolicy() == fakebmc.AlwaysOn:
		s.cause = causeAlwaysOn
	case r.Client == fakebmc.ClientRestore:
		s.cause = causeLastState
	case t == fakebmc.ResetPushPowerButton:
		s.cause, keep = causeButton, keepByButton
	case r.Via == fakebmc.ViaIPMI:
		s.cause = causeControl
	case r.Client == fakebmc.ClientBMC:
		s.cause = causeUnknown
	default:
		s.cause = causeOEM
	}
	void := s.boot.set && keep != 0 && s.boot.clearing&keep == 0
	s.mu.Unlock()
	if void {
		s.clearFlags(fakebmc.BootOnce, fakebmc.BootContinuous)
	}
}

// The causes of a restart (section 28.11).
const (
	causeUnknown   = 0x0
	causeControl   = 0x1
	causeButton    = 0x3
	causeWatchdog  = 0x4
	causeOEM       = 0x5
	causeAlwaysOn  = 0x6
	causeLastState = 0x7
)

// clearFlags ends an override that is in force so.
func (s *Server) clearFlags(enabled ...string) {
	booter, ok := s.bmc.System().(fakebmc.Booter)
	if !ok {
		return
	}
	if boot, err := booter.Boot(); err == nil && slices.Contains(enabled, boot.Enabled) {
		_ = booter.SetBoot(fakebmc.Boot{Enabled: fakebmc.BootDisabled, Target: fakebmc.BootNone, Mode: boot.Mode}) // nobody is there to be told
	}
}

func (s *Server) holds(x *session) bool { return x != nil && slices.Contains(s.sessions, x) }

// setBootFlags sets the override. The firmware mode is the one asked for if the host has
// it. A host without the legacy one keeps its own, since the bit for it is the absence
// of another one. What can't be done, such as clearing the CMOS, is refused.
func (s *Server) setBootFlags(x *session, booter fakebmc.Booter, b []byte) byte {
	if b[0]&flagsValid != 0 && b[0]&flagsPersistent != 0 && x.level() < privilegeAdministrator {
		return codePrivilege
	}
	target, known := bootDevices[b[1]>>2&0xf]
	targets, modes, err := booter.Bootable()
	switch {
	case err != nil:
		return codeUnspecified
	case !known, !slices.Contains(targets, target), b[0]&0x1f != 0, b[1]&^0x3c != 0, b[2] != 0, b[3] != 0, b[4] != 0:
		return codeInvalidField
	}
	boot := fakebmc.Boot{Enabled: fakebmc.BootOnce, Target: target}
	switch {
	case b[0]&flagsUEFI != 0:
		if !slices.Contains(modes, fakebmc.BootUEFI) {
			return codeInvalidField
		}
		boot.Mode = fakebmc.BootUEFI
	case slices.Contains(modes, fakebmc.BootLegacy):
		boot.Mode = fakebmc.BootLegacy
	}
	switch {
	case b[0]&flagsValid == 0 || target == fakebmc.BootNone:
		boot.Enabled, boot.Target = fakebmc.BootDisabled, fakebmc.BootNone
	case b[0]&flagsPersistent != 0:
		boot.Enabled = fakebmc.BootContinuous
	}
	if err := booter.SetBoot(boot); err != nil {
		return codeUnspecified
	}
	s.mu.Lock()
	s.boot.set = true
	s.mu.Unlock()
	s.awaitControl(boot.Enabled == fakebmc.BootOnce)
	return codeOK
}

// awaitControl begins the time after which flags that are valid once are cleared, and
// ends the one that runs.
func (s *Server) awaitControl(begin bool) {
	s.mu.Lock()
	s.boot.round++
	round := s.boot.round
	if s.boot.clearing&keepWithoutControl != 0 {
		begin = false
	}
	s.mu.Unlock()
	if !begin {
		return
	}
	s.cfg.Clock.AfterFunc(bootTimeout, func() {
		s.mu.Lock()
		due := s.boot.round == round
		s.mu.Unlock()
		if due {
			s.clearFlags(fakebmc.BootOnce)
		}
	})
}
