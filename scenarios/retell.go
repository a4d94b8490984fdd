package scenarios

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// Retelling is a plan with something changed that must not matter. It has no deviations, since they
// name steps by what has changed.
type Retelling struct {
	// Told says what is changed, and Plan is the changed plan.
	Told string
	Plan *Plan
	// Pace is how many times as long everything takes.
	Pace time.Duration

	back map[string]string
}

// Host is the plan's own name for a host of the retelling.
func (r *Retelling) Host(name string) string {
	if was, ok := r.back[name]; ok {
		return was
	}
	return name
}

// slower is how many times as long a slow retelling takes: a time that doesn't follow is then a
// quarter of what it was, and shows although twice as long is no difference.
const slower = 4

// bystander is the last host by name, so that whoever chooses the first one chooses another.
const bystander = "zz-bystander"

// Retold changes a plan in each way that must not matter to it. Settings returns the settings
// of a controller with its defaults filled in.
func (p *Plan) Retold(settings func(*Controller) (json.RawMessage, error)) ([]Retelling, error) {
	var all []Retelling
	tell := func(told string, pace time.Duration, back map[string]string, change func(*Spec) error) error {
		spec, err := retold(&p.Spec, nil)
		if err == nil {
			err = change(spec)
		}
		if err != nil {
			return fmt.Errorf("tell %s again, %s: %w", p.Metadata.Name, told, err)
		}
		plan := &Plan{APIVersion: p.APIVersion, Kind: p.Kind, Metadata: p.Metadata, Seed: p.Seed, Spec: *spec}
		all = append(all, Retelling{told, plan, pace, back})
		return nil
	}
	if names := p.Spec.Topology.names(); len(names) > 1 && !p.Spec.votes() {
		to, back := rotated(names)
		if err := tell("hosts renamed", 1, back, func(s *Spec) error {
			other, err := retold(s, renamer(to))
			if err == nil {
				*s = *other
			}
			return err
		}); err != nil {
			return nil, err
		}
	}
	if !p.Spec.countsHosts() {
		if err := tell("a bystander added", 1, nil, func(s *Spec) error {
			s.Topology.Hosts = append(s.Topology.Hosts, Host{Name: bystander})
			return nil
		}); err != nil {
			return nil, err
		}
	}
	if err := tell("in another order", 1, nil, func(s *Spec) error {
		slices.Reverse(s.Topology.Hosts)
		slices.Reverse(s.Controllers)
		return nil
	}); err != nil {
		return nil, err
	}
	if p.Spec.hasTerms() {
		return all, nil
	}
	err := tell(fmt.Sprintf("%d times as slow", slower), slower, nil, func(s *Spec) error {
		for i := range s.Controllers {
			own, err := settings(&s.Controllers[i])
			if err != nil {
				return err
			}
			s.Controllers[i].Settings = own
		}
		other, err := retold(s, slow)
		if err == nil {
			*s = *other
		}
		return err
	})
	return all, err
}

// votes reports whether hosts ask one another: each has a vote, and whom one asks first goes by a
// hash of names.
func (s *Spec) votes() bool {
	return slices.ContainsFunc(s.Controllers, func(c Controller) bool { return PartOf(&c) == "fencer" })
}

// does reports whether some operation of the story is of a kind.
func (s *Spec) does(is func(*Op) bool) bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool { return step.Do != nil && is(step.Do) })
}

// countsHosts reports whether a further host changes the story: the health check counts a share of
// them, each has a vote, or a fault reaches several.
func (s *Spec) countsHosts() bool {
	return s.votes() || s.HealthCheck != nil && strings.HasSuffix(s.HealthCheck.MaxUnhealthy, "%") ||
		s.does(func(op *Op) bool {
			return op.AddFault != nil && (op.AddFault.isPreset() || op.AddFault.reachesOthers())
		})
}

// hasTerms reports whether something in the story takes a time that it doesn't say: a Pod's grace,
// a volume's six minutes, an election, a preset of a BMC, or the patience of clients and the
// growing intervals at which they try again what has failed.
func (s *Spec) hasTerms() bool {
	return s.Topology.Workload.Stops != "" || s.Topology.Workload.Volume != nil ||
		slices.ContainsFunc(s.Controllers, func(c Controller) bool { return c.Replicas > 1 }) ||
		s.does(func(op *Op) bool {
			h := op.declared().hinders(op, &invariant.Timings{})
			return h != nil && h.Fails && strings.HasPrefix(h.Party, history.Everybody) ||
				op.Cut != nil && op.Cut.Host == "" || op.AddFault != nil && op.AddFault.isPreset()
		})
}

// brief are waits for a moment among requests, which are as fast as ever.
const brief = 250 * time.Millisecond

// names lists those of hosts, Nodes and Machines, each once, sorted.
func (t *Topology) names() (names []string) {
	for i := range t.Hosts {
		h := &t.Hosts[i]
		names = append(names, h.Name, h.Node(), h.Machine())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// rotated gives each name that of the one before it, and the first that of the last: the others
// keep their order, which the stand-in for a scheduler goes by.
func rotated(names []string) (to, back map[string]string) {
	to, back = make(map[string]string), make(map[string]string)
	for i, name := range names {
		other := names[(i+len(names)-1)%len(names)]
		to[name], back[other] = other, name
	}
	return to, back
}

// retold returns a copy of a story with each of its texts and numbers changed. The key is that of
// the field.
func retold(spec *Spec, change func(key string, value any) any) (*Spec, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	if change != nil {
		var tree any
		if err := json.Unmarshal(data, &tree); err != nil {
			return nil, err
		}
		if data, err = json.Marshal(walk(tree, "", change)); err != nil {
			return nil, err
		}
	}
	story := new(Spec)
	return story, json.Unmarshal(data, story)
}

func walk(tree any, key string, change func(key string, value any) any) any {
	switch tree := tree.(type) {
	case map[string]any:
		for key, value := range tree { // order does not matter: each is changed by itself
			tree[key] = walk(value, key, change)
		}
		return tree
	case []any:
		for i := range tree {
			tree[i] = walk(tree[i], key, change)
		}
		return tree
	}
	return change(key, tree)
}

// word matches a possible name in a text such as patch Node/worker-1 or worker-1.poisonpill.
var word = regexp.MustCompile(`[A-Za-z0-9-]+`)

// renamer gives hosts other names, wherever a text has them. What people call steps stays.
func renamer(names map[string]string) func(string, any) any {
	return func(key string, value any) any {
		text, ok := value.(string)
		if !ok || key == "name" && names[text] == "" {
			return value
		}
		return word.ReplaceAllStringFunc(text, func(w string) string {
			if other := names[w]; other != "" {
				return other
			}
			return w
		})
	}
}

// slow makes a time longer: a duration with its unit, or a number of seconds in an object. What a
// clock gains in a second is a rate.
func slow(key string, value any) any {
	if key == "gains" || key == "loses" {
		return value
	}
	switch value := value.(type) {
	case string:
		if d, err := time.ParseDuration(value); err == nil && strings.ContainsAny(value, "hmsµn") && (key != "after" || d > brief) {
			return (slower * d).String()
		}
	case float64:
		if strings.HasSuffix(key, "Seconds") {
			return slower * value
		}
	}
	return value
}
