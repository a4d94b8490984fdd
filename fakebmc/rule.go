package fakebmc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Rule makes a BMC misbehave: an Effect on the requests that When selects.
// Of several rules that match a request all fire, in the order in which they were
// added: delays add up, of effects that exclude each other the first one counts.
//
// Every key is one word, so that its YAML and its JSON spelling are the same.
type Rule struct {
	Name   string   `json:"name"`
	When   Selector `json:"when,omitzero"`
	Effect Effect   `json:"effect"`
}

// Selector says which requests a Rule concerns. Every field that is set must
// match; the zero Selector selects all.
type Selector struct {
	Host   string       `json:"host,omitempty"`   // glob (package path) on the host name
	Method string       `json:"method,omitempty"` // GET, HEAD, POST, PATCH, PUT or DELETE
	Path   string       `json:"path,omitempty"`   // glob (package path) on the path without trailing slash
	Reset  []ResetType  `json:"reset,omitempty"`  // any of these, known or not
	Phase  []PowerState `json:"phase,omitempty"`  // the actual state on arrival is any of these
	From   Duration     `json:"from,omitempty"`   // on the BMC's clock, inclusive
	Until  Duration     `json:"until,omitempty"`  // on the BMC's clock, exclusive; 0 is for ever
	Skip   uint64       `json:"skip,omitempty"`   // lets the first Skip matches pass
	Count  uint64       `json:"count,omitempty"`  // then fires Count times; 0 is always
}

// Effect is what happens to a selected request. Exactly one is set; Stage goes
// with delay, hang, unreachable and refuse.
type Effect struct {
	// Delay lets the request wait.
	Delay Duration `json:"delay,omitempty"`
	// Hang never answers. The client's own timeout must end it.
	Hang bool `json:"hang,omitempty"`
	// Ignore accepts a reset and does nothing.
	Ignore bool `json:"ignore,omitempty"`
	// Stuck accepts a GracefulShutdown, and the host stays on.
	Stuck *Stuck `json:"stuck,omitempty"`
	// Lag lets the reported power state follow the actual one so much later.
	Lag Duration `json:"lag,omitempty"`
	// Report is the power state that is reported, whatever the actual one: any
	// string, enumerated or not; "null" reports JSON null.
	Report string `json:"report,omitempty"`
	// Unreachable breaks the connection. Without a method, path, reset, skip or
	// count, and before execution, no connection is served at all.
	Unreachable bool `json:"unreachable,omitempty"`
	// Refuse answers with an error.
	Refuse *Refusal `json:"refuse,omitempty"`

	// Stage tells when it happens: before the request is executed (the default),
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

// Refusal is an error answer.
type Refusal struct {
	Status int      `json:"status"`          // 400 to 599
	ID     string   `json:"id,omitempty"`    // message id such as Base.1.18.ResourceInUse or IDRAC.2.8.SYS518; empty is Base's GeneralError
	Args   []string `json:"args,omitempty"`  // message arguments
	Text   string   `json:"text,omitempty"`  // message text, since clients match on it; empty is the registry's
	Retry  Duration `json:"retry,omitempty"` // Retry-After, in whole seconds; 0 sends none
}

const reportNull = "null"

// maxDuration keeps sums of durations far from overflow.
const maxDuration = Duration(365 * 24 * time.Hour)

var (
	methods   = []string{"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE"}
	ruleName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,99}$`)
	messageID = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*(\.[A-Za-z0-9]+)*$`)
)

// ParseRules reads a JSON array of rules, strictly: unknown keys, duplicate
// names and rules that can never fire are errors, and all are returned at once.
func ParseRules(data []byte) ([]Rule, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("reading rules: %w", err)
	}
	rules := make([]Rule, len(raw))
	names := map[string]bool{}
	var errs []error
	for i, r := range raw {
		dec := json.NewDecoder(bytes.NewReader(r))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&rules[i]); err != nil {
			errs = append(errs, fmt.Errorf("rule %d: %w", i+1, err))
			continue
		}
		if err := rules[i].Validate(); err != nil {
			errs = append(errs, err)
		}
		if name := rules[i].Name; names[name] {
			errs = append(errs, fmt.Errorf("rule %q: there are two of this name", name))
		} else {
			names[name] = true
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return rules, nil
}

// Validate returns every reason why the rule is malformed or could never fire, joined.
func (r Rule) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("rule %q: "+format, append([]any{r.Name}, args...)...))
	}
	if !ruleName.MatchString(r.Name) {
		bad("name must match %s", ruleName)
	}
	r.When.validate(bad)
	r.Effect.validate(bad)
	r.validateTogether(bad)
	return errors.Join(errs...)
}

func (s Selector) validate(bad func(string, ...any)) {
	for _, g := range []struct{ key, glob string }{{"host", s.Host}, {"path", s.Path}} {
		if _, err := path.Match(g.glob, ""); err != nil {
			bad("%s %q is not a glob: %v", g.key, g.glob, err)
		}
	}
	if s.Path != "" && (s.Path[0] != '/' || strings.HasSuffix(s.Path, "/")) {
		bad("path %q must begin with a slash and not end with one", s.Path)
	}
	if s.Method != "" && !slices.Contains(methods, s.Method) {
		bad("method %q is none of %s", s.Method, strings.Join(methods, ", "))
	}
	if slices.Contains(s.Reset, "") {
		bad("reset has an empty type; omit reset to select all requests")
	}
	for _, p := range s.Phase {
		if !slices.Contains(powerStates, p) {
			bad("phase %q is none of %v", p, powerStates)
		}
	}
	if s.From < 0 || s.Until < 0 {
		bad("from and until must not be negative")
	}
	if s.Until != 0 && s.Until <= s.From {
		bad("until must be later than from")
	}
}

func (e Effect) validate(bad func(string, ...any)) {
	set := e.names()
	switch {
	case len(set) == 0:
		bad("effect is empty; set one of %s (and quote \"null\")", strings.Join(effectNames, ", "))
	case len(set) > 1:
		bad("effect must be one of %s; use a rule for each", strings.Join(set, ", "))
	}
	for _, d := range []Duration{e.Delay, e.Lag} {
		if d < 0 || d > maxDuration {
			bad("durations must be between 0 and %v", time.Duration(maxDuration))
		}
	}
	if e.Stuck != nil && (e.Stuck.For < 0 || e.Stuck.For > maxDuration) {
		bad("stuck for must be between 0 and %v", time.Duration(maxDuration))
	}
	switch e.Stage {
	case "", Received:
	case Executed:
		if e.Delay == 0 && !e.Hang && !e.Unreachable && e.Refuse == nil {
			bad("stage goes with delay, hang, unreachable and refuse only")
		}
	default:
		bad("stage %q is neither %s nor %s", e.Stage, Received, Executed)
	}
	if r := e.Refuse; r != nil {
		if r.Status < 400 || r.Status > 599 {
			bad("refuse needs a status from 400 to 599, not %d", r.Status)
		}
		if r.ID != "" && !messageID.MatchString(r.ID) {
			bad("refuse id %q is not a message id such as Base.1.18.ResourceInUse", r.ID)
		}
		if r.Retry < 0 {
			bad("refuse retry must not be negative")
		}
	}
}

// validateTogether finds selectors that the effect can never meet.
func (r Rule) validateTogether(bad func(string, ...any)) {
	w, e := r.When, r.Effect
	read, reset := e.Lag != 0 || e.Report != "", e.Ignore || e.Stuck != nil
	if read && len(w.Reset) > 0 {
		bad("lag and report concern reads, so reset can't select them")
	}
	if read && w.Method != "" && w.Method != "GET" && w.Method != "HEAD" {
		bad("lag and report concern reads, not %s", w.Method)
	}
	if (reset || len(w.Reset) > 0) && w.Method != "" && w.Method != "POST" {
		bad("a reset is a POST, not %s", w.Method)
	}
	if e.Stuck != nil && len(w.Reset) > 0 && !slices.Contains(w.Reset, ResetGracefulShutdown) {
		bad("stuck concerns %s, which reset leaves out", ResetGracefulShutdown)
	}
}

var effectNames = []string{"delay", "hang", "ignore", "stuck", "lag", "report", "unreachable", "refuse"}

// names returns the effects that are set, in the order of effectNames.
func (e Effect) names() []string {
	set := []bool{e.Delay != 0, e.Hang, e.Ignore, e.Stuck != nil, e.Lag != 0, e.Report != "", e.Unreachable, e.Refuse != nil}
	var names []string
	for i, is := range set {
		if is {
			names = append(names, effectNames[i])
		}
	}
	return names
}
