package redfish

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
)

// account is what a client must prove to know. The zero account asks for nothing, and one of
// anybody for any name and password.
type account struct {
	user, password string
	anybody        bool
}

func (a account) open() bool { return a == account{} }

// admits compares in constant time, also when the lengths differ.
func (a account) admits(user, password string) bool {
	return a.open() || a.anybody || equal(a.user, user)&equal(a.password, password) == 1
}

func equal(a, b string) int {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:])
}

// The bounds of SessionService's SessionTimeout.
const (
	minSessionTimeout = 30 * time.Second
	maxSessionTimeout = 24 * time.Hour
)

// sessions are the Redfish sessions of one service.
type sessions struct {
	clk   fakebmc.Clock
	limit int
	lost  func() <-chan struct{} // of the BMC that keeps them

	mu      sync.Mutex
	timeout time.Duration
	next    int
	open    []*session // in order of creation
}

type session struct {
	id, user string
	token    [sha256.Size]byte // hashed, so that comparing takes constant time
	used     time.Duration
	lost     <-chan struct{}
}

// create returns a new session's id and token; ok is false when as many as limit are open.
func (s *sessions) create(user string, limit int) (id, token string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	if len(s.open) >= limit {
		return "", "", false
	}
	s.next++
	id, token = strconv.Itoa(s.next), rand.Text()
	s.open = append(s.open, &session{id, user, sha256.Sum256([]byte(token)), s.clk.Now(), s.lost()})
	return id, token, true
}

// use returns the id of a token's session, and keeps it alive.
func (s *sessions) use(token string) (id string, ok bool) {
	hash := sha256.Sum256([]byte(token))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	for _, x := range s.open {
		if subtle.ConstantTimeCompare(x.token[:], hash[:]) == 1 {
			x.used = s.clk.Now()
			return x.id, true
		}
	}
	return "", false
}

// lifetime is how long a session lives without being used.
func (s *sessions) lifetime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}

func (s *sessions) setLifetime(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timeout = d
}

func (s *sessions) end(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.open)
	s.open = slices.DeleteFunc(s.open, func(x *session) bool { return x.id == id })
	return len(s.open) < n
}

// list returns the ids that live, oldest first, and their users.
func (s *sessions) list() (ids, users []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	for _, x := range s.open {
		ids, users = append(ids, x.id), append(users, x.user)
	}
	return ids, users
}

func (s *sessions) expire() {
	now := s.clk.Now()
	s.open = slices.DeleteFunc(s.open, func(x *session) bool {
		select {
		case <-x.lost:
			return true
		default:
			return now-x.used >= s.timeout
		}
	})
}
