package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/kube"
)

// apiTimeout is when a client gives up on an API server that doesn't answer.
const apiTimeout = 30 * time.Second

var errAPIAway = errors.New("connect to the API server: connection refused")

// errStoreless is what the API server says to a write when etcd doesn't answer.
var errStoreless = apierrors.NewInternalError(errors.New("etcdserver: request timed out"))

// takes reports whether the API server is there and takes writes.
func (a *apiServer) takes() bool { return !a.away && !a.storeless }

// apiServer is what stands before the store: it may be away, or refuse requests.
type apiServer struct {
	w *world
	// away says that nobody reaches it; silent that requests hang then.
	away, silent bool
	// storeless says that etcd is away: what is in the server's own memory is read, and
	// nothing is written.
	storeless bool
	failures  []*failure
}

// failure is a failAPI in force.
type failure struct {
	scenarios.FailAPIOp
	left int // how often it will still be; less than 0 is for ever
}

// answerLost is the note of an effect that its client doesn't hear of.
const answerLost = "its answer was lost"

// effectOf is what a call does to the world.
func effectOf(c *kube.Call) string { return c.Action() + " " + c.Kind.Kind + "/" + c.Key.Name }

func (a *apiServer) fail(op *scenarios.FailAPIOp) {
	f := &failure{*op, -1}
	if op.Times > 0 {
		f.left = op.Times
	}
	a.failures = append(a.failures, f)
}

func (f *failure) matches(actor string, c *kube.Call) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return f.left != 0 && is(f.Controller, actor) && is(f.Verb, string(c.Verb)) && is(f.Kind, c.Kind.Kind) &&
		// what is built in is always served
		(f.Code != 404 || c.Kind.Custom)
}

// execute performs a call of a process at an end of a link, if it arrives, and the
// server is there and wills it. The answer is lost if its way is cut.
func (a *apiServer) execute(actor, end string, c *kube.Call, answer func(error)) {
	if !a.w.network.carries(end, scenarios.API) {
		return
	}
	done := func(err error) {
		if a.w.network.carries(scenarios.API, end) {
			answer(err)
		} else if err == nil && c.Writes() {
			a.w.emit(history.Event{Kind: history.ControllerEffect, Actor: actor, Value: effectOf(c), Note: answerLost})
		}
	}
	fault := func(value string) {
		a.w.emit(history.Event{Kind: history.APIFault, Actor: actor, Object: c.Kind.Kind + "/" + c.Key.Name, Value: value, Note: string(c.Verb)})
	}
	if a.away {
		fault("outage")
		if !a.silent {
			done(errAPIAway)
		}
		return
	}
	if a.storeless && c.Writes() {
		fault("etcd")
		done(errStoreless)
		return
	}
	if i := slices.IndexFunc(a.failures, func(f *failure) bool { return f.matches(actor, c) }); i >= 0 {
		f := a.failures[i]
		f.left--
		fault(fmt.Sprint(f.Code))
		done(c.Refuse(f.Code))
		return
	}
	done(c.Execute())
}
