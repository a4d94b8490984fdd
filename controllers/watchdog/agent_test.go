package watchdog

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// boot is one that an agent runs in.
type boot struct {
	uptime time.Duration
	kept   []byte
}

func (b *boot) Uptime() time.Duration { return b.uptime }
func (b *boot) Load() ([]byte, error) { return b.kept, nil }
func (b *boot) Save(d []byte) error   { b.kept = d; return nil }

// TestStep plays a server that answers, falls silent and comes back.
func TestStep(t *testing.T) {
	boot, api, dog := &boot{uptime: time.Second}, &server{}, &dog{}
	start := func() *Agent {
		return &Agent{API: api, Boot: boot, Watchdog: dog, Node: "worker-1", Settings: DefaultSettings(), Decide: Decide}
	}
	agent := start()
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "worker-1")
	silent := errors.New("no route to host")
	timeout := apierrors.NewTimeoutError("the request timed out", 1)
	for i, c := range []struct {
		after time.Duration
		err   error
		fed   bool
		again bool // by an agent that has just started
	}{
		{0, silent, true, false}, // nothing was heard in this boot yet
		{time.Minute, silent, true, true},
		{time.Second, missing, true, false},
		{4 * time.Second, silent, true, false},
		{time.Second, timeout, false, false},
		{time.Minute, silent, false, false},
		{time.Second, nil, true, false},
		{4 * time.Second, timeout, true, false},
		{2 * time.Second, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "worker-1", nil), true, false},
		{4 * time.Second, silent, true, true},
		{time.Second, silent, false, true},
		{time.Second, nil, true, true},
		{5 * time.Second, apierrors.NewServiceUnavailable("the way is cut"), false, false},
	} {
		boot.uptime += c.after
		api.err = c.err
		if c.again {
			agent = start()
		}
		before := dog.fed
		next, err := agent.Step(t.Context())
		if fed := dog.fed > before; fed != c.fed || next != agent.Settings.Interval.Duration || (err == nil) != answer(c.err) {
			t.Errorf("step %d with %v: fed %t, next after %s, %v; want fed %t", i, c.err, fed, next, err, c.fed)
		}
	}
}

// TestUnreadableMemory: an agent that can't know what it promised feeds nothing.
func TestUnreadableMemory(t *testing.T) {
	dog := &dog{}
	agent := &Agent{API: &server{}, Boot: &boot{kept: []byte("{")}, Watchdog: dog, Node: "worker-1", Settings: DefaultSettings(), Decide: Decide}
	if _, err := agent.Step(t.Context()); err == nil || dog.fed > 0 {
		t.Errorf("fed %d times: %v", dog.fed, err)
	}
}
