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

// Bits of the parameters.
const (
	bootParameterVersion = 1
	setComplete          = 0
	setInProgress        = 1
	commitWrite          = 2
	keepWithoutControl   = 0x08 // of bootClearing

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

// bootDevices are the targets by their IPMI number; what is redirected from afar is the
// same drive. Others that a boot can have are no override to IPMI.
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
	if length, known := map[byte]int{bootProgress: 1, bootClearing: 1, bootAck: 2, bootFlags: 5}[parameter&0x7f]; !known {
		return codeNoParameter
	} else if len(data) < length {
		return codeShort
	}
	switch parameter {
	case bootFlags:
		return s.setBootFlags(booter, data)
	case bootProgress:
		return s.setProgress(x, data[0]&3)
	case bootClearing:
		if data[0]&^keepWithoutControl != 0 {
			return codeInvalidField // each boot is one
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.boot.clearing = data[0]
		return codeOK
	case bootAck:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.boot.ack = s.boot.ack&^data[0] | data[1]&data[0]
		return codeOK
	}
	return codeInvalidField // a parameter that is to be locked
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
	case commitWrite: // what is written is in force at once
	default:
		return codeInvalidField
	}
	return codeOK
}

// forgetBoot is what becomes of the boot options when the BMC loses its memory: they outlive any boot of the host, but not that
// (section 28.13, "semi-volatile"). An override that Redfish has set since then is in force all the same.
func (s *Server) forgetBoot() {
	s.mu.Lock()
	set := s.boot.set
	s.boot = bootOptions{round: s.boot.round + 1}
	s.mu.Unlock()
	if booter, ok := s.bmc.System().(fakebmc.Booter); ok && set {
		if boot, err := booter.Boot(); err == nil && boot.Enabled != fakebmc.BootDisabled {
			_ = booter.SetBoot(fakebmc.Boot{Enabled: fakebmc.BootDisabled, Target: fakebmc.BootNone, Mode: boot.Mode}) // nobody is there to be told
		}
	}
}

func (s *Server) holds(x *session) bool { return x != nil && slices.Contains(s.sessions, x) }

// setBootFlags sets the override. The firmware mode is the one asked for if the host has
// it. A host without the legacy one keeps its own, since the bit for it is the absence
// of another one. What can't be done, such as clearing the CMOS, is refused.
func (s *Server) setBootFlags(booter fakebmc.Booter, b []byte) byte {
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
	s.awaitControl(booter, boot.Enabled == fakebmc.BootOnce)
	return codeOK
}

// awaitControl begins the time after which flags that are valid once are cleared, and
// ends the one that runs.
func (s *Server) awaitControl(booter fakebmc.Booter, begin bool) {
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
		if boot, err := booter.Boot(); due && err == nil && boot.Enabled == fakebmc.BootOnce {
			_ = booter.SetBoot(fakebmc.Boot{Enabled: fakebmc.BootDisabled, Target: fakebmc.BootNone, Mode: boot.Mode}) // nobody is there to be told
		}
	})
}
