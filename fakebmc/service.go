package fakebmc

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
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
	group    *Group
	uuid     string
	common   *BMC // whose rules concern what belongs to no single host
	account  account
	sessions *sessions
	allowed  []*url.URL    // where virtual media may lie
	streams  chan struct{} // a place for each event stream
	hold     time.Duration
	closing  <-chan struct{}
}

// endpoint is what a path leads to.
type endpoint struct {
	bmc    *BMC
	moved  string // to this path
	get    func() Answer
	post   func(verdict, []byte) Answer
	patch  func([]byte) Answer
	delete func() Answer
	// reset is a ComputerSystem.Reset, power a ComputerSystem, whose state the BMC
	// has to tell, and manager a Manager.Reset.
	reset, power, manager bool
	// public needs no authentication to GET, login none to POST.
	public, login bool
}

func found(o object) Answer { return Answer{Status: http.StatusOK, content: &content{body: o}} }

// shows is an endpoint's get of a resource that is always there.
func shows(f func() object) func() Answer { return func() Answer { return found(f()) } }

// resolve finds the endpoint of a path without trailing slash; one without any
// method is unknown.
func (s *service) resolve(path string) endpoint {
	e := endpoint{bmc: s.common}
	switch path {
	case "/redfish":
		e.public, e.get = true, shows(func() object { return object{"v1": rootPath + "/"} })
	case rootPath:
		e.public, e.get = true, shows(func() object { return root(s.uuid) })
	case odataPath:
		e.public, e.get = true, shows(odata)
	case metadataPath:
		e.public, e.get = true, func() Answer { return Answer{Status: http.StatusOK, content: &content{xml: metadata()}} }
	case sessionServicePath:
		e.get = shows(func() object { return sessionService(s.sessions.timeout) })
	case sessionsPath, sessionsPath + "/Members":
		e.get = shows(func() object {
			ids, _ := s.sessions.list()
			return collection(sessionsPath, "SessionCollection", "Sessions", ids...)
		})
		e.login, e.post = true, s.logIn
	case taskServicePath:
		e.get = shows(taskService)
	case tasksPath:
		e.get = shows(func() object {
			var ids []string
			for _, b := range s.group.All() {
				ids = append(ids, b.mem.taskIDs()...)
			}
			return collection(tasksPath, "TaskCollection", "Tasks", ids...)
		})
	case accountServicePath:
		e.get = shows(accountService)
	case accountsPath:
		e.get = shows(func() object {
			var ids []string
			if !s.account.open() {
				ids = []string{"1"}
			}
			return collection(accountsPath, "ManagerAccountCollection", "Accounts", ids...)
		})
	case rolesPath:
		e.get = shows(func() object {
			var ids []string
			for _, r := range roles {
				ids = append(ids, r.id)
			}
			return collection(rolesPath, "RoleCollection", "Roles", ids...)
		})
	case eventServicePath:
		e.get = shows(eventService)
	case eventStreamPath:
		e.get = func() Answer { return Answer{Status: http.StatusOK, content: &content{stream: s.stream}} }
	case registriesPath:
		e.get = shows(func() object {
			return collection(registriesPath, "MessageRegistryFileCollection", "Registries", registries[0].id, registries[1].id)
		})
	default:
		s.resolveMember(path, &e)
	}
	return e
}

// resolveMember finds what belongs to a collection or to a host.
func (s *service) resolveMember(path string, e *endpoint) {
	under := func(parent string) (string, bool) { return strings.CutPrefix(path, parent+"/") }
	if id, ok := under(sessionsPath); ok {
		s.session(id, e)
		return
	}
	if id, ok := under(tasksPath); ok {
		s.task(id, e, false)
		return
	}
	if id, ok := under(monitorsPath); ok {
		s.task(id, e, true)
		return
	}
	if id, ok := under(accountsPath); ok && id == "1" && !s.account.open() {
		e.get = shows(func() object { return accountResource(s.account.user) })
		return
	}
	for _, r := range roles {
		if path == rolesPath+"/"+r.id {
			e.get = shows(func() object { return role(r.id, r.privileges) })
			return
		}
	}
	for _, r := range registries {
		if path == registriesPath+"/"+r.id {
			e.get = shows(func() object { return registryFile(r.id, r.version) })
			return
		}
	}
	members := s.group.members.Load()
	for _, c := range []struct {
		path, typ, name string
		resource        func(*BMC, string, *endpoint)
	}{
		{systemsPath, "ComputerSystemCollection", "Systems", systemEndpoint},
		{managersPath, "ManagerCollection", "Managers", s.managerEndpoint},
		{chassisPath, "ChassisCollection", "Chassis", chassisEndpoint},
	} {
		if path == c.path {
			e.get = shows(func() object { return collection(c.path, c.typ, c.name, members.ids...) })
			return
		}
		if rest, ok := under(c.path); ok {
			id, rest, more := strings.Cut(rest, "/")
			if more {
				rest = "/" + rest
			}
			if b := members.byID[id]; b != nil {
				e.bmc = b
				c.resource(b, rest, e)
			} else if b := members.byName[id]; b != nil {
				e.bmc, e.moved = b, c.path+"/"+b.id+rest
			}
			return
		}
	}
}

func systemEndpoint(b *BMC, rest string, e *endpoint) {
	switch rest {
	case "":
		e.power, e.patch = true, b.patchSystem
	case resetAction:
		e.reset = true
	}
}

func chassisEndpoint(b *BMC, rest string, e *endpoint) {
	if rest == "" {
		e.get = shows(b.chassis)
	}
}

func (s *service) managerEndpoint(b *BMC, rest string, e *endpoint) {
	const media = "/VirtualMedia"
	if _, ok := b.sys.(MediaBay); !ok && strings.HasPrefix(rest, media) {
		return
	}
	switch rest {
	case "":
		e.get = shows(b.manager)
	case managerResetAction:
		e.manager = true
	case media:
		e.get = shows(func() object {
			return collection(b.mediaPath(), "VirtualMediaCollection", "Virtual Media", mediaID)
		})
	case media + "/" + mediaID:
		e.get = func() Answer {
			m, err := b.media()
			if err != nil {
				return refusal(http.StatusInternalServerError, msgInternalError, err)
			}
			return found(m)
		}
	case media + "/" + mediaID + "/Actions/VirtualMedia.InsertMedia":
		e.post = func(_ verdict, body []byte) Answer { return b.insertMedia(body, s.allowed) }
	case media + "/" + mediaID + "/Actions/VirtualMedia.EjectMedia":
		e.post = func(_ verdict, body []byte) Answer {
			if a, ok := parse(body, new(struct{})); !ok && len(body) > 0 {
				return a
			}
			return b.ejectMedia()
		}
	}
}

func (s *service) session(id string, e *endpoint) {
	ids, users := s.sessions.list()
	i := slices.Index(ids, id)
	if i < 0 {
		return
	}
	e.get = shows(func() object { return sessionResource(id, users[i]) })
	e.delete = func() Answer {
		if !s.sessions.end(id) {
			return refusal(http.StatusNotFound, msgMissingAtURI, nil, sessionsPath+"/"+id)
		}
		return Answer{Status: http.StatusNoContent}
	}
}

// task finds a Task, or its monitor, which answers 202 until it is finished and
// 204 then.
func (s *service) task(id string, e *endpoint, monitor bool) {
	end := strings.LastIndexByte(id, '-')
	if end < 0 {
		return
	}
	b := s.group.members.Load().byID[id[:end]]
	if b == nil {
		return
	}
	e.bmc = b
	e.get = func() Answer {
		t, ok := b.mem.look(id, b.clk.Now(), b.actual(), monitor)
		switch {
		case !ok:
			return refusal(http.StatusNotFound, msgMissingAtURI, nil, tasksPath+"/"+id)
		case !monitor:
			return found(t.resource())
		case t.finished:
			return Answer{Status: http.StatusNoContent}
		}
		return accepted(&t)
	}
}

// accepted is the answer that leads to a task.
func accepted(t *task) Answer {
	return Answer{Status: http.StatusAccepted, content: &content{
		body: t.resource(), header: http.Header{"Location": {monitorsPath + "/" + t.id}},
	}}
}

// allow lists the methods that the endpoint has.
func (e *endpoint) allow() []string {
	var m []string
	if e.get != nil || e.power {
		m = append(m, http.MethodGet, http.MethodHead)
	}
	if e.post != nil || e.reset || e.manager {
		m = append(m, http.MethodPost)
	}
	if e.patch != nil {
		m = append(m, http.MethodPatch)
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

	lost := e.bmc.Lost()
	answers := make(chan Answer, 1)
	e.bmc.Do(req, func(a Answer) { answers <- a })
	a, ok := s.await(answers, lost, r)
	if !ok || errors.Is(a.Cause, ErrUnreachable) {
		abortRequest(w)
		return
	}
	switch {
	case a.task != nil && a.content == nil:
		rules := a.verdict
		a = accepted(a.task)
		a.verdict = rules
	case e.power && a.Status == http.StatusOK && a.content == nil && a.refusal == nil:
		a.content = &content{body: e.bmc.system(a.PowerState), settings: e.bmc.settingsTag()}
	}
	if a.content != nil && a.content.stream != nil && r.Method == http.MethodGet {
		select {
		case s.streams <- struct{}{}:
			defer func() { <-s.streams }()
			a.content.stream(w, r)
			return
		default:
			a = refusal(http.StatusServiceUnavailable, msgSessionLimit, nil)
		}
	}
	write(w, r, a, e.allow())
}

func (b *BMC) settingsTag() string { return hash(b.settings()) }

// prepare decides what executing the request means.
func (s *service) prepare(req *Request, e *endpoint, w http.ResponseWriter, r *http.Request) {
	wire := &wire{header: r.Header, login: e.login && r.Method == http.MethodPost}
	req.wire = wire
	run := func(f func() Answer) { wire.run = func(verdict) Answer { return f() } }
	refuse := func(a Answer) {
		run(func() Answer { return a })
		wire.refused = true
	}
	body, err := readBody(w, r)
	if a, ok := s.authenticate(e, r, req); !ok {
		refuse(a)
		return
	}
	allow := e.allow()
	version := r.Header.Get("OData-Version")
	changes := r.Method == http.MethodPost || r.Method == http.MethodPatch
	if e.power || e.reset {
		wire.settings = e.bmc.settingsTag
	}
	switch {
	case e.moved != "":
		refuse(Answer{Status: http.StatusTemporaryRedirect, content: &content{body: object{}, header: http.Header{"Location": {e.moved}}}})
	case len(allow) == 0:
		refuse(refusal(http.StatusNotFound, msgMissingAtURI, nil, req.Path))
	case !slices.Contains(methods, r.Method):
		refuse(refusal(http.StatusNotImplemented, msgNotAllowed, nil))
	case !slices.Contains(allow, r.Method):
		refuse(refusal(http.StatusMethodNotAllowed, msgNotAllowed, nil))
	case version != "" && version != "4.0":
		refuse(refusal(http.StatusPreconditionFailed, msgHeaderInvalid, nil, "OData-Version: "+version))
	case hasSystemQuery(r):
		refuse(refusal(http.StatusNotImplemented, msgQueryNotSupported, nil))
	case err != nil:
		status := http.StatusBadRequest
		if tooLong := new(http.MaxBytesError); errors.As(err, &tooLong) {
			status = http.StatusRequestEntityTooLarge
		}
		refuse(refusal(status, msgUnrecognizedBody, nil))
	case changes && !isJSON(r) && !(e.post != nil && len(body) == 0):
		refuse(refusal(http.StatusUnsupportedMediaType, msgHeaderInvalid, nil, "Content-Type: "+r.Header.Get("Content-Type")))
	case e.reset:
		var a Answer
		if req.ResetType, a = parseReset(body, "ComputerSystem.Reset"); req.ResetType == "" {
			refuse(a)
		}
	case e.manager:
		var a Answer
		if req.ResetType, a = parseReset(body, "Manager.Reset"); req.ResetType == "" {
			refuse(a)
		} else if !slices.Contains(managerResets, req.ResetType) {
			refuse(refusal(http.StatusBadRequest, msgParameterNotInList, nil, string(req.ResetType), "ResetType", "Manager.Reset"))
		}
	case r.Method == http.MethodPost:
		wire.run = func(v verdict) Answer { return e.post(v, body) }
	case r.Method == http.MethodPatch:
		run(func() Answer { return e.patch(body) })
	case r.Method == http.MethodDelete:
		run(e.delete)
	case e.get != nil:
		run(e.get)
	}
}

func (s *service) authenticate(e *endpoint, r *http.Request, req *Request) (Answer, bool) {
	switch {
	case s.account.open(),
		e.public && (r.Method == http.MethodGet || r.Method == http.MethodHead),
		e.login && r.Method == http.MethodPost:
		return Answer{}, true
	}
	if token := r.Header.Get("X-Auth-Token"); token != "" {
		id, ok := s.sessions.use(token)
		req.wire.scheme, req.wire.expire = authSession, func() { s.sessions.end(id) }
		return refusal(http.StatusUnauthorized, msgNoValidSession, nil), ok
	}
	req.wire.scheme = authBasic
	user, password, ok := r.BasicAuth()
	return refusal(http.StatusUnauthorized, msgUnauthorized, nil, req.Path, "wrong user name or password"),
		ok && s.account.admits(user, password)
}

func (s *service) logIn(v verdict, body []byte) Answer {
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
	limit, full := s.sessions.limit, refusal(http.StatusServiceUnavailable, msgSessionLimit, nil)
	if e := v.first(func(e *Effect) bool { return e.Cap != 0 }); e != nil && e.Cap <= uint64(limit) {
		limit, full = int(e.Cap), e.answer(full)
	}
	id, token, ok := s.sessions.create(*in.UserName, limit)
	if !ok {
		return full
	}
	return Answer{Status: http.StatusCreated, content: &content{
		body:   sessionResource(id, *in.UserName),
		header: http.Header{"X-Auth-Token": {token}, "Location": {sessionsPath + "/" + id}},
	}}
}

// parseReset returns the reset type asked for, or an empty one and the refusal.
func parseReset(body []byte, action string) (ResetType, Answer) {
	var in struct{ ResetType ResetType }
	if a, ok := parse(body, &in); !ok {
		return "", a
	}
	return in.ResetType, refusal(http.StatusBadRequest, msgParameterMissing, nil, action, "ResetType")
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

// hasSystemQuery tells whether the query has an option that OData gives a meaning
// to. None is supported, and to ignore one would be to answer another question
// (DSP0266, query parameters).
func hasSystemQuery(r *http.Request) bool {
	for name := range r.URL.Query() {
		if strings.HasPrefix(name, "$") {
			return true
		}
	}
	return false
}

// await is false when there will be no answer: the client left, a hang lasted to
// its limit, the BMC went down meanwhile, or the server closes.
func (s *service) await(answers <-chan Answer, lost <-chan struct{}, r *http.Request) (Answer, bool) {
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
	case <-lost:
		select { // what was answered before is sent
		case a := <-answers:
			return a, true
		default:
		}
	case <-r.Context().Done():
	case <-s.closing:
	}
	return Answer{}, false
}
