package ipmi

import (
	"encoding/binary"
)

const (
	rmcpHeader  = 4
	rmcpVersion = 0x06
	rmcpNoAck   = 0xff
	classASF    = 0x06
	classIPMI   = 0x07

	authNone     = 0x00
	authRMCPPlus = 0x06

	payloadIPMI        = 0x00
	payloadOpenSession = 0x10
	payloadRAKP1       = 0x12
	payloadRAKP3       = 0x14

	plusHeader = 12 // from the authentication type to the payload's length
	nextHeader = 0x07
)

// presencePong answers an ASF presence ping, or is nil.
func presencePong(body []byte) []byte {
	const ping, asfIANA = 0x80, 4542
	if len(body) < 8 || binary.BigEndian.Uint32(body) != asfIANA || body[4] != ping {
		return nil
	}
	pong := binary.BigEndian.AppendUint32(nil, asfIANA)
	pong = append(pong, 0x40, body[5], 0, 16)
	pong = binary.BigEndian.AppendUint32(pong, asfIANA)
	return append(pong,
		0, 0, 0, 0, // no OEM extension
		0x81, // IPMI, ASF 1.0
		0, 0, 0, 0, 0, 0, 0)
}

// message is an IPMI request without its envelope (section 13.8).
type message struct {
	netFn, command byte
	address        byte // the requester's
	sequence       byte // with the requester's LUN
	lun            byte // the responder's
	data           []byte
}

// bmcAddress is that of every BMC on IPMB.
const bmcAddress = 0x20

func parseMessage(b []byte) (message, bool) {
	if len(b) < 7 || sum(b[:3]) != 0 || sum(b[3:]) != 0 || b[0] != bmcAddress {
		return message{}, false
	}
	return message{
		netFn: b[1] >> 2, lun: b[1] & 3, address: b[3], sequence: b[4], command: b[5], data: b[6 : len(b)-1],
	}, true
}

func (m message) answer(code byte, data []byte) []byte {
	b := []byte{m.address, (m.netFn|1)<<2 | m.sequence&3}
	b = append(b, -sum(b))
	rest := append([]byte{bmcAddress, m.sequence&^3 | m.lun, m.command, code}, data...)
	return append(append(b, rest...), -sum(rest))
}

func sum(b []byte) (s byte) {
	for _, x := range b {
		s += x
	}
	return s
}

// parseOutside opens the IPMI 1.5 envelope of a message outside of any session.
func parseOutside(b []byte) ([]byte, bool) {
	const header = 10
	if len(b) < header || b[0] != authNone || binary.LittleEndian.Uint32(b[5:]) != 0 || len(b) < header+int(b[9]) {
		return nil, false
	}
	return b[header : header+int(b[9])], true
}

func wrapOutside(payload []byte) []byte {
	b := []byte{rmcpVersion, 0, rmcpNoAck, classIPMI, authNone, 0, 0, 0, 0, 0, 0, 0, 0, byte(len(payload))}
	return append(b, payload...)
}

// plus is an RMCP+ envelope (section 13.6).
type plus struct {
	encrypted, authenticated bool
	kind                     byte
	session, sequence        uint32
	payload                  []byte
	signed                   []byte // what the authentication code covers
	code                     []byte
}

func parsePlus(b []byte) (plus, bool) {
	if len(b) < plusHeader {
		return plus{}, false
	}
	p := plus{
		encrypted: b[1]&0x80 != 0, authenticated: b[1]&0x40 != 0, kind: b[1] & 0x3f,
		session: binary.LittleEndian.Uint32(b[2:]), sequence: binary.LittleEndian.Uint32(b[6:]),
	}
	end := plusHeader + int(binary.LittleEndian.Uint16(b[10:]))
	if len(b) < end {
		return plus{}, false
	}
	p.payload = b[plusHeader:end]
	if !p.authenticated {
		return p, true
	}
	pad := 0
	for end+pad < len(b) && b[end+pad] == 0xff && pad < 4 {
		pad++
	}
	end += pad
	if len(b) < end+2 || int(b[end]) != pad || b[end+1] != nextHeader {
		return plus{}, false
	}
	p.signed, p.code = b[:end+2], b[end+2:]
	return p, true
}

// wrapPlus is the envelope of what comes before a session is established.
func wrapPlus(kind byte, payload []byte) []byte {
	b := []byte{rmcpVersion, 0, rmcpNoAck, classIPMI, authRMCPPlus, kind, 0, 0, 0, 0, 0, 0, 0, 0}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(payload)))
	return append(b, payload...)
}
