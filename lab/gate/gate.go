// Package gate stands between a controller and the servers that it talks to, the API server and
// the BMCs, and lets a [Judge] decide what becomes of each request: it can be held, refused in the
// server's place, or cut off before or after the server acted.
//
// A [Gate] is an http.RoundTripper. A controller within this process has it in its client; for one
// that is a process of its own, or whose client isn't ours to make, a [Proxy] has it as its
// transport. The controller can't see the difference.
package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fencelab/fencelab/scenarios/objects"
)

// Request describes a controller's request to a server, in the words of the history.
type Request struct {
	// Verb is get, list, create, update, patch or delete; empty for a watch, and for what is about
	// no object that matters.
	Verb, Kind, Name string
	// Effect names the change that it makes to the world, such as "delete Node/worker-1" or "bmc
	// ForceOff worker-1"; empty if it changes nothing that matters.
	Effect string
	// Deed is the effect, or what it reads, such as "get Node/worker-1" or "read BMC/worker-1";
	// empty for what no step of a schedule is about.
	Deed string
	// Watches is the kind of a watch or a list; nil for other requests, and for forms of objects
	// that lack most fields. Fills says that the request fills a cache, for which any version will
	// do.
	Watches *objects.Kind
	Fills   bool
	// ID is unique among requests.
	ID uint64
	// Warning is the Warning Event that it records; nil if it records none.
	Warning *Warning
}

// Warning is a Warning Event.
type Warning struct{ About, Reason, Message string }

// Answer describes a server's answer to a request.
type Answer struct {
	Status int
	// Version is the resourceVersion of the object in it, if there is one.
	Version string
	// Released says that the object is being deleted and that nothing holds it up any more: this
	// request took its last finalizer away, and it is gone.
	Released bool
	// Err says why none came; the server may have acted all the same.
	Err error
}

// Judge decides about the requests of one incarnation of one controller. It may be called from any
// goroutine, and may take its time: a request that it holds is on its way meanwhile.
type Judge interface {
	// Asked is called with each request before it is sent. A *Refusal is answered in the server's
	// place; with any other error the server never hears of it, and its caller hears nothing.
	Asked(context.Context, Request) error
	// Answered is called with the server's answer to a request with an Effect. With an error its
	// caller never hears of it.
	Answered(Request, Answer) error
}

// Listener decides when the events of a watch reach its caller, and which do.
type Listener interface {
	// Told is called with each object of a list, and with each change of a watch before its caller
	// gets it. A *Refusal ends the watch with that error, any other error without a word.
	Told(context.Context, Request, Change) error
	// AsOf is the version as of which a list that fills a cache is answered; empty for the present
	// one.
	AsOf(Request) string
}

// Change is one object of a list, or one event of a watch.
type Change struct {
	// Listed says that it is in a list, or in what a watch begins with: it may be as it was.
	Listed bool
	// Object is the object; Deleted says that it is the last that there was of it.
	Object  metav1.Object
	Deleted bool
}

// Refusal is an answer in the server's place: an error in the API server's format, or 204, with
// which a BMC accepts a request.
type Refusal struct {
	Code    int
	Message string
}

func (r *Refusal) Error() string { return r.Message }

// Late is a Judge's verdict on a request that is sent after its caller has stopped waiting. The
// caller gets the error at once.
type Late struct {
	Err error
	// Later is called once, and does not wait. It calls send when the time has come, or never.
	Later func(send func(context.Context) Answer)
}

func (l *Late) Error() string { return l.Err.Error() }

// ids is the last ID that a request was given.
var ids atomic.Uint64

// Gate is the way of a controller's requests to one server.
type Gate struct {
	Judge Judge
	// Listener is called with the objects of lists and watches; nil lets them pass as they come.
	Listener Listener
	// Read understands a request. It gets the whole body.
	Read func(request *http.Request, body []byte) Request
	// Next sends requests to the server.
	Next http.RoundTripper
	// UserAgent, if not empty, replaces the client's user agent in requests to the server.
	UserAgent string
	// Addresses are shown to the controller instead of others.
	Addresses Addresses
}

// RoundTrip implements http.RoundTripper.
func (g *Gate) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	body, err := bodyOf(request)
	if err != nil {
		return nil, err
	}
	if isJSON(request.Header) {
		body = g.Addresses.real(body)
	}
	if body != nil {
		request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	if g.UserAgent != "" {
		request.Header.Set("User-Agent", g.UserAgent)
	}
	request.Header.Del("Accept-Encoding") // we have to read the answer, too

	asked := g.Read(request, body)
	asked.ID = ids.Add(1)
	var refusal *Refusal
	var late *Late
	switch err := g.Judge.Asked(request.Context(), asked); {
	case errors.As(err, &refusal):
		return refusal.Response(request), nil
	case errors.As(err, &late):
		late.Later(func(ctx context.Context) Answer { return g.send(request.Clone(ctx), body) })
		return nil, late.Err
	case err != nil:
		return nil, err
	}
	listens := g.Listener != nil && asked.Watches != nil
	if listens {
		request.Header.Set("Accept", "application/json") // which we can read, and all clients can
		if asked.Fills && asked.Verb == "list" {
			listAsOf(request, g.Listener.AsOf(asked))
		}
	}
	response, err := g.Next.RoundTrip(request)
	if asked.Effect != "" {
		answer := Answer{Err: err}
		if err == nil {
			answer, err = read(response)
		}
		if judged := g.Judge.Answered(asked, answer); judged != nil {
			return nil, judged
		}
	}
	if err != nil {
		return nil, err
	}
	if listens && response.StatusCode == http.StatusOK && isJSON(response.Header) {
		if err := tell(request, response, g.Listener, asked); err != nil {
			return nil, err
		}
	}
	g.Addresses.show(response)
	return response, nil
}

// listAsOf asks for a list as it was.
func listAsOf(request *http.Request, version string) {
	if version == "" {
		return
	}
	query := request.URL.Query()
	query.Set("resourceVersion", version)
	query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	at := *request.URL
	at.RawQuery, request.URL = query.Encode(), &at
}

// send sends a request whose caller no longer waits.
func (g *Gate) send(request *http.Request, body []byte) Answer {
	if body != nil {
		request.Body = io.NopCloser(bytes.NewReader(body))
	}
	response, err := g.Next.RoundTrip(request)
	if err != nil {
		return Answer{Err: err}
	}
	answer, _ := read(response) // which has the error
	return answer
}

// bodyOf reads a request's body; nil if it has none.
func bodyOf(request *http.Request) ([]byte, error) {
	if request.Body == nil || request.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(request.Body)
	_ = request.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	return body, nil
}

// read reads a whole answer, which stays as it is.
func read(response *http.Response) (Answer, error) {
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	_, version, released := named(body)
	return Answer{Status: response.StatusCode, Version: version, Released: released, Err: err}, err
}

func isJSON(header http.Header) bool {
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	return kind == "application/json" || strings.HasSuffix(kind, "+json")
}

// Response is the refusal as the API server would put it.
func (r *Refusal) Response(request *http.Request) *http.Response {
	if r.Code == http.StatusNoContent {
		return &http.Response{
			StatusCode: r.Code, Status: "204 No Content", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{}, Body: http.NoBody, Request: request,
		}
	}
	body := r.status()
	return &http.Response{
		StatusCode: r.Code, Status: fmt.Sprintf("%d %s", r.Code, http.StatusText(r.Code)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: request,
	}
}

// event is the refusal as the last event of a watch.
func (r *Refusal) event() []byte {
	return append(append([]byte(`{"type":"ERROR","object":`), r.status()...), "}\n"...)
}

func (r *Refusal) status() []byte {
	status, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(r.Code), Reason: reasons[r.Code], Message: r.Message,
	})
	if err != nil {
		return nil // unreachable: a Status is plain data
	}
	return status
}

var reasons = map[int]metav1.StatusReason{
	http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound,
	http.StatusConflict: metav1.StatusReasonConflict, http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError, http.StatusGone: metav1.StatusReasonExpired,
	http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
}

// Everything is a Judge that lets everything pass.
type Everything struct{}

// Asked implements Judge.
func (Everything) Asked(context.Context, Request) error { return nil }

// Answered implements Judge.
func (Everything) Answered(Request, Answer) error { return nil }

// BodyOf reads a request's body, and leaves it there.
func BodyOf(request *http.Request) ([]byte, error) {
	if request.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(request.Body)
	request.Body = io.NopCloser(bytes.NewReader(body))
	return body, err
}

// Way makes the transport of a client: what it does with the next one is done to all that the
// client asks.
type Way func(next http.RoundTripper) http.RoundTripper
