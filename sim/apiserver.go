package sim

import (
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/kube"
)

// apiTimeout is how long a client waits for an answer of the API server.
const apiTimeout = scenarios.Patience

var errAPIAway = errors.New("connect to the API server: connection refused")

// errStoreless is the server's answer to a write while etcd doesn't answer.
var errStoreless = apierrors.NewInternalError(errors.New("etcdserver: request timed out"))

// takes reports whether the API server is reachable and accepts writes.
func (a *apiServer) takes() bool { return a.answers() && !a.storeless }

// answers reports whether the API server is there, with a quorum behind it.
func (a *apiServer) answers() bool { return !a.away && !a.inquorate }

// apiServer stands before the store. It may be away, or refuse requests.
type apiServer struct {
	w *world
	// away says that the server can't be reached; silent says that requests hang then.
	away, silent bool
	// storeless says that etcd is away: reads are served from the server's memory, and writes
	// fail.
	storeless bool
	// inquorate says that no majority of the store's members runs and reach each other.
	inquorate bool
	failures  []*failure
}

// failure is a failAPI in force.
type failure struct {
	scenarios.FailAPIOp
	// left is how often it will still fail; a negative number means for ever.
	left int
}

// answerLost is the note of an effect whose client doesn't get the answer.
const answerLost = "its answer was lost"

// effectOf describes a call's effect on the world.
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
		// built-in kinds are always served
		(f.Code != 404 || c.Kind.Custom)
}

// execute performs a process's call, if it arrives at the server and the server accepts it. End is
// the process's end of the link. The answer is lost if its way is cut.
func (a *apiServer) execute(actor string, way *uplink, c *kube.Call, answer func(error)) {
	if !way.sends() {
		return
	}
	done := func(err error) {
		if way.carries(scenarios.API, "") {
			answer(err)
		} else if err == nil && c.Writes() {
			a.w.emit(history.Event{Kind: history.ControllerEffect, Actor: actor, Value: effectOf(c), Note: answerLost})
		}
	}
	fault := func(value string) {
		a.w.emit(history.Event{Kind: history.APIFault, Actor: actor, Object: c.Kind.Kind + "/" + c.Key.Name, Value: value, Note: string(c.Verb)})
	}
	if !a.answers() {
		what := "outage"
		if a.inquorate {
			what = "quorum"
		}
		if fault(what); a.inquorate || !a.silent {
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
