package fakebmc

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The paths of the requests that a BMC executes itself: those of the collections of
// systems and managers, and of the actions under a member.
const (
	SystemsPath        = "/redfish/v1/Systems"
	ManagersPath       = "/redfish/v1/Managers"
	ResetAction        = "/Actions/ComputerSystem.Reset"
	ManagerResetAction = "/Actions/Manager.Reset"
	ChassisPath        = "/redfish/v1/Chassis"
	ChassisResetAction = "/Actions/Chassis.Reset"
)

// BMC controls the power of one System and answers requests about it, truthfully
// unless a Rule says otherwise. It lives apart from its host: it can restart, and
// both can lose their power. All methods may be called concurrently, also from
// within a reply; no lock is held while the System is read or reset, nor during
// the record hook or a reply.
//
// It has many fields because what a BMC was given stands in it one by one, and one lock guards all
// of its life.
type BMC struct {
	host        string
	id          string // of its Redfish resources
	uuid        string // of the system; empty is derived from the host
	sys         System
	peers       map[string]System
	clk         Clock
	onRecord    func(Record)
	onReset     func(client string, t ResetType)
	restartTime time.Duration
	noIPMI      bool
	shares      bool        // its Redfish service, with other hosts' BMCs
	resets      []ResetType // what the System executes, in the order of everyReset
	paths       Paths

	seq   atomic.Uint64
	life  atomic.Int32            // up, down or closed
	rules atomic.Pointer[[]*rule] // replaced as a whole; never nil
	mem   memory

	telling sync.Mutex       // held while the guest is given its behaviour, before mu
	mu      sync.Mutex       // guards what follows, and writers of life and rules
	pending map[uint64]*call // requests that wait for the clock, by Seq
	chores  []*chore         // what the BMC will do by itself, in the order in which it was planned
	late    []func()         // chores that fell due while it was down
	outage  *outage          // the one that it is in
	unwatch func()           // non-nil while edges are recorded
	lost    chan struct{}    // closed when it goes down
	// unwatchTimer is non-nil while the host is watched for the timer; hooks are those of
	// interfaces.
	unwatchTimer func()
	hooks        []*Hooks
}

// Whether a BMC answers: life is one of these.
const (
	up int32 = iota
	down
	closed
)

// Option changes a BMC at construction.
type Option func(*BMC)

// OnRequest lets f have the Record of each request when it is complete: answered,
// or known to hang. f is called before the reply, in the order of completion.
func OnRequest(f func(Record)) Option {
	return func(b *BMC) { b.onRecord = f }
}

// Peers are the systems, by name, that a swap rule may act upon instead. The map
// must not change any more.
func Peers(systems map[string]System) Option {
	return func(b *BMC) { b.peers = systems }
}

// DefaultRestartTime is how long a BMC is away after a Manager.Reset. Real ones take a
// minute or more; this is long enough for a client to notice.
const DefaultRestartTime = 10 * time.Second

// RestartTime is how long the BMC is away after a Manager.Reset; 0 is
// DefaultRestartTime. One that accepts the reset and doesn't do it is a fault: see
// Effect.Ignore.
func RestartTime(d time.Duration) Option {
	return func(b *BMC) { b.restartTime = cmp.Or(d, DefaultRestartTime) }
}

// WithoutIPMI says that no client comes by IPMI. Then a rule that is for such clients
// only is refused.
func WithoutIPMI() Option {
	return func(b *BMC) { b.noIPMI = true }
}

// SharesService says that the BMC's Redfish service has other hosts as well. Then what belongs to
// no single host, such as the login, isn't this BMC's, and a rule about that is refused.
func SharesService() Option {
	return func(b *BMC) { b.shares = true }
}

// UUID is that of the host's system, and then the Id of its Redfish resources as
// well, as the emulators of others have it: a name need not fit a path, and changes.
// Requests that name the host are sent on (307). The default UUID is derived from
// the host's name, and the Id is the name.
func UUID(uuid string) Option {
	return func(b *BMC) { b.id, b.uuid = uuid, uuid }
}

// Paths are those of what a client can ask about the power of a host. What there isn't is empty.
type Paths struct {
	System, Reset, Chassis, ChassisReset, ManagerReset, Sessions string
}

// At has the Redfish service of the host have other paths than fencelab's own.
func At(p Paths) Option {
	return func(b *BMC) { b.paths = p }
}

// New returns the BMC of a host. The Id of its Redfish resources, which is the
// host's name without UUID, must be non-empty and fit a path segment.
func New(host string, sys System, clk Clock, opts ...Option) *BMC {
	b := &BMC{
		host: host, id: host, sys: sys, clk: clk,
		pending: map[uint64]*call{},
		lost:    make(chan struct{}),
		mem:     memory{changed: Never, restarted: Never},

		restartTime: DefaultRestartTime,
	}
	more, _ := sys.(Resetter)
	_, mains := sys.(Mains)
	for _, t := range everyReset {
		if t.Known() || t == ResetForceOn || t == ResetFullPowerCycle && mains || more != nil && slices.Contains(more.Resets(), t) {
			b.resets = append(b.resets, t)
		}
	}
	b.rules.Store(new([]*rule))
	for _, o := range opts {
		o(b)
	}
	b.locate()
	return b
}

// locate derives the paths of the host's resources from their Id, unless they are given.
func (b *BMC) locate() {
	if b.paths != (Paths{}) {
		return
	}
	system, chassis := SystemsPath+"/"+b.id, ChassisPath+"/"+b.id
	b.paths = Paths{
		System: system, Reset: system + ResetAction, Chassis: chassis, ChassisReset: chassis + ChassisResetAction,
		ManagerReset: ManagersPath + "/" + b.id + ManagerResetAction, Sessions: sessionsPath,
	}
}

// Host returns the name given to New.
func (b *BMC) Host() string { return b.host }

// ID returns the Id of the host's Redfish resources.
func (b *BMC) ID() string { return b.id }

// UUID returns what the option UUID has set, or "".
func (b *BMC) UUID() string { return b.uuid }

// System returns the machine behind the BMC.
func (b *BMC) System() System { return b.sys }

// Resets returns the reset types that are executed.
func (b *BMC) Resets() []ResetType { return slices.Clone(b.resets) }

// SystemPath returns the path of the host's ComputerSystem.
func (b *BMC) SystemPath() string { return b.paths.System }

// PowerRequest reads the power state; the Answer carries it.
func (b *BMC) PowerRequest(client string) Request {
	return Request{Client: client, Method: methodGet, Path: b.paths.System}
}

// ResetRequest asks for a reset.
func (b *BMC) ResetRequest(client string, t ResetType) Request {
	return Request{Client: client, Method: methodPost, Path: b.paths.Reset, ResetType: t}
}

// ColdResetRequest asks for a restart of the BMC after which it knows nothing but what it keeps
// without power.
func (b *BMC) ColdResetRequest(client string) Request {
	r := b.ManagerResetRequest(client)
	r.cold = true
	return r
}

// ManagerResetRequest asks for a restart of the BMC itself.
func (b *BMC) ManagerResetRequest(client string) Request {
	return Request{Client: client, Method: methodPost, Path: b.paths.ManagerReset, ResetType: ResetForceRestart}
}

// Do handles a request. reply is called once: at once, or later by the Clock. For
// a hang, and after Close, it is never called.
func (b *BMC) Do(req Request, reply func(Answer)) { b.handle(req, caller{reply: reply}) }

// Serve handles a request over a Wire, which may be one that only the Wire knows to
// execute, or refuses: so that rules and the record hook see all.
func (b *BMC) Serve(req Request, w Wire) { b.handle(req, caller{wire: w}) }

// Tell has an event go to who has subscribed to it, at a path, unless rules for [ClientEvents] hold
// it up or lose it.
func (b *BMC) Tell(path string, w Wire) {
	b.handle(Request{Client: ClientEvents, Method: methodPost, Path: path, own: true}, caller{wire: w})
}

func (b *BMC) handle(req Request, from caller) {
	rec := Record{
		Seq: b.seq.Add(1), Host: b.host, Request: req,
		Received: b.clk.Now(), Executed: Never, Answered: Never,
	}
	if b.life.Load() != up {
		rec.Answer, rec.Rules = Answer{Cause: ErrUnreachable}, b.downBy()
		b.answer(&rec, from, nil)
		return
	}
	traits := from.traits()
	kind := b.kind(&req, traits)
	var v verdict
	if rules := *b.rules.Load(); len(rules) > 0 {
		v = judge(rules, &arrival{Request: req, traits: traits, bmc: b, kind: kind, now: rec.Received}, true)
	}
	if b.onReset != nil && kind == reset {
		if e := v.effects.end(Received); e == nil || !e.Unreachable {
			b.onReset(req.Client, req.ResetType)
		}
	}
	if len(v.fired) == 0 {
		b.execute(&rec, from, nil)
		b.answer(&rec, from, nil)
		b.afterwards(&rec)
		return
	}
	b.misbehave(rec, v, from)
}

// misbehave goes on with a request on which rules fired. It is apart so that handle
// allocates nothing for the others.
func (b *BMC) misbehave(rec Record, v verdict, from caller) {
	c := &call{b: b, rec: rec, verdict: v, caller: from}
	c.rec.Rules = v.fired
	c.wait(v.effects.delay(Received), c.execute)
}

func (b *BMC) kind(r *Request, t Traits) kind {
	switch {
	case t.Media:
		return media
	case t.Own:
		return other
	case r.ResetType != "" && (r.Path == b.paths.Reset || r.Path == b.paths.ChassisReset) && r.Method == methodPost:
		return reset
	case (r.Path == b.paths.System || r.Path == b.paths.Chassis) && (r.Method == methodGet || r.Method == methodHead):
		return read
	case r.Path == b.paths.ManagerReset && r.Method == methodPost:
		return managerReset
	}
	return other
}

func (b *BMC) actual() PowerState {
	s, err := b.sys.PowerState()
	if err != nil {
		return ""
	}
	return s
}

// execute does what the request asks for and fills in the answer.
func (b *BMC) execute(rec *Record, from caller, e Effects) {
	now := b.clk.Now()
	if from.wire != nil {
		if a, done := from.wire.Execute(e); done {
			rec.Answer = a
			switch {
			case a.Status >= statusBadRequest:
			case from.traits().Media:
				b.accept(rec, e, now, task{Task: Task{Of: TaskOfMedia}, idle: e.Ignores() || e.Loses("Image")})
			default:
				rec.Executed = now
			}
			return
		}
	}
	switch b.kind(&rec.Request, from.traits()) {
	case read:
		b.read(rec, e, now)
	case reset:
		b.reset(rec, e, now)
	case managerReset:
		rec.Answer = Answer{Status: statusNoContent}
		b.accept(rec, e, now, task{Task: Task{Of: TaskOfManager, Reset: rec.Request.ResetType}, idle: e.Ignores() || e.Loses("ResetType")})
	default:
		rec.Answer = Refuse(statusNotFound, MsgMissingAtURI, nil, rec.Request.Path)
	}
}

// afterwards is what follows when a request has been answered.
func (b *BMC) afterwards(rec *Record) {
	if rec.Request.ResetType != "" && rec.Executed != Never && rec.Request.Path == b.paths.ManagerReset {
		b.goDown(&outage{forget: rec.Request.cold, last: b.actual()}, b.restartTime)
	}
	if rec.cycled {
		b.cycleMains()
	}
}

func (b *BMC) read(rec *Record, e Effects, now time.Duration) {
	actual, err := b.sys.PowerState()
	if err != nil {
		rec.Answer = Refuse(statusServerError, MsgInternalError, err)
		return
	}
	rec.Executed, rec.Actual = now, actual
	if other := b.swapped(e); other != nil {
		if actual, err = other.PowerState(); err != nil {
			rec.Answer = Refuse(statusServerError, MsgInternalError, err)
			return
		}
	}
	rec.Answer = Answer{Status: statusOK, PowerState: shown(b.reported(now, actual, e), e)}
}

func (b *BMC) reset(rec *Record, e Effects, now time.Duration) {
	t := rec.Request.ResetType
	if !slices.Contains(b.resets, t) {
		rec.Answer = resetRefusal(t, fmt.Errorf("%w: %q", ErrUnsupported, t))
		return
	}
	later := e.First(func(e *Effect) bool { return e.Ignore || e.Stuck != nil || e.Transition != nil })
	switch {
	case later == nil:
		if sub := e.First(func(e *Effect) bool { return e.Substitute != "" }); sub != nil {
			t = sub.Substitute
		}
		sys := b.sys
		if other := b.swapped(e); other != nil {
			sys = other
		}
		if sys == b.sys {
			b.tell(func(h *Hooks) {
				if h.Reset != nil {
					h.Reset(rec.Request, t)
				}
			})
		}
		if rec.cycled = t == ResetFullPowerCycle && sys == b.sys; !rec.cycled {
			if err := resetFor(sys, rec.Request.Client, t); err != nil {
				rec.Answer = resetRefusal(t, err)
				return
			}
		}
		rec.Executed = now
		if sys == b.sys {
			b.mem.enter(now, rec.Request.Client, t)
		}
		if sys == b.sys && (t == ResetForceOff || t == ResetForceRestart || t == ResetPowerCycle) {
			b.stopTimer()
		}
		b.overtake(nil)
		b.spread(e, t)
	case later.Stuck != nil:
		b.overtake(&underway{report: string(later.Stuck.Report), from: b.actual(), until: end(now, later.Stuck.For)})
	case later.Transition != nil && !b.mem.transits(t): // asking again doesn't begin it again
		u := &underway{reset: t, report: later.Transition.Report, from: b.actual(), until: Never}
		b.overtake(u)
		u.chore = b.later(time.Duration(later.Transition.For), func() { b.act(ClientBMC, t) })
	}
	rec.Answer = Answer{Status: statusNoContent}
	b.promise(rec, e, now, task{Task: Task{Reset: t}})
}

// accept carries a request out that concerns no reset of the host, unless it is an idle one.
func (b *BMC) accept(rec *Record, e Effects, now time.Duration, of task) {
	if !of.idle {
		rec.Executed = now
	}
	b.promise(rec, e, now, of)
}

// promise has rules follow on an accepted request, and answer with a task.
func (b *BMC) promise(rec *Record, e Effects, now time.Duration, of task) {
	if len(e) == 0 {
		return
	}
	b.follow(e, of.Reset)
	if e := e.First(func(e *Effect) bool { return e.Task != nil }); e != nil {
		of.begun, of.fault = now, *e.Task
		rec.Answer = Answer{Status: statusAccepted, Task: b.mem.newTask(b.id, of)}
	}
}

// follow plans what the BMC will do by itself after an accepted reset.
func (b *BMC) follow(effects Effects, t ResetType) {
	for _, e := range effects {
		switch {
		case e.Auto != nil:
			b.will(&chore{misdeed: true}, time.Duration(e.Auto.After), func() { b.act(ClientBMC, e.Auto.Reset) })
		case e.Duplicate != 0:
			b.will(&chore{misdeed: true}, time.Duration(e.Duplicate), func() { b.act(ClientBMC, t) })
		}
	}
}

// overtake ends the reset that the BMC thinks is under way, and begins another
// one unless u is nil.
func (b *BMC) overtake(u *underway) {
	if old := b.mem.replace(u); old != nil && old.chore != nil {
		b.cancel(old.chore)
	}
}

// swapped is the system of another host that a swap rule acts upon, or nil.
func (b *BMC) swapped(effects Effects) System {
	e := effects.First(func(e *Effect) bool { return e.Swap != "" })
	if e == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(b.peers)) {
		if name != b.host && glob(e.Swap, name) {
			return b.peers[name]
		}
	}
	return nil
}

// spread has other hosts reset as well, which nobody has asked for: it is the BMC's own deed. What
// they make of it is answered to nobody.
func (b *BMC) spread(effects Effects, t ResetType) {
	for _, e := range effects {
		if e.Also == "" {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(b.peers)) {
			if name != b.host && glob(e.Also, name) {
				_ = resetFor(b.peers[name], ClientBMC, t)
			}
		}
	}
}

// reported bends the actual state into what the client reads.
func (b *BMC) reported(now time.Duration, actual PowerState, effects Effects) PowerState {
	if e := effects.First(func(e *Effect) bool { return e.Report != "" }); e != nil {
		return told(e.Report)
	}
	if lag := effects.lag(); lag > 0 {
		if past, ok := b.mem.stateAt(now - lag); ok {
			return past
		}
	}
	return b.mem.believed(now, actual)
}

// shown is a reported state as rules about the property leave it in the answer.
func shown(p PowerState, effects Effects) PowerState {
	for _, e := range effects {
		if e.Omit == propertyPower {
			p = ""
		}
	}
	for _, e := range effects {
		if value, ok := e.Set[propertyPower]; ok {
			p = PowerState(strings.Trim(string(value), `"`))
		}
	}
	return p
}

const propertyPower = "PowerState"

// told is the state of a rule's report.
func told(report string) PowerState {
	if report == reportNull {
		return ""
	}
	return PowerState(report)
}

func (b *BMC) answer(rec *Record, to caller, e Effects) {
	rec.Answered = b.clk.Now()
	b.log(rec)
	to.answer(rec.Answer, e)
}

func (b *BMC) log(rec *Record) {
	if b.onRecord != nil {
		b.onRecord(*rec)
	}
}

// Unlisted reports whether rules leave the host out of the list of systems.
func (b *BMC) Unlisted() bool {
	return slices.ContainsFunc(*b.rules.Load(), func(r *rule) bool { return r.Effect.Unlisted && r.When.inWindow(b.clk.Now()) })
}

// AddRule puts a rule into force after those already there. It is not an error that the rule's host
// glob leaves this BMC's host out: then nothing happens. Whoever adds it to several BMCs asks
// [Rule.Concerns].
func (b *BMC) AddRule(r Rule) error {
	if err := r.Validate(); err != nil {
		return err
	}
	var added []*rule
	for _, x := range r.expand() {
		if x.When.Host == "" || glob(x.When.Host, b.host) {
			added = append(added, newRule(x, &r))
		}
	}
	if err := b.performable(r, added); err != nil {
		return err
	}
	b.mu.Lock()
	old := *b.rules.Load()
	if slices.ContainsFunc(old, func(o *rule) bool { return o.group.Name == r.Name }) {
		b.mu.Unlock()
		return fmt.Errorf("adding rule %q to the bmc of %s: there is one of this name; remove it first", r.Name, b.host)
	}
	if b.life.Load() != closed {
		b.setRules(append(slices.Clip(old), added...))
	}
	b.mu.Unlock()
	b.watchEdges()
	for _, x := range added {
		b.schedule(x)
	}
	return nil
}

// RemoveRule ends a rule and reports whether it was in force. Requests that it
// delays already go on waiting.
func (b *BMC) RemoveRule(name string) bool {
	b.mu.Lock()
	old := *b.rules.Load()
	rest := slices.DeleteFunc(slices.Clone(old), func(o *rule) bool { return o.group.Name == name })
	b.setRules(rest)
	b.mu.Unlock()
	b.watchEdges()
	for _, x := range old {
		if x.group.Name == name {
			b.finish(x)
		}
	}
	return len(rest) < len(old)
}

// Heal removes every rule but those with some names. Unless any is left, it calls off the resets
// that rules would still have the BMC make by itself. What a client has asked for is carried out.
func (b *BMC) Heal(except ...string) {
	for _, r := range b.Rules() {
		if !slices.Contains(except, r.Name) {
			b.RemoveRule(r.Name)
		}
	}
	if len(b.Rules()) > 0 {
		return // what they have begun goes on with them
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.chores = slices.DeleteFunc(b.chores, func(c *chore) bool {
		if c.misdeed {
			c.stop()
		}
		return c.misdeed
	})
}

// Rules returns the rules in force, in order.
func (b *BMC) Rules() []Rule {
	var all []Rule
	var last *Rule
	for _, r := range *b.rules.Load() {
		if r.group != last {
			all = append(all, *r.group)
		}
		last = r.group
	}
	return all
}

func (b *BMC) setRules(rules []*rule) { b.rules.Store(&rules) }

// Reachable asks whether a connection would be served now; a server calls it for
// each one. A refusal is recorded: it is the only trace of a client that was cut off.
func (b *BMC) Reachable(client string) bool {
	if b.life.Load() == closed {
		return false
	}
	now := b.clk.Now()
	refused := func(rules ...string) bool {
		b.log(&Record{
			Seq: b.seq.Add(1), Host: b.host, Request: Request{Client: client},
			Received: now, Executed: Never, Answered: now,
			Answer: Answer{Cause: ErrUnreachable}, Rules: rules,
		})
		return false
	}
	if b.life.Load() == down {
		return refused(b.downBy()...)
	}
	for _, r := range *b.rules.Load() {
		if r.cutsOff() && r.When.inWindow(now) &&
			(len(r.When.Phase) == 0 || slices.Contains(r.When.Phase, b.actual())) {
			return refused(r.Name)
		}
	}
	return true
}

// Pending returns the records so far of the requests that a delay holds back, in
// order of arrival: the evidence that OnRequest has not seen when a run ends.
func (b *BMC) Pending() []Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	var recs []Record
	for _, c := range b.waiting() {
		recs = append(recs, c.rec)
	}
	return recs
}

// waiting are the pending calls in order of arrival. It is called with mu held.
func (b *BMC) waiting() []*call {
	var calls []*call
	for _, seq := range slices.Sorted(maps.Keys(b.pending)) {
		calls = append(calls, b.pending[seq])
	}
	return calls
}

// Close stops everything that waits for the clock: delayed requests are neither
// executed nor answered. Later requests find the BMC unreachable.
func (b *BMC) Close() {
	b.mu.Lock()
	b.life.Store(closed)
	for _, c := range b.waiting() {
		c.stop()
	}
	clear(b.pending)
	b.dropChores()
	old := *b.rules.Load()
	b.setRules(nil)
	unwatch := b.unwatchTimer
	b.unwatchTimer = nil
	b.mu.Unlock()
	b.watchEdges()
	if unwatch != nil {
		unwatch()
	}
	for _, r := range old {
		b.finish(r)
	}
}
