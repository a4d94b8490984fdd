package redfish

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
)

// exchange is a request over HTTP on its way through the BMC that it concerns and
// the BMC's rules. It implements fakebmc.Wire.
type exchange struct {
	w http.ResponseWriter
	r *http.Request
	e endpoint

	// run executes a request that is the service's own business, or refuses one that
	// must not be executed; nil leaves it to the BMC.
	run     func(fakebmc.Effects) response
	refused bool   // run refuses it, whatever the rules
	body    []byte // what it says
	said    any    // the same, decoded when a rule first asks for it
	auth    string // how the client authenticated: see fakebmc.Traits
	expire  func() // ends the client's session
	query   query

	sends  *content // of the answer that run gave
	answer chan reply
	then   func(reply) // takes the answer in the channel's place
}

// response is an answer with what the service sends of its own beside it.
type response struct {
	fakebmc.Answer
	*content
}

// reply is an answer with the effects that may bend it.
type reply struct {
	fakebmc.Answer
	effects fakebmc.Effects
}

// content is the body and the further headers of an answer.
type content struct {
	body     object
	settings string // of the body: see matchesSettings
	header   http.Header
	xml      []byte // instead of a body
	stream   func(http.ResponseWriter, *http.Request)
}

func found(o object) response { return served(&content{body: o}) }

func served(c *content) response { return response{fakebmc.Answer{Status: http.StatusOK}, c} }

func done() response { return answered(fakebmc.Answer{Status: http.StatusNoContent}) }

func answered(a fakebmc.Answer) response { return response{Answer: a} }

func refusal(status int, id string, cause error, args ...string) response {
	return answered(fakebmc.Refuse(status, id, cause, args...))
}

func (x *exchange) login() bool { return x.e.login && x.r.Method == http.MethodPost }

// Traits implements fakebmc.Wire.
func (x *exchange) Traits() fakebmc.Traits {
	changes := x.r.Method == http.MethodPost || x.r.Method == http.MethodPatch
	return fakebmc.Traits{Own: x.run != nil, Login: x.login(), Media: x.e.media && changes && !x.refused, Auth: x.auth, Header: x.r.Header.Get, Body: x.says}
}

// says is the value of a property of the request's body.
func (x *exchange) says(property string) (string, bool) {
	if x.said == nil && json.Unmarshal(x.body, &x.said) != nil {
		return "", false
	}
	v := x.said
	for key := range strings.SplitSeq(property, "/") {
		o, ok := v.(map[string]any)
		if !ok {
			return "", false
		}
		if v, ok = o[key]; !ok {
			return "", false
		}
	}
	if text, ok := v.(string); ok {
		return text, true
	}
	data, err := json.Marshal(v)
	return string(data), err == nil
}

// losing is a body without the properties that rules have a change lose. What is no object is left
// to whoever reads it.
func losing(body []byte, effects fakebmc.Effects) []byte {
	var in map[string]any
	for _, e := range effects {
		for _, path := range e.Lose {
			if in == nil && json.Unmarshal(body, &in) != nil {
				return body
			}
			lose(in, strings.Split(path, "/"))
		}
	}
	if in == nil {
		return body
	}
	rest, err := json.Marshal(in)
	if err != nil {
		return body
	}
	return rest
}

// lose removes a property, and what held nothing else.
func lose(o map[string]any, path []string) {
	inner, ok := o[path[0]].(map[string]any)
	switch {
	case len(path) == 1:
		delete(o, path[0])
	case ok:
		if lose(inner, path[1:]); len(inner) == 0 {
			delete(o, path[0])
		}
	}
}

// Execute implements fakebmc.Wire.
func (x *exchange) Execute(e fakebmc.Effects) (a fakebmc.Answer, done bool) {
	if a, refused := x.refuses(e); refused {
		return a, true
	}
	if x.run == nil {
		return fakebmc.Answer{}, false
	}
	r := x.run(e)
	x.sends = r.content
	return r.Answer, true
}

// Reply implements fakebmc.Wire.
func (x *exchange) Reply(a fakebmc.Answer, e fakebmc.Effects) {
	if x.then != nil {
		x.then(reply{a, e})
		return
	}
	x.answer <- reply{a, e}
}

// refuses holds an authenticated request against the rules about sessions and
// against its precondition.
func (x *exchange) refuses(effects fakebmc.Effects) (fakebmc.Answer, bool) {
	if x.refused {
		return fakebmc.Answer{}, false // by run
	}
	if e := effects.First(func(e *fakebmc.Effect) bool { return e.Expire }); e != nil && x.auth == fakebmc.AuthSession {
		x.expire()
		return e.Instead(fakebmc.Refuse(http.StatusUnauthorized, msgNoValidSession, nil)), true
	}
	if e := effects.First(func(e *fakebmc.Effect) bool { return e.Auth != "" }); e != nil {
		switch {
		case e.Auth == fakebmc.AuthBasic && x.login():
			return e.Instead(fakebmc.Refuse(http.StatusMethodNotAllowed, msgNotAllowed, nil)), true
		case x.auth != "" && x.auth != e.Auth:
			return e.Instead(fakebmc.Refuse(http.StatusUnauthorized, msgNoValidSession, nil)), true
		}
	}
	method := x.r.Method
	if x.login() || method == http.MethodGet || method == http.MethodHead {
		return fakebmc.Answer{}, false
	}
	match := x.r.Header.Get("If-Match")
	if e := effects.First(func(e *fakebmc.Effect) bool { return e.Etag != "" }); e != nil {
		switch {
		case e.Etag == fakebmc.EtagRequired && match == "":
			return e.Instead(fakebmc.Refuse(http.StatusPreconditionRequired, msgPreconditionRequired, nil)), true
		case e.Etag == fakebmc.EtagReject && match != "" && method == http.MethodPost:
			return e.Instead(fakebmc.Refuse(http.StatusPreconditionFailed, msgPreconditionFailed, nil)), true
		}
	}
	if match != "" && match != "*" && x.e.settings != nil && !matchesSettings(match, x.e.settings()) {
		return fakebmc.Refuse(http.StatusPreconditionFailed, msgPreconditionFailed, nil), true
	}
	return fakebmc.Answer{}, false
}

// matchesSettings compares the tags of an If-Match with what can be set of a
// resource: its power state may change between a read and a change without harm.
func matchesSettings(header, settings string) bool {
	for tag := range strings.SplitSeq(header, ",") {
		tag = strings.Trim(strings.TrimPrefix(strings.TrimSpace(tag), "W/"), `"`)
		if part, _, _ := strings.Cut(tag, "."); part == settings {
			return true
		}
	}
	return false
}

// await is false when there will be no answer: the client left, a hang lasted to
// its limit, the BMC went down meanwhile, or the server closes.
func (x *exchange) await(hold time.Duration, lost, closing <-chan struct{}) (reply, bool) {
	select {
	case a := <-x.answer:
		return a, !errors.Is(a.Cause, fakebmc.ErrUnreachable)
	default:
	}
	limit := time.NewTimer(hold)
	defer limit.Stop()
	select {
	case a := <-x.answer:
		return a, !errors.Is(a.Cause, fakebmc.ErrUnreachable)
	case <-limit.C:
	case <-lost:
		select { // what was answered before is sent
		case a := <-x.answer:
			return a, !errors.Is(a.Cause, fakebmc.ErrUnreachable)
		default:
		}
	case <-x.r.Context().Done():
	case <-closing:
	}
	return reply{}, false
}

// content is what is sent with an answer, as a mockup has it.
func (x *exchange) content(a reply) *content {
	c := x.own(a)
	if c == nil || c.body == nil || x.e.dress == nil {
		return c
	}
	c.body = x.e.dress(c.body)
	if at := c.header.Get("Location"); at != "" && x.e.outside != nil {
		c.header.Set("Location", x.e.outside(at))
	}
	return c
}

// own is what is sent with an answer: that of run, unless a rule answered instead,
// or what the BMC's own answer leads to.
func (x *exchange) own(a reply) *content {
	switch {
	case a.Refusal != nil || a.Status >= 400:
		return nil
	case a.Task != nil:
		return accepted(*a.Task).content
	case x.run != nil:
		if x.sends != nil && x.e.settings != nil {
			x.sends.settings = x.e.settings()
		}
		return x.sends
	case x.e.power != nil && a.Status == http.StatusOK:
		c := &content{body: x.e.power(x.e.bmc, a.PowerState), header: x.e.header.Clone()}
		if x.e.settings != nil {
			c.settings = settingsIn(c.body) // those that it shows, though they change meanwhile
		}
		return c
	}
	return nil
}
