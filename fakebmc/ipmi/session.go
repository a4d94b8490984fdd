package ipmi

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"hash"
	"slices"
	"sync"
	"time"
)

// suite is a cipher suite: authentication, integrity and confidentiality.
type suite struct {
	id, auth, integrity, confidentiality byte
	hash                                 func() hash.Hash
	icv                                  int // length of a truncated code
}

var suites = []suite{
	{17, 0x03, 0x04, 0x01, sha256.New, 16}, // HMAC-SHA256, HMAC-SHA256-128, AES-CBC-128
	{3, 0x01, 0x01, 0x01, sha1.New, 12},    // HMAC-SHA1, HMAC-SHA1-96, AES-CBC-128
}

func (s *suite) mac(key []byte, parts ...[]byte) []byte {
	h := hmac.New(s.hash, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// The status codes of section 13.24.
const (
	statusOK                 = 0x00
	statusNoResources        = 0x01
	statusInvalidSession     = 0x02
	statusInvalidRole        = 0x09
	statusUnauthorizedName   = 0x0d
	statusInvalidIntegrity   = 0x0f
	statusNoMatchingSuite    = 0x11
	statusIllegalParameter   = 0x12
	privilegeCallback        = 1
	privilegeUser            = 2
	privilegeOperator        = 3
	privilegeAdministrator   = 4
	privilegeOEM             = 5
	openSessionRequestLength = 32
)

// session is one client's, from its first message on.
// It has many fields because the keys of both sides are made of
// nearly all that its messages have said.
type session struct {
	suite       *suite
	id, console uint32
	address     string          // the client's
	begun       time.Duration   // the handshake
	lost        <-chan struct{} // closed when the BMC goes down
	consoleRand [16]byte
	bmcRand     [16]byte
	role        byte
	name        []byte
	// rakp1 and rakp3 are what the client has sent, rakp2 and rakp4 what it was answered: sent once
	// more, as by a client that had no answer or over a network that doubles packets, they have the
	// same answer, and nothing is tried again.
	rakp1, rakp2, rakp3, rakp4 []byte
	sik, k1, k2                []byte
	max, privilege             byte
	mu                         sync.Mutex // guards what follows
	used                       time.Duration
	received, sent             uint32
	receivedMask               uint32 // which of the 32 numbers below received have been seen
	receivedAnytime            bool
	deed                       deed // the last one
}

// level is the privilege of the session as it is now.
func (x *session) level() byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.privilege
}

// setLevel changes the privilege to another one that the session may have; 0 leaves it as it is.
func (x *session) setLevel(level byte) (code byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case level == 0:
	case level < privilegeUser || level > privilegeOEM: // a session can't ask for Callback
		return codeInvalidField
	case level > x.max:
		return codePrivilegeTooHigh
	default:
		x.privilege = level
	}
	return codeOK
}

// deed is a Chassis Control, and what came of it.
type deed struct {
	known    bool
	request  [3]byte // who asked, under which sequence number, for what
	executed bool
	answered bool
	code     byte // the answer
	at       time.Duration
}

// expiry is how long a sequence number stands for the request that was answered under it (IPMB 1.0,
// section 4.5: five seconds).
const expiry = 5 * time.Second

// repeats reports whether a Chassis Control is the last one once more, with the same sequence
// number: sent again by a client that had no answer. It gets that answer then, also if that was
// lost on its way, or the one that is still to come; nothing is done a second time.
func (x *session) repeats(m message, now time.Duration, reply func(code byte, data []byte)) bool {
	request := [...]byte{m.address, m.sequence, m.data[0]}
	x.mu.Lock()
	last := x.deed
	again := last.known && last.request == request && (!last.answered || now-last.at <= expiry)
	if !again {
		x.deed = deed{known: true, request: request}
	}
	x.mu.Unlock()
	if again && last.answered {
		reply(last.code, nil)
	}
	return again
}

// carriedOut and settled note what has come of the last deed. One that never arrived is forgotten.
func (x *session) carriedOut() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.deed.executed = true
}

func (x *session) settled(code byte, answered bool, now time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !answered && !x.deed.executed {
		x.deed = deed{}
		return
	}
	x.deed.answered, x.deed.code, x.deed.at = true, code, now
}

// openSession offers a session with the suite that the client asks for.
func (s *Server) openSession(client string, b []byte) []byte {
	if len(b) < 8 {
		return []byte{0, statusIllegalParameter, 0, 0, 0, 0, 0, 0}
	}
	console := binary.LittleEndian.Uint32(b[4:])
	refuse := func(status byte) []byte { return answerTo(b, status, console) }
	if len(b) < openSessionRequestLength || console == 0 {
		return refuse(statusIllegalParameter)
	}
	i := slices.IndexFunc(s.suites, func(x suite) bool {
		return b[11] == 8 && b[19] == 8 && b[27] == 8 && b[12] == x.auth && b[20] == x.integrity && b[28] == x.confidentiality
	})
	if i < 0 {
		return refuse(statusNoMatchingSuite)
	}
	limit := b[1] & 0x0f
	switch {
	case limit == 0:
		limit = privilegeAdministrator
	case limit > privilegeAdministrator:
		return refuse(statusInvalidRole)
	}
	x := &session{
		suite: &s.suites[i], console: console, max: limit,
		address: addressOf(client), begun: s.cfg.Clock.Now(), lost: s.bmc.Lost(),
	}
	if _, err := rand.Read(x.bmcRand[:]); err != nil {
		return refuse(statusNoResources)
	}
	s.mu.Lock()
	if s.full() {
		s.mu.Unlock()
		return refuse(statusNoResources)
	}
	s.nextID++
	x.id = 0xfb000000 | s.nextID&0xffffff
	s.handshakes.add(x)
	s.mu.Unlock()

	answer := []byte{b[0], statusOK, limit, 0}
	answer = binary.LittleEndian.AppendUint32(answer, console)
	answer = binary.LittleEndian.AppendUint32(answer, x.id)
	for kind, algorithm := range []byte{x.suite.auth, x.suite.integrity, x.suite.confidentiality} {
		answer = append(answer, byte(kind), 0, 0, 8, algorithm, 0, 0, 0)
	}
	return answer
}

// answerTo begins the answer to a message of a session's establishment; it is all that a refusal
// says.
func answerTo(message []byte, status byte, console uint32) []byte {
	return binary.LittleEndian.AppendUint32([]byte{message[0], status, 0, 0}, console)
}

// full reports whether there is room for no further session. Real BMCs say so at once, and not
// when the client has proven who it is. The caller holds mu.
func (s *Server) full() bool {
	s.expire()
	return len(s.sessions) >= s.cfg.MaxSessions
}

func (s *Server) handshake(id []byte) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.handshakes.find(binary.LittleEndian.Uint32(id)); x != nil && !x.isLost() {
		return x
	}
	return nil
}

// rakp1 answers with RAKP 2: the BMC's random number, and a code that proves that
// it knows the password.
func (s *Server) rakp1(b []byte) []byte {
	if len(b) < 8 {
		return []byte{0, statusIllegalParameter, 0, 0, 0, 0, 0, 0}
	}
	x := s.handshake(b[4:8])
	if x == nil {
		return []byte{b[0], statusInvalidSession, 0, 0, 0, 0, 0, 0}
	}
	refuse := func(status byte) []byte { return answerTo(b, status, x.console) }
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case x.rakp1 == nil:
	case again(x.rakp1, b):
		return tagged(x.rakp2, b[0])
	default: // a handshake is tried once
		return refuse(statusInvalidSession)
	}
	if len(b) < 28 || int(b[27]) > maxName || len(b) < 28+int(b[27]) {
		return refuse(statusIllegalParameter)
	}
	role, name := b[24], b[28:28+int(b[27])]
	if role&0x0f == 0 || role&0x0f > x.max {
		return refuse(statusInvalidRole)
	}
	if subtle.ConstantTimeCompare(digest(name), digest([]byte(s.cfg.Username))) != 1 {
		return refuse(statusUnauthorizedName)
	}
	x.rakp1 = slices.Clone(b)
	copy(x.consoleRand[:], b[8:24])
	x.role, x.name = role, slices.Clone(name)
	answer := refuse(statusOK)
	answer = append(answer, x.bmcRand[:]...)
	answer = append(answer, s.guid[:]...)
	x.rakp2 = append(answer, x.suite.mac([]byte(s.cfg.Password),
		le(x.console), le(x.id), x.consoleRand[:], x.bmcRand[:], s.guid[:], x.identity())...)
	return x.rakp2
}

// identity is what both sides sign of the account.
func (x *session) identity() []byte {
	return append([]byte{x.role, byte(len(x.name))}, x.name...)
}

// rakp3 has the client's proof, and answers with RAKP 4, which opens the session.
func (s *Server) rakp3(client string, b []byte) []byte {
	if len(b) < 8 {
		return []byte{0, statusIllegalParameter, 0, 0, 0, 0, 0, 0}
	}
	x := s.handshake(b[4:8])
	if x == nil {
		x = s.sessionOf(binary.LittleEndian.Uint32(b[4:8])) // whose last answer got lost
	}
	if x == nil {
		return []byte{b[0], statusInvalidSession, 0, 0, 0, 0, 0, 0}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case x.rakp3 == nil: // whatever comes of it, a proof is tried once
		x.rakp3 = slices.Clone(b)
		x.rakp4 = s.admit(client, x, b)
	case !again(x.rakp3, b):
		return answerTo(b, statusInvalidSession, x.console)
	}
	return tagged(x.rakp4, b[0])
}

// again reports whether a message says the same as an earlier one. Its tag may count on:
// ipmipower's does.
func again(earlier, b []byte) bool { return bytes.Equal(earlier[1:], b[1:]) }

// tagged is an answer to a message of some tag.
func tagged(answer []byte, tag byte) []byte {
	answer = slices.Clone(answer)
	answer[0] = tag
	return answer
}

// admit is RAKP 4. The caller holds mu.
func (s *Server) admit(client string, x *session, b []byte) []byte {
	refuse := func(status byte) []byte { return answerTo(b, status, x.console) }
	if s.guesses.Wait(client) > 0 {
		return refuse(statusNoResources)
	}
	password := []byte(s.cfg.Password)
	proof := x.suite.mac(password, x.bmcRand[:], le(x.console), x.identity())
	if x.rakp2 == nil || b[1] != statusOK || !hmac.Equal(b[8:], proof) {
		s.guesses.Wrong(client)
		return refuse(statusInvalidIntegrity)
	}
	s.guesses.Right(client)
	if s.full() { // by now
		return refuse(statusNoResources)
	}
	x.sik = x.suite.mac(password, x.consoleRand[:], x.bmcRand[:], x.identity())
	x.k1 = x.suite.mac(x.sik, slices.Repeat([]byte{1}, 20))
	x.k2 = x.suite.mac(x.sik, slices.Repeat([]byte{2}, 20))
	s.handshakes.end(x)
	x.max = min(x.max, x.role&0x0f)
	x.privilege = min(privilegeUser, x.max)
	x.used = s.cfg.Clock.Now()
	s.sessions = append(s.sessions, x)
	return append(refuse(statusOK), x.suite.mac(x.sik, x.consoleRand[:], le(x.id), s.guid[:])[:x.suite.icv]...)
}

func digest(b []byte) []byte {
	d := sha256.Sum256(b)
	return d[:]
}

func le(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }

func (x *session) isLost() bool {
	select {
	case <-x.lost:
		return true
	default:
		return false
	}
}

// sessionOf returns an established session, or nil.
func (s *Server) sessionOf(id uint32) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	for _, x := range s.sessions {
		if x.id == id {
			return x
		}
	}
	return nil
}

func (s *Server) expire() {
	now := s.cfg.Clock.Now()
	s.sessions = slices.DeleteFunc(s.sessions, func(x *session) bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.isLost() || now-x.used >= sessionTimeout
	})
}

func (s *Server) end(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions = slices.DeleteFunc(s.sessions, func(y *session) bool { return x == y })
}

// open verifies and decrypts a message of the session. Nothing but what is
// signed, encrypted and new is taken.
func (x *session) open(p plus) ([]byte, bool) {
	if !p.authenticated || !p.encrypted || !hmac.Equal(p.code, x.suite.mac(x.k1, p.signed)[:x.suite.icv]) || !x.isNew(p.sequence) {
		return nil, false
	}
	if len(p.payload) < 2*aes.BlockSize || len(p.payload)%aes.BlockSize != 0 {
		return nil, false
	}
	block, err := aes.NewCipher(x.k2[:16])
	if err != nil {
		return nil, false
	}
	plain := make([]byte, len(p.payload)-aes.BlockSize)
	cipher.NewCBCDecrypter(block, p.payload[:aes.BlockSize]).CryptBlocks(plain, p.payload[aes.BlockSize:])
	pad := int(plain[len(plain)-1])
	if pad >= aes.BlockSize || pad+1 > len(plain) {
		return nil, false
	}
	return plain[:len(plain)-pad-1], true
}

// isNew takes each sequence number once, of those not too far behind the highest
// (section 6.12.13).
func (x *session) isNew(n uint32) bool {
	const window = 32
	x.mu.Lock()
	defer x.mu.Unlock()
	if n == 0 {
		return false
	}
	switch ahead := int64(n) - int64(x.received); {
	case !x.receivedAnytime || ahead > 0:
		if ahead < window && x.receivedAnytime {
			x.receivedMask = x.receivedMask<<ahead | 1<<(ahead-1)
		} else {
			x.receivedMask = 0
		}
		x.received, x.receivedAnytime = n, true
		return true
	case ahead == 0 || -ahead > window || x.receivedMask&(1<<(-ahead-1)) != 0:
		return false
	default:
		x.receivedMask |= 1 << (-ahead - 1)
		return true
	}
}

// seal encrypts and signs an answer.
func (x *session) seal(message []byte) ([]byte, error) {
	block, err := aes.NewCipher(x.k2[:16])
	if err != nil {
		return nil, err
	}
	pad := (aes.BlockSize - (len(message)+1)%aes.BlockSize) % aes.BlockSize
	plain := slices.Clone(message)
	for i := range pad {
		plain = append(plain, byte(i+1))
	}
	plain = append(plain, byte(pad))
	payload := make([]byte, aes.BlockSize+len(plain))
	if _, err := rand.Read(payload[:aes.BlockSize]); err != nil {
		return nil, err
	}
	cipher.NewCBCEncrypter(block, payload[:aes.BlockSize]).CryptBlocks(payload[aes.BlockSize:], plain)

	x.mu.Lock()
	x.sent++
	sequence := x.sent
	x.mu.Unlock()
	b := []byte{authRMCPPlus, 0xc0 | payloadIPMI}
	b = binary.LittleEndian.AppendUint32(b, x.console)
	b = binary.LittleEndian.AppendUint32(b, sequence)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(payload)))
	b = append(b, payload...)
	fill := (4 - (len(b)+2)%4) % 4
	for range fill {
		b = append(b, 0xff)
	}
	b = append(b, byte(fill), nextHeader)
	b = append(b, x.suite.mac(x.k1, b)[:x.suite.icv]...)
	return append([]byte{rmcpVersion, 0, rmcpNoAck, classIPMI}, b...), nil
}
