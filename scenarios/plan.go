package scenarios

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Plan is a scenario with every choice made: the unit of replay. Playing the
// same plan in the simulator gives the same history, event by event.
type Plan struct {
	// apiVersion is fencelab.dev/v1alpha1.
	APIVersion string `json:"apiVersion"`
	// kind is Plan.
	Kind string `json:"kind"`
	// metadata is the scenario's.
	Metadata Metadata `json:"metadata"`
	// fencelab is the version that saved the plan.
	Version string `json:"fencelab,omitempty"`
	// seed is what the choices were drawn from.
	Seed uint64 `json:"seed"`
	// digest is the expected digest of the history, where one is known.
	Digest string `json:"digest,omitempty"`
	// spec is the scenario's, with every default written out and every range
	// replaced by one value of it.
	Spec Spec `json:"spec"`
	// deviations are where the schedule leaves its default.
	Deviations []Deviation `json:"deviations,omitempty"`
	// shrunk says how the deviations were reduced to those that it takes, if they were.
	Shrunk *Shrunk `json:"shrunk,omitempty"`
}

// Shrunk says how the deviations of a schedule were reduced.
type Shrunk struct {
	// from is how many deviations the schedule had that was found.
	From int `json:"from"`
	// tried is how many schedules were played to find out which of them it takes.
	Tried int `json:"tried"`
	// needed says that each one that is left is needed: without it the run does not fail in
	// the same way.
	Needed bool `json:"needed,omitempty"`
}

// Deviation makes one scheduling step differ from the default. Steps are named
// by who takes them and which of that actor's steps it is, so that a deviation
// keeps its meaning when others are added or taken away.
type Deviation struct {
	// step names the step: ACTOR/CLASS/N, N counted from 1.
	Step string `json:"step"`
	// delay is added to the time at which the step would be taken. Of late,
	// crash-late, crash-stale and stale-list it is how late, or how old.
	Delay Duration `json:"delay,omitzero"`
	// fault is what goes wrong with the step instead.
	Fault StepFault `json:"fault,omitempty"`
}

// StepFault is something that goes wrong with one step.
type StepFault string

// The faults of single steps.
const (
	// FaultCrashBefore and FaultCrashAfter kill the actor's process around the
	// step.
	FaultCrashBefore StepFault = "crash-before"
	FaultCrashAfter  StepFault = "crash-after"
	// FaultErrorBefore fails the call, which has no effect; FaultErrorAfter
	// fails it although its effect stands.
	FaultErrorBefore StepFault = "error-before"
	FaultErrorAfter  StepFault = "error-after"
	// FaultIgnore has a BMC accept a command and do nothing.
	FaultIgnore StepFault = "ignore"
	// These fail the call with an HTTP status: 403 and the others. It has no effect.
	FaultForbidden StepFault = "error-403"
	FaultNotFound  StepFault = "error-404"
	FaultConflict  StepFault = "error-409"
	FaultTooMany   StepFault = "error-429"
	FaultInternal  StepFault = "error-500"
	// FaultLate has the client of a request give up on it, which is executed later
	// all the same; FaultCrashLate has the client die instead. What the request
	// demands is checked when it is executed.
	FaultLate      StepFault = "late"
	FaultCrashLate StepFault = "crash-late"
	// FaultStaleList has a process that starts fill its caches from an API server
	// that is behind; FaultCrashStale kills it before the step, for such a start.
	FaultStaleList  StepFault = "stale-list"
	FaultCrashStale StepFault = "crash-stale"
	// FaultRelist has a cache skip to the present state: what lies between is
	// never seen.
	FaultRelist StepFault = "relist"
)

// stepFaults are all faults of single steps: what each holds up, which is something that had
// been decided, for as long as the fault's extent, or nothing; whether its actor tries
// again what has failed, which one that has just started doesn't know of; and a fault that is
// less of the same. A list that is old is no excuse: who acts can read.
var stepFaults = []stepFault{
	{FaultCrashBefore, false, false, FaultErrorBefore}, {FaultCrashAfter, false, false, FaultErrorAfter},
	{FaultCrashLate, true, false, FaultLate}, {FaultCrashStale, false, false, FaultCrashBefore},
	{FaultErrorBefore, false, true, ""}, {FaultErrorAfter, false, true, ""}, {FaultLate, true, true, ""},
	{FaultForbidden, false, true, ""}, {FaultNotFound, false, true, ""}, {FaultConflict, false, true, ""}, {FaultTooMany, false, true, ""},
	{FaultInternal, false, true, ""}, {FaultIgnore, false, true, ""}, {FaultRelist, false, false, ""}, {FaultStaleList, false, false, ""},
}

type stepFault struct {
	fault        StepFault
	holds, fails bool
	lesser       StepFault
}

// Lesser are deviations of the same step that are slighter, the slightest first: a lesser
// fault, none of the delay beside a fault, or the delays of these that are shorter.
func (d Deviation) Lesser(delays []time.Duration) []Deviation {
	var lesser []Deviation
	add := func(fault StepFault, delay Duration) {
		lesser = append(lesser, Deviation{Step: d.Step, Fault: fault, Delay: delay})
	}
	if i := slices.IndexFunc(stepFaults, func(f stepFault) bool { return f.fault == d.Fault }); i >= 0 {
		if less := stepFaults[i].lesser; less.HasExtent() == d.Fault.HasExtent() && less != "" {
			add(less, d.Delay)
		} else if less != "" {
			add(less, 0)
		}
		if d.Delay > 0 && !d.Fault.HasExtent() {
			add(d.Fault, 0)
		}
	}
	for _, delay := range delays {
		if delay < time.Duration(d.Delay) {
			add(d.Fault, Duration(delay))
		}
	}
	return lesser
}

// StepFaults are all faults of single steps.
func StepFaults() []StepFault {
	faults := make([]StepFault, len(stepFaults))
	for i := range stepFaults {
		faults[i] = stepFaults[i].fault
	}
	return faults
}

// clientPatience is how long clients wait at least for an answer, before they try again.
const clientPatience = 5 * time.Second

// Hinders is whom a deviation holds up that a party's step takes, which was to come so much
// later. A step that is sent says something that had been decided before.
func (d Deviation) Hinders(party string, later time.Duration, sent bool) *history.Hindrance {
	h := &history.Hindrance{Party: party, After: later}
	i := slices.IndexFunc(stepFaults, func(f stepFault) bool { return f.fault == d.Fault })
	h.Fails = i >= 0 && stepFaults[i].fails || i < 0 && sent && time.Duration(d.Delay) > clientPatience
	if !d.Fault.HasExtent() {
		h.For, h.Decided = time.Duration(d.Delay), sent && d.Delay > 0
		return h
	}
	if h.Decided = stepFaults[i].holds; h.Decided {
		h.For = time.Duration(d.Delay)
	}
	return h
}

// Status returns the HTTP status that the fault answers with, or 0.
func (f StepFault) Status() int {
	switch f {
	case FaultForbidden:
		return http.StatusForbidden
	case FaultNotFound:
		return http.StatusNotFound
	case FaultConflict:
		return http.StatusConflict
	case FaultTooMany:
		return http.StatusTooManyRequests
	case FaultInternal:
		return http.StatusInternalServerError
	}
	return 0
}

// HasExtent reports whether a deviation's delay says how late or how old the
// fault makes something, instead of when the step is taken. Without one the fault
// would be another, or none.
func (f StepFault) HasExtent() bool {
	return f == FaultLate || f == FaultCrashLate || f == FaultStaleList || f == FaultCrashStale
}

func (d Deviation) String() string {
	switch {
	case d.Fault.HasExtent():
		return fmt.Sprintf("%s %s by %s", d.Step, d.Fault, time.Duration(d.Delay))
	case d.Fault == "":
		return fmt.Sprintf("%s delayed by %s", d.Step, time.Duration(d.Delay))
	case d.Delay == 0:
		return fmt.Sprintf("%s %s", d.Step, d.Fault)
	default:
		return fmt.Sprintf("%s %s, delayed by %s", d.Step, d.Fault, time.Duration(d.Delay))
	}
}

// Defaults of a scenario. Timings are those of the fast virtual machines of the
// lab rather than of a rack server, so that one file tells the same story in
// both worlds.
const (
	defaultBoot    = Duration(8 * time.Second)
	defaultSoftOff = Duration(3 * time.Second)
	defaultHardOff = Duration(300 * time.Millisecond)
	defaultLease   = Duration(2 * time.Second)
	defaultStep    = Duration(2 * time.Minute)
	defaultSettle  = Duration(2 * time.Minute)
)

// programsWorld is the only world that has programs.
const programsWorld = "lab"

// Compile makes every choice that a scenario leaves open, drawing from the seed.
// The scenario is not changed.
func Compile(s *Scenario, seed uint64) (*Plan, error) {
	p := &Plan{APIVersion: APIVersion, Kind: KindPlan, Metadata: s.Metadata, Seed: seed}
	// A round trip through JSON is a deep copy: the plan shares nothing with
	// the scenario.
	data, err := json.Marshal(s.Spec)
	if err != nil {
		return nil, fmt.Errorf("compile scenario %s: %w", s.Metadata.Name, err)
	}
	if err := json.Unmarshal(data, &p.Spec); err != nil {
		return nil, fmt.Errorf("compile scenario %s: %w", s.Metadata.Name, err)
	}
	spec := &p.Spec
	setDefault(&spec.Topology.Timings.Boot, defaultBoot)
	setDefault(&spec.Topology.Timings.SoftOff, defaultSoftOff)
	setDefault(&spec.Topology.Timings.HardOff, defaultHardOff)
	setDefault(&spec.Topology.Lease, defaultLease)
	setDefault(&spec.Limits.Step, defaultStep)
	setDefault(&spec.Limits.Settle, defaultSettle)
	spec.completeClaims()
	if spec.Topology.BMC != nil || slices.ContainsFunc(spec.Controllers, func(c Controller) bool { return c.Program != nil || c.Pods != nil }) {
		spec.Worlds = []string{programsWorld} // a system has put it there, and the scenario says nothing of it
	}
	for i := range spec.Steps {
		step := &spec.Steps[i]
		step.After = step.After.pick(seed, i)
		if step.When.Event != "" {
			step.When.Occurrence = max(step.When.Occurrence, 1)
		}
		for j := range step.When.AllOf {
			step.When.AllOf[j].Occurrence = max(step.When.AllOf[j].Occurrence, 1)
		}
		if step.Do != nil && step.Do.Crash != nil && step.Do.Crash.Point == "" {
			step.Do.Crash.Point = CrashAfter
		}
	}
	return p, nil
}

// pick draws the time that a step waits. There is one stream for each step, so that
// adding a step doesn't change what the others draw.
func (s Span) pick(seed uint64, step int) Span {
	if s.Max <= s.Min {
		return s
	}
	stream := Stream(seed, fmt.Sprintf("step %d after", step))
	pick := s.Min + time.Duration(stream.Int64N(int64(s.Max-s.Min)+1))
	return Span{pick, pick}
}

// HasRanges reports whether a scenario leaves open how long its steps wait.
func (s *Scenario) HasRanges() bool {
	return slices.ContainsFunc(s.Spec.Steps, func(step Step) bool { return step.After.Max > step.After.Min })
}

// Redraw draws the times that steps wait anew, out of the scenario's ranges. What it
// shares with other plans stays as it is.
func (p *Plan) Redraw(spans []Span, seed uint64) {
	p.Seed, p.Digest = seed, ""
	p.Spec.Steps = slices.Clone(p.Spec.Steps)
	for i := range p.Spec.Steps {
		p.Spec.Steps[i].After = spans[i].pick(seed, i)
	}
}

func setDefault(d *Duration, value Duration) {
	if *d == 0 {
		*d = value
	}
}

// Stream returns the named random stream of a seed. Streams of different names
// are independent, so that a draw more in one place shifts nothing elsewhere.
func Stream(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// With returns a copy of the plan with other deviations, sorted by step.
func (p *Plan) With(deviations []Deviation) *Plan {
	q := *p
	q.Deviations = slices.Clone(deviations)
	slices.SortStableFunc(q.Deviations, func(a, b Deviation) int { return bytes.Compare([]byte(a.Step), []byte(b.Step)) })
	q.Digest, q.Shrunk = "", nil
	return &q
}

// NamesSteps reports whether the plan deviates at a step of the simulator, for which no other world has a name.
func (p *Plan) NamesSteps() bool {
	return slices.ContainsFunc(p.Deviations, func(d Deviation) bool { return !NamesDeed(d.Step) })
}

// Text renders the plan as the file that replay reads.
func (p *Plan) Text() []byte {
	data, err := yaml.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("a plan is made of plain data: %v", err)) // unreachable: every field marshals
	}
	return data
}

// ID identifies the plan by its content.
func (p *Plan) ID() string {
	q := *p
	q.Digest, q.Version, q.Shrunk = "", "", nil
	sum := sha256.Sum256(q.Text())
	return hex.EncodeToString(sum[:])[:12]
}
