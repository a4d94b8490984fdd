package fakebmc

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"
)

// Rule makes a BMC misbehave: an Effect on the requests that When selects, or a
// Preset. All rules that match a request fire, in the order in which they were
// added: delays add up, and the first one of effects that exclude each other
// counts.
//
// Every key is one word, so that its YAML and its JSON spelling are the same.
type Rule struct {
	Name   string   `json:"name"`
	When   Selector `json:"when,omitzero"`
	Effect Effect   `json:"effect,omitzero"`
	// Preset stands for the rules of the preset of this name instead of an Effect.
	// What When sets replaces what each of them says.
	Preset string `json:"preset,omitempty"`
}

// Selector says which requests a Rule concerns. Every field that is set must
// match; the zero Selector selects all but those that the BMC makes itself.
type Selector struct {
	Host   string `json:"host,omitempty"`   // glob (package path) on the host name
	Client string `json:"client,omitempty"` // glob on who asks; the BMC's own resets have ClientBMC, ClientWatchdog and ClientRestore, its events ClientEvents, and are selected by their name only
	Via    string `json:"via,omitempty"`    // redfish or ipmi
	Method string `json:"method,omitempty"` // GET, HEAD, POST, PATCH, PUT or DELETE
	Path   string `json:"path,omitempty"`   // glob (package path) on the path without trailing slash
	Header string `json:"header,omitempty"` // name: glob on the value, of an HTTP header
	// Body are properties of what a request says, as paths such as Boot/BootSourceOverrideTarget,
	// each with a glob on its value: a string as it is, anything else as JSON; an empty glob is for
	// a property that isn't there. All have to match.
	Body   map[string]string `json:"body,omitempty"`
	Reset  []ResetType       `json:"reset,omitempty"`  // any of these, known or not
	Phase  []PowerState      `json:"phase,omitempty"`  // the actual state on arrival is any of these
	Within Duration          `json:"within,omitempty"` // the actual state changed within this time
	// Restarted is at most this long after the BMC itself is up again.
	Restarted Duration `json:"restarted,omitempty"`
	From      Duration `json:"from,omitempty"`  // on the BMC's clock, inclusive
	Until     Duration `json:"until,omitempty"` // on the BMC's clock, exclusive; 0 is for ever
	Skip      uint64   `json:"skip,omitempty"`  // lets the first Skip matches pass
	Count     uint64   `json:"count,omitempty"` // then fires Count times; 0 is always
	Ends      string   `json:"ends,omitempty"`  // with what the rule is over for good: EndsRestart, or empty for nothing
}

// EndsRestart is the end of a rule when the BMC is up again after a restart.
const EndsRestart = "restart"

var (
	methods    = []string{methodGet, methodHead, methodPost, methodPatch, "PUT", "DELETE"}
	ruleName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,99}$`)
	messageID  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*(\.[A-Za-z0-9]+)*$`)
	headerName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*$`)
)

// ParseRules reads a JSON array of rules, strictly: keys that are unknown, spelled in
// another case or there twice, duplicate names and rules that can never fire are
// errors, and all are returned at once.
func ParseRules(data []byte) ([]Rule, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("reading rules: %w", err)
	}
	if raw == nil {
		return nil, errors.New("reading rules: there is no list of rules; write [] for none")
	}
	rules := make([]Rule, len(raw))
	names := map[string]bool{}
	var errs []error
	for i, r := range raw {
		strict, err := kjson.UnmarshalStrict(r, &rules[i])
		if err := errors.Join(append(strict, err)...); err != nil {
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
	if r.Preset == "" {
		r.Effect.validate(bad)
		r.validateTogether(bad)
		return errors.Join(errs...)
	}
	if set := r.Effect.keys(); len(set) > 0 || r.Effect.Stage != "" {
		bad("preset and effect exclude each other; use a rule for each")
	}
	if p, ok := presetNamed(r.Preset); !ok {
		bad("there is no preset %q; %s", r.Preset, nearestPresets(r.Preset))
	} else {
		for _, x := range p.Rules {
			x.When = x.When.overlaid(r.When)
			x.When.validate(bad)
			x.validateTogether(bad)
		}
	}
	return errors.Join(errs...)
}

// ends reports whether the rule is over for good with an event, as it says or as the rules of its
// preset do.
func (r Rule) ends(with string) bool {
	return slices.ContainsFunc(r.expand(), func(x Rule) bool { return x.When.Ends == with })
}

// expand returns the rules that r stands for. Their names begin with r's.
func (r Rule) expand() []Rule {
	if r.Preset == "" {
		return []Rule{r}
	}
	p, _ := presetNamed(r.Preset) // Validate has seen it
	rules := make([]Rule, len(p.Rules))
	for i, x := range p.Rules {
		x.When = x.When.overlaid(r.When)
		if x.Name = r.Name; len(rules) > 1 {
			x.Name = fmt.Sprintf("%s/%d", r.Name, i+1)
		}
		rules[i] = x
	}
	return rules
}

// overlaid returns s with what o sets instead.
func (s Selector) overlaid(o Selector) Selector {
	for _, f := range []struct{ into, from *string }{
		{&s.Host, &o.Host}, {&s.Client, &o.Client}, {&s.Via, &o.Via}, {&s.Method, &o.Method}, {&s.Path, &o.Path}, {&s.Header, &o.Header}, {&s.Ends, &o.Ends},
	} {
		if *f.from != "" {
			*f.into = *f.from
		}
	}
	for _, f := range []struct{ into, from *Duration }{{&s.Within, &o.Within}, {&s.Restarted, &o.Restarted}, {&s.From, &o.From}, {&s.Until, &o.Until}} {
		if *f.from != 0 {
			*f.into = *f.from
		}
	}
	for _, f := range []struct{ into, from *uint64 }{{&s.Skip, &o.Skip}, {&s.Count, &o.Count}} {
		if *f.from != 0 {
			*f.into = *f.from
		}
	}
	if o.Reset != nil {
		s.Reset = o.Reset
	}
	if o.Phase != nil {
		s.Phase = o.Phase
	}
	if o.Body != nil {
		s.Body = o.Body
	}
	return s
}

func (s Selector) validate(bad func(string, ...any)) {
	for _, g := range []struct{ key, glob string }{{"host", s.Host}, {"client", s.Client}, {"path", s.Path}} {
		if !isGlob(g.glob) {
			bad("%s %q is not a glob", g.key, g.glob)
		}
	}
	if s.Path != "" && (s.Path[0] != '/' || strings.HasSuffix(s.Path, "/")) {
		bad("path %q must begin with a slash and not end with one", s.Path)
	}
	if s.Via != "" && s.Via != ViaRedfish && s.Via != ViaIPMI {
		bad("via %q is neither %s nor %s", s.Via, ViaRedfish, ViaIPMI)
	}
	if name, value, ok := s.header(); s.Header != "" && (!ok || !headerName.MatchString(name) || !isGlob(value)) {
		bad("header %q must be a name, a colon and a glob", s.Header)
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
	for _, property := range slices.Sorted(maps.Keys(s.Body)) {
		if !isProperty(property) {
			bad("body %q is no path of a property, such as Boot/BootSourceOverrideTarget", property)
		}
		if !isGlob(s.Body[property]) {
			bad("body %q: %q is not a glob", property, s.Body[property])
		}
	}
	if s.Ends != "" && s.Ends != EndsRestart {
		bad("ends %q is not %s", s.Ends, EndsRestart)
	}
	if s.From < 0 || s.Until < 0 {
		bad("from and until must not be negative")
	}
	if s.Until != 0 && s.Until <= s.From {
		bad("until must be later than from")
	}
	for _, x := range []struct {
		key string
		d   Duration
	}{{"within", s.Within}, {"restarted", s.Restarted}} {
		if x.d < 0 || x.d > maxDuration {
			bad("%s must be between 0 and %v", x.key, time.Duration(maxDuration))
		}
	}
}

// IsZero reports whether s selects all requests, for ever.
func (s Selector) IsZero() bool {
	return s.Host == "" && s.From == 0 && s.Until == 0 && s.Ends == "" && s.everything()
}

func (s *Selector) header() (name, glob string, ok bool) {
	name, glob, ok = strings.Cut(s.Header, ":")
	return name, strings.TrimSpace(glob), ok
}

// isProperty reports whether a path names a property of a resource.
func isProperty(path string) bool {
	return path != "" && !slices.Contains(strings.Split(path, "/"), "")
}

func isGlob(pattern string) bool {
	_, err := path.Match(pattern, "")
	return err == nil
}

// validateTogether finds selectors that the effect can never meet.
func (r Rule) validateTogether(bad func(string, ...any)) {
	w, e := &r.When, &r.Effect
	reads, resets := e.confined(read), e.confined(reset|managerReset|media)
	if reads && len(w.Reset) > 0 {
		bad("%s concerns reads, so reset can't select them", e.keys()[0])
	}
	if reads && w.Method != "" && w.Method != methodGet && w.Method != methodHead {
		bad("%s concerns reads, not %s", e.keys()[0], w.Method)
	}
	byPatch := len(w.Reset) == 0 && !e.confined(reset|managerReset) // as images go into some drives
	if (resets || len(w.Reset) > 0) && w.Method != "" && w.Method != methodPost && !(byPatch && w.Method == methodPatch) {
		bad("a reset is a POST, not %s", w.Method)
	}
	if e.Stuck != nil && len(w.Reset) > 0 && !slices.Contains(w.Reset, ResetGracefulShutdown) {
		bad("stuck concerns %s, which reset leaves out", ResetGracefulShutdown)
	}
	if e.standing() && !w.everything() {
		bad("%s lasts while the rule is in force: only host, from and until go with it", e.keys()[0])
	}
	if w.Client == ClientBMC && (e.Auto != nil || e.Duplicate != 0 || e.Transition != nil || e.Restart != nil) ||
		w.Client == ClientRestore && e.Restart != nil {
		bad("%s would bring itself about for ever when the client is %s", e.keys()[0], w.Client)
	}
	if w.Header != "" && w.Via == ViaIPMI {
		bad("ipmi has no headers")
	}
	if w.Body != nil && w.Via == ViaIPMI {
		bad("ipmi has no bodies")
	}
}
