package search

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/steps"
)

// finest is how exactly the least lateness is found that breaks a guarantee.
const finest = time.Millisecond

// Margin finds out how near each guarantee of a story is to being broken: by default, at most when
// one step is late and it holds all the same, and from which lateness of a step on it is broken. It
// returns nil if the default schedule doesn't hold.
func Margin(ctx context.Context, simulator *sim.Simulator, plan *scenarios.Plan) (*report.Margins, *play.Outcome, error) {
	story, benign, err := tell(ctx, simulator, plan)
	if err != nil || benign.Err != nil || benign.Meets() != "" || plan.Spec.Expect.Violated != "" {
		return nil, benign, err
	}
	m := &margins{
		player: NewPlayer(simulator, &campaign.Story{Plan: plan}), arrangement: arrange(story, apart),
		of: make(map[string]*report.Margin), late: make(map[lateness]map[string]string),
		found: &report.Margins{Scenario: plan.Metadata.Name, UpTo: apart.Seconds()},
	}
	for _, r := range benign.Results {
		if c := r.Closest; c != nil && play.Tests(r.Invariant) {
			m.of[r.Invariant] = &report.Margin{Guarantee: r.Invariant, Default: callOf(c)}
		}
	}
	for _, i := range m.taken {
		if m.ends[i] && ctx.Err() == nil {
			m.found.Steps++
			if err := m.step(i); err != nil {
				return nil, benign, err
			}
		}
	}
	if err := m.perturb(ctx, simulator, plan); err != nil {
		return nil, benign, err
	}
	for _, g := range m.of { // order does not matter: sorted below
		slices.SortStableFunc(g.Breaks, func(a, b report.Break) int { return cmp.Compare(a.Late, b.Late) })
		m.found.Guarantees = append(m.found.Guarantees, *g)
	}
	slices.SortFunc(m.found.Guarantees, func(a, b report.Margin) int {
		return cmp.Or(cmp.Compare(a.Breaking(), b.Breaking()), cmp.Compare(a.Least(), b.Least()), strings.Compare(a.Guarantee, b.Guarantee))
	})
	return m.found, benign, nil
}

// margins collects the margins of one story.
type margins struct {
	*arrangement
	player *Player
	found  *report.Margins
	of     map[string]*report.Margin
	// late has the guarantees that a lateness breaks, and how.
	late map[lateness]map[string]string
}

// lateness is how late a step of the story is.
type lateness struct {
	step int
	by   time.Duration
}

// step makes one step late, by the fixed delays at first.
func (m *margins) step(i int) error {
	most := apart
	if latest := m.story[i].Latest(); latest > 0 {
		most = min(most, latest)
	}
	var tried []time.Duration
	for _, d := range append(slices.Clone(Delays), most) {
		if d <= most && !slices.Contains(tried, d) {
			tried = append(tried, d)
		}
	}
	var broken []string
	for _, by := range tried {
		broke, err := m.play(lateness{i, by})
		if err != nil {
			return err
		}
		for id := range broke { // order does not matter: sorted below
			if !slices.Contains(broken, id) {
				broken = append(broken, id)
			}
		}
	}
	slices.Sort(broken)
	for _, id := range broken {
		least := slices.IndexFunc(tried, func(by time.Duration) bool { return m.late[lateness{i, by}][id] != "" })
		held := time.Duration(0)
		if least > 0 {
			held = tried[least-1]
		}
		if err := m.bisect(id, i, held, tried[least]); err != nil {
			return err
		}
	}
	return nil
}

// bisect looks for the least lateness that breaks a guarantee, which is more than held and at most
// broke: between the orders of this step and those that depend on it, and then within one.
func (m *margins) bisect(id string, i int, held, broke time.Duration) error {
	s := &m.story[i]
	var between []time.Duration
	for _, j := range m.taken {
		if past := m.story[j].at - s.at + finest; past > held && past < broke && m.depend[m.prints[i]][m.prints[j]] {
			between = append(between, past)
		}
	}
	slices.Sort(between)
	between = slices.Compact(between)
	for broke-held > finest {
		by := held + (broke-held)/2
		if len(between) > 0 {
			by = between[len(between)/2]
		}
		how, err := m.play(lateness{i, by})
		if err != nil {
			return err
		}
		if how[id] != "" {
			broke = by
		} else {
			held = by
		}
		between = slices.DeleteFunc(between, func(d time.Duration) bool { return d <= held || d >= broke })
	}
	g := m.of[id]
	if g == nil {
		g = &report.Margin{Guarantee: id}
		m.of[id] = g
	}
	g.Breaks = append(g.Breaks, report.Break{
		Step: s.Name(), What: s.words, Late: broke.Seconds(), Held: held.Seconds(), How: m.late[lateness{i, broke}][id],
	})
	return nil
}

// play plays a lateness, once, and says which guarantees it breaks and how.
func (m *margins) play(l lateness) (map[string]string, error) {
	if broke, ok := m.late[l]; ok {
		return broke, nil
	}
	s := &m.story[l.step]
	// Number 1 has a brief end, like most schedules of a search.
	o, _, err := m.player.Play(campaign.Schedule{Number: 1, Deviations: []scenarios.Deviation{{Step: s.Name(), Delay: scenarios.Duration(l.by)}}})
	if err != nil {
		return nil, err
	}
	m.found.Schedules++
	broke := make(map[string]string)
	for _, r := range o.Results {
		if r.Verdict == invariant.Violated {
			broke[r.Invariant] = r.Reason
		}
		if g := m.of[r.Invariant]; g != nil && r.Closest != nil && r.Closest.Margin.Seconds() < g.Least() {
			call := callOf(r.Closest)
			g.Tightest, g.By = &call, &report.Late{Step: s.Name(), What: s.words, Late: l.by.Seconds()}
		}
	}
	m.late[l] = broke
	return broke, nil
}

func callOf(c *invariant.Closest) report.Call {
	return report.Call{
		First: invariant.Clause(&c.First), Second: invariant.Clause(&c.Second), Margin: c.Margin.Seconds(), Limit: c.Limit.Seconds(),
	}
}

// perturb doubles each time in the settings, and notes which of them moves a margin most.
func (m *margins) perturb(ctx context.Context, simulator *sim.Simulator, plan *scenarios.Plan) error {
	try := func(name string, was time.Duration, change func(*scenarios.Plan) error) error {
		other := *plan
		other.Spec.Topology.Hosts = slices.Clone(plan.Spec.Topology.Hosts) // else it is of the plan's family
		other.Spec.Controllers = slices.Clone(plan.Spec.Controllers)
		if err := change(&other); err != nil {
			return err
		}
		o, err := play.Run(ctx, &other, simulator.Backend(), nil)
		if err != nil || o.Err != nil || o.Meets() != "" {
			return nil // twice as long isn't allowed, or makes another story of it
		}
		for _, r := range o.Results {
			g := m.of[r.Invariant]
			if g == nil || r.Closest == nil || g.Default.First == "" {
				continue
			}
			moved := r.Closest.Margin.Seconds() - g.Default.Margin
			if most := max(moved, -moved); most >= finest.Seconds() && (g.Governs == nil || most > max(g.Governs.Moves, -g.Governs.Moves)) {
				g.Governs = &report.Governs{Setting: name, Is: was.Seconds(), Moves: moved}
			}
		}
		return nil
	}
	for i := range plan.Spec.Controllers {
		c := &plan.Spec.Controllers[i]
		registration, err := simulator.Controllers().Lookup(objects.Registered(simulator.Controllers(), c.Name))
		if err != nil || registration.Settings == nil || c.Program != nil {
			continue
		}
		all, err := settingsOf(registration.Settings(), c.Settings)
		if err != nil {
			return fmt.Errorf("read the settings of %s: %w", c.Name, err)
		}
		for _, key := range all.keys {
			err := try(key+" of "+c.Name, all.times[key], func(other *scenarios.Plan) (err error) {
				fields := make(map[string]any)
				if len(c.Settings) > 0 {
					err = json.Unmarshal(c.Settings, &fields)
				}
				fields[key] = (2 * all.times[key]).String()
				if err == nil {
					other.Spec.Controllers[i].Settings, err = json.Marshal(fields)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	if h := plan.Spec.HealthCheck; h != nil {
		for _, one := range []struct {
			name string
			of   func(*scenarios.HealthCheck) *scenarios.Duration
		}{
			{"unhealthyAfter", func(h *scenarios.HealthCheck) *scenarios.Duration { return &h.UnhealthyAfter }},
			{"nodeStartupTimeout", func(h *scenarios.HealthCheck) *scenarios.Duration { return &h.NodeStartupTimeout }},
		} {
			err := try(one.name+" of the health check", time.Duration(*one.of(h)), func(other *scenarios.Plan) error {
				twice := *h
				*one.of(&twice) *= 2
				other.Spec.HealthCheck = &twice
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// times are the times in the settings of a controller.
type times struct {
	keys  []string
	times map[string]time.Duration
}

// settingsOf returns the times in settings: the defaults, and in their place what a scenario says.
func settingsOf(defaults any, given json.RawMessage) (times, error) {
	if len(given) > 0 {
		if err := json.Unmarshal(given, defaults); err != nil {
			return times{}, err
		}
	}
	data, err := json.Marshal(defaults)
	if err != nil {
		return times{}, err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return times{}, err
	}
	all := times{times: make(map[string]time.Duration)}
	for key, value := range fields { // order does not matter: sorted below
		text, _ := value.(string)
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			all.keys, all.times[key] = append(all.keys, key), d
		}
	}
	slices.Sort(all.keys)
	return all, nil
}

// wordsOf says what a step that is being scheduled does.
func wordsOf(s steps.Step) string { return scenarios.Possessive(steps.Told(s)) }
