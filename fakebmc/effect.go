package fakebmc

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// Effect is what happens to a selected request, or by itself. Exactly one is set,
// but Refuse may stand beside Cap, Expire, Auth or Etag; Stage goes with delay, hang,
// unreachable, refuse and restart.
type Effect struct {
	// Delay lets the request wait.
	Delay Duration `json:"delay,omitempty"`
	// Hang never answers. The client's own timeout must end it.
	Hang bool `json:"hang,omitempty"`
	// Ignore accepts a reset, of the host or of the BMC, or an image, and does nothing.
	Ignore bool `json:"ignore,omitempty"`
	// Stuck accepts a GracefulShutdown, and the host stays on.
	Stuck *Stuck `json:"stuck,omitempty"`
	// Transition accepts a reset and executes it later.
	Transition *Transition `json:"transition,omitempty"`
	// Substitute executes another reset type than the one asked for.
	Substitute ResetType `json:"substitute,omitempty"`
	// Duplicate executes a reset once more so much later.
	Duplicate Duration `json:"duplicate,omitempty"`
	// Auto lets the BMC reset the host by itself after an accepted reset or image.
	Auto *Auto `json:"auto,omitempty"`
	// Unasked lets the BMC reset the host though nobody asked for anything.
	Unasked *Unasked `json:"unasked,omitempty"`
	// Swap acts upon another host: the first one, in order of names, whose name
	// matches this glob. See Peers.
	Swap string `json:"swap,omitempty"`
	// Also acts upon other hosts as well: those whose names match this glob, which share a supply
	// or an enclosure with the host. See Peers.
	Also string `json:"also,omitempty"`
	// Lag lets the reported power state follow the actual one so much later.
	Lag Duration `json:"lag,omitempty"`
	// Report is the power state that is reported, whatever the actual one: any
	// string, enumerated or not; "null" reports JSON null.
	Report string `json:"report,omitempty"`
	// Unreachable breaks the connection. Without a method, path, reset, client,
	// via, header, skip or count, and before execution, no connection is served at all.
	Unreachable bool `json:"unreachable,omitempty"`
	// Refuse answers with an error, or with any other given answer. Beside cap, expire,
	// auth or etag it is the error that this effect answers with, instead of the
	// standard one: clients match on what their vendor's BMCs say.
	Refuse *Refusal `json:"refuse,omitempty"`
	// Restart restarts the BMC, not its host.
	Restart *Restart `json:"restart,omitempty"`
	// Loss takes the AC power away from host and BMC while the rule is in force.
	Loss *Loss `json:"loss,omitempty"`
	// Guest changes how the guest behaves while the rule is in force. The System
	// must be a GuestSystem.
	Guest *Guest `json:"guest,omitempty"`
	// Cap refuses a login when so many sessions are open.
	Cap uint64 `json:"cap,omitempty"`
	// Expire ends the session in which the request comes, before it is executed.
	Expire bool `json:"expire,omitempty"`
	// Auth leaves one way to authenticate: basic or session.
	Auth string `json:"auth,omitempty"`
	// Etag is required: a change without If-Match is refused (428), or reject: a
	// POST with one is (412), whatever the tag.
	Etag string `json:"etag,omitempty"`
	// Drop leaves a header out of the answer.
	Drop string `json:"drop,omitempty"`
	// Omit leaves a property out of the body, such as Links/ManagedBy.
	Omit string `json:"omit,omitempty"`
	// Lose leaves properties of a change out, as with omit, and answers as if all were made.
	Lose []string `json:"lose,omitempty"`
	// Set gives properties of the body other values, whatever they are: the path of each, as with
	// omit, and its value in JSON. All others stay alive.
	Set map[string]json.RawMessage `json:"set,omitempty"`
	// Advertise are the reset types that the ComputerSystem lists, whatever is executed.
	Advertise []ResetType `json:"advertise,omitempty"`
	// Task answers a reset, or the insertion of an image, with 202 and a Task.
	Task *TaskFault `json:"task,omitempty"`
	// Unlisted leaves the host out of the list of systems while the rule is in force. A client that
	// knows its address finds it there.
	Unlisted bool `json:"unlisted,omitempty"`

	// Stage says when it happens: before the request is executed (the default),
	// or after, when the client can't know that it was.
	Stage Stage `json:"stage,omitempty"`
}

// Stage is a point in the life of a request.
type Stage string

// The stages at which an Effect can happen.
const (
	Received Stage = "received"
	Executed Stage = "executed"
)

// Stuck is a graceful shutdown that the guest never finishes.
type Stuck struct {
	// Report is the state to report meanwhile, usually PoweringOff; empty reports
	// the actual state. It ends after For, with the next reset that is executed,
	// and when the host leaves On.
	Report PowerState `json:"report,omitempty"`
	For    Duration   `json:"for,omitempty"` // 0 is for ever
}

// Transition is a reset that the BMC carries out only after For. The next reset
// that is executed overtakes it.
type Transition struct {
	For    Duration `json:"for"`
	Report string   `json:"report,omitempty"` // the state to report meanwhile; empty is the actual one
}

// Auto is a reset by the BMC itself: a restore policy, a timer, a second master.
type Auto struct {
	Reset ResetType `json:"reset"`
	After Duration  `json:"after"`
}

// Unasked is a reset without a request. It comes After the rule came into force, or after its from
// if it has one, and again at each interval Every while the rule is in force.
type Unasked struct {
	Reset ResetType `json:"reset"`
	After Duration  `json:"after,omitempty"`
	Every Duration  `json:"every,omitempty"` // 0 is once
}

// Restart is a restart of the BMC. At the stage received, the default, the
// request is lost with the connection; at the stage executed it is answered first.
// Without anything that selects a request the BMC restarts when the rule comes
// into force, or at from.
type Restart struct {
	Downtime Duration `json:"downtime"`
	// Forget loses what the BMC remembers: transitions, tasks and timers.
	// Sessions are lost always.
	Forget bool `json:"forget,omitempty"`
	// Restore is a power restore policy that is applied, wrongly, after the restart.
	Restore RestorePolicy `json:"restore,omitempty"`
	// Report is the state that is reported during For after the restart.
	Report string   `json:"report,omitempty"`
	For    Duration `json:"for,omitempty"`
}

// Loss is a loss of AC power: the host is off at once and its BMC is gone. It ends
// after For, or with the rule. Then the BMC boots and restores the host.
type Loss struct {
	For      Duration      `json:"for,omitempty"` // 0 is until the rule is removed
	Downtime Duration      `json:"downtime,omitempty"`
	Restore  RestorePolicy `json:"restore,omitempty"` // empty is the one that the BMC is set to
}

// Guest is how an operating system behaves. The zero Guest obeys.
type Guest struct {
	Ignore bool     `json:"ignore,omitempty"` // the ACPI power button
	Slow   Duration `json:"slow,omitempty"`   // how long it takes to shut down
	Paused bool     `json:"paused,omitempty"` // its processors stand still
}

// TaskFault is a request that is answered 202 with the Location of a Task monitor. The Task is
// Completed when what was asked for is done: the host has got there, the BMC is up again, the image
// is in the drive.
type TaskFault struct {
	After   Duration `json:"after,omitempty"`   // not before this time
	Early   bool     `json:"early,omitempty"`   // Completed at once, whatever the host does
	Missing uint64   `json:"missing,omitempty"` // so many first looks at the monitor find nothing (404)
	// Fails ends the Task with an exception instead, after After and whatever has been done; the
	// monitor then answers with it.
	Fails *Refusal `json:"fails,omitempty"`
}

// Refusal is an answer of its own, or that of the effect beside it.
type Refusal struct {
	Status  int               `json:"status"`            // 400 to 599; alone and with a body any from 200
	ID      string            `json:"id,omitempty"`      // message id such as Base.1.18.ResourceInUse or IDRAC.2.8.SYS518; empty is Base's GeneralError
	Args    []string          `json:"args,omitempty"`    // message arguments
	Text    string            `json:"text,omitempty"`    // message text, since clients match on it; empty is the registry's
	Retry   Duration          `json:"retry,omitempty"`   // Retry-After, in whole seconds; 0 sends none
	Body    string            `json:"body,omitempty"`    // sent as it is instead of an extended error
	Headers map[string]string `json:"headers,omitempty"` // further headers
	Code    uint8             `json:"code,omitempty"`    // IPMI completion code; 0 is derived from the status
}

const (
	reportNull = "null"

	// EtagRequired and EtagReject are the values of Effect.Etag.
	EtagRequired = "required"
	EtagReject   = "reject"
)

// maxDuration keeps sums of durations far from overflow.
const maxDuration = Duration(365 * 24 * time.Hour)

// concern is which requests an effect means anything for, so that others don't use
// up a rule's count.
type concern struct {
	kinds kind
	// also narrows the kinds down; nil doesn't. A Request is handed over by value, or
	// each one would be put on the heap.
	also func(Request, Traits) bool
}

func (c concern) meets(k kind, r Request, t Traits) bool {
	return c.kinds&k != 0 && (c.also == nil || c.also(r, t))
}

// hold says what an effect holds up of what a request was to bring about, and for how long. What
// the guest does with a request holds up no BMC, and neither does an answer that lacks something.
type hold func(*Effect) (long Duration, what held)

// held is what an effect holds up: nothing; the request that it bends, from then on; or one that it
// holds back: OnRequest reports that only when it is over, or when its client may still wait for
// it.
type held int

const (
	holdsNothing held = iota
	holdsBent
	holdsBack
)

// What an effect holds up: nothing; the request until it is made again, or for a time; or what it
// holds back.
func nothing(*Effect) (Duration, held) { return 0, holdsNothing }
func attempt(*Effect) (Duration, held) { return 0, holdsBent }

func during(long func(*Effect) Duration) hold {
	return func(e *Effect) (Duration, held) { return long(e), holdsBent }
}

func back(long func(*Effect) Duration) hold {
	return func(e *Effect) (Duration, held) { return long(e), holdsBack }
}

// effects lists every effect: its key, what it needs, whether it is set, what it holds up,
// and what it concerns.
var effects = []struct {
	key   string
	needs Need
	set   func(*Effect) bool
	holds hold
	concern
}{
	{"delay", "", func(e *Effect) bool { return e.Delay != 0 }, back(func(e *Effect) Duration { return e.Delay }), concern{kinds: anything}},
	{"hang", "", func(e *Effect) bool { return e.Hang }, back(func(*Effect) Duration { return 0 }), concern{kinds: anything}},
	{"ignore", "", func(e *Effect) bool { return e.Ignore }, attempt, concern{kinds: reset | managerReset | media}},
	{"stuck", "", func(e *Effect) bool { return e.Stuck != nil }, during(func(e *Effect) Duration { return e.Stuck.For }), concern{reset, func(r Request, _ Traits) bool { return r.ResetType == ResetGracefulShutdown }}},
	{"transition", "", func(e *Effect) bool { return e.Transition != nil }, during(func(e *Effect) Duration { return e.Transition.For }), concern{kinds: reset}},
	{"substitute", "", func(e *Effect) bool { return e.Substitute != "" }, attempt, concern{kinds: reset}},
	{"duplicate", "", func(e *Effect) bool { return e.Duplicate != 0 }, during(func(e *Effect) Duration { return e.Duplicate }), concern{kinds: reset}},
	{"auto", "", func(e *Effect) bool { return e.Auto != nil }, during(func(e *Effect) Duration { return e.Auto.After }), concern{kinds: reset | managerReset | media}},
	{"unasked", "", func(e *Effect) bool { return e.Unasked != nil }, attempt, concern{}},
	{"swap", NeedsPeers, func(e *Effect) bool { return e.Swap != "" }, attempt, concern{kinds: read | reset}},
	{"also", NeedsPeers, func(e *Effect) bool { return e.Also != "" }, nothing, concern{kinds: reset}},
	{"lag", "", func(e *Effect) bool { return e.Lag != 0 }, during(func(e *Effect) Duration { return e.Lag }), concern{kinds: read}},
	{"report", "", func(e *Effect) bool { return e.Report != "" }, attempt, concern{kinds: read}},
	{"unreachable", "", func(e *Effect) bool { return e.Unreachable }, attempt, concern{kinds: anything}},
	{"refuse", "", (*Effect).refuses, attempt, concern{kinds: anything}},
	{"restart", "", func(e *Effect) bool { return e.Restart != nil }, during(func(e *Effect) Duration { return e.Restart.Downtime + e.Restart.For }), concern{kinds: anything}},
	{"loss", "", func(e *Effect) bool { return e.Loss != nil }, during(func(e *Effect) Duration { return e.Loss.For + e.Loss.Downtime }), concern{}},
	{"guest", NeedsGuest, func(e *Effect) bool { return e.Guest != nil }, nothing, concern{}},
	{"cap", NeedsWire, func(e *Effect) bool { return e.Cap != 0 }, attempt, concern{anything, func(_ Request, t Traits) bool { return t.Login }}},
	{"expire", NeedsWire, func(e *Effect) bool { return e.Expire }, attempt, concern{anything, func(_ Request, t Traits) bool { return t.Auth == AuthSession }}},
	{"auth", NeedsWire, func(e *Effect) bool { return e.Auth != "" }, attempt, concern{anything, func(_ Request, t Traits) bool { return t.Auth != "" || t.Login }}},
	{"etag", NeedsWire, func(e *Effect) bool { return e.Etag != "" }, attempt, concern{anything, func(r Request, t Traits) bool {
		return t.wired() && !t.Login && (r.Method == methodPost || r.Method == methodPatch)
	}}},
	{"drop", NeedsWire, func(e *Effect) bool { return e.Drop != "" }, nothing, concern{anything, func(_ Request, t Traits) bool { return t.wired() }}},
	{"omit", NeedsWire, func(e *Effect) bool { return e.Omit != "" }, attempt, concern{anything, func(r Request, t Traits) bool { return t.wired() && r.Method == methodGet }}},
	{"lose", NeedsWire, func(e *Effect) bool { return len(e.Lose) > 0 }, attempt, concern{other | managerReset | media, func(r Request, t Traits) bool {
		return t.wired() && (r.Method == methodPatch || r.Method == methodPost && (t.Media || !t.Own))
	}}},
	{"set", NeedsWire, func(e *Effect) bool { return len(e.Set) > 0 }, attempt, concern{anything, func(r Request, t Traits) bool { return t.wired() && r.Method == methodGet }}},
	{"advertise", NeedsWire, func(e *Effect) bool { return len(e.Advertise) > 0 }, nothing, concern{read, func(_ Request, t Traits) bool { return t.wired() }}},
	{"unlisted", NeedsWire, func(e *Effect) bool { return e.Unlisted }, nothing, concern{}},
	{"task", "", func(e *Effect) bool { return e.Task != nil }, during(func(e *Effect) Duration { return e.Task.After }), concern{reset | managerReset | media, func(r Request, _ Traits) bool { return r.via() != ViaIPMI }}},
}

// confined reports whether an effect that is set means something for some of these kinds
// of requests only.
func (e *Effect) confined(to kind) bool {
	for _, k := range effects {
		if k.set(e) && k.kinds != 0 && k.kinds&^to == 0 {
			return true
		}
	}
	return false
}

// refuses reports whether Refuse is the effect, and not the answer of the one beside it.
func (e *Effect) refuses() bool { return e.Refuse != nil && !e.admits() }

// admits reports whether the effect decides which requests pass, and answers the others.
func (e *Effect) admits() bool { return e.Cap != 0 || e.Expire || e.Auth != "" || e.Etag != "" }

// Instead is what the effect answers with where the standard has another answer.
func (e *Effect) Instead(standard Answer) Answer {
	if e.Refuse != nil {
		return e.Refuse.answer()
	}
	return standard
}

// keys returns the keys of the effects that are set, in the order of effects.
func (e *Effect) keys() []string {
	var keys []string
	for _, k := range effects {
		if k.set(e) {
			keys = append(keys, k.key)
		}
	}
	return keys
}

func effectKeys() string {
	var keys []string
	for _, k := range effects {
		keys = append(keys, k.key)
	}
	return strings.Join(keys, ", ")
}

// IsZero reports whether nothing is set.
func (e Effect) IsZero() bool { return len(e.keys()) == 0 && e.Stage == "" }

// standing reports whether the effect is a condition that lasts, not something
// that happens to a request.
func (e *Effect) standing() bool {
	return e.Loss != nil || e.Guest != nil || e.Unasked != nil || e.Unlisted
}

func (e *Effect) validate(bad func(string, ...any)) {
	set := e.keys()
	switch {
	case len(set) == 0:
		bad("effect is empty; set one of %s (and quote \"null\")", effectKeys())
	case len(set) > 1:
		bad("effect must be one of %s; use a rule for each", strings.Join(set, ", "))
	}
	e.validateDurations(bad)
	switch e.Stage {
	case "", Received:
	case Executed:
		if e.Delay == 0 && !e.Hang && !e.Unreachable && !e.refuses() && e.Restart == nil {
			bad("stage goes with delay, hang, unreachable, refuse and restart only")
		}
	default:
		bad("stage %q is neither %s nor %s", e.Stage, Received, Executed)
	}
	for _, t := range e.resets() {
		if !slices.Contains(everyReset, t) {
			bad("reset type %q is none of %v", t, everyReset)
		}
	}
	for _, p := range e.policies() {
		if p != "" && !slices.Contains(restorePolicies, p) {
			bad("restore %q is none of %v", p, restorePolicies)
		}
	}
	if e.Auth != "" && e.Auth != AuthBasic && e.Auth != AuthSession {
		bad("auth %q is neither %s nor %s", e.Auth, AuthBasic, AuthSession)
	}
	if e.Etag != "" && e.Etag != EtagRequired && e.Etag != EtagReject {
		bad("etag %q is neither %s nor %s", e.Etag, EtagRequired, EtagReject)
	}
	if e.Swap != "" && !isGlob(e.Swap) {
		bad("swap %q is not a glob", e.Swap)
	}
	if e.Also != "" && !isGlob(e.Also) {
		bad("also %q is not a glob", e.Also)
	}
	for _, path := range e.Lose {
		if !isProperty(path) {
			bad("lose %q is no path of a property, such as Boot/BootSourceOverrideTarget", path)
		}
	}
	if e.Drop != "" && !headerName.MatchString(e.Drop) {
		bad("drop %q is not the name of a header", e.Drop)
	}
	for _, path := range slices.Sorted(maps.Keys(e.Set)) {
		if !isProperty(path) {
			bad("set %q is no path of a property, such as Boot/BootSourceOverrideTarget", path)
		}
	}
	if e.Guest != nil && *e.Guest == (Guest{}) {
		bad("guest is empty; set ignore, slow or paused")
	}
	if e.Task != nil && e.Task.Fails != nil {
		e.Task.Fails.validate(bad)
		if e.Task.Early {
			bad("task is early, and so has ended before it fails: leave one of them out")
		}
	}
	if e.Refuse != nil {
		e.Refuse.validate(bad)
		if e.admits() {
			e.Refuse.validateBeside(bad)
		}
	}
}

func (r *Refusal) validate(bad func(string, ...any)) {
	switch {
	case r.Body == "" && (r.Status < 400 || r.Status > 599):
		bad("refuse needs a status from 400 to 599, not %d; any from 200 goes with a body", r.Status)
	case r.Status < 200 || r.Status > 599:
		bad("refuse needs a status from 200 to 599, not %d", r.Status)
	}
	if r.ID != "" && !messageID.MatchString(r.ID) {
		bad("refuse id %q is not a message id such as Base.1.18.ResourceInUse", r.ID)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		value := r.Headers[name]
		switch {
		case !headerName.MatchString(name), strings.ContainsAny(value, "\r\n"):
			bad("refuse header %q: %q can't be sent", name, value)
		case slices.Contains(framing, strings.ToLower(name)):
			bad("refuse header %q is about the connection and follows from the body: leave it out", name)
		}
	}
}

// framing are the headers that say where a message ends, in lower case.
var framing = []string{"connection", "content-length", "te", "trailer", "transfer-encoding", "upgrade"}

// validateBeside finds what makes no answer of an effect that refuses requests over HTTP.
func (r *Refusal) validateBeside(bad func(string, ...any)) {
	if r.Body != "" && r.Status < 400 {
		bad("refuse needs a status from 400 to 599, not %d, beside cap, expire, auth or etag", r.Status)
	}
	if r.Code != 0 {
		bad("refuse code is for ipmi, which knows no cap, expire, auth or etag")
	}
}

// resets are the reset types that the effect names; an empty one is a mistake.
func (e *Effect) resets() []ResetType {
	types := slices.Clone(e.Advertise)
	if e.Substitute != "" {
		types = append(types, e.Substitute)
	}
	if e.Auto != nil {
		types = append(types, e.Auto.Reset)
	}
	if e.Unasked != nil {
		types = append(types, e.Unasked.Reset)
	}
	return types
}

func (e *Effect) policies() []RestorePolicy {
	var all []RestorePolicy
	if e.Restart != nil {
		all = append(all, e.Restart.Restore)
	}
	if e.Loss != nil {
		all = append(all, e.Loss.Restore)
	}
	return all
}

func (e *Effect) validateDurations(bad func(string, ...any)) {
	durations := []struct {
		key string
		d   Duration
	}{{"", e.Delay}, {"", e.Lag}, {"", e.Duplicate}}
	add := func(key string, d Duration) {
		durations = append(durations, struct {
			key string
			d   Duration
		}{key, d})
	}
	if s := e.Stuck; s != nil {
		add("stuck for ", s.For)
	}
	if t := e.Transition; t != nil {
		add("transition for ", t.For)
		if t.For == 0 {
			bad("transition for must not be 0; use report or stuck instead")
		}
	}
	if a := e.Auto; a != nil {
		add("auto after ", a.After)
	}
	if u := e.Unasked; u != nil {
		add("unasked after ", u.After)
		add("unasked every ", u.Every)
	}
	if r := e.Restart; r != nil {
		add("restart downtime ", r.Downtime)
		add("restart for ", r.For)
	}
	if l := e.Loss; l != nil {
		add("loss for ", l.For)
		add("loss downtime ", l.Downtime)
	}
	if g := e.Guest; g != nil {
		add("guest slow ", g.Slow)
	}
	if t := e.Task; t != nil {
		add("task after ", t.After)
	}
	if r := e.Refuse; r != nil {
		add("refuse retry ", r.Retry)
	}
	for _, x := range durations {
		switch {
		case x.d >= 0 && x.d <= maxDuration:
		case x.key == "":
			bad("durations must be between 0 and %v", time.Duration(maxDuration))
		default:
			bad("%smust be between 0 and %v", x.key, time.Duration(maxDuration))
		}
	}
}
