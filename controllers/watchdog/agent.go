package watchdog

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
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

// Validate finds times with which the agent could not work.
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
	// Clock is the host's.
	Clock clock.PassiveClock
	// Watchdog is the host's.
	Watchdog interface{ Feed(context.Context) error }
	// Node is the name of the host's Node.
	Node     string
	Settings Settings
	Decide   func(State) Action

	// answered is when the API server last did; zero is never.
	answered time.Time
}

// Step looks at the API server and feeds the watchdog, if that is decided.
func (a *Agent) Step(ctx context.Context) (time.Duration, error) {
	var node corev1.Node
	err := a.API.Get(ctx, client.ObjectKey{Name: a.Node}, &node)
	if answer(err) {
		a.answered, err = a.Clock.Now(), nil
	}
	state := State{Reached: !a.answered.IsZero()}
	state.Answers = state.Reached && a.Clock.Since(a.answered) < a.Settings.AnswerWithin.Duration
	if a.Decide(state) == Feed {
		if err := a.Watchdog.Feed(ctx); err != nil {
			return a.Settings.Interval.Duration, fmt.Errorf("feed the watchdog: %w", err)
		}
	}
	if err != nil {
		err = fmt.Errorf("read Node %s: %w", a.Node, err)
	}
	return a.Settings.Interval.Duration, err
}

// answer reports whether what a read came to was said by the API server, be it that the
// Node is not there.
func answer(err error) bool {
	return err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown &&
		!apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsServiceUnavailable(err)
}
