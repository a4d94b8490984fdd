package watchdog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Settings are the options of the agent.
type Settings struct {
	// Interval is how long the agent waits between two looks at the API server.
	Interval metav1.Duration `json:"interval"`
	// RequestTimeout bounds each look. Nothing is fed meanwhile, so it must be shorter
	// than the watchdog's time.
	RequestTimeout metav1.Duration `json:"requestTimeout"`
	// AnswerWithin is how long the API server may be silent.
	AnswerWithin metav1.Duration `json:"answerWithin"`
}

// DefaultSettings returns the settings of a scenario that has none.
func DefaultSettings() Settings {
	return Settings{
		Interval: metav1.Duration{Duration: time.Second}, RequestTimeout: metav1.Duration{Duration: 2 * time.Second},
		AnswerWithin: metav1.Duration{Duration: 5 * time.Second},
	}
}

// Validate rejects times with which the agent could not work.
func (s *Settings) Validate() error {
	if s.Interval.Duration <= 0 || s.RequestTimeout.Duration <= 0 || s.AnswerWithin.Duration <= 0 {
		return errors.New("interval, requestTimeout and answerWithin must be longer than nothing")
	}
	return nil
}

// Agent keeps the watchdog of its host. All fields but those below must be set.
type Agent struct {
	// API reads from the API server, each time within Settings.RequestTimeout.
	API client.Reader
	// Boot is the boot that the agent runs in: its clock, which is never set, and data that lasts
	// as long as the boot.
	Boot interface {
		Uptime() time.Duration
		Load() ([]byte, error)
		Save([]byte) error
	}
	// Watchdog is the host's watchdog.
	Watchdog interface{ Feed(context.Context) error }
	// Node is the name of the host's Node.
	Node     string
	Settings Settings
	Decide   func(State) Action

	loaded bool
	m      memory
	// as read last: only the fact of an answer matters
	node corev1.Node
}

// memory lasts as long as the boot, and survives the agent: the next agent does not mistake a host
// that was cut off for one that has heard nothing yet.
type memory struct {
	// Reached: the API server has answered, for the last time at Answered after the boot began.
	Reached  bool          `json:"reached"`
	Answered time.Duration `json:"answered"`
}

// Step looks at the API server and feeds the watchdog, if Decide says so.
func (a *Agent) Step(ctx context.Context) (time.Duration, error) {
	if err := a.load(); err != nil {
		return a.Settings.Interval.Duration, err
	}
	err := a.look(ctx)
	state := State{Reached: a.m.Reached}
	state.Answers = state.Reached && a.Boot.Uptime()-a.m.Answered < a.Settings.AnswerWithin.Duration
	if a.Decide(state) == Feed {
		if unfed := a.Watchdog.Feed(ctx); unfed != nil {
			err = errors.Join(err, fmt.Errorf("feed the watchdog: %w", unfed))
		}
	}
	return a.Settings.Interval.Duration, err
}

// look looks at the API server, and remembers that it has answered.
func (a *Agent) look(ctx context.Context) error {
	a.node = corev1.Node{}
	if err := a.API.Get(ctx, client.ObjectKey{Name: a.Node}, &a.node, client.UnsafeDisableDeepCopy); !answer(err) {
		return fmt.Errorf("read Node %s: %w", a.Node, err)
	}
	a.m = memory{true, a.Boot.Uptime()}
	return a.save()
}

// load loads the memory of an earlier agent of this boot.
func (a *Agent) load() error {
	if a.loaded {
		return nil
	}
	data, err := a.Boot.Load()
	if err == nil && data != nil {
		err = json.Unmarshal(data, &a.m)
	}
	if err != nil {
		return fmt.Errorf("load what was known earlier in this boot: %w", err)
	}
	a.loaded = true
	return nil
}

func (a *Agent) save() error {
	data, err := json.Marshal(a.m)
	if err == nil {
		err = a.Boot.Save(data)
	}
	if err != nil {
		return fmt.Errorf("keep what is known for the rest of this boot: %w", err)
	}
	return nil
}

// answer reports whether the API server itself answered a read, even if only that the Node doesn't
// exist.
func answer(err error) bool {
	return err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown &&
		!apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsServiceUnavailable(err)
}
