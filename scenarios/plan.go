package scenarios

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"sigs.k8s.io/yaml"
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
	// seed is the source of the random choices.
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
	// divides says what divides the schedules that fail like this one from those that hold.
	Divides string `json:"divides,omitempty"`
}

// Defaults of a scenario. Timings are those of the fast virtual machines of the lab rather than of
// a rack server, so that one file has the same story in both worlds.
const (
	defaultBoot    = Duration(8 * time.Second)
	defaultSoftOff = Duration(3 * time.Second)
	defaultHardOff = Duration(300 * time.Millisecond)
	defaultLease   = Duration(2 * time.Second)
	defaultAttach  = Duration(time.Second)
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
	if volume := spec.Topology.Workload.Volume; volume != nil {
		setDefault(&volume.Attach, defaultAttach)
		setDefault(&volume.Detach, defaultAttach)
	}
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
		several, _ := step.When.List()
		for j := range several {
			several[j].Occurrence = max(several[j].Occurrence, 1)
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

// WithDeeds returns the plan with the deeds of its deviations, by their steps.
func (p *Plan) WithDeeds(deeds map[string]string) *Plan {
	q := *p
	q.Deviations = slices.Clone(p.Deviations)
	for i := range q.Deviations {
		d := &q.Deviations[i]
		d.Deed, d.AfterDeed = cmp.Or(deeds[d.Step], d.Deed), cmp.Or(deeds[d.After], d.AfterDeed)
	}
	return &q
}

// NamesSteps reports whether the plan deviates at a step of the simulator, for which no other world
// has a name.
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

// Portable returns the plan with the files below a directory named from there, so that it can be
// played in another clone. Whoever loads it finds them from the working directory.
func (p *Plan) Portable(dir string) *Plan {
	q := *p
	q.Spec.Controllers = slices.Clone(p.Spec.Controllers)
	for i := range q.Spec.Controllers {
		c := &q.Spec.Controllers[i]
		if c.Program != nil {
			program := *c.Program
			program.Dir, program.Image = below(dir, program.Dir), program.Image.from(program.Dir, dir)
			c.Program = &program
		}
		if c.Pods != nil {
			pods := *c.Pods
			pods.Dir = below(dir, pods.Dir)
			c.Pods = &pods
		}
	}
	if i := p.Spec.Topology.Ironic; i != nil {
		ironic := *i
		ironic.Bin, ironic.Image = below(dir, ironic.Bin), ironic.Image.from(dir, dir)
		q.Spec.Topology.Ironic = &ironic
	}
	if b := p.Spec.Topology.BMC; b != nil {
		bmc := *b
		bmc.Dir, bmc.Image = below(dir, bmc.Dir), bmc.Image.from(bmc.Dir, dir)
		q.Spec.Topology.BMC = &bmc
	}
	return &q
}

// below names an absolute path from a directory, if it is that or below.
func below(dir, path string) string {
	if rest, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rest) {
		return rest
	}
	return path
}

// ID identifies the plan by its content.
func (p *Plan) ID() string {
	q := *p
	q.Digest, q.Version, q.Shrunk = "", "", nil
	q.Deviations = slices.Clone(q.Deviations)
	for i := range q.Deviations {
		q.Deviations[i].Deed, q.Deviations[i].AfterDeed = "", "" // they name the same steps once more
	}
	sum := sha256.Sum256(q.Text())
	return hex.EncodeToString(sum[:])[:12]
}
