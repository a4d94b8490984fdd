package ipmi

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
)

// console is the other end of the protocol, without a network.
type console struct {
	t        testing.TB
	s        *Server
	x        *session // keys and ids, as the console derives them
	sequence uint32
	repeated uint32 // how many were sent again, under the same sequence number of the request
	last     []byte // the packet sent last
	role     byte   // that it asks for; 0 is an administrator's
	between  func() // what happens between the messages of a handshake
}

func newConsole(t testing.TB, clk fakebmc.Clock, b *fakebmc.BMC) *console {
	return &console{t: t, between: func() {}, s: newServer(b, Config{Username: "admin", Password: "s3cret", Clock: clk})}
}

// ask returns the answer to a packet so far, or nil.
func (c *console) ask(packet []byte) (answer []byte) {
	c.last = slices.Clone(packet)
	c.s.handle("console", packet, func(b []byte) { answer = b })
	return answer
}

// open begins a session and returns the status that refused it, if any.
func (c *console) open(suite *suite, password string) byte {
	c.t.Helper()
	x := &session{suite: suite, console: 0x01020304, role: cmp.Or(c.role, privilegeAdministrator), name: []byte("admin")}
	copy(x.consoleRand[:], "a random number!")
	for i, m := range c.handshake(x, password) {
		if i > 0 {
			c.between()
		}
		if status := m.take(c.ask(m.packet())); status != statusOK {
			return status
		}
	}
	c.x = x
	return statusOK
}

// greeting is a message of a session's establishment, and what the console makes of its answer.
type greeting struct {
	name   string
	packet func() []byte
	take   func(answer []byte) (status byte)
}

// handshake is how a console gets a session, of which it learns by the answers.
func (c *console) handshake(x *session, password string) []greeting {
	body := func(answer []byte) []byte { return answer[rmcpHeader+plusHeader:] }
	return []greeting{
		{"open session", func() []byte {
			request := append([]byte{7, x.role, 0, 0}, le(x.console)...)
			for kind, algorithm := range []byte{x.suite.auth, x.suite.integrity, x.suite.confidentiality} {
				request = append(request, byte(kind), 0, 0, 8, algorithm, 0, 0, 0)
			}
			return wrapPlus(payloadOpenSession, request)
		}, func(answer []byte) byte {
			b := body(answer)
			if b[1] == statusOK {
				x.id = binary.LittleEndian.Uint32(b[8:])
			}
			return b[1]
		}},
		{"RAKP 1", func() []byte {
			request := append(append([]byte{8, 0, 0, 0}, le(x.id)...), x.consoleRand[:]...)
			return wrapPlus(payloadRAKP1, append(request, append([]byte{x.role, 0, 0, byte(len(x.name))}, x.name...)...))
		}, func(answer []byte) byte {
			b := body(answer)
			if b[1] != statusOK {
				return b[1]
			}
			copy(x.bmcRand[:], b[8:24])
			guid := b[24:40]
			if want := x.suite.mac([]byte("s3cret"), le(x.console), le(x.id), x.consoleRand[:], x.bmcRand[:], guid, x.identity()); !bytes.Equal(b[40:], want) {
				c.t.Error("the BMC's proof in RAKP 2 is wrong")
			}
			return statusOK
		}},
		{"RAKP 3", func() []byte {
			request := append([]byte{9, 0, 0, 0}, le(x.id)...)
			return wrapPlus(payloadRAKP3, append(request, x.suite.mac([]byte(password), x.bmcRand[:], le(x.console), x.identity())...))
		}, func(answer []byte) byte {
			x.sik = x.suite.mac([]byte(password), x.consoleRand[:], x.bmcRand[:], x.identity())
			x.k1, x.k2 = x.suite.mac(x.sik, slices.Repeat([]byte{1}, 20)), x.suite.mac(x.sik, slices.Repeat([]byte{2}, 20))
			return body(answer)[1]
		}},
	}
}

// command executes one in the session. answered is false without an answer yet.
func (c *console) command(netFn, command byte, data ...byte) (code byte, body []byte, answered bool) {
	c.t.Helper()
	answer := c.ask(c.sealed(netFn, command, data...))
	if answer == nil {
		return 0, nil, false
	}
	message := c.opened(answer)
	return message[6], message[7 : len(message)-1], true
}

// opened is the message in an answer.
func (c *console) opened(answer []byte) []byte {
	c.t.Helper()
	p, ok := parsePlus(answer[rmcpHeader:])
	if !ok || p.session != c.x.console {
		c.t.Fatalf("answer %x", answer)
	}
	message, ok := c.x.open(p)
	if !ok || sum(message[:3]) != 0 || sum(message[3:]) != 0 {
		c.t.Fatalf("answer %x doesn't open", answer)
	}
	return message
}

func (c *console) codeOf(answer []byte) byte { return c.opened(answer)[6] }

func (c *console) sealed(netFn, command byte, data ...byte) []byte {
	return c.sealedFor(0, netFn, command, data...)
}

// sealedFor seals a command for a logical unit of the BMC.
func (c *console) sealedFor(lun, netFn, command byte, data ...byte) []byte {
	c.sequence++
	head := []byte{bmcAddress, netFn<<2 | lun}
	head = append(head, -sum(head))
	rest := append([]byte{0x81, byte(c.sequence-c.repeated) << 2, command}, data...)
	// A console seals as a BMC does, with the two ids exchanged.
	out := &session{suite: c.x.suite, console: c.x.id, k1: c.x.k1, k2: c.x.k2, sent: c.sequence - 1}
	packet, err := out.seal(append(append(head, rest...), -sum(rest)))
	if err != nil {
		c.t.Fatal(err)
	}
	return packet
}

// again lets the next command have the last one's sequence number.
func (c *console) again() { c.repeated++ }

func (c *console) mustOpen(suite *suite) {
	c.t.Helper()
	if status := c.open(suite, "s3cret"); status != statusOK {
		c.t.Fatalf("the session is refused with %#x", status)
	}
	if code, level, _ := c.command(app, setSessionPrivilege, privilegeAdministrator); code != codeOK || level[0] != privilegeAdministrator {
		c.t.Fatalf("privilege: %#x %v", code, level)
	}
}

func newWorld(t testing.TB, rules ...string) (*systemtest.Clock, *memory.Host, *fakebmc.BMC) {
	t.Helper()
	clk := &systemtest.Clock{}
	host := memory.New(clk, memory.Timing{On: 4 * time.Second, Off: 2 * time.Second, Shutdown: 20 * time.Second}, true)
	b := fakebmc.New("node-1", host, clk)
	for i, preset := range rules {
		if err := b.AddRule(fakebmc.Rule{Name: fmt.Sprint("rule-", i), Preset: preset}); err != nil {
			t.Fatal(err)
		}
	}
	return clk, host, b
}

// TestPresets plays scripts against the presets that IPMI shows: at a time, a
// command and its completion code, then the chassis' power as read ("" is no
// answer), and the host.
func TestPresets(t *testing.T) {
	type step struct {
		at      time.Duration
		control int // of Chassis Control; -1 is none
		code    int // -1 is no answer
		status  string
		host    fakebmc.PowerState
	}
	const s, none = time.Second, -1
	const off, on, cycle, hardReset, soft = 0, 1, 2, 3, 5
	for _, c := range []struct {
		preset string
		steps  []step
	}{
		{"ipmi-reset-when-off", []step{
			{0, off, codeOK, "on", fakebmc.PoweringOff},
			{2 * s, off, codePresentState, "off", fakebmc.Off},
			{2 * s, hardReset, codePresentState, "off", fakebmc.Off},
			{2 * s, cycle, codePresentState, "off", fakebmc.Off},
			{2 * s, on, codeOK, "on", fakebmc.PoweringOn},
		}},
		{"ipmi-off-while-booting", []step{
			{0, none, 0, "", fakebmc.On},
			{29 * s, off, -1, "", fakebmc.On},
			{30 * s, none, 0, "0xff", fakebmc.On},
			{31 * s, none, 0, "off", fakebmc.On}, // and it runs
			{90 * s, none, 0, "on", fakebmc.On},
		}},
		{"ipmi-cycle-answers-first", []step{
			{0, cycle, codeOK, "on", fakebmc.On},
			{9 * s, none, 0, "on", fakebmc.On},
			{10 * s, none, 0, "on", fakebmc.PoweringOff},
			{12 * s, none, 0, "on", fakebmc.PoweringOn},
		}},
		{"guest-ignores-acpi", []step{{0, soft, codeOK, "on", fakebmc.On}, {3600 * s, none, 0, "on", fakebmc.On}}},
		{"off-ignored", []step{{0, off, codeOK, "on", fakebmc.On}, {3600 * s, none, 0, "on", fakebmc.On}}},
		{"openbmc-off-while-running", []step{{0, none, 0, "off", fakebmc.On}}},
		{"shared-nic-dark-when-off", []step{{0, off, codeOK, "on", fakebmc.PoweringOff}, {2 * s, none, 0, "", fakebmc.Off}, {3 * s, on, -1, "", fakebmc.Off}}},
	} {
		t.Run(c.preset, func(t *testing.T) {
			clk, host, b := newWorld(t)
			con := newConsole(t, clk, b)
			con.mustOpen(&suites[0])
			if err := b.AddRule(fakebmc.Rule{Name: "preset", Preset: c.preset}); err != nil {
				t.Fatal(err)
			}
			for _, st := range c.steps {
				// A client opens a session for each of its calls.
				clk.Advance(st.at - clk.Now())
				usable := con.ask(wrapPlus(payloadOpenSession, make([]byte, 32))) != nil
				if usable {
					con.sequence = 0
					con.mustOpen(&suites[len(c.steps)%2])
				}
				if st.control != none {
					code, _, answered := con.command(chassis, chassisControl, byte(st.control))
					if answered != (st.code >= 0) || answered && int(code) != st.code {
						t.Errorf("at %v: completion code %#x, answered %v; want %#x", st.at, code, answered, st.code)
					}
				}
				got := ""
				if code, body, answered := con.command(chassis, getChassisStatus); answered {
					switch {
					case code != codeOK:
						got = fmt.Sprintf("%#x", code)
					case body[0]&1 == 1:
						got = "on"
					default:
						got = "off"
					}
				}
				if p, _ := host.PowerState(); got != st.status || p != st.host {
					t.Errorf("at %v: power %q and the host %s, want %q and %s", st.at, got, p, st.status, st.host)
				}
			}
		})
	}
}

// TestLockdown resets a BMC: the same answer with the preset and without, and only
// without it is the BMC gone.
func TestLockdown(t *testing.T) {
	for _, preset := range []string{"", "dell-lockdown"} {
		clk := &systemtest.Clock{}
		host := memory.New(clk, memory.Timing{}, true)
		b := fakebmc.New("node-1", host, clk)
		con := newConsole(t, clk, b)
		con.mustOpen(&suites[0])
		if preset != "" {
			if err := b.AddRule(fakebmc.Rule{Name: "preset", Preset: preset}); err != nil {
				t.Fatal(err)
			}
		}
		if code, _, answered := con.command(app, setSessionPrivilege, privilegeAdministrator); code != codeOK || !answered {
			t.Fatalf("%q: no administrator: %#x", preset, code)
		}
		if code, _, answered := con.command(app, coldReset); code != codeOK || !answered {
			t.Errorf("%q: cold reset: completion code %#x, answered %v", preset, code, answered)
		}
		if _, _, answered := con.command(chassis, getChassisStatus); answered != (preset != "") {
			t.Errorf("%q: the BMC answers after its reset: %v", preset, answered)
		}
	}
}

// TestEveryCommandIsRecorded that a session executes, also what isn't about the power; and
// rules can bend it.
func TestEveryCommandIsRecorded(t *testing.T) {
	clk := &systemtest.Clock{}
	var log []fakebmc.Record
	b := fakebmc.New("node-1", memory.New(clk, memory.Timing{}, true), clk, fakebmc.OnRequest(func(r fakebmc.Record) { log = append(log, r) }))
	con := newConsole(t, clk, b)
	con.mustOpen(&suites[0])
	const system, manager = fakebmc.SystemsPath + "/node-1", fakebmc.ManagersPath + "/node-1"
	for _, c := range []struct {
		netFn, command byte
		data           []byte
		method, path   string
		body           int // bytes
	}{
		{chassis, getChassisCapabilities, nil, "GET", system, 6},
		{chassis, getRestartCause, nil, "GET", system, 2},
		{chassis, getChassisStatus, nil, "GET", system, 3},
		{chassis, setRestorePolicy, []byte{2}, "PATCH", system, 1},
		{chassis, getBootOptions, []byte{bootFlags, 0, 0}, "GET", system, 7},
		{app, getDeviceID, nil, "GET", manager, 11},
		{app, getSelfTest, nil, "GET", manager, 2},
		{app, getWatchdog, nil, "GET", system, 8},
		{app, setWatchdog, []byte{4, 0, 0, 0, 100, 0}, "PATCH", system, 0},
		{app, resetWatchdog, nil, "PATCH", system, 0},
	} {
		log = nil
		code, body, answered := con.command(c.netFn, c.command, c.data...)
		if code != codeOK || !answered || len(body) != c.body {
			t.Errorf("%#x %#x: completion code %#x, %x", c.netFn, c.command, code, body)
		}
		power := c.command == getChassisStatus && c.netFn == chassis
		if len(log) != 1 || log[0].Request.Method != c.method || log[0].Request.Path != c.path || log[0].Request.Via != fakebmc.ViaIPMI ||
			log[0].Executed == fakebmc.Never || (log[0].Actual != "") != power {
			t.Errorf("%#x %#x is recorded as %+v", c.netFn, c.command, log)
		}
	}
	busy := fakebmc.Rule{Name: "busy", When: fakebmc.Selector{Path: manager}, Effect: fakebmc.Effect{Refuse: &fakebmc.Refusal{Status: 503}}}
	if err := b.AddRule(busy); err != nil {
		t.Fatal(err)
	}
	if code, body, _ := con.command(app, getDeviceID); code != codeBusy || len(body) > 0 {
		t.Errorf("a busy BMC: completion code %#x, %x", code, body)
	}
}

func TestNothingUnauthenticatedIsExecuted(t *testing.T) {
	for i := range suites {
		clk, host, b := newWorld(t)
		con := newConsole(t, clk, b)
		if status := con.open(&suites[i], "secret"); status != statusInvalidIntegrity {
			t.Errorf("a wrong password: status %#x", status)
		}
		con.mustOpen(&suites[i])
		good := con.sealed(chassis, chassisControl, 0)
		for at := rmcpHeader; at < len(good); at++ {
			bad := slices.Clone(good)
			bad[at] ^= 0x10
			if con.ask(bad) != nil {
				t.Errorf("a packet whose byte %d was changed is answered", at)
			}
		}
		plain := con.sealed(chassis, chassisControl, 0)
		plain[rmcpHeader+1] = payloadIPMI // neither signed nor encrypted
		con.ask(plain)
		if p, _ := host.PowerState(); p != fakebmc.On {
			t.Fatalf("suite %d: the host is %s", suites[i].id, p)
		}
		if con.ask(good) == nil {
			t.Error("the packet itself isn't answered")
		}
		clk.Advance(time.Minute / 2)
		if code, _, _ := con.command(chassis, chassisControl, 1); code != codeOK {
			t.Errorf("on: %#x", code)
		}
		clk.Advance(time.Minute / 4)
		if con.ask(good) != nil {
			t.Error("a replayed packet is answered")
		}
		if p, _ := host.PowerState(); p != fakebmc.On {
			t.Errorf("suite %d: a replayed power-off was executed", suites[i].id)
		}
	}
}

func TestPrivileges(t *testing.T) {
	clk, host, b := newWorld(t)
	con := newConsole(t, clk, b)
	if status := con.open(&suites[0], "s3cret"); status != statusOK {
		t.Fatal(status)
	}
	for _, c := range []struct {
		netFn, command byte
		data           []byte
		code           byte
	}{
		{chassis, getChassisStatus, nil, codeOK},
		{chassis, chassisControl, []byte{0}, codePrivilege}, // a session begins as a user's
		{app, setWatchdog, make([]byte, 6), codePrivilege},
		{app, setSessionPrivilege, []byte{5}, codePrivilegeTooHigh},
		{app, setSessionPrivilege, []byte{privilegeOperator}, codeOK},
		{chassis, chassisControl, nil, codeShort},
		{chassis, chassisControl, []byte{9}, codeInvalidField},
		{chassis, 0x7f, nil, codeInvalidCommand},
		{0x2c, 0, nil, codeInvalidCommand},
		{app, coldReset, nil, codePrivilege},
		{chassis, chassisControl, []byte{0}, codeOK},
		{app, closeSession, le(1), codeInvalidSessionEnd},
	} {
		if code, _, _ := con.command(c.netFn, c.command, c.data...); code != c.code {
			t.Errorf("%#x %#x %v: completion code %#x, want %#x", c.netFn, c.command, c.data, code, c.code)
		}
	}
	clk.Advance(time.Minute / 2)
	if p, _ := host.PowerState(); p != fakebmc.Off {
		t.Errorf("the host is %s", p)
	}
	if code, _, _ := con.command(app, closeSession, le(con.x.id)...); code != codeOK {
		t.Errorf("close session: %#x", code)
	}
	if _, _, answered := con.command(chassis, getChassisStatus); answered {
		t.Error("a closed session answers")
	}
	con.sequence = 0
	con.mustOpen(&suites[0])
	clk.Advance(sessionTimeout)
	if _, _, answered := con.command(chassis, getChassisStatus); answered {
		t.Error("a session that was not used for a minute answers")
	}
}

// TestRestartEndsSessions: the BMC forgets them with everything else.
func TestRestartEndsSessions(t *testing.T) {
	clk, _, b := newWorld(t)
	con := newConsole(t, clk, b)
	con.mustOpen(&suites[0])
	restart := fakebmc.Rule{Name: "restart", Effect: fakebmc.Effect{Restart: &fakebmc.Restart{Downtime: fakebmc.Duration(10 * time.Second)}}}
	if err := b.AddRule(restart); err != nil {
		t.Fatal(err)
	}
	if con.ask(wrapPlus(payloadOpenSession, make([]byte, 32))) != nil {
		t.Error("a BMC that is down answers")
	}
	clk.Advance(10 * time.Second)
	if _, _, answered := con.command(chassis, getChassisStatus); answered {
		t.Error("a session from before the restart answers")
	}
	con.sequence = 0
	con.mustOpen(&suites[0])
}

// TestBootOptions sets the boot flags and sees what the host boots from, and for how long.
func TestBootOptions(t *testing.T) {
	const uefiOnce, legacyAlways = flagsValid | flagsUEFI, flagsValid | flagsPersistent
	clk, host, b := newWorld(t)
	con := newConsole(t, clk, b)
	con.mustOpen(&suites[0])
	set := func(want byte, data ...byte) {
		t.Helper()
		if code, _, _ := con.command(chassis, setBootOptions, data...); code != want {
			t.Errorf("set %v: completion code %#x, want %#x", data, code, want)
		}
	}
	get := func(parameter byte, want ...byte) {
		t.Helper()
		code, body, _ := con.command(chassis, getBootOptions, parameter, 0, 0)
		if want = append([]byte{bootParameterVersion, parameter}, want...); code != codeOK || !bytes.Equal(body, want) {
			t.Errorf("get %d: completion code %#x, %v, want %v", parameter, code, body, want)
		}
	}
	cycle := func(want fakebmc.Boot) {
		t.Helper()
		if code, _, _ := con.command(chassis, chassisControl, 3); code != codeOK {
			t.Errorf("reset: completion code %#x", code)
		}
		if got := host.BootedBy(); got != want {
			t.Errorf("it booted by %+v, want %+v", got, want)
		}
	}
	none := func(mode string) fakebmc.Boot {
		return fakebmc.Boot{Enabled: fakebmc.BootDisabled, Target: fakebmc.BootNone, Mode: mode}
	}
	pxe := fakebmc.Boot{Enabled: fakebmc.BootOnce, Target: fakebmc.BootPxe, Mode: fakebmc.BootUEFI}
	disk := fakebmc.Boot{Enabled: fakebmc.BootContinuous, Target: fakebmc.BootHdd, Mode: fakebmc.BootLegacy}

	get(bootFlags, flagsUEFI, 0, 0, 0, 0)
	set(codeOK, bootFlags, uefiOnce, 1<<2, 0, 0, 0)
	get(bootFlags, uefiOnce, 1<<2, 0, 0, 0)
	cycle(pxe)
	get(bootFlags, flagsUEFI, 0, 0, 0, 0)
	cycle(none(fakebmc.BootUEFI))
	set(codeOK, bootFlags, legacyAlways, 2<<2, 0, 0, 0)
	cycle(disk)
	cycle(disk)
	get(bootFlags, legacyAlways, 2<<2, 0, 0, 0)
	set(codeOK, bootFlags, 0, 0, 0, 0, 0)
	cycle(none(fakebmc.BootLegacy))

	// Without a Chassis Control the flags are cleared, unless they are to stay.
	set(codeOK, bootFlags, uefiOnce, 1<<2, 0, 0, 0)
	clk.Advance(bootTimeout / 2)
	get(bootFlags, uefiOnce, 1<<2, 0, 0, 0)
	clk.Advance(bootTimeout / 2)
	con.sequence = 0
	con.mustOpen(&suites[0])
	get(bootFlags, flagsUEFI, 0, 0, 0, 0)
	set(codeOK, bootClearing, keepWithoutControl)
	get(bootClearing, keepWithoutControl)
	set(codeOK, bootFlags, uefiOnce, 1<<2, 0, 0, 0)
	clk.Advance(bootTimeout)
	con.sequence = 0
	con.mustOpen(&suites[0])
	cycle(pxe)

	set(codeOK, bootAck, 1, 1)
	get(bootAck, 0, 1)
	set(codeOK, bootProgress, setInProgress)
	get(bootProgress, setInProgress)
	x, sequence := con.x, con.sequence
	con.sequence = 0
	con.mustOpen(&suites[0])
	set(codeInProgress, bootProgress, setInProgress)
	other, otherSequence := con.x, con.sequence
	con.x, con.sequence = x, sequence
	if code, _, _ := con.command(app, closeSession, le(x.id)...); code != codeOK {
		t.Errorf("close session: %#x", code)
	}
	con.x, con.sequence = other, otherSequence
	set(codeOK, bootProgress, setInProgress)
	set(codeInvalidField, bootProgress, 2) // nothing is rolled back that could be committed
	set(codeOK, bootProgress, setComplete)
	get(bootProgress, setComplete)

	for _, c := range []struct {
		code byte
		data []byte
	}{
		{codeNoParameter, []byte{7, 0}}, {codeShort, []byte{bootFlags, flagsValid, 4, 0, 0}},
		{codeInvalidField, []byte{bootFlags, flagsValid, 15 << 2, 0, 0, 0}},     // a floppy
		{codeInvalidField, []byte{bootFlags, flagsValid, 0x80 | 1<<2, 0, 0, 0}}, // clear the CMOS
		{codeInvalidField, []byte{bootFlags, flagsValid, 1 << 2, 1, 0, 0}},
		{codeInvalidField, []byte{0x80 | bootFlags, flagsValid, 1 << 2, 0, 0, 0}}, // lock it
		{codeInvalidField, []byte{bootClearing, 0x20}}, {codeInvalidField, []byte{bootProgress, 3}},
	} {
		set(c.code, c.data...)
	}
	if code, _, _ := con.command(chassis, getBootOptions, 7, 0, 0); code != codeNoParameter {
		t.Errorf("get 7: completion code %#x", code)
	}
	if err := b.AddRule(fakebmc.Rule{Name: "no", When: fakebmc.Selector{Method: "PATCH", Via: fakebmc.ViaIPMI}, Effect: fakebmc.Effect{Refuse: &fakebmc.Refusal{Status: 503}}}); err != nil {
		t.Fatal(err)
	}
	set(codeBusy, bootFlags, uefiOnce, 1<<2, 0, 0, 0)
	cycle(none(fakebmc.BootUEFI))
}

func TestPresencePing(t *testing.T) {
	clk, _, b := newWorld(t)
	con := newConsole(t, clk, b)
	got := con.ask([]byte{6, 0, 0xff, 6, 0, 0, 0x11, 0xbe, 0x80, 42, 0, 0})
	want := []byte{6, 0, 0xff, 6, 0, 0, 0x11, 0xbe, 0x40, 42, 0, 16, 0, 0, 0x11, 0xbe, 0, 0, 0, 0, 0x81, 0, 0, 0, 0, 0, 0, 0}
	if !bytes.Equal(got, want) {
		t.Errorf("pong %x, want %x", got, want)
	}
}

// flood begins sessions from an address, each from another port.
func (c *console) flood(address string, packets int) {
	open := wrapPlus(payloadOpenSession, append([]byte{0, 4, 0, 0, 1, 2, 3, 4}, 0, 0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 8, 4, 0, 0, 0, 2, 0, 0, 8, 1, 0, 0, 0))
	for i := range packets {
		c.s.handle(fmt.Sprintf("%s:%d", address, i%65536), open, func([]byte) {})
	}
}

// TestAFloodStarvesNobody: whoever begins sessions without end gets in no client's way,
// at least if it is not on the client's own machine.
func TestAFloodStarvesNobody(t *testing.T) {
	clk, _, b := newWorld(t)
	con := newConsole(t, clk, b)
	for _, c := range []struct {
		address string
		packets int // between two of the client's
	}{{"console", maxFromAddress/2 - 1}, {"192.0.2.1", 2 * maxHandshakes}, {"[2001:db8::1]", 2 * maxHandshakes}} {
		con.sequence = 0
		con.between = func() { con.flood(c.address, c.packets) }
		con.mustOpen(&suites[0])
	}
	if n := con.s.handshakes.order.Len(); n > maxHandshakes || n != len(con.s.handshakes.byID) {
		t.Errorf("%d handshakes are kept, by id %d", n, len(con.s.handshakes.byID))
	}
	for i := range 10 * maxHandshakes / maxFromAddress {
		con.flood(fmt.Sprint("192.0.2.", i), maxFromAddress)
	}
	if n := con.s.handshakes.order.Len(); n != maxHandshakes {
		t.Errorf("%d handshakes are kept", n)
	}
	con.sequence, con.between = 0, func() {}
	clk.Advance(handshakeTimeout)
	con.mustOpen(&suites[0])
	if h := con.s.handshakes; h.order.Len() != 0 || len(h.byID) != 0 || len(h.from) != 0 {
		t.Errorf("of the flood there are %d handshakes, %d ids and %d addresses left", h.order.Len(), len(h.byID), len(h.from))
	}
	for len(con.s.sessions) < maxSessions {
		con.sequence = 0
		con.mustOpen(&suites[0])
	}
	if status := con.open(&suites[0], "s3cret"); status != statusNoResources {
		t.Errorf("one session too many: status %#x", status)
	}
}

// TestGuessesAreSlow: after a few wrong passwords none is looked at for a while, not even
// the right one, or the answer would tell. Sessions that are open go on.
func TestGuessesAreSlow(t *testing.T) {
	clk, _, b := newWorld(t)
	con := newConsole(t, clk, b)
	con.mustOpen(&suites[0])
	x, sequence := con.x, con.sequence
	judged := 0
	for range 1000 {
		if con.open(&suites[0], "guess") == statusInvalidIntegrity {
			judged++
		}
	}
	if judged > 10 {
		t.Errorf("%d guesses were judged at once", judged)
	}
	if status := con.open(&suites[0], "s3cret"); status != statusNoResources {
		t.Errorf("the right password at once: status %#x", status)
	}
	con.x, con.sequence = x, sequence
	if code, _, answered := con.command(chassis, getChassisStatus); code != codeOK || !answered {
		t.Errorf("the open session: completion code %#x, answered %v", code, answered)
	}
	clk.Advance(20 * time.Second)
	con.sequence = 0
	con.mustOpen(&suites[0])
}

func TestListenRefuses(t *testing.T) {
	_, _, b := newWorld(t)
	for _, cfg := range []Config{{}, {Username: "admin"}, {Password: "x"}, {Username: "a-name-of-17-byte", Password: "x"}, {Username: "a", Password: "a password of 21 byte"}} {
		if s, err := Listen(":0", b, cfg); err == nil {
			s.Close()
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

// FuzzHandle sends packets to a BMC in which a session is open: whatever they
// are, no power action happens without the password.
func FuzzHandle(f *testing.F) {
	clk, host, b := newWorld(f)
	con := newConsole(f, clk, b)
	f.Add([]byte{6, 0, 0xff, 6, 0, 0, 0x11, 0xbe, 0x80, 42, 0, 0})
	f.Add(wrapOutside([]byte{0x20, 0x18, 0xc8, 0x81, 0, 0x38, 0x0e, 4, 0x35}))
	for i := range suites {
		con.mustOpen(&suites[i])
		f.Add(con.last)
		con.sequence = 0
		con.open(&suites[i], "secret")
		f.Add(con.last)
	}
	con.sequence = 0
	con.mustOpen(&suites[0])
	f.Add(con.sealed(chassis, chassisControl, 0)[:40])
	f.Fuzz(func(t *testing.T, packet []byte) {
		con.s.handle("fuzz", packet, func([]byte) {})
		// What passes for a session must not pass for a signed message.
		if len(packet) > 12 {
			copy(packet[rmcpHeader+2:], le(con.x.id))
			con.s.handle("fuzz", packet, func([]byte) {})
		}
		if p, _ := host.PowerState(); p != fakebmc.On || host.Boots() != 1 || b.RestorePolicy() != fakebmc.LastState {
			t.Fatalf("the host is %s in boot %d", p, host.Boots())
		}
	})
}

// TestADeedIsDoneOnce sends a Chassis Control again as a client does that had no answer: under the
// same sequence number. What never arrived is done then, what was done is only answered.
func TestADeedIsDoneOnce(t *testing.T) {
	const cycle = 2
	for _, c := range []struct {
		name, rule string
		wait       time.Duration // between the two
		answers    []bool        // to the one and the other
		boots      int
	}{
		{"answered", "", time.Second, []bool{true, true}, 1},
		{"answered long ago", "", 2 * expiry, []bool{true, true}, 2},
		{"late", `{"name": "late", "when": {"reset": ["PowerCycle"]}, "effect": {"delay": "3s"}}`, time.Second, []bool{false, false}, 1},
		{"late, and answered", `{"name": "late", "when": {"reset": ["PowerCycle"]}, "effect": {"delay": "3s"}}`, 4 * time.Second, []bool{false, true}, 1},
		{"lost on its way", `{"name": "lost", "when": {"reset": ["PowerCycle"], "count": 1}, "effect": {"unreachable": true}}`, time.Second, []bool{false, true}, 1},
		{"its answer is lost", `{"name": "lost", "when": {"reset": ["PowerCycle"], "count": 1}, "effect": {"unreachable": true, "stage": "executed"}}`, time.Second, []bool{false, true}, 1},
		{"refused", `{"name": "busy", "when": {"reset": ["PowerCycle"], "count": 1}, "effect": {"refuse": {"status": 503}}}`, time.Second, []bool{true, true}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			clk, host, b := newWorld(t)
			rules, err := fakebmc.ParseRules([]byte("[" + c.rule + "]"))
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rules {
				if err := b.AddRule(r); err != nil {
					t.Fatal(err)
				}
			}
			con := newConsole(t, clk, b)
			con.mustOpen(&suites[0])
			before := host.Boots()
			for i, want := range c.answers {
				if i > 0 {
					clk.Advance(c.wait)
					con.again()
				}
				if _, _, answered := con.command(chassis, chassisControl, cycle); answered != want {
					t.Errorf("request %d is answered: %t, want %t", i+1, answered, want)
				}
			}
			clk.Advance(time.Minute / 2)
			if boots := host.Boots() - before; boots != c.boots {
				t.Errorf("%d boots, want %d", boots, c.boots)
			}
			con.command(chassis, chassisControl, cycle)
			clk.Advance(time.Minute / 2)
			if boots := host.Boots() - before; boots != c.boots+1 {
				t.Errorf("%d boots after another one, want %d", boots, c.boots+1)
			}
		})
	}
}

// TestWhatIsOffered has a BMC with one cipher suite and room for two sessions: it says so in the
// first message, and not when a client has proven who it is.
func TestWhatIsOffered(t *testing.T) {
	clk, _, b := newWorld(t)
	s := newServer(b, Config{Username: "admin", Password: "s3cret", Clock: clk, Suites: []int{3}, MaxSessions: 2})
	con := &console{t: t, between: func() {}, s: s}
	if status := con.open(&suites[0], "s3cret"); status != statusNoMatchingSuite {
		t.Errorf("suite 17: %#x", status)
	}
	if _, data, _ := s.beforeSession(message{netFn: app, command: getChannelCipherSuites, data: []byte{1, 0, 0x80}}); len(data) != 6 || data[2] != 3 {
		t.Errorf("suites are told as %x", data)
	}
	con.mustOpen(&suites[1])
	con.mustOpen(&suites[1])
	con.between = func() { t.Error("a third session gets beyond the first message") }
	if status := con.open(&suites[1], "s3cret"); status != statusNoResources {
		t.Errorf("a third session: %#x", status)
	}
	for _, cfg := range []Config{{Suites: []int{4}}, {MaxSessions: -1}} {
		cfg.Username, cfg.Password = "admin", "s3cret"
		if s, err := Listen(":0", b, cfg); err == nil {
			s.Close()
			t.Errorf("%+v is taken", cfg)
		}
	}
}
