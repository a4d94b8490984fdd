package ipmi

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
)

// line is a command with what the standard says of its answer.
type line struct {
	netFn, command byte
	data           []byte
	code           byte
	body           []byte // nil for any
}

func (c *console) script(about string, lines ...line) {
	c.t.Helper()
	for i, l := range lines {
		code, body, answered := c.command(l.netFn, l.command, l.data...)
		if !answered || code != l.code || l.body != nil && !bytes.Equal(body, l.body) {
			c.t.Errorf("%s, command %d (%#x %#x % x): completion code %#x, % x (answered: %t), want %#x, % x", about, i+1, l.netFn, l.command, l.data, code, body, answered, l.code, l.body)
		}
	}
}

func control(n byte) line           { return line{chassis, chassisControl, []byte{n}, codeOK, []byte{}} }
func set(b ...byte) line            { return line{app, setWatchdog, b, codeOK, []byte{}} }
func badTimer(b ...byte) line       { return line{app, setWatchdog, b, codeInvalidField, []byte{}} }
func timer(want ...byte) line       { return line{app, getWatchdog, nil, codeOK, want} }
func feed(code byte) line           { return line{app, resetWatchdog, nil, code, []byte{}} }
func level(asked, code byte) line   { return line{app, setSessionPrivilege, []byte{asked}, code, nil} }
func flagsAre(want ...byte) line    { return option(bootFlags, want...) }
func closes(id uint32, c byte) line { return line{app, closeSession, le(id), c, nil} }

func option(parameter byte, want ...byte) line {
	return line{chassis, getBootOptions, []byte{parameter, 0, 0}, codeOK, append([]byte{bootParameterVersion, parameter}, want...)}
}

func options(data ...byte) line { return line{chassis, setBootOptions, data, codeOK, []byte{}} }

// TestWatchdogTimer follows section 27: what is set is what is read, field by field, at zero, at
// the maximum and twice.
func TestWatchdogTimer(t *testing.T) {
	const sms, osLoad, cycle = 4, 3, 3
	for _, c := range []struct {
		name  string
		lines []line
		boots int
		then  []line // after eleven seconds
	}{
		{"never set", []line{timer(0, 0, 0, 0, 0, 0, 0, 0), feed(codeTimerNotSet)}, 0, []line{timer(0, 0, 0, 0, 0, 0, 0, 0)}},
		{"each field", []line{
			set(timerUnlogged|sms, cycle, 7, 0, 100, 0), timer(timerUnlogged|sms, cycle, 7, 0, 100, 0, 100, 0),
			feed(codeOK), timer(timerUnlogged|timerRuns|sms, cycle, 7, 0, 100, 0, 100, 0),
		}, 1, []line{timer(sms, cycle, 7, 1<<sms, 100, 0, 100, 0)}},
		{"set stops it", []line{set(sms, cycle, 0, 0, 100, 0), feed(codeOK), set(sms, cycle, 0, 0, 100, 0), timer(sms, cycle, 0, 0, 100, 0, 100, 0)}, 0, nil},
		{"set does not stop it", []line{
			set(sms, cycle, 0, 0, 200, 0), feed(codeOK), set(timerRuns|sms, cycle, 0, 0, 100, 0), timer(timerRuns|sms, cycle, 0, 0, 100, 0, 100, 0),
		}, 1, nil},
		{"nor start it", []line{set(timerRuns|sms, cycle, 0, 0, 100, 0), timer(sms, cycle, 0, 0, 100, 0, 100, 0)}, 0, nil},
		{"zero", []line{set(sms, cycle, 0, 0, 0, 0), timer(sms, cycle, 0, 0, 0, 0, 0, 0), feed(codeOK), timer(sms, cycle, 0, 1<<sms, 0, 0, 0, 0)}, 1, nil},
		{"zero while it runs", []line{set(sms, cycle, 0, 0, 100, 0), feed(codeOK), set(timerRuns|sms, cycle, 0, 0, 0, 0)}, 1, nil},
		{"the longest", []line{set(sms, cycle, 255, 0, 0xff, 0xff), feed(codeOK), timer(timerRuns|sms, cycle, 255, 0, 0xff, 0xff, 0xff, 0xff)}, 0, nil},
		{"no action", []line{set(osLoad, 0, 0, 0, 100, 0), feed(codeOK)}, 0, []line{timer(osLoad, 0, 0, 1<<osLoad, 100, 0, 100, 0)}},
		{"flags are kept until they are cleared", []line{set(osLoad, 0, 0, 0, 0, 0), feed(codeOK)}, 0, []line{
			set(sms, 0, 0, 0, 0, 0), feed(codeOK), timer(sms, 0, 0, 1<<sms|1<<osLoad, 0, 0, 0, 0),
			set(sms, 0, 0, 1<<osLoad, 0, 0), timer(sms, 0, 0, 1<<sms, 0, 0, 0, 0), set(sms, 0, 0, 0xff, 0, 0), timer(sms, 0, 0, 0, 0, 0, 0, 0),
		}},
		{"the host is switched off", []line{
			set(timerUnlogged|sms, cycle, 3, 0, 100, 0), feed(codeOK), control(0), timer(sms, cycle, 3, 0, 100, 0, 100, 0), feed(codeTimerNotSet),
		}, 1, []line{control(1), feed(codeTimerNotSet), set(sms, 0, 0, 0, 100, 0), feed(codeOK)}},
		{"the host is reset", []line{set(sms, cycle, 0, 0, 100, 0), feed(codeOK), control(3), timer(sms, cycle, 0, 0, 100, 0, 100, 0)}, 1, nil},
		{"the host shuts down", []line{set(sms, cycle, 0, 0, 0x2c, 1), feed(codeOK), control(5)}, 0, []line{timer(timerRuns|sms, cycle, 0, 0, 0x2c, 1, 190, 0)}},
		{"reserved", []line{
			badTimer(0, 0, 0, 0, 100, 0), badTimer(6, 0, 0, 0, 100, 0), badTimer(7, 0, 0, 0, 100, 0), badTimer(sms, 4, 0, 0, 100, 0),
			badTimer(sms, 0x20, 0, 0, 100, 0), feed(codeTimerNotSet), {app, setWatchdog, []byte{sms, 0, 0, 0, 100}, codeShort, nil},
		}, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			clk, host, b := newWorld(t)
			con := newConsole(t, clk, b)
			con.mustOpen(&suites[0])
			before := host.Boots()
			con.script(c.name, c.lines...)
			clk.Advance(11 * time.Second)
			con.script("eleven seconds later", c.then...)
			clk.Advance(20 * time.Second)
			if boots := host.Boots() - before; boots != c.boots {
				t.Errorf("the timer made the host boot %d times, want %d", boots, c.boots)
			}
		})
	}
}

// TestChannel follows sections 22.13, 22.15 and 22.18 to 22.19: what is said of the channel, and
// what a session may do.
func TestChannel(t *testing.T) {
	clk, _, b := newWorld(t)
	con := newConsole(t, clk, b)
	con.mustOpen(&suites[0])
	capabilities := []byte{channel, 0x80, 0x04, 0x02, 0, 0, 0, 0}
	con.script("channel",
		line{app, getAuthCapabilities, []byte{0x80 | thisChannel, privilegeUser}, codeOK, capabilities},
		line{app, getAuthCapabilities, []byte{channel, privilegeOEM}, codeOK, capabilities},
		line{app, getAuthCapabilities, []byte{2, privilegeUser}, codeInvalidField, nil},
		line{app, getAuthCapabilities, []byte{thisChannel, 0}, codeInvalidField, nil},
		line{app, getAuthCapabilities, []byte{thisChannel, 6}, codeInvalidField, nil},
		line{app, getAuthCapabilities, []byte{thisChannel}, codeShort, nil},
		line{app, getChannelCipherSuites, []byte{thisChannel, 0, 0x80}, codeOK, []byte{channel, 0xc0, 17, 3, 0x44, 0x81, 0xc0, 3, 1, 0x41, 0x81}},
		line{app, getChannelCipherSuites, []byte{thisChannel, 0, 0x81}, codeOK, []byte{channel}},
		line{app, getChannelCipherSuites, []byte{thisChannel, 0, 0}, codeOK, []byte{channel, 1, 3, 0x41, 0x44, 0x81}},
		line{app, getChannelCipherSuites, []byte{5, 0, 0x80}, codeInvalidField, nil},
		line{app, getChannelCipherSuites, []byte{thisChannel, 1, 0x80}, codeInvalidField, nil}, // serial over LAN
		line{app, getChannelCipherSuites, []byte{thisChannel, 0}, codeShort, nil},
		line{app, getSystemGUID, nil, codeOK, con.s.guid[:]},
		level(0, codeOK), level(1, codeInvalidField), level(6, codeInvalidField), level(privilegeOEM, codePrivilegeTooHigh),
		level(privilegeUser, codeOK), level(privilegeAdministrator, codeOK),
	)

	// A command for another logical unit than the BMC itself.
	other := con.sealedFor(1, chassis, getChassisStatus)
	if code := con.codeOf(con.ask(other)); code != codeInvalidLUN {
		t.Errorf("another LUN: completion code %#x", code)
	}

	// An administrator may end any session, and others only their own.
	first, sequence := con.x, con.sequence
	con.sequence = 0
	if status := con.open(&suites[1], "s3cret"); status != statusOK {
		t.Fatal(status)
	}
	con.script("a user", closes(first.id, codePrivilege), closes(1, codeInvalidSessionEnd))
	second := con.x
	con.x, con.sequence = first, sequence
	con.script("an administrator", closes(second.id, codeOK), closes(second.id, codeInvalidSessionEnd), closes(first.id, codeOK))
	if n := len(con.s.sessions); n != 0 {
		t.Errorf("%d sessions are left", n)
	}

	// A session that may do nothing but call back is no user's.
	con.sequence = 0
	con.role = privilegeCallback
	if status := con.open(&suites[0], "s3cret"); status != statusOK {
		t.Fatal(status)
	}
	con.script("callback", line{chassis, getChassisStatus, nil, codePrivilege, nil}, level(privilegeUser, codePrivilege), closes(con.x.id, codeOK))
}

// TestWhatIsKept: what was set outlives what the standard says it outlives. Boot options and the
// timer are lost with the BMC's memory, a restore policy never, and what Redfish has set is
// Redfish's.
func TestWhatIsKept(t *testing.T) {
	pxe := []byte{flagsValid | flagsPersistent | flagsUEFI, 1 << 2, 0, 0, 0}
	none := []byte{flagsUEFI, 0, 0, 0, 0}
	for _, c := range []struct {
		name    string
		happens func(*console, *fakebmc.BMC)
		redfish bool // has set the override
		flags   []byte
		ack     byte
		timer   byte // its use
		failed  bool // the last power event was a loss of AC power
	}{
		{"power-off", func(c *console, _ *fakebmc.BMC) {
			c.script("off", line{chassis, chassisControl, []byte{0}, codeOK, nil})
		}, false, pxe, 2, 4, false},
		{"warm reset", func(c *console, _ *fakebmc.BMC) { c.script("reset", line{app, warmReset, nil, codeOK, nil}) }, false, pxe, 2, 4, false},
		{"cold reset", func(c *console, _ *fakebmc.BMC) { c.script("reset", line{app, coldReset, nil, codeOK, nil}) }, false, none, 0, 0, false},
		{"cold reset, set by Redfish", func(c *console, _ *fakebmc.BMC) { c.script("reset", line{app, coldReset, nil, codeOK, nil}) }, true, pxe, 0, 0, false},
		{"loss of power", func(c *console, b *fakebmc.BMC) {
			loss := fakebmc.Rule{Name: "loss", Effect: fakebmc.Effect{Loss: &fakebmc.Loss{For: fakebmc.Duration(time.Second)}}}
			if err := b.AddRule(loss); err != nil {
				c.t.Fatal(err)
			}
		}, false, none, 0, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			clk, host, b := newWorld(t)
			con := newConsole(t, clk, b)
			con.mustOpen(&suites[0])
			if c.redfish {
				if err := host.SetBoot(fakebmc.Boot{Enabled: fakebmc.BootContinuous, Target: fakebmc.BootPxe, Mode: fakebmc.BootUEFI}); err != nil {
					t.Fatal(err)
				}
			} else {
				con.script("boot flags", options(append([]byte{bootFlags}, pxe...)...))
			}
			con.script("settings", options(bootAck, 2, 2), set(4, 1, 0, 0, 100, 0), line{chassis, setRestorePolicy, []byte{2}, codeOK, []byte{7}})
			c.happens(con, b)
			clk.Advance(3 * time.Minute)
			con.sequence = 0
			con.mustOpen(&suites[0])
			if code, status, _ := con.command(chassis, getChassisStatus); code != codeOK || (status[1]&1 != 0) != c.failed {
				t.Errorf("the last power event is %#x", status[1])
			}
			con.script("afterwards", flagsAre(c.flags...), option(bootAck, 0, c.ack))
			if policy := b.RestorePolicy(); policy != fakebmc.AlwaysOn {
				t.Errorf("the restore policy is %s", policy)
			}
			if use := b.Watchdog().Use; use != c.timer {
				t.Errorf("the timer's use is %d, want %d", use, c.timer)
			}
		})
	}
}

// TestWhoRestartedIt follows sections 28.11 to 28.13: what a restart's cause is, and for which ones
// boot flags are valid.
func TestWhoRestartedIt(t *testing.T) {
	once := []byte{bootFlags, flagsValid | flagsUEFI, 1 << 2, 0, 0, 0}
	watched := []line{set(4, 1, 0, 0, 100, 0), feed(codeOK)}
	power := func(r fakebmc.ResetType) func(*fakebmc.BMC) {
		return func(b *fakebmc.BMC) { b.Do(b.ResetRequest("admin", r), func(fakebmc.Answer) {}) }
	}
	for _, c := range []struct {
		name    string
		before  []line
		redfish func(*fakebmc.BMC)
		cause   byte
		pxe     bool // it boots by the flags
	}{
		{"Chassis Control", []line{options(once...), control(3)}, nil, causeControl, true},
		{"Redfish", []line{options(once...)}, power(fakebmc.ResetForceRestart), causeOEM, true},
		{"watchdog", append([]line{options(once...)}, watched...), nil, causeWatchdog, false},
		{"watchdog, and the flags are kept", append([]line{options(bootClearing, keepByWatchdog), options(once...)}, watched...), nil, causeWatchdog, true},
		{"button", []line{control(0), options(once...)}, power(fakebmc.ResetPushPowerButton), causeButton, false},
		{"button, and the flags are kept", []line{control(0), options(bootClearing, keepByButton), options(once...)}, power(fakebmc.ResetPushPowerButton), causeButton, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			clk, host, b := newWorld(t)
			con := newConsole(t, clk, b)
			con.mustOpen(&suites[0])
			con.script("before", append([]line{options(bootProgress, setInProgress)}, c.before...)...)
			clk.Advance(5 * time.Second)
			if c.redfish != nil {
				c.redfish(b)
			}
			clk.Advance(20 * time.Second)
			if code, status, _ := con.command(chassis, getChassisStatus); code != codeOK || (status[1] == 0x10) != (c.cause == causeControl) {
				t.Errorf("the last power event is %#x", status[1])
			}
			con.script("after", line{chassis, getRestartCause, nil, codeOK, []byte{c.cause, channel}}, option(bootProgress, setComplete))
			if pxe := host.BootedBy().Target == fakebmc.BootPxe; pxe != c.pxe {
				t.Errorf("it booted by %+v", host.BootedBy())
			}
		})
	}
}

// TestBootFlagsForGood: to change what every boot is from takes an administrator.
func TestBootFlagsForGood(t *testing.T) {
	clk, _, b := newWorld(t)
	con := newConsole(t, clk, b)
	con.mustOpen(&suites[0])
	flags := func(first, code byte) line {
		return line{chassis, setBootOptions, []byte{bootFlags, first | flagsUEFI, 1 << 2, 0, 0, 0}, code, []byte{}}
	}
	con.script("boot flags",
		level(privilegeOperator, codeOK), flags(flagsValid|flagsPersistent, codePrivilege), flags(flagsValid, codeOK), flags(flagsPersistent, codeOK),
		level(privilegeAdministrator, codeOK), flags(flagsValid|flagsPersistent, codeOK),
		options(bootFlags), line{chassis, setBootOptions, []byte{0x80 | bootFlags}, codeInvalidField, nil}, line{chassis, setBootOptions, []byte{7}, codeNoParameter, nil},
	)
}

// TestHandshakeOverAPoorNetwork has each message of a session's establishment lost, late, doubled
// and out of order. The client, which sends again what isn't answered, gets in, and has one
// session.
func TestHandshakeOverAPoorNetwork(t *testing.T) {
	for i, name := range []string{"open session", "RAKP 1", "RAKP 3"} {
		for _, fate := range []string{"lost", "answer lost", "doubled", "late", "answers out of order"} {
			t.Run(fmt.Sprintf("%s is %s", name, fate), func(t *testing.T) {
				clk, _, b := newWorld(t)
				con := newConsole(t, clk, b)
				x := &session{suite: &suites[0], console: 0x01020304, role: privilegeAdministrator, name: []byte("admin")}
				copy(x.consoleRand[:], "a random number!")
				var late []byte
				for j, m := range con.handshake(x, "s3cret") {
					packet := m.packet()
					var answer []byte
					switch {
					case i != j || fate == "lost":
						answer = con.ask(packet)
					case fate == "answer lost":
						con.ask(packet)
						clk.Advance(time.Second)
						answer = con.ask(packet)
					case fate == "doubled":
						answer = con.ask(packet)
						con.ask(packet)
					case fate == "late": // the first one comes when all is over
						late, answer = packet, con.ask(packet)
					default:
						first := con.ask(packet)
						const tag = rmcpHeader + plusHeader
						packet[tag] += 3
						second := con.ask(packet)
						if second[tag] != packet[tag] || j > 0 && !bytes.Equal(first[tag+1:], second[tag+1:]) {
							t.Errorf("%s is answered otherwise the second time", m.name)
						}
						answer = first
					}
					if status := m.take(answer); status != statusOK {
						t.Fatalf("%s is refused with %#x", m.name, status)
					}
				}
				con.x = x
				if late != nil {
					con.ask(late)
				}
				con.script("in the session", level(privilegeAdministrator, codeOK), line{chassis, getChassisStatus, nil, codeOK, nil})
				if n := len(con.s.sessions); n != 1 {
					t.Errorf("there are %d sessions", n)
				}
			})
		}
	}
}

// TestAHandshakeIsTriedOnce: what comes again and says something else is refused, and so is a proof
// of a wrong password, which counts as one guess however often it comes.
func TestAHandshakeIsTriedOnce(t *testing.T) {
	clk, _, b := newWorld(t)
	con := newConsole(t, clk, b)
	x := &session{suite: &suites[0], console: 0x01020304, role: privilegeAdministrator, name: []byte("admin")}
	steps := con.handshake(x, "wrong")
	for _, m := range steps[:2] {
		if status := m.take(con.ask(m.packet())); status != statusOK {
			t.Fatal(status)
		}
	}
	other := slices.Clone(steps[1].packet())
	other[rmcpHeader+plusHeader+8]++ // of the random number
	if status := con.ask(other)[rmcpHeader+plusHeader+1]; status != statusInvalidSession {
		t.Errorf("another RAKP 1: %#x", status)
	}
	for range 10 {
		if status := con.ask(steps[2].packet())[rmcpHeader+plusHeader+1]; status != statusInvalidIntegrity {
			t.Errorf("a wrong proof: %#x", status)
		}
	}
	right := con.handshake(x, "s3cret")[2].packet()
	if status := con.ask(right)[rmcpHeader+plusHeader+1]; status != statusInvalidSession {
		t.Errorf("another proof: %#x", status)
	}
	con.sequence = 0
	con.mustOpen(&suites[0]) // ten guesses would be made to wait
}
