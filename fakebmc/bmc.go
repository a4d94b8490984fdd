package fakebmc

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// systemsPath and resetAction make the paths of the two power requests.
const (
	systemsPath = "/redfish/v1/Systems"
	resetAction = "/Actions/ComputerSystem.Reset"
)

// BMC controls the power of one System and answers requests about it, truthfully
// unless a Rule says otherwise. All methods may be called concurrently, also from
// within a reply; no lock is held while the System is read or reset, nor during
// the record hook or a reply.
type BMC struct {
	host       string
	sys        System
	clk        Clock
	onRecord   func(Record)
	systemPath string
	resetPath  string

	seq    atomic.Uint64
	closed atomic.Bool
	rules  atomic.Pointer[[]*rule] // replaced as a whole; never nil
	mem    memory

	mu      sync.Mutex       // guards what follows, and writers of closed and rules
	pending map[uint64]*call // requests that wait for the clock, by Seq
	unwatch func()           // non-nil while edges are recorded
}

// Option changes a BMC at construction.
type Option func(*BMC)

// OnRequest lets f have the Record of each request when it is complete: answered,
// or known to hang. f is called before the reply, in the order of completion.
func OnRequest(f func(Record)) Option {
	return func(b *BMC) { b.onRecord = f }
}

// New returns the BMC of a host. The host's name is also the Id of its Redfish
// resources, so it must be non-empty and fit a path segment.
func New(host string, sys System, clk Clock, opts ...Option) *BMC {
	b := &BMC{
		host: host, sys: sys, clk: clk,
		systemPath: systemsPath + "/" + host,
		resetPath:  systemsPath + "/" + host + resetAction,
		pending:    map[uint64]*call{},
	}
	b.rules.Store(new([]*rule))
	for _, o := range opts {
		o(b)
	}
	return b
}

// Host returns the name given to New.
func (b *BMC) Host() string { return b.host }

// PowerRequest reads the power state; the Answer carries it.
func (b *BMC) PowerRequest(client string) Request {
	return Request{Client: client, Method: http.MethodGet, Path: b.systemPath}
}

// ResetRequest asks for a reset.
func (b *BMC) ResetRequest(client string, t ResetType) Request {
	return Request{Client: client, Method: http.MethodPost, Path: b.resetPath, ResetType: t}
}

// Do handles a request. reply is called once: at once, or later by the Clock. For
// a hang, and after Close, it is never called.
func (b *BMC) Do(req Request, reply func(Answer)) {
	rec := Record{
		Seq: b.seq.Add(1), Host: b.host, Request: req,
		Received: b.clk.Now(), Executed: Never, Answered: Never,
	}
	if b.closed.Load() {
		rec.Answer = Answer{Cause: ErrUnreachable}
		b.answer(&rec, reply)
		return
	}
	var v verdict
	if rules := *b.rules.Load(); len(rules) > 0 {
		v = judge(rules, &arrival{Request: &req, bmc: b, kind: b.kind(&req), now: rec.Received})
	}
	if len(v.fired) == 0 {
		b.execute(&rec, &v)
		b.answer(&rec, reply)
		return
	}
	b.misbehave(rec, v, reply)
}

// misbehave goes on with a request on which rules fired. It is apart so that Do
// allocates nothing for the others.
func (b *BMC) misbehave(rec Record, v verdict, reply func(Answer)) {
	c := &call{b: b, rec: rec, verdict: v, reply: reply}
	c.rec.Rules = v.fired
	c.wait(v.delay[before], c.execute)
}

func (b *BMC) kind(r *Request) kind {
	switch {
	case r.run != nil:
		return other
	case r.ResetType != "" && r.Path == b.resetPath && r.Method == http.MethodPost:
		return reset
	case r.Path == b.systemPath && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		return read
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
func (b *BMC) execute(rec *Record, v *verdict) {
	now := b.clk.Now()
	switch b.kind(&rec.Request) {
	case read:
		actual, err := b.sys.PowerState()
		if err != nil {
			rec.Answer = refusal(http.StatusInternalServerError, msgInternalError, err)
			return
		}
		rec.Executed, rec.Actual = now, actual
		rec.Answer = Answer{Status: http.StatusOK, PowerState: b.reported(now, actual, v)}
	case reset:
		b.reset(rec, v, now)
	default:
		if rec.Request.run == nil {
			rec.Answer = refusal(http.StatusNotFound, msgMissingAtURI, nil, rec.Request.Path)
			return
		}
		rec.Answer = rec.Request.run()
		if rec.Answer.Status < 400 {
			rec.Executed = now
		}
	}
}

func (b *BMC) reset(rec *Record, v *verdict, now time.Duration) {
	t := rec.Request.ResetType
	switch {
	case !t.Known():
		rec.Answer = resetRefusal(t, fmt.Errorf("%w: %q", ErrUnsupported, t))
		return
	case v.ignore:
	case v.stuck != nil:
		b.mem.beginStuck(now, v.stuck)
	default:
		if err := b.sys.Reset(t); err != nil {
			rec.Answer = resetRefusal(t, err)
			return
		}
		rec.Executed = now
		b.mem.endStuck()
	}
	rec.Answer = Answer{Status: http.StatusNoContent}
}

// reported bends the actual state into what the client is told.
func (b *BMC) reported(now time.Duration, actual PowerState, v *verdict) PowerState {
	if v.report != nil {
		if v.report.Report == reportNull {
			return ""
		}
		return PowerState(v.report.Report)
	}
	if v.lag > 0 {
		if past, ok := b.mem.stateAt(now - v.lag); ok {
			return past
		}
	}
	return b.mem.believed(now, actual)
}

func (b *BMC) answer(rec *Record, reply func(Answer)) {
	rec.Answered = b.clk.Now()
	b.log(rec)
	reply(rec.Answer)
}

func (b *BMC) log(rec *Record) {
	if b.onRecord == nil {
		return
	}
	r := *rec
	r.Request.run, r.Answer.content = nil, nil // a log may live long, and a content may hold a token
	b.onRecord(r)
}

// AddRule puts a rule into force after those already there. It is not an error
// that the rule's host glob leaves this BMC's host out: then nothing happens.
func (b *BMC) AddRule(r Rule) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if r.When.Host != "" && !glob(r.When.Host, b.host) {
		return nil
	}
	b.mu.Lock()
	old := *b.rules.Load()
	if slices.ContainsFunc(old, func(o *rule) bool { return o.Name == r.Name }) {
		b.mu.Unlock()
		return fmt.Errorf("adding rule %q to the bmc of %s: there is one of this name; remove it first", r.Name, b.host)
	}
	b.setRules(append(slices.Clip(old), &rule{Rule: r}))
	b.mu.Unlock()
	b.watchEdges()
	return nil
}

// RemoveRule ends a rule and reports whether it was in force. Requests that it
// delays already go on waiting.
func (b *BMC) RemoveRule(name string) bool {
	b.mu.Lock()
	old := *b.rules.Load()
	rest := slices.DeleteFunc(slices.Clone(old), func(o *rule) bool { return o.Name == name })
	b.setRules(rest)
	b.mu.Unlock()
	b.watchEdges()
	return len(rest) < len(old)
}

// Rules returns the rules in force, in order.
func (b *BMC) Rules() []Rule {
	var all []Rule
	for _, r := range *b.rules.Load() {
		all = append(all, r.Rule)
	}
	return all
}

func (b *BMC) setRules(rules []*rule) { b.rules.Store(&rules) }

// connect asks whether a connection would be served now; the server calls it for
// each one. A refusal is recorded: it is the only trace of a client that was cut off.
func (b *BMC) connect(client string) bool {
	if b.closed.Load() {
		return false
	}
	now := b.clk.Now()
	for _, r := range *b.rules.Load() {
		if !r.cutsOff() || !r.When.inWindow(now) ||
			len(r.When.Phase) > 0 && !slices.Contains(r.When.Phase, b.actual()) {
			continue
		}
		b.log(&Record{
			Seq: b.seq.Add(1), Host: b.host, Request: Request{Client: client},
			Received: now, Executed: Never, Answered: now,
			Answer: Answer{Cause: ErrUnreachable}, Rules: []string{r.Name},
		})
		return false
	}
	return true
}

// Pending returns the records so far of the requests that a delay holds back, in
// order of arrival: the evidence that OnRequest has not seen when a run ends.
func (b *BMC) Pending() []Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	var recs []Record
	for _, c := range b.pending {
		recs = append(recs, c.rec)
	}
	slices.SortFunc(recs, func(x, y Record) int { return int(x.Seq) - int(y.Seq) })
	return recs
}

// Close stops everything that waits for the clock: delayed requests are neither
// executed nor answered. Later requests find the BMC unreachable.
func (b *BMC) Close() {
	b.mu.Lock()
	b.closed.Store(true)
	for _, c := range b.pending {
		c.stop()
	}
	clear(b.pending)
	b.setRules(nil)
	b.mu.Unlock()
	b.watchEdges()
}
