package ipmi

import (
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
)

// Network functions and commands.
const (
	chassis = 0x00
	app     = 0x06

	getChassisCapabilities = 0x00
	getChassisStatus       = 0x01
	chassisControl         = 0x02
	setRestorePolicy       = 0x06
	setBootOptions         = 0x08
	getBootOptions         = 0x09

	getDeviceID            = 0x01
	coldReset              = 0x02
	warmReset              = 0x03
	getSelfTest            = 0x04
	resetWatchdog          = 0x22
	setWatchdog            = 0x24
	getWatchdog            = 0x25
	getSystemGUID          = 0x37
	getAuthCapabilities    = 0x38
	setSessionPrivilege    = 0x3b
	closeSession           = 0x3c
	getChannelCipherSuites = 0x54
)

// Completion codes (section 5.2).
const (
	codeOK                = 0x00
	codeBusy              = 0xc0
	codeInvalidCommand    = 0xc1
	codeTimeout           = 0xc3
	codeShort             = 0xc7
	codeInvalidField      = 0xcc
	codePrivilege         = 0xd4
	codePresentState      = 0xd5
	codeUnspecified       = 0xff
	codeTimerNotSet       = 0x80 // of Reset Watchdog Timer
	codePrivilegeTooHigh  = 0x81 // of Set Session Privilege Level
	codeInvalidSessionEnd = 0x87 // of Close Session
)

// controls are the resets of Chassis Control (section 28.3), in its order.
var controls = []fakebmc.ResetType{
	fakebmc.ResetForceOff, fakebmc.ResetOn, fakebmc.ResetPowerCycle,
	fakebmc.ResetForceRestart, fakebmc.ResetNmi, fakebmc.ResetGracefulShutdown,
}

// restorePolicies by their IPMI number (sections 28.2 and 28.8).
var restorePolicies = []fakebmc.RestorePolicy{fakebmc.AlwaysOff, fakebmc.LastState, fakebmc.AlwaysOn}

// timerActions are those of the watchdog timer (section 27.6), in its order.
var timerActions = []fakebmc.ResetType{"", fakebmc.ResetForceRestart, fakebmc.ResetForceOff, fakebmc.ResetPowerCycle}

// countdown is the unit of the watchdog timer.
const countdown = 100 * time.Millisecond

// beforeSession executes what needs no session.
func (s *Server) beforeSession(m message) (code byte, data []byte, known bool) {
	if m.netFn != app {
		return 0, nil, false
	}
	switch m.command {
	case getAuthCapabilities:
		if len(m.data) < 2 {
			return codeShort, nil, true
		}
		return codeOK, []byte{
			1,    // channel
			0x80, // IPMI 2.0 data follow, no IPMI 1.5 authentication
			0x04, // user names are not null, and every message is authenticated
			0x02, // IPMI 2.0 connections only
			0, 0, 0, 0,
		}, true
	case getChannelCipherSuites:
		if len(m.data) < 3 {
			return codeShort, nil, true
		}
		data = []byte{1}
		if m.data[2]&0x3f == 0 {
			for _, x := range suites {
				data = append(data, 0xc0, x.id, x.auth, 0x40|x.integrity, 0x80|x.confidentiality)
			}
		}
		return codeOK, data, true
	case getSystemGUID:
		return codeOK, s.guid[:], true
	}
	return 0, nil, false
}

// execute does what a session asks for.
func (s *Server) execute(client string, x *session, m message, reply func(code byte, data []byte)) {
	x.mu.Lock()
	x.used = s.cfg.Clock.Now()
	privilege := x.privilege
	x.mu.Unlock()
	if code, data, known := s.beforeSession(m); known {
		reply(code, data)
		return
	}
	needed, ok := privileges[[2]byte{m.netFn, m.command}]
	switch {
	case !ok:
		reply(codeInvalidCommand, nil)
	case privilege < needed.level:
		reply(codePrivilege, nil)
	case len(m.data) < needed.length:
		reply(codeShort, nil)
	case m.netFn == chassis:
		s.executeChassis(client, x, m, reply)
	default:
		s.executeApp(client, x, m, reply)
	}
}

// privileges is what a command needs (appendix G), and how much data.
var privileges = map[[2]byte]struct {
	level  byte
	length int
}{
	{chassis, getChassisCapabilities}: {privilegeUser, 0},
	{chassis, getChassisStatus}:       {privilegeUser, 0},
	{chassis, chassisControl}:         {privilegeOperator, 1},
	{chassis, setRestorePolicy}:       {privilegeOperator, 1},
	{chassis, setBootOptions}:         {privilegeOperator, 2},
	{chassis, getBootOptions}:         {privilegeOperator, 3},
	{app, getDeviceID}:                {privilegeUser, 0},
	{app, getSelfTest}:                {privilegeUser, 0},
	{app, coldReset}:                  {privilegeAdministrator, 0},
	{app, warmReset}:                  {privilegeAdministrator, 0},
	{app, resetWatchdog}:              {privilegeOperator, 0},
	{app, setWatchdog}:                {privilegeOperator, 6},
	{app, getWatchdog}:                {privilegeUser, 0},
	{app, setSessionPrivilege}:        {privilegeUser, 1},
	{app, closeSession}:               {privilegeUser, 4},
}

func (s *Server) executeChassis(client string, x *session, m message, reply func(byte, []byte)) {
	via := func(r fakebmc.Request) fakebmc.Request {
		r.Via = fakebmc.ViaIPMI
		return r
	}
	switch m.command {
	case getChassisCapabilities:
		reply(codeOK, []byte{0, bmcAddress, bmcAddress, bmcAddress, bmcAddress})
	case getChassisStatus:
		s.bmc.Do(via(s.bmc.PowerRequest(client)), func(a fakebmc.Answer) {
			if code, answered := completion(a); answered {
				reply(code, s.status(a, code))
			}
		})
	case chassisControl:
		control := int(m.data[0] & 0x0f)
		if control >= len(controls) {
			reply(codeInvalidField, nil)
			return
		}
		if booter, ok := s.bmc.System().(fakebmc.Booter); ok {
			s.awaitControl(booter, true)
		}
		s.bmc.Do(via(s.bmc.ResetRequest(client, controls[control])), func(a fakebmc.Answer) {
			if code, answered := completion(a); answered {
				reply(code, nil)
			}
		})
	case setBootOptions:
		set := fakebmc.Request{Client: client, Via: fakebmc.ViaIPMI, Method: http.MethodPatch, Path: s.bmc.SystemPath()}
		s.bmc.Serve(set, setting{func() byte { return s.setBoot(x, m.data) }, reply})
	case getBootOptions:
		reply(s.getBoot(m.data))
	case setRestorePolicy:
		const unchanged = 3
		policy := int(m.data[0] & 7)
		switch {
		case policy == unchanged:
		case policy > unchanged:
			reply(codeInvalidField, nil)
			return
		case s.bmc.SetRestorePolicy(restorePolicies[policy]) != nil:
			reply(codeUnspecified, nil)
			return
		}
		reply(codeOK, []byte{7}) // all are supported
	}
}

// status is the body of Get Chassis Status. IPMI knows on and off only: whatever
// is not Off is on.
func (s *Server) status(a fakebmc.Answer, code byte) []byte {
	if code != codeOK {
		return nil
	}
	state := byte(slices.Index(restorePolicies, s.bmc.RestorePolicy())) << 5
	if a.PowerState != fakebmc.Off {
		state |= 1
	}
	return []byte{state, 0, 0}
}

// completion derives the completion code; without an answer there is none.
func completion(a fakebmc.Answer) (code byte, answered bool) {
	switch {
	case errors.Is(a.Cause, fakebmc.ErrUnreachable):
		return 0, false
	case a.Code != 0:
		return a.Code, true
	case a.Err() == nil:
		return codeOK, true
	case errors.Is(a.Cause, fakebmc.ErrUnsupported):
		return codeInvalidField, true
	}
	switch a.Status {
	case http.StatusConflict:
		return codePresentState, true
	case http.StatusServiceUnavailable:
		return codeBusy, true
	case http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return codeTimeout, true
	case http.StatusUnauthorized, http.StatusForbidden:
		return codePrivilege, true
	case http.StatusNotImplemented, http.StatusMethodNotAllowed:
		return codeInvalidCommand, true
	}
	return codeUnspecified, true
}

func (s *Server) executeApp(client string, x *session, m message, reply func(byte, []byte)) {
	switch m.command {
	case getDeviceID:
		reply(codeOK, []byte{
			0x20, 0x01, // device id and revision
			0x01, 0x00, // firmware 1.00, in operation
			0x02,    // IPMI 2.0
			0x80,    // a chassis device
			0, 0, 0, // manufacturer: unspecified
			0, 0,
		})
	case getSelfTest:
		reply(codeOK, []byte{0x55, 0}) // passed
	case coldReset, warmReset:
		s.bmc.Do(s.restart(client), func(a fakebmc.Answer) {
			if code, answered := completion(a); answered {
				reply(code, nil)
			}
		})
	case setSessionPrivilege:
		level := m.data[0] & 0x0f
		x.mu.Lock()
		switch {
		case level == 0:
			level = x.privilege // asks only
		case level > x.max:
			x.mu.Unlock()
			reply(codePrivilegeTooHigh, nil)
			return
		default:
			x.privilege = level
		}
		x.mu.Unlock()
		reply(codeOK, []byte{level})
	case closeSession:
		if binary.LittleEndian.Uint32(m.data) != x.id {
			reply(codeInvalidSessionEnd, nil)
			return
		}
		reply(codeOK, nil)
		s.end(x)
	case getWatchdog:
		reply(codeOK, watchdogTimer(s.bmc.Watchdog()))
	case setWatchdog:
		reply(s.setWatchdog(m.data), nil)
	case resetWatchdog:
		if !s.bmc.FeedWatchdog() {
			reply(codeTimerNotSet, nil)
			return
		}
		reply(codeOK, nil)
	}
}

func (s *Server) restart(client string) fakebmc.Request {
	r := s.bmc.ManagerResetRequest(client)
	r.Via = fakebmc.ViaIPMI
	return r
}

// watchdogTimer is the body of Get Watchdog Timer (section 27.7).
func watchdogTimer(w fakebmc.Watchdog) []byte {
	use, action, expired := w.Use&7, byte(max(0, slices.Index(timerActions, w.Action))), byte(0)
	if w.Running {
		use |= 0x40
	}
	if w.Expired {
		expired = 1 << (w.Use & 7)
	}
	b := []byte{use, action, 0, expired}
	b = binary.LittleEndian.AppendUint16(b, uint16(w.Timeout/countdown))
	return binary.LittleEndian.AppendUint16(b, uint16(w.Remaining/countdown))
}

// setWatchdog has no pre-timeout interrupt: there is nothing to interrupt.
func (s *Server) setWatchdog(b []byte) byte {
	action := int(b[1] & 7)
	if action >= len(timerActions) || b[1]&0x70 != 0 {
		return codeInvalidField
	}
	running := s.bmc.Watchdog().Running
	timeout := time.Duration(binary.LittleEndian.Uint16(b[4:])) * countdown
	err := s.bmc.SetWatchdog(fakebmc.Watchdog{Enabled: timeout > 0, Action: timerActions[action], Timeout: timeout, Use: b[0] & 7})
	if err != nil {
		return codeUnspecified
	}
	if dontStop := b[0]&0x40 != 0; dontStop && running {
		s.bmc.FeedWatchdog()
	}
	return codeOK
}
