package search

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/steps"
)

const (
	// exact is how near to each other two latenesses are of which the one holds and the other
	// fails. The difference between their runs is the reason.
	exact = 100 * time.Microsecond
	// othersTried is how many other steps with the same deed are tried, the nearest.
	othersTried = 12
)

// explainer finds out what the deviations of the schedules of a story come to.
type explainer struct {
	simulator *sim.Simulator
	story     *campaign.Story
	// benign is the default schedule.
	benign []told
	// deviating are the deviations of schedules that were asked for, by number.
	deviating map[int][]deviating
}

// deviating is a deviation that came about: in which deed, its number, and how late it was, or
// the extent of its fault.
type deviating struct {
	deed  string
	nth   int
	fault scenarios.StepFault
	late  time.Duration
}

func newExplainer(t *Told, story *campaign.Story) *explainer {
	return &explainer{t.simulator, story, t.steps, make(map[int][]deviating)}
}

func (e *explainer) run(ctx context.Context, s campaign.Schedule) ([]told, error) {
	story, _, err := e.outcome(ctx, s)
	return story, err
}

// outcome plays a schedule, and returns its steps as well.
func (e *explainer) outcome(ctx context.Context, s campaign.Schedule) ([]told, *play.Outcome, error) {
	s.Shrunk = nil
	story, outcome, err := tell(ctx, e.simulator, e.story.PlanOf(s))
	if err == nil {
		err = outcome.Err
	}
	return story, outcome, err
}

// culprits are the actors of the events by which guarantees were violated.
func culprits(o *play.Outcome) (actors []string) {
	for _, r := range o.Results {
		if v := r.Violation; v != nil {
			actors = append(actors, v.First.Actor, v.Second.Actor)
		}
	}
	return actors
}

func placeOf(story []told, step string) int {
	return slices.IndexFunc(story, func(t told) bool { return t.Name() == step })
}

// deedOf says what a step does that has a fault. When a process dies, it doesn't matter at which of
// its deeds.
func deedOf(t *told, fault scenarios.StepFault) string {
	if fault.Kills() && t.Can(scenarios.FaultCrashBefore) {
		return t.Actor + "'s death"
	}
	return t.words
}

// alike are the places of all steps that do the same as one with a fault.
func alike(story []told, at int, fault scenarios.StepFault) (places []int) {
	deed := deedOf(&story[at], fault)
	for i := range story {
		if story[i].Actor == story[at].Actor && deedOf(&story[i], fault) == deed {
			places = append(places, i)
		}
	}
	return places
}

// Is implements campaign.Explainer.
func (e *explainer) Is(ctx context.Context, f *campaign.Fact, s campaign.Schedule) (bool, error) {
	all, ok := e.deviating[s.Number]
	if !ok {
		story := e.benign
		if len(s.Deviations) > 1 || len(e.story.Spans) > 0 {
			var err error
			if story, err = e.run(ctx, s); err != nil {
				return false, err
			}
		}
		for _, d := range s.Deviations {
			at := placeOf(story, d.Step)
			if at < 0 {
				continue // it did not come about
			}
			one := deviating{deed: deedOf(&story[at], d.Fault), fault: d.Fault, late: time.Duration(d.Delay)}
			one.nth = 1 + slices.Index(alike(story, at, d.Fault), at)
			if d.After != "" && d.Fault == "" {
				if other := placeOf(story, d.After); other >= 0 && story[other].taken >= 0 {
					one.late = min(one.late, max(0, story[other].at-story[at].At))
				}
			}
			all = append(all, one)
		}
		e.deviating[s.Number] = all
	}
	for _, part := range f.Parts {
		if !slices.ContainsFunc(all, func(d deviating) bool { return d.has(part) }) {
			return false, nil
		}
	}
	return true, nil
}

func (d deviating) has(p campaign.Part) bool {
	if d.deed != p.Deed || len(p.Nth) > 0 && !slices.Contains(p.Nth, d.nth) || !slices.Contains(p.Faults, d.fault) {
		return false
	}
	return d.late >= time.Duration(p.Least) && (p.Most == 0 || d.late <= time.Duration(p.Most))
}

// Explain implements campaign.Explainer.
func (e *explainer) Explain(ctx context.Context, s campaign.Schedule, fail func([][]scenarios.Deviation) []bool) (*campaign.Fact, error) {
	failing, outcome, err := e.outcome(ctx, s)
	if err != nil {
		return nil, err
	}
	f := new(campaign.Fact)
	for i, d := range s.Deviations {
		one := &intervention{explainer: e, schedule: s, place: i, fail: fail, failing: failing, culprits: culprits(outcome)}
		rest := s
		rest.Deviations = slices.Delete(slices.Clone(s.Deviations), i, i+1)
		if one.without, err = e.run(ctx, rest); err != nil {
			return nil, err
		}
		if one.at = placeOf(one.without, d.Step); one.at < 0 { // the others make it possible
			if one.without, one.at = failing, placeOf(failing, d.Step); one.at < 0 {
				continue
			}
		}
		if err := one.intervene(ctx, d); err != nil {
			return nil, err
		}
		f.Parts = append(f.Parts, one.part)
	}
	return f, nil
}

// intervention varies one deviation of a schedule that fails.
type intervention struct {
	*explainer
	schedule campaign.Schedule
	// place is that of the deviation in the schedule.
	place int
	fail  func([][]scenarios.Deviation) []bool
	// failing is the run of the schedule, and without one without the deviation, where the step is
	// at.
	failing, without []told
	at               int
	culprits         []string

	part campaign.Part
}

// fails says which of these deviations lead to the same failure in place of the one that is varied.
func (v *intervention) fails(some ...scenarios.Deviation) []bool {
	candidates := make([][]scenarios.Deviation, len(some))
	for i, d := range some {
		candidates[i] = slices.Clone(v.schedule.Deviations)
		candidates[i][v.place] = d
	}
	return v.fail(candidates)
}

// intervene finds out which deviations like this one lead to the same failure: with other faults of
// the kind, at other steps of the same deed, and as late as that.
func (v *intervention) intervene(ctx context.Context, d scenarios.Deviation) error {
	step := v.without[v.at]
	v.part = campaign.Part{Deed: deedOf(&step, d.Fault), Faults: []scenarios.StepFault{d.Fault}}
	other, after, by := "", "", ""
	if d.After != "" {
		late := v.waited(d)
		switch delayed := (scenarios.Deviation{Step: d.Step, Delay: scenarios.Duration(late)}); {
		case d.Fault == "" && late > 0 && v.fails(delayed)[0]:
			d = delayed
		default:
			if i := placeOf(v.failing, d.After); i >= 0 {
				other = v.failing[i].words
			}
			v.part.Least = scenarios.Duration(late)
		}
	}
	all := false
	switch {
	case d.Fault.Kills() && v.dies(d):
		return nil
	case d.Fault != "" && !d.Fault.HasExtent():
		kin := d.Kin(step.Faults())
		var some []scenarios.Deviation
		for _, fault := range kin {
			one := d
			one.Fault = fault
			some = append(some, one)
		}
		same := v.fails(some...)
		v.part.Faults = nil
		for i, fault := range kin {
			if same[i] {
				v.part.Faults = append(v.part.Faults, fault)
			}
		}
		if all = len(v.part.Faults) == len(kin); len(v.part.Faults) == 0 {
			v.part.Faults = []scenarios.StepFault{d.Fault} // none that a search tries
		}
	case d.After == "" && d.Delay > 0:
		var err error
		if after, by, err = v.lateness(ctx, d); err != nil {
			return err
		}
	}
	which := v.which(d)
	v.part.Words = d.TellAny(step.words, other, which, by, v.part.Faults, all) + after
	return nil
}

// waited is how late a step came that waited, or would have if what it waited for had come.
func (v *intervention) waited(d scenarios.Deviation) time.Duration {
	for _, story := range [][]told{v.failing, v.benign} {
		step, other := placeOf(story, d.Step), placeOf(story, d.After)
		if step >= 0 && other >= 0 && story[other].taken >= 0 {
			return max(0, min(time.Duration(d.Delay), story[other].at-story[step].At))
		}
	}
	return 0
}

// dies finds out at which of its steps a process has to die, if any death at that time leads to the
// failure.
func (v *intervention) dies(d scenarios.Deviation) bool {
	const death = scenarios.FaultCrashBefore
	places := alike(v.without, v.at, death)
	nth := slices.Index(places, v.at)
	if nth < 0 {
		return false
	}
	from := max(0, nth-othersTried)
	tried := places[from:min(len(places), nth+1+othersTried)]
	var some []scenarios.Deviation
	for _, at := range tried {
		some = append(some, scenarios.Deviation{Step: v.without[at].Name(), Fault: death})
	}
	same := v.fails(some...)
	first, last := nth-from, nth-from
	if first+1 < len(same) && !same[first] && same[first+1] { // right after one is before the next
		first, last = first+1, last+1
	}
	if !same[first] {
		return false
	}
	for first > 0 && same[first-1] {
		first--
	}
	for last+1 < len(same) && same[last+1] {
		last++
	}
	for i := first; i <= last; i++ {
		v.part.Nth = append(v.part.Nth, from+i+1)
	}
	v.part.Faults = slices.DeleteFunc(scenarios.StepFaults(), func(f scenarios.StepFault) bool { return !f.Kills() })
	deed := func(i int) string {
		at := tried[i]
		text, all := v.without[at].words, alike(v.without, at, "")
		if len(all) > 1 {
			text += fmt.Sprintf(" (no. %d of %d)", 1+slices.Index(all, at), len(all))
		}
		return text
	}
	actor := v.without[v.at].Actor
	if v.part.Words = actor + " died before " + deed(first); last > first {
		v.part.Words = fmt.Sprintf("%s died at one of its %d steps from %s to %s", actor, last-first+1, deed(first), deed(last))
	}
	return true
}

// which tries the deviation at other steps that do the same, and says at which of them it leads to
// the failure, or nothing if at all.
func (v *intervention) which(d scenarios.Deviation) string {
	places := alike(v.without, v.at, "")
	nth := slices.Index(places, v.at)
	if d.Fault.Kills() {
		v.part.Nth = []int{1 + slices.Index(alike(v.without, v.at, d.Fault), v.at)}
		return fmt.Sprintf("no. %d of %d", nth+1, len(places))
	}
	from := max(0, min(nth-othersTried/2, len(places)-1-othersTried))
	tried := places[from:min(len(places), from+1+othersTried)]
	var some []scenarios.Deviation
	for _, at := range tried {
		some = append(some, d.At(v.without[at].Name()))
	}
	same := v.fails(some...)
	var numbers []string
	for i := range tried {
		if same[i] || tried[i] == v.at {
			v.part.Nth = append(v.part.Nth, from+i+1)
			numbers = append(numbers, fmt.Sprint(from+i+1))
		}
	}
	last := len(numbers) - 1
	switch first := v.part.Nth[0]; {
	case len(v.part.Nth) == len(places):
		v.part.Nth = nil
		return ""
	case last > 1 && v.part.Nth[last] == first+last:
		return fmt.Sprintf("no. %d to %d of %d", first, first+last, len(places))
	case last > 0:
		return fmt.Sprintf("no. %s and %s of %d", strings.Join(numbers[:last], ", "), numbers[last], len(places))
	}
	return fmt.Sprintf("no. %s of %d", numbers[0], len(places))
}

// lateness finds out from which lateness on, and up to which one, the schedule fails, and what the
// least one changes: two steps that depend on each other come in the other order, or nothing but
// the time.
func (v *intervention) lateness(ctx context.Context, d scenarios.Deviation) (after, by string, err error) {
	late := func(by time.Duration) scenarios.Deviation {
		other := d
		other.Delay = scenarios.Duration(by)
		return other
	}
	between := func(held, broke, within time.Duration) (time.Duration, time.Duration) {
		for held-broke > within || broke-held > within {
			if by := (held + broke) / 2; v.fails(late(by))[0] {
				broke = by
			} else {
				held = by
			}
		}
		return held, broke
	}
	held, least := between(0, time.Duration(d.Delay), exact)
	longest := apart
	if latest := v.without[v.at].Latest(); latest > 0 && !d.Fault.HasExtent() {
		longest = latest
	}
	last, most := time.Duration(d.Delay), time.Duration(0)
	for _, by := range append(slices.Clone(Delays), longest) {
		if by <= last || by > longest {
			continue
		}
		if !v.fails(late(by))[0] {
			_, most = between(by, last, finest)
			break
		}
		last = by
	}
	v.part.Least, v.part.Most = scenarios.Duration(least), scenarios.Duration(most)
	from := least.Round(finest)
	if by = fmt.Sprintf("%s or more", from); most > 0 {
		by = fmt.Sprintf("between %s and %s", from, most.Round(finest))
	}
	if d.Fault == "" { // which says enough
		after, err = v.swap(ctx, late(held), late(least))
	}
	return after, by, err
}

// swap finds out which steps come in another order when the deviation is a little slighter and the
// schedule holds. If one of them is that of the deviation, it says after which it comes. One piece
// of news reaches many, so that it takes the first order in which a culprit has a step.
func (v *intervention) swap(ctx context.Context, held, broke scenarios.Deviation) (string, error) {
	run := func(d scenarios.Deviation) (taken []told, err error) {
		s := v.schedule
		s.Deviations = slices.Clone(s.Deviations)
		s.Deviations[v.place] = d
		story, err := v.run(ctx, s)
		for _, t := range story {
			if t.taken >= 0 {
				taken = append(taken, t)
			}
		}
		slices.SortFunc(taken, func(a, b told) int { return a.taken - b.taken })
		return taken, err
	}
	before, err := run(held)
	if err != nil {
		return "", err
	}
	after, err := run(broke)
	if err != nil {
		return "", err
	}
	was := make(map[string]int, len(before))
	for i := range before {
		was[before[i].Name()] = i + 1
	}
	for i, first := range after {
		for _, second := range after[i+1 : min(len(after), i+1+swapped)] {
			if a, b := was[first.Name()], was[second.Name()]; a == 0 || b == 0 || b > a || first.Independent(second.Step) {
				continue
			}
			if second.Name() == broke.Step {
				v.part.Order = ""
				return ", after " + first.words, nil
			}
			if order := fmt.Sprintf("%s came before %s", first.words, second.words); v.blames(first) || v.blames(second) {
				v.part.Order = order
				return "", nil
			} else if v.part.Order == "" {
				v.part.Order = order
			}
		}
	}
	return "", nil
}

// blames reports whether a step is a culprit's, or of a part of it, like its cache. Only a process
// decides by what it knows.
func (v *intervention) blames(t told) bool {
	return strings.HasPrefix(t.Place, steps.PlaceProcess) && slices.ContainsFunc(v.culprits, func(actor string) bool {
		return actor != "" && (t.Actor == actor || strings.HasPrefix(t.Actor, actor+"."))
	})
}

// swapped is how far from each other steps are at most that a slight lateness swaps.
const swapped = 16
