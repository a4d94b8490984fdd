package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"time"

	"github.com/fencelab/fencelab/fakebmc/redfish"
)

// transport carries HTTP requests of one incarnation to the BMCs, each as a step. The name of a
// host is that of its BMC in a URL.
type transport struct {
	p        *process
	life     int
	patience time.Duration
}

// errRefused says that a BMC has answered, and didn't accept the request.
var errRefused = errors.New("the BMC refused it")

// face returns the Redfish service of a host's BMC.
func (u *uplink) face(host string) *redfish.Face {
	if u.faces[host] == nil {
		f, err := redfish.NewFace(u.bmcs[host], clock{u.w, nil, ""})
		if err != nil {
			panic(fmt.Sprintf("serve the BMC of %s: %v", host, err)) // unreachable: nothing was asked of it
		}
		u.faces[host] = f
	}
	return u.faces[host]
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	p, at := t.p, r.URL.Hostname()
	host := p.uplink.addresses.hosts[at]
	var body []byte
	if r.Body != nil {
		data, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
		body = data
	}
	bmc := p.uplink.bmcs[host]
	if bmc == nil {
		return nil, fmt.Errorf("reach the BMC at %s: nobody answers there; take the address in spec.bmc of the BareMetalHost", at)
	}
	sent := r.Clone(r.Context())
	sent.RemoteAddr, sent.Body = p.actor.name, nil
	// A reset that the plan has the BMC ignore is answered as one that is carried out.
	answer := &http.Response{Status: "204 No Content", StatusCode: http.StatusNoContent, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody}
	verb := "ask"
	read, reset := redfish.Asked(bmc, sent, body)
	if read {
		verb = "read"
	}
	c := p.toBMC(host, verb, reset, t.patience, func(reply func(error)) {
		p.uplink.face(host).Do(sent, body, func(got *http.Response, err error) {
			if err == nil {
				if answer = got; got.StatusCode >= http.StatusBadRequest {
					err = errRefused
				}
			}
			reply(err)
		})
	})
	c.fails = true
	var err error
	if m, ok := p.program.(*managed); ok {
		err = m.perform(r.Context(), t.life, c, r.Method+" "+r.URL.Path+" "+string(body), "a request to the BMC of "+host)
	} else {
		if thread := p.flights.running; thread != nil && thread.thread.id != goroutine() {
			err = fmt.Errorf("controller %s: a request to the BMC of %s comes from a goroutine of its own: make it by Setup instead of New", p.actor.name, host)
			p.w.fail(err)
			return nil, err
		}
		err = t.perform(c)
	}
	if err != nil && !errors.Is(err, errRefused) {
		return nil, err
	}
	answer.Request = r
	return answer, nil
}

// perform fails a request of a process that dies. If it unwound the reconcile instead, deferred
// functions of a library would wait for the request.
func (t transport) perform(c *call) (err error) {
	defer func() {
		if v := recover(); v != nil {
			if _, dead := v.(killed); !dead {
				panic(v)
			}
			err = errGone
		}
	}()
	return t.p.flights.perform(t.life, c)
}

// goroutine is the number of the goroutine that runs, as a stack begins with it.
func goroutine() string {
	stack := make([]byte, 64)
	head, _, _ := bytes.Cut(stack[:runtime.Stack(stack, false)], []byte(" ["))
	return string(head)
}
