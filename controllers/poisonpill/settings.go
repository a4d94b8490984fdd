package poisonpill

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Settings are the options of the agent.
type Settings struct {
	// Interval is how often the agent looks at the API server, RequestTimeout how long a
	// look may take, and Failures how many in a row may fail before it asks its peers.
	Interval       metav1.Duration `json:"interval"`
	RequestTimeout metav1.Duration `json:"requestTimeout"`
	Failures       int             `json:"failures"`
	// PeerTimeout is how long a set of peers has to answer. They look at the API server
	// for it, so it must be longer than that may take.
	PeerTimeout metav1.Duration `json:"peerTimeout"`
	// RebootTime is how long a host without a watchdog may take to reboot.
	RebootTime metav1.Duration `json:"rebootTime"`
	// LongestPause is how long an agent may stand still between deciding to feed the
	// watchdog and doing so. Left out: as long as the watchdog waits, for longer is not
	// possible with one that is a device of its own.
	LongestPause metav1.Duration `json:"longestPause,omitzero"`
	// ClockError is how much faster or slower than time a host's clock may run.
	ClockError float64 `json:"clockError"`
	// SafeTime is the least time that survivors wait. It never shortens the time that they compute
	// from the announcement of the fenced host's agent.
	SafeTime metav1.Duration `json:"safeTime,omitzero"`
	// RecreateAfter is how long a deleted Node stays away, so that pod garbage collection releases
	// the Pods bound to it: a Node that is back too early keeps its Pods.
	RecreateAfter metav1.Duration `json:"recreateAfter"`
}

// DefaultSettings returns the settings of a scenario that has none.
func DefaultSettings() Settings {
	return Settings{
		Interval: metav1.Duration{Duration: 15 * time.Second}, RequestTimeout: metav1.Duration{Duration: 5 * time.Second}, Failures: 3,
		PeerTimeout: metav1.Duration{Duration: 7 * time.Second}, RebootTime: metav1.Duration{Duration: 30 * time.Second},
		ClockError: 0.01, RecreateAfter: metav1.Duration{Duration: time.Minute},
	}
}

// maxClockError is beyond the error of any usable clock.
const maxClockError = 0.5

// Validate rejects options with which the agent could not work.
func (s *Settings) Validate() error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if s.Interval.Duration <= 0 || s.RequestTimeout.Duration <= 0 || s.PeerTimeout.Duration <= 0 || s.Failures < 1 {
		bad("interval, requestTimeout, peerTimeout and failures must be more than nothing")
	}
	if rounds := 2 * mostSets * float64(s.PeerTimeout.Duration); max(float64(s.Failures)*(float64(s.Interval.Duration)+float64(s.RequestTimeout.Duration)), rounds,
		float64(s.RebootTime.Duration), float64(s.LongestPause.Duration)) > float64(longestTerm) || s.LongestPause.Duration < 0 {
		bad("(interval + requestTimeout) x failures, peerTimeout x %d, rebootTime and longestPause must be between nothing and %s: no agent believes another that it lives longer on what it hears", 2*mostSets, longestTerm)
	}
	if s.RequestTimeout.Duration > s.Interval.Duration {
		bad("requestTimeout %s is longer than interval %s: make it shorter", s.RequestTimeout.Duration, s.Interval.Duration)
	}
	if least := s.RequestTimeout.Duration + s.Request(); s.PeerTimeout.Duration < least {
		bad("peerTimeout %s is shorter than a peer may need to look at the API server for an answer: make it %s at least", s.PeerTimeout.Duration, least)
	}
	if s.RebootTime.Duration <= 0 {
		bad("rebootTime must be more than nothing")
	}
	if s.ClockError < 0 || s.ClockError > maxClockError {
		bad("clockError is %v and must be between 0 and %v", s.ClockError, maxClockError)
	}
	return errors.Join(problems...)
}

// Fits reports an error if the agent can't keep a watchdog of this time fed; 0 means none.
func (s *Settings) Fits(watchdog time.Duration) error {
	if watchdog > 0 && watchdog <= s.PeerTimeout.Duration {
		return fmt.Errorf("the watchdog waits for %s, and nothing is fed while peers have %s to answer: make peerTimeout shorter", watchdog, s.PeerTimeout.Duration)
	}
	return nil
}

// Spare returns how long an agent may stand still, beyond the time that its peers may take to
// answer, before a watchdog of this time fires. It isn't fed meanwhile, and feeding takes a
// moment.
func (s *Settings) Spare(watchdog time.Duration) time.Duration {
	const moment = 100 * time.Millisecond
	return max(watchdog-s.PeerTimeout.Duration-moment, moment)
}

// Request bounds a single request: a look is three of them.
func (s *Settings) Request() time.Duration { return s.RequestTimeout.Duration / 3 }

// Terms are the terms of the safe time. The first four are announced by the agent of the host that
// is to be reset.
type Terms struct {
	// Reads is how long the agent can go without an answer of the API server before it
	// asks its peers: (interval + requestTimeout) x failures.
	Reads metav1.Duration `json:"reads"`
	// Rounds is how long two rounds of questions take, where each begins while the answers of the
	// previous one are still lived on: 2 x sets of peers x peerTimeout.
	Rounds metav1.Duration `json:"rounds"`
	// Pause is how long the agent may stand still between deciding to feed and feeding.
	Pause metav1.Duration `json:"pause"`
	// Reset is how long the host runs on after that: its watchdog's time, or a reboot's.
	Reset metav1.Duration `json:"reset"`
	// ClockError makes up for clocks that run at different rates.
	ClockError time.Duration `json:"-"`
}

// Patience is how long a host lives on an answer.
func (t Terms) Patience() time.Duration { return t.Reads.Duration + t.Rounds.Duration }

// Sum is the safe time.
func (t Terms) Sum() time.Duration {
	return t.Patience() + t.Pause.Duration + t.Reset.Duration + t.ClockError
}

// terms returns the terms that an agent with that many peers and that watchdog announces.
func (s *Settings) terms(peers int, watchdog time.Duration) Terms {
	reset := watchdog
	if reset == 0 {
		reset = s.RebootTime.Duration
	}
	pause := s.LongestPause.Duration
	if pause == 0 {
		pause = reset
	}
	size := setSize(peers)
	sets := (peers + size - 1) / size
	return Terms{
		Reads:  metav1.Duration{Duration: time.Duration(s.Failures) * (s.Interval.Duration + s.RequestTimeout.Duration)},
		Rounds: metav1.Duration{Duration: 2 * time.Duration(sets) * s.PeerTimeout.Duration},
		Pause:  metav1.Duration{Duration: pause},
		Reset:  metav1.Duration{Duration: reset},
	}
}

// withClockError completes announced terms for a survivor: the clock of the fenced host
// may be slow, and its own fast.
func (s *Settings) withClockError(t Terms) Terms {
	t.ClockError = 0
	t.ClockError = time.Duration(float64(t.Sum()) * ((1+s.ClockError)/(1-s.ClockError) - 1))
	return t
}

// Safe is how long survivors wait for a host with that many peers and a watchdog of this time, 0
// for none.
func (s *Settings) Safe(peers int, watchdog time.Duration) time.Duration {
	return max(s.withClockError(s.terms(peers, watchdog)).Sum(), s.SafeTime.Duration)
}

// Silence is the shortest silence after which an agent lets its host be reset: Failures looks in a
// row have to fail.
func (s *Settings) Silence() time.Duration {
	return time.Duration(s.Failures-1) * s.Interval.Duration
}

// Hearing is the longest time until an agent that is no longer cut off has heard an answer: it may
// wait for its next look, and for the answers of that many peers.
func (s *Settings) Hearing(peers int) time.Duration {
	return s.Interval.Duration + s.RequestTimeout.Duration + s.terms(peers, 0).Rounds.Duration/2
}

// mostSets bounds the number of sets.
const mostSets = 10

// setSize is how many peers are asked at once: a tenth of the cluster, but one at least
// (design, decision 7).
func setSize(peers int) int { return max(1, min((peers+1+9)/10, peers)) }
