package watchdog

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		state State
		want  Action
	}{
		{State{}, Feed},
		{State{Reached: true}, Starve},
		{State{Reached: true, Answers: true}, Feed},
	} {
		if got := Decide(c.state); got != c.want {
			t.Errorf("%+v: %s, want %s", c.state, got, c.want)
		}
	}
}

// server answers every read with the same error.
type server struct {
	client.Reader
	err error
}

func (s *server) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if _, ok := obj.(*corev1.Node); !ok {
		return errors.New("the agent reads nothing but its Node")
	}
	return s.err
}

type dog struct{ fed int }

func (d *dog) Feed(context.Context) error { d.fed++; return nil }

// TestStep plays a server that answers, falls silent and comes back.
func TestStep(t *testing.T) {
	clock, api, dog := clocktesting.NewFakePassiveClock(time.Unix(1000, 0)), &server{}, &dog{}
	agent := &Agent{API: api, Clock: clock, Watchdog: dog, Node: "worker-1", Settings: DefaultSettings(), Decide: Decide}
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "worker-1")
	silent := errors.New("no route to host")
	timeout := apierrors.NewTimeoutError("the request timed out", 1)
	for i, c := range []struct {
		after time.Duration
		err   error
		fed   bool
	}{
		{0, silent, true}, // nothing was heard in this life yet
		{time.Minute, silent, true},
		{time.Second, missing, true},
		{4 * time.Second, silent, true},
		{time.Second, timeout, false},
		{time.Minute, silent, false},
		{time.Second, nil, true},
		{4 * time.Second, timeout, true},
		{2 * time.Second, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "worker-1", nil), true},
		{5 * time.Second, apierrors.NewServiceUnavailable("the way is cut"), false},
	} {
		clock.SetTime(clock.Now().Add(c.after))
		api.err = c.err
		before := dog.fed
		next, err := agent.Step(t.Context())
		if fed := dog.fed > before; fed != c.fed || next != agent.Settings.Interval.Duration || (err == nil) != answer(c.err) {
			t.Errorf("step %d with %v: fed %t, next after %s, %v; want fed %t", i, c.err, fed, next, err, c.fed)
		}
	}
}
