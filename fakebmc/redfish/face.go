package redfish

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/front"
)

// Face is the Redfish service of one BMC without a listener, for clients in the same process that
// live by the BMC's clock, as in a simulator. Whoever has it may do everything; credentials are
// accepted, and not checked.
type Face struct{ service *service }

// NewFace returns the service of a BMC, whose sessions age on a clock.
func NewFace(b *fakebmc.BMC, clock fakebmc.Clock) (*Face, error) {
	s, err := NewServer(Config{Clock: clock})
	if err != nil {
		return nil, err
	}
	g, err := NewGroup(b)
	if err != nil {
		return nil, err
	}
	f := &Face{s.service(g, b, "")}
	f.service.within = true
	return f, nil
}

// Asked says what a request asks of the host of a BMC: it reads its System, or resets it.
func Asked(b *fakebmc.BMC, r *http.Request, body []byte) (read bool, reset fakebmc.ResetType) {
	path, chassis := pathOf(r), fakebmc.ChassisPath+"/"+b.ID()
	switch {
	case r.Method == http.MethodGet:
		return path == b.SystemPath(), ""
	case r.Method != http.MethodPost:
	case path == b.SystemPath()+fakebmc.ResetAction:
		reset, _ = parseReset(body, "ComputerSystem.Reset")
	case path == chassis+fakebmc.ChassisResetAction:
		reset, _ = parseReset(body, "Chassis.Reset")
	}
	return false, reset
}

// Do handles a request. done is called once, at once or later by the clock of the BMC, or never if
// the request hangs. A connection that is lost fails with fakebmc.ErrUnreachable.
func (f *Face) Do(r *http.Request, body []byte, done func(*http.Response, error)) {
	w := &recorder{header: make(http.Header)}
	x, request := f.service.exchange(w, r)
	x.then = func(a reply) {
		if errors.Is(a.Cause, fakebmc.ErrUnreachable) {
			done(nil, fakebmc.ErrUnreachable)
			return
		}
		f.service.finish(x, a, nil)
		done(w.response(r), nil)
	}
	var err error
	if len(body) > front.MaxBody {
		body, err = nil, &http.MaxBytesError{Limit: front.MaxBody}
	}
	f.service.decide(&request, x, body, err)
	x.e.bmc.Serve(request, x)
}

// recorder keeps an answer.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) { w.status = status }

func (w *recorder) Write(data []byte) (int, error) { return w.body.Write(data) }

func (w *recorder) response(to *http.Request) *http.Response {
	return &http.Response{
		Status: strconv.Itoa(w.status) + " " + http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: to,
	}
}
