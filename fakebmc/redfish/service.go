package redfish

import (
	"errors"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/front"
)

// methods are those that a Redfish service has a use for.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete,
}

// service answers the HTTP requests of one listener.
type service struct {
	group         *Group
	uuid          string
	common        *fakebmc.BMC // whose rules concern what belongs to no single host
	account       account
	sessions      *sessions
	guesses       *front.Throttle
	allowed       []*url.URL    // where virtual media may lie
	mockup        *Mockup       // what it looks like; nil is fencelab's own tree
	streams       chan struct{} // a place for each event stream
	subscriptions *subscriptions
	hold          time.Duration
	closing       <-chan struct{}
	// within says that its clients are in the same process, and no stranger can reach it.
	within bool
}

// endpoint is what a path leads to.
type endpoint struct {
	bmc    *fakebmc.BMC
	moved  string // to this path
	get    func() response
	post   func(fakebmc.Effects, []byte) response
	patch  func(fakebmc.Effects, []byte) response
	delete func() response
	// reset is the action that resets the host, such as ComputerSystem.Reset, and manager a
	// Manager.Reset.
	reset   string
	manager bool
	// media says that a POST or PATCH puts an image into a drive or takes it out.
	media bool
	// power is what has the host's power state in it, which the BMC has to report.
	power func(*fakebmc.BMC, fakebmc.PowerState) object
	// header is what a mockup has beside that.
	header http.Header
	// settings is the tag of what can be changed, or of what a reset depends on.
	settings func() string
	// public needs no authentication to GET, login none to POST.
	public, login bool
	// resets are the only ones that a mockup's action has; nil are all that the BMC executes.
	resets []fakebmc.ResetType
	// dress makes of a resource what a mockup has in its place; nil leaves it.
	dress func(object) object
	// outside is where a mockup has what is at a path; nil leaves it there.
	outside func(path string) string
}

// pushes reports whether a client may subscribe to events.
func (s *service) pushes() bool { return len(s.subscriptions.allowed) > 0 }

// shows is an endpoint's get of a resource that is always there.
func shows(f func() object) func() response { return func() response { return found(f()) } }

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
		e.public, e.get = true, func() response { return served(&content{xml: metadata()}) }
	case sessionServicePath:
		e.get = shows(func() object { return sessionService(s.sessions.lifetime()) })
		e.patch = plain(s.patchSessionService)
		e.settings = func() string { return hash(object{"SessionTimeout": s.sessions.lifetime()}) }
	case sessionsPath, sessionsPath + "/Members":
		e.get = shows(func() object {
			ids, _ := s.sessions.list()
			return collection(sessionsPath, "SessionCollection", "Sessions", ids...)
		})
		e.login = true
	case taskServicePath:
		e.get = shows(taskService)
	case tasksPath:
		e.get = shows(func() object {
			var ids []string
			for _, b := range s.group.All() {
				ids = append(ids, b.Tasks()...)
			}
			return collection(tasksPath, "TaskCollection", "Tasks", ids...)
		})
	case accountServicePath:
		e.get = shows(accountService)
	case accountsPath:
		e.get = shows(func() object {
			var ids []string
			if s.account.user != "" {
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
		e.get = shows(func() object { return eventService(s.pushes()) })
	case subscriptionsPath:
		if s.pushes() {
			s.subscriptionsEndpoint(&e)
		}
	case eventStreamPath:
		e.get = func() response { return served(&content{stream: s.stream}) }
	case registriesPath:
		e.get = shows(func() object {
			return collection(registriesPath, "MessageRegistryFileCollection", "Registries", registries[0].id, registries[1].id)
		})
	default:
		s.resolveMember(path, &e)
	}
	return e
}

// plain is a change of what there is, less what rules have it lose.
func plain(change func([]byte) response) func(fakebmc.Effects, []byte) response {
	return func(effects fakebmc.Effects, body []byte) response { return change(losing(body, effects)) }
}

// resolveMember finds what belongs to a collection or to a host.
func (s *service) resolveMember(path string, e *endpoint) {
	under := func(parent string) (string, bool) { return strings.CutPrefix(path, parent+"/") }
	if id, ok := under(sessionsPath); ok {
		s.session(id, e)
		return
	}
	if id, ok := under(subscriptionsPath); ok {
		s.subscription(id, e)
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
	if id, ok := under(accountsPath); ok && id == "1" && s.account.user != "" {
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
		resource        func(*fakebmc.BMC, string, *endpoint)
	}{
		{fakebmc.SystemsPath, "ComputerSystemCollection", "Systems", systemEndpoint},
		{fakebmc.ManagersPath, "ManagerCollection", "Managers", s.managerEndpoint},
		{fakebmc.ChassisPath, "ChassisCollection", "Chassis", chassisEndpoint},
	} {
		if path == c.path {
			e.get = shows(func() object {
				ids := members.ids
				if path == fakebmc.SystemsPath {
					ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return members.byID[id].Unlisted() })
				}
				return collection(c.path, c.typ, c.name, ids...)
			})
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
				e.bmc, e.moved = b, c.path+"/"+b.ID()+rest
			}
			return
		}
	}
}

func systemEndpoint(b *fakebmc.BMC, rest string, e *endpoint) {
	changes := func() string { return settingsTag(b) }
	switch rest {
	case "":
		e.settings = changes
		e.power, e.patch = system, plain(func(body []byte) response { return patchSystem(b, body, fakebmc.Booter.Bootable) })
	case fakebmc.ResetAction:
		e.settings = changes
		e.reset = "ComputerSystem.Reset"
	default:
		if !logEndpoint(b, rest, e) {
			inventoryEndpoint(b, rest, e)
		}
	}
}

func chassisEndpoint(b *fakebmc.BMC, rest string, e *endpoint) {
	switch rest {
	case "":
		e.power = chassis
	case fakebmc.ChassisResetAction:
		e.reset, e.resets = "Chassis.Reset", chassisResets(b)
	}
}

func (s *service) managerEndpoint(b *fakebmc.BMC, rest string, e *endpoint) {
	const media = "/VirtualMedia"
	bay, ok := b.System().(fakebmc.MediaBay)
	if !ok && strings.HasPrefix(rest, media) {
		return
	}
	drive := drive{b, bay}
	switch rest {
	case "":
		e.get = shows(func() object { return manager(b) })
	case fakebmc.ManagerResetAction:
		e.manager = true
	case media:
		e.get = shows(func() object {
			return collection(mediaPath(b), "VirtualMediaCollection", "Virtual Media", mediaID)
		})
	default:
		drive.resolve(media+"/"+mediaID, rest, s.allowed, e)
	}
}

func (s *service) session(id string, e *endpoint) {
	ids, users := s.sessions.list()
	i := slices.Index(ids, id)
	if i < 0 {
		return
	}
	e.get = shows(func() object { return sessionResource(id, users[i]) })
	e.delete = func() response {
		if !s.sessions.end(id) {
			return refusal(http.StatusNotFound, fakebmc.MsgMissingAtURI, nil, sessionsPath+"/"+id)
		}
		return done()
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
	e.get = func() response {
		t, ok := b.Task(id, monitor)
		switch {
		case !ok:
			return refusal(http.StatusNotFound, fakebmc.MsgMissingAtURI, nil, tasksPath+"/"+id)
		case !monitor:
			return found(task(t))
		case t.Failure != nil:
			return answered(*t.Failure)
		case t.Finished:
			return done()
		}
		return accepted(t)
	}
}

// accepted is the answer that leads to a task.
func accepted(t fakebmc.Task) response {
	return response{fakebmc.Answer{Status: http.StatusAccepted}, &content{
		body: task(t), header: http.Header{"Location": {monitorsPath + "/" + t.ID}},
	}}
}

// allow lists the methods that the endpoint has.
func (e *endpoint) allow() []string {
	var m []string
	if e.get != nil || e.power != nil {
		m = append(m, http.MethodGet, http.MethodHead)
	}
	if e.post != nil || e.reset != "" || e.manager || e.login {
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

// resolver finds the endpoints of the tree that the service has.
func (s *service) resolver() func(path string) endpoint {
	if s.mockup != nil {
		return s.resolveMockup
	}
	return s.resolve
}

// ServeHTTP puts every request, also one that will be refused, to the BMC that it
// concerns, so that its rules and its log see all.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, req := s.exchange(w, r)
	s.prepare(&req, x)

	lost := x.e.bmc.Lost()
	x.e.bmc.Serve(req, x)
	a, ok := x.await(s.hold, lost, s.closing)
	if !ok {
		abortRequest(w)
		return
	}
	s.finish(x, a, s.streams)
}

// pathOf is the path of a request without trailing slash.
func pathOf(r *http.Request) string {
	if len(r.URL.Path) > 1 {
		return strings.TrimSuffix(r.URL.Path, "/")
	}
	return r.URL.Path
}

// exchange is a request on its way to the BMC that it concerns.
func (s *service) exchange(w http.ResponseWriter, r *http.Request) (*exchange, fakebmc.Request) {
	path := pathOf(r)
	x := &exchange{w: w, r: r, e: s.resolver()(path), answer: make(chan reply, 1)}
	return x, fakebmc.Request{Client: r.RemoteAddr, Method: r.Method, Path: path, Query: r.URL.RawQuery}
}

// finish sends an answer, or a stream of events as long as there is a place for one.
func (s *service) finish(x *exchange, a reply, streams chan struct{}) {
	c, w, r := x.content(a), x.w, x.r
	if c != nil && c.stream != nil && r.Method == http.MethodGet {
		select {
		case streams <- struct{}{}:
			defer func() { <-streams }()
			c.stream(w, r)
			return
		default:
			a.Answer = fakebmc.Refuse(http.StatusServiceUnavailable, msgSessionLimit, nil)
		}
	}
	if c != nil && c.body != nil && a.Status == http.StatusOK && !x.query.isZero() {
		o, refused, ok := s.ask(x.query, r, c.body)
		if c.body = o; !ok {
			a.Answer, c = refused.Answer, nil
		}
	}
	x.write(a, c)
}

// prepare decides what executing the request means.
func (s *service) prepare(req *fakebmc.Request, x *exchange) {
	r := x.r
	body, err := front.ReadBody(x.w, r)
	s.decide(req, x, body, err)
}

// decide does so when the body is read, or has failed to be.
func (s *service) decide(req *fakebmc.Request, x *exchange, body []byte, err error) {
	r, e := x.r, &x.e
	x.body, req.Body = body, quotable(body)
	run := func(f func() response) { x.run = func(fakebmc.Effects) response { return f() } }
	refuse := func(a response) {
		run(func() response { return a })
		x.refused = true
	}
	query, noQuery, understood := parseQuery(r)
	x.query = query
	if a, ok := s.admits(x, req.Path); !ok {
		refuse(a)
		return
	}
	allow := e.allow()
	version := r.Header.Get("OData-Version")
	changes := r.Method == http.MethodPost || r.Method == http.MethodPatch
	switch {
	case e.moved != "":
		refuse(response{fakebmc.Answer{Status: http.StatusTemporaryRedirect}, &content{body: object{}, header: http.Header{"Location": {e.moved}}}})
	case len(allow) == 0:
		refuse(refusal(http.StatusNotFound, fakebmc.MsgMissingAtURI, nil, req.Path))
	case !slices.Contains(methods, r.Method):
		refuse(refusal(http.StatusNotImplemented, msgNotAllowed, nil))
	case !slices.Contains(allow, r.Method):
		refuse(refusal(http.StatusMethodNotAllowed, msgNotAllowed, nil))
	case version != "" && version != "4.0":
		refuse(refusal(http.StatusPreconditionFailed, msgHeaderInvalid, nil, "OData-Version: "+version))
	case !understood:
		refuse(noQuery)
	case err != nil:
		status := http.StatusBadRequest
		if tooLong := new(http.MaxBytesError); errors.As(err, &tooLong) {
			status = http.StatusRequestEntityTooLarge
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			status = http.StatusRequestTimeout
		}
		refuse(refusal(status, msgUnrecognizedBody, nil))
	case changes && !front.IsJSON(r) && !(e.post != nil && len(body) == 0 && r.Header.Get("Content-Type") == ""):
		refuse(refusal(http.StatusUnsupportedMediaType, msgHeaderInvalid, nil, "Content-Type: "+r.Header.Get("Content-Type")))
	case r.Method == http.MethodPost && e.reset != "":
		var a response
		if req.ResetType, a = parseReset(body, e.reset); req.ResetType == "" {
			refuse(a)
		} else if e.resets != nil && !slices.Contains(e.resets, req.ResetType) {
			refuse(refusal(http.StatusBadRequest, fakebmc.MsgParameterNotInList, nil, string(req.ResetType), "ResetType", e.reset))
		}
	case r.Method == http.MethodPost && e.manager:
		var a response
		if req.ResetType, a = parseReset(body, "Manager.Reset"); req.ResetType == "" {
			refuse(a)
		} else if !slices.Contains(managerResets, req.ResetType) {
			refuse(refusal(http.StatusBadRequest, fakebmc.MsgParameterNotInList, nil, string(req.ResetType), "ResetType", "Manager.Reset"))
		}
	case x.login():
		x.run = func(effects fakebmc.Effects) response { return s.logIn(x, effects, body) }
	case r.Method == http.MethodPost:
		x.run = func(effects fakebmc.Effects) response { return e.post(effects, body) }
	case r.Method == http.MethodPatch:
		x.run = func(effects fakebmc.Effects) response { return e.patch(effects, body) }
	case r.Method == http.MethodDelete:
		run(e.delete)
	case e.get != nil:
		run(e.get)
	}
}

// admits refuses what a browser may have been made to send, and who can't prove to be
// the account.
func (s *service) admits(x *exchange, path string) (response, bool) {
	switch {
	case s.account.open() && !s.within && !front.IsLocal(x.r.Host):
		// A stranger's page can have its own name lead to a loopback address. Where a
		// password is asked for, it hasn't got that.
		return refusal(http.StatusForbidden, msgAccessDenied, nil, x.r.Host), false
	case front.CrossSite(x.r):
		return refusal(http.StatusForbidden, msgAccessDenied, nil, x.r.Header.Get("Origin")), false
	}
	return s.authenticate(x, path)
}

// authenticate looks at a token also where none is needed: so a client that has one
// learns of its session's end.
func (s *service) authenticate(x *exchange, path string) (response, bool) {
	token := x.r.Header.Get("X-Auth-Token")
	switch {
	case s.account.open() && token == "",
		x.e.public && (x.r.Method == http.MethodGet || x.r.Method == http.MethodHead),
		x.login():
		return response{}, true
	}
	if token != "" {
		id, ok := s.sessions.use(token)
		x.auth, x.expire = fakebmc.AuthSession, func() { s.sessions.end(id) }
		return refusal(http.StatusUnauthorized, msgNoValidSession, nil), ok
	}
	x.auth = fakebmc.AuthBasic
	user, password, ok := x.r.BasicAuth()
	if !ok {
		return refusal(http.StatusUnauthorized, msgUnauthorized, nil, path, "wrong user name or password"), false
	}
	return s.proves(x.r, path, user, password)
}

// proves checks a password, but not that of a client whose address has sent too many
// wrong ones, on a connection that knew the right one at no time.
func (s *service) proves(r *http.Request, path, user, password string) (response, bool) {
	if s.account.open() {
		return response{}, true
	}
	if wait := s.guesses.Wait(r.RemoteAddr); wait > 0 && !front.Trusted(r) {
		a := refusal(http.StatusServiceUnavailable, msgUnavailable, nil)
		a.RetryAfter = wait
		return a, false
	}
	if !s.account.admits(user, password) {
		s.guesses.Wrong(r.RemoteAddr)
		return refusal(http.StatusUnauthorized, msgUnauthorized, nil, path, "wrong user name or password"), false
	}
	s.guesses.Right(r.RemoteAddr)
	front.Trust(r)
	return response{}, true
}

func (s *service) patchSessionService(body []byte) response {
	var in struct{ SessionTimeout *int64 }
	if a, ok := parseProperties(body, &in); !ok {
		return a
	}
	if in.SessionTimeout == nil {
		return done()
	}
	d := time.Duration(*in.SessionTimeout) * time.Second
	if *in.SessionTimeout > int64(maxSessionTimeout/time.Second) || d < minSessionTimeout {
		return refusal(http.StatusBadRequest, msgPropertyOutOfRange, nil, strconv.FormatInt(*in.SessionTimeout, 10), "SessionTimeout")
	}
	s.sessions.setLifetime(d)
	return done()
}

func (s *service) logIn(x *exchange, effects fakebmc.Effects, body []byte) response {
	var in struct{ UserName, Password *string }
	if a, ok := parse(body, &in); !ok {
		return a
	}
	switch {
	case in.UserName == nil:
		return refusal(http.StatusBadRequest, msgPropertyMissing, nil, "UserName")
	case in.Password == nil:
		return refusal(http.StatusBadRequest, msgPropertyMissing, nil, "Password")
	}
	if a, ok := s.proves(x.r, sessionsPath, *in.UserName, *in.Password); !ok {
		return a
	}
	limit, full := s.sessions.limit, refusal(http.StatusServiceUnavailable, msgSessionLimit, nil)
	if e := effects.First(func(e *fakebmc.Effect) bool { return e.Cap != 0 }); e != nil && e.Cap <= uint64(limit) {
		limit, full = int(e.Cap), answered(e.Instead(full.Answer))
	}
	id, token, ok := s.sessions.create(*in.UserName, limit)
	if !ok {
		return full
	}
	return response{fakebmc.Answer{Status: http.StatusCreated}, &content{
		body:   sessionResource(id, *in.UserName),
		header: http.Header{"X-Auth-Token": {token}, "Location": {sessionsPath + "/" + id}},
	}}
}
