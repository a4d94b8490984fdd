package fakebmc

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Limits on what a client may send, and for how long.
const (
	maxBody   = 64 << 10
	maxHeader = 16 << 10
	ioTimeout = 10 * time.Second
)

// service answers the HTTP requests of one listener.
type service struct {
	hosts    []string
	bmcs     map[string]*BMC
	common   *BMC // whose rules concern what belongs to no single host
	account  account
	sessions *sessions
	hold     time.Duration
	closing  <-chan struct{}
}

// endpoint is what a path leads to.
type endpoint struct {
	bmc    *BMC
	get    func() object
	post   func(body []byte) Answer
	delete func() Answer
	reset  bool // a ComputerSystem.Reset
	power  bool // a ComputerSystem, whose state the BMC has to tell
	// public needs no authentication to GET, login none to POST.
	public, login bool
}

// resolve finds the endpoint of a path without trailing slash; one without any
// method is unknown.
func (s *service) resolve(path string) endpoint {
	e := endpoint{bmc: s.common}
	switch path {
	case "/redfish":
		e.public, e.get = true, func() object { return object{"v1": rootPath + "/"} }
		return e
	case rootPath:
		e.public, e.get = true, func() object { return root(uuid("service of " + strings.Join(s.hosts, " "))) }
		return e
	case sessionServicePath:
		e.get = func() object { return sessionService(s.sessions.timeout) }
		return e
	case sessionsPath, sessionsPath + "/Members":
		e.get = func() object {
			ids, _ := s.sessions.list()
			return collection(sessionsPath, "SessionCollection", "Sessions", ids...)
		}
		e.login, e.post = true, s.logIn
		return e
	}
	if id, ok := strings.CutPrefix(path, sessionsPath+"/"); ok {
		return s.session(id, e)
	}
	for _, c := range []struct {
		path, typ, name string
		get             func(string) object
	}{
		{systemsPath, "ComputerSystemCollection", "Systems", nil},
		{managersPath, "ManagerCollection", "Managers", manager},
		{chassisPath, "ChassisCollection", "Chassis", chassis},
	} {
		rest, ok := strings.CutPrefix(path, c.path)
		if !ok {
			continue
		}
		if rest == "" {
			e.get = func() object { return collection(c.path, c.typ, c.name, s.hosts...) }
			return e
		}
		host, action, isAction := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
		bmc := s.bmcs[host]
		if bmc == nil || rest[0] != '/' {
			return e
		}
		e.bmc = bmc
		switch {
		case isAction:
			e.reset = c.path == systemsPath && "/"+action == resetAction
		case c.path == systemsPath:
			e.power = true
		default:
			e.get = func() object { return c.get(host) }
		}
	}
	return e
}

func (s *service) session(id string, e endpoint) endpoint {
	ids, users := s.sessions.list()
	i := slices.Index(ids, id)
	if i < 0 {
		return e
	}
	e.get = func() object { return sessionResource(id, users[i]) }
	e.delete = func() Answer {
		if !s.sessions.end(id) {
			return refusal(http.StatusNotFound, msgMissingAtURI, nil, sessionsPath+"/"+id)
		}
		return Answer{Status: http.StatusNoContent}
	}
	return e
}

// allow lists the methods that the endpoint has.
func (e *endpoint) allow() []string {
	var m []string
	if e.get != nil || e.power {
		m = append(m, http.MethodGet, http.MethodHead)
	}
	if e.post != nil || e.reset {
		m = append(m, http.MethodPost)
	}
	if e.delete != nil {
		m = append(m, http.MethodDelete)
	}
	return m
}

// ServeHTTP puts every request, also one that will be refused, to the BMC that it
// concerns, so that its rules and its log see all.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	e := s.resolve(path)
	req := Request{Client: r.RemoteAddr, Method: r.Method, Path: path}
	s.prepare(&req, &e, w, r)

	answers := make(chan Answer, 1)
	e.bmc.Do(req, func(a Answer) { answers <- a })
	a, ok := s.await(answers, r)
	if !ok || errors.Is(a.Cause, ErrUnreachable) {
		abortRequest(w)
		return
	}
	if e.power && a.Status == http.StatusOK {
		a.content = &content{body: system(e.bmc.host, a.PowerState)}
	}
	write(w, r, a, e.allow())
}

// prepare decides what executing the request means.
func (s *service) prepare(req *Request, e *endpoint, w http.ResponseWriter, r *http.Request) {
	refuse := func(a Answer) { req.run = func() Answer { return a } }
	body, err := readBody(w, r)
	if a, ok := s.authenticate(e, r, req.Path); !ok {
		refuse(a)
		return
	}
	allow := e.allow()
	switch {
	case len(allow) == 0:
		refuse(refusal(http.StatusNotFound, msgMissingAtURI, nil, req.Path))
	case !slices.Contains(methods, r.Method):
		refuse(refusal(http.StatusNotImplemented, msgNotAllowed, nil))
	case !slices.Contains(allow, r.Method):
		refuse(refusal(http.StatusMethodNotAllowed, msgNotAllowed, nil))
	case r.Header.Get("OData-Version") != "" && r.Header.Get("OData-Version") != "4.0":
		refuse(refusal(http.StatusPreconditionFailed, msgHeaderInvalid, nil, "OData-Version: "+r.Header.Get("OData-Version")))
	case err != nil:
		status := http.StatusBadRequest
		if tooLong := new(http.MaxBytesError); errors.As(err, &tooLong) {
			status = http.StatusRequestEntityTooLarge
		}
		refuse(refusal(status, msgUnrecognizedBody, nil))
	case r.Method == http.MethodPost && !isJSON(r):
		refuse(refusal(http.StatusUnsupportedMediaType, msgHeaderInvalid, nil, "Content-Type: "+r.Header.Get("Content-Type")))
	case e.reset:
		var a Answer
		if req.ResetType, a = parseReset(body); req.ResetType == "" {
			refuse(a)
		}
	case r.Method == http.MethodPost:
		req.run = func() Answer { return e.post(body) }
	case r.Method == http.MethodDelete:
		req.run = e.delete
	case e.get != nil:
		req.run = func() Answer { return Answer{Status: http.StatusOK, content: &content{body: e.get()}} }
	}
}

func (s *service) authenticate(e *endpoint, r *http.Request, path string) (Answer, bool) {
	switch {
	case s.account.open(),
		e.public && (r.Method == http.MethodGet || r.Method == http.MethodHead),
		e.login && r.Method == http.MethodPost:
		return Answer{}, true
	}
	if token := r.Header.Get("X-Auth-Token"); token != "" {
		return refusal(http.StatusUnauthorized, msgNoValidSession, nil), s.sessions.use(token)
	}
	user, password, ok := r.BasicAuth()
	return refusal(http.StatusUnauthorized, msgUnauthorized, nil, path, "wrong user name or password"),
		ok && s.account.admits(user, password)
}

func (s *service) logIn(body []byte) Answer {
	var in struct{ UserName, Password *string }
	if a, ok := parse(body, &in); !ok {
		return a
	}
	switch {
	case in.UserName == nil:
		return refusal(http.StatusBadRequest, msgPropertyMissing, nil, "UserName")
	case in.Password == nil:
		return refusal(http.StatusBadRequest, msgPropertyMissing, nil, "Password")
	case !s.account.admits(*in.UserName, *in.Password):
		return refusal(http.StatusUnauthorized, msgUnauthorized, nil, sessionsPath, "wrong user name or password")
	}
	id, token, ok := s.sessions.create(*in.UserName)
	if !ok {
		return refusal(http.StatusServiceUnavailable, msgSessionLimit, nil)
	}
	return Answer{Status: http.StatusCreated, content: &content{
		body:   sessionResource(id, *in.UserName),
		header: http.Header{"X-Auth-Token": {token}, "Location": {sessionsPath + "/" + id}},
	}}
}

// parseReset returns the reset type asked for, or an empty one and the refusal.
func parseReset(body []byte) (ResetType, Answer) {
	var in struct{ ResetType ResetType }
	if a, ok := parse(body, &in); !ok {
		return "", a
	}
	return in.ResetType, refusal(http.StatusBadRequest, msgParameterMissing, nil, "ComputerSystem.Reset", "ResetType")
}

func parse(body []byte, into any) (Answer, bool) {
	if !json.Valid(body) {
		return refusal(http.StatusBadRequest, msgMalformedJSON, nil), false
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return refusal(http.StatusBadRequest, msgUnrecognizedBody, err), false
	}
	return Answer{}, true
}

// readBody reads to the end, without which net/http doesn't notice that a client
// leaves while its request hangs.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	c := http.NewResponseController(w)
	if err := c.SetReadDeadline(time.Now().Add(ioTimeout)); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	return body, errors.Join(err, c.SetReadDeadline(time.Time{}))
}

// isJSON is strict also because a web page can't send this type to a loopback
// address without being asked first.
func isJSON(r *http.Request) bool {
	t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && t == "application/json"
}

// await is false when there will be no answer: the client left, a hang lasted to
// its limit, or the server closes.
func (s *service) await(answers <-chan Answer, r *http.Request) (Answer, bool) {
	select {
	case a := <-answers:
		return a, true
	default:
	}
	limit := time.NewTimer(s.hold)
	defer limit.Stop()
	select {
	case a := <-answers:
		return a, true
	case <-limit.C:
	case <-r.Context().Done():
	case <-s.closing:
	}
	return Answer{}, false
}
