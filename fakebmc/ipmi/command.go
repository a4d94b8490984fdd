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
	getRestartCause        = 0x07
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
	codeInvalidLUN        = 0xc2
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
		if level := m.data[1] & 0x0f; !isChannel(m.data[0]) || level < privilegeCallback || level > privilegeOEM {
			return codeInvalidField, nil, true
		}
		return codeOK, []byte{
			channel,
			0x80, // IPMI 2.0 data follow, no IPMI 1.5 authentication
			0x04, // user names are not null, and every message is authenticated
			0x02, // IPMI 2.0 connections only
			0, 0, 0, 0,
		}, true
	case getChannelCipherSuites:
		if len(m.data) < 3 {
			return codeShort, nil, true
		}
		if payload := m.data[1] & 0x3f; !isChannel(m.data[0]) || payload != payloadIPMI {
			return codeInvalidField, nil, true
		}
		data = []byte{channel}
		if m.data[2]&0x3f == 0 { // all fit into the first list
			data = append(data, s.offers(m.data[2]&0x80 != 0)...)
		}
		return codeOK, data, true
	case getSystemGUID:
		return codeOK, s.guid[:], true
	}
	return 0, nil, false
}

// channel is the number of the LAN channel, thisChannel what it is called by whoever doesn't know
// it.
const (
	channel     = 1
	thisChannel = 0x0e
)

func isChannel(b byte) bool { return b&0x0f == channel || b&0x0f == thisChannel }

// offers returns the answer to Get Channel Cipher Suites (section 22.15.1): a record for each
// cipher suite, or just the algorithms that occur in any of them.
func (s *Server) offers(suites bool) (data []byte) {
	const integrity, confidentiality = 0x40, 0x80
	if suites {
		for _, x := range s.suites {
			data = append(data, 0xc0, x.id, x.auth, integrity|x.integrity, confidentiality|x.confidentiality)
		}
		return data
	}
	for _, x := range s.suites {
		data = append(data, x.auth, integrity|x.integrity, confidentiality|x.confidentiality)
	}
	slices.Sort(data)
	return slices.Compact(data)
}

// execute does what a session asks for.
func (s *Server) execute(client string, x *session, m message, reply func(code byte, data []byte)) {
	x.mu.Lock()
	x.used = s.cfg.Clock.Now()
	x.mu.Unlock()
	privilege := x.level()
	if m.lun != 0 {
		reply(codeInvalidLUN, nil)
		return
	}
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
	case needed.method != "":
		r := fakebmc.Request{Client: client, Via: fakebmc.ViaIPMI, Method: needed.method, Path: s.bmc.SystemPath()}
		if m.netFn == app && (m.command == getDeviceID || m.command == getSelfTest) {
			r.Path = fakebmc.ManagersPath + "/" + s.bmc.ID()
		}
		s.bmc.Serve(r, &errand{run: func() (byte, []byte) { return s.perform(x, m) }, reply: reply})
	case m.netFn == chassis:
		s.executePower(client, x, m, reply)
	default:
		s.executeApp(client, x, m, reply)
	}
}

// privileges is what a command needs (appendix G), and how much data. The method is that
// of a Redfish client for the like, where the command is neither about the power nor about
// the session: for rules and records.
var privileges = map[[2]byte]struct {
	level  byte
	length int
	method string
}{
	{chassis, getChassisCapabilities}: {privilegeUser, 0, http.MethodGet},
	{chassis, getChassisStatus}:       {privilegeUser, 0, ""},
	{chassis, chassisControl}:         {privilegeOperator, 1, ""},
	{chassis, setRestorePolicy}:       {privilegeOperator, 1, http.MethodPatch},
	{chassis, getRestartCause}:        {privilegeUser, 0, http.MethodGet},
	{chassis, setBootOptions}:         {privilegeOperator, 1, http.MethodPatch},
	{chassis, getBootOptions}:         {privilegeOperator, 3, http.MethodGet},
	{app, getDeviceID}:                {privilegeUser, 0, http.MethodGet},
	{app, getSelfTest}:                {privilegeUser, 0, http.MethodGet},
	{app, coldReset}:                  {privilegeAdministrator, 0, ""},
	{app, warmReset}:                  {privilegeAdministrator, 0, ""},
	{app, resetWatchdog}:              {privilegeOperator, 0, http.MethodPatch},
	{app, setWatchdog}:                {privilegeOperator, 6, http.MethodPatch},
	{app, getWatchdog}:                {privilegeUser, 0, http.MethodGet},
	{app, setSessionPrivilege}:        {privilegeUser, 1, ""},
	{app, closeSession}:               {privilegeCallback, 4, ""},
}

// executePower reads or changes the power.
func (s *Server) executePower(client string, x *session, m message, reply func(byte, []byte)) {
	request := s.bmc.PowerRequest(client)
	control := m.command == chassisControl
	if control && x.repeats(m, s.cfg.Clock.Now(), reply) {
		return
	}
	if control {
		number := int(m.data[0] & 0x0f)
		if number >= len(fakebmc.ChassisControls) {
			x.settled(codeInvalidField, true, s.cfg.Clock.Now())
			reply(codeInvalidField, nil)
			return
		}
		if _, ok := s.bmc.System().(fakebmc.Booter); ok {
			s.awaitControl(true)
		}
		request = s.bmc.ResetRequest(client, fakebmc.ChassisControls[number])
	}
	request.Via = fakebmc.ViaIPMI
	o := &order{done: func(a fakebmc.Answer) {
		code, answered := completion(a)
		if control {
			x.settled(code, answered, s.cfg.Clock.Now())
		}
		switch {
		case !answered:
		case control:
			reply(code, nil)
		default:
			reply(code, s.status(a, code))
		}
	}}
	if control {
		o.executed = x.carriedOut
	}
	s.bmc.Serve(request, o)
}

// order is a command about the power, which the BMC executes. It implements fakebmc.Wire, for what
// is to be known of its execution.
type order struct {
	executed func() // nil if nothing is
	done     func(fakebmc.Answer)
}

// Traits implements fakebmc.Wire.
func (*order) Traits() fakebmc.Traits { return fakebmc.Traits{} }

// Execute implements fakebmc.Wire.
func (o *order) Execute(fakebmc.Effects) (a fakebmc.Answer, done bool) {
	if o.executed != nil {
		o.executed()
	}
	return fakebmc.Answer{}, false
}

// Reply implements fakebmc.Wire.
func (o *order) Reply(a fakebmc.Answer, _ fakebmc.Effects) { o.done(a) }

// perform executes what has a method in privileges.
func (s *Server) perform(x *session, m message) (code byte, body []byte) {
	switch [2]byte{m.netFn, m.command} {
	case [2]byte{chassis, getChassisCapabilities}:
		return codeOK, []byte{0, bmcAddress, bmcAddress, bmcAddress, bmcAddress, bmcAddress}
	case [2]byte{chassis, getRestartCause}:
		s.mu.Lock()
		defer s.mu.Unlock()
		return codeOK, []byte{s.cause, channel}
	case [2]byte{chassis, setRestorePolicy}:
		return s.setRestorePolicy(int(m.data[0] & 7))
	case [2]byte{chassis, setBootOptions}:
		return s.setBoot(x, m.data), nil
	case [2]byte{chassis, getBootOptions}:
		return s.getBoot(m.data)
	case [2]byte{app, getDeviceID}:
		return codeOK, []byte{
			0x20, 0x01, // device id and revision
			0x01, 0x00, // firmware 1.00, in operation
			0x02,    // IPMI 2.0
			0x80,    // a chassis device
			0, 0, 0, // manufacturer: unspecified
			0, 0,
		}
	case [2]byte{app, getSelfTest}:
		return codeOK, []byte{0x55, 0} // passed
	case [2]byte{app, getWatchdog}:
		return codeOK, watchdogTimer(s.bmc.Watchdog())
	case [2]byte{app, setWatchdog}:
		return s.setWatchdog(m.data), nil
	case [2]byte{app, resetWatchdog}:
		if !s.bmc.FeedWatchdog() {
			return codeTimerNotSet, nil
		}
		return codeOK, nil
	}
	return codeInvalidCommand, nil
}

func (s *Server) setRestorePolicy(policy int) (code byte, body []byte) {
	const unchanged = 3
	switch {
	case policy == unchanged:
	case policy > unchanged:
		return codeInvalidField, nil
	case s.bmc.SetRestorePolicy(restorePolicies[policy]) != nil:
		return codeUnspecified, nil
	}
	return codeOK, []byte{7} // all are supported
}

// errand is a command that only this package knows to execute. It implements
// fakebmc.Wire, so that rules and records see it.
type errand struct {
	run   func() (code byte, body []byte)
	reply func(code byte, body []byte)
	body  []byte
}

// Traits implements fakebmc.Wire.
func (*errand) Traits() fakebmc.Traits { return fakebmc.Traits{Own: true} }

// Execute implements fakebmc.Wire.
func (e *errand) Execute(fakebmc.Effects) (fakebmc.Answer, bool) {
	code, body := e.run()
	if code != codeOK {
		return fakebmc.Answer{Status: http.StatusBadRequest, Code: code, Cause: errRefused}, true
	}
	e.body = body
	return fakebmc.Answer{Status: http.StatusOK}, true
}

// Reply implements fakebmc.Wire. An answer that a rule has put in the place of its own
// has no body.
func (e *errand) Reply(a fakebmc.Answer, _ fakebmc.Effects) {
	code, answered := completion(a)
	switch {
	case !answered:
	case code != codeOK:
		e.reply(code, nil)
	default:
		e.reply(code, e.body)
	}
}

var errRefused = errors.New("refused with the completion code")

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
	return []byte{state, s.lastEvent(), 0}
}

// lastEvent is the last power event, of those that there are here.
func (s *Server) lastEvent() (event byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == causeControl {
		event |= 0x10 // the power came on by an IPMI command
	}
	if s.failed {
		event |= 0x01 // AC failed
	}
	return event
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

// executeApp restarts the BMC, or does what is the session's own.
func (s *Server) executeApp(client string, x *session, m message, reply func(byte, []byte)) {
	switch m.command {
	case coldReset, warmReset:
		s.bmc.Do(s.restart(client, m.command == coldReset), func(a fakebmc.Answer) {
			if code, answered := completion(a); answered {
				reply(code, nil)
			}
		})
	case setSessionPrivilege:
		if code := x.setLevel(m.data[0] & 0x0f); code != codeOK {
			reply(code, nil)
			return
		}
		reply(codeOK, []byte{x.level()})
	case closeSession:
		id := binary.LittleEndian.Uint32(m.data)
		ends := x
		if id != x.id {
			ends = s.sessionOf(id)
		}
		switch {
		case ends == nil:
			reply(codeInvalidSessionEnd, nil)
		case ends != x && x.level() < privilegeAdministrator:
			reply(codePrivilege, nil)
		default:
			reply(codeOK, nil)
			s.end(ends)
		}
	}
}

func (s *Server) restart(client string, cold bool) fakebmc.Request {
	r := s.bmc.ManagerResetRequest(client)
	if cold {
		r = s.bmc.ColdResetRequest(client)
	}
	r.Via = fakebmc.ViaIPMI
	return r
}

// watchdogTimer is the body of Get Watchdog Timer (section 27.7).
func watchdogTimer(w fakebmc.Watchdog) []byte {
	use, action := w.Use, byte(max(0, slices.Index(timerActions, w.Action)))
	if w.Running {
		use |= timerRuns
	}
	if w.Unlogged {
		use |= timerUnlogged
	}
	b := []byte{use, action, w.Warning, w.Expired & timerUses}
	b = binary.LittleEndian.AppendUint16(b, uint16(w.Timeout/countdown))
	return binary.LittleEndian.AppendUint16(b, uint16(w.Remaining/countdown))
}

// Bits of the watchdog timer's first byte, and of its expiration flags: a bit for each use, 1 to 5.
const (
	timerUnlogged = 0x80
	timerRuns     = 0x40 // of Get; of Set that it isn't to be stopped
	timerUses     = 0x3e
)

// setWatchdog has no pre-timeout interrupt, which is optional: there is nothing to interrupt. It
// keeps the interval.
func (s *Server) setWatchdog(b []byte) byte {
	use, action := b[0]&7, int(b[1]&7)
	if 1<<use&timerUses == 0 || action >= len(timerActions) || b[1]&0x70 != 0 {
		return codeInvalidField
	}
	was := s.bmc.Watchdog()
	err := s.bmc.SetWatchdog(fakebmc.Watchdog{
		Enabled: true, Action: timerActions[action], Timeout: time.Duration(binary.LittleEndian.Uint16(b[4:])) * countdown,
		Use: use, Unlogged: b[0]&timerUnlogged != 0, Warning: b[2], Expired: was.Expired &^ b[3],
	})
	if err != nil {
		return codeUnspecified
	}
	if was.Running && b[0]&timerRuns != 0 {
		s.bmc.FeedWatchdog()
	}
	return codeOK
}
