package hosts

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/sim/model"
)

// kubeletLife is the process of a kubelet in a boot of a model. It stands still with its
// host, and nothing that it does has an effect any more once it has ended. It implements
// kubelet.Workloads.
type kubeletLife struct {
	m *modelled
	// ctx ends with a shutdown, too, in which the kubelet stops its workloads.
	ctx  context.Context
	stop context.CancelFunc

	// With mu of all models held: over says that the process is gone, open that it has a
	// connection to the API server.
	over, open bool
}

// errLifeOver is the error of a kubelet whose boot has ended, or that was killed.
var errLifeOver = errors.New("the host's boot has ended, or its kubelet was killed")

// shutDown and end are called with mu held, and on nil do nothing.
func (l *kubeletLife) shutDown() {
	if l != nil {
		l.stop()
	}
}

func (l *kubeletLife) end() {
	if l != nil {
		l.over = true
		l.stop()
	}
}

// awake returns once the host lets the process go on, and something is the case.
func (l *kubeletLife) awake(ctx context.Context, and func() bool) error {
	return l.m.all.await(ctx, func() (bool, error) {
		if l.over {
			return false, errLifeOver
		}
		return !l.m.host.Halted() && and(), nil
	})
}

// act does something with the host that only a process which runs can do.
func (l *kubeletLife) act(do func()) (err error) {
	for {
		if err := l.awake(l.m.all.ctx, func() bool { return true }); err != nil {
			return err
		}
		done := false
		l.m.all.do(func() {
			if !l.over && !l.m.host.Halted() {
				do()
				done = true
			}
		})
		if done {
			return nil
		}
	}
}

// complain notes what a kubelet has to complain about.
func (l *kubeletLife) complain(trouble string) {
	l.m.all.do(func() {
		if !l.over && l.ctx.Err() == nil {
			l.m.say(trouble)
		}
	})
}

// Running implements kubelet.Workloads. A kubelet that was killed has left its own.
func (l *kubeletLife) Running() (uids []string) {
	l.m.all.do(func() {
		if !l.over {
			for _, w := range l.m.host.Workloads() {
				uids = append(uids, w.Pod)
			}
		}
	})
	return uids
}

// Start implements kubelet.Workloads.
func (l *kubeletLife) Start(uid, name string) (started bool, err error) {
	err = l.act(func() {
		if started = l.ctx.Err() == nil && l.find(uid) == nil; started {
			l.m.host.StartWorkload(model.Workload{Name: name, Pod: uid})
			l.m.write()
		}
	})
	return started, err
}

// Stop implements kubelet.Workloads.
func (l *kubeletLife) Stop(uid string) {
	_ = l.act(func() { // a process that is gone stops nothing
		if w := l.find(uid); w != nil {
			l.m.host.StopWorkload(*w)
		}
	})
}

func (l *kubeletLife) find(uid string) *model.Workload {
	for _, w := range l.m.host.Workloads() {
		if w.Pod == uid {
			return &w
		}
	}
	return nil
}

// wire is the kubelet's way to the API server, over the hosts' network.
func (l *kubeletLife) wire(next http.RoundTripper) http.RoundTripper { return &wire{l, next} }

type wire struct {
	l    *kubeletLife
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper. What is sent while its way is cut arrives when the
// way is back, if it is still waited for then. Where only answers don't arrive, a request on
// a connection that is open has its effect all the same, and no new connection opens.
func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	l, ctx, at := w.l, request.Context(), scenarios.HostEnd(w.l.m.name)
	carries := func(from, to string) func() bool { return func() bool { return l.m.all.carries(from, to) } }
	there, back := carries(at, scenarios.API), carries(scenarios.API, at)
	fail := func(err error) (*http.Response, error) {
		l.m.all.do(func() { l.open = false })
		return nil, err
	}
	if err := l.awake(ctx, func() bool { return there() && (l.open || back()) }); err != nil {
		return fail(err)
	}
	l.m.all.do(func() { l.open = true })
	response, err := w.next.RoundTrip(request)
	if err != nil {
		return fail(err)
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return fail(err)
	}
	if err := l.awake(ctx, back); err != nil {
		return fail(err)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// CloseIdleConnections lets http.Client do so.
func (w *wire) CloseIdleConnections() {
	if closer, ok := w.next.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}
