package search

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/steps"
)

// facts gathers what may divide schedules: which of two dependent steps came first,
// what a controller had not learned when it acted, and what went wrong with a step.
type facts struct {
	deeds map[steps.Name]*deed
	// count numbers the deeds that are worded alike.
	count map[string]int
	// last says who wrote each resource last, and who has read it since.
	last map[string]*touch
	// news are the deliveries that a process waits for.
	news map[string][]*deed
	// planned are the deviations of the schedule, by step.
	planned map[string]scenarios.Deviation
	// waited are the steps that waited for another one.
	waited []*deed
	found  []fact
}

// deed is a step in words, which is the nth with these.
type deed struct {
	steps.Step
	words string
	nth   int
	cause *deed
	// came is when it was taken, if it had waited.
	came time.Duration
}

// touch is who wrote a resource last, and who has read it since.
type touch struct {
	writer  *deed
	readers []*deed
}

// fact is one that came true at a time.
type fact struct {
	campaign.Fact
	rank int
	at   time.Duration
	// of are the steps that it is about.
	of []string
}

// The ranks of facts: the first explain most.
const (
	wentWrong = iota
	someOf    // it went wrong in one of several ways
	notKnown
	inOrder
	waited
	came
)

func newFacts(planned []scenarios.Deviation) *facts {
	f := &facts{
		deeds: make(map[steps.Name]*deed), count: make(map[string]int), last: make(map[string]*touch), news: make(map[string][]*deed),
		planned: make(map[string]scenarios.Deviation),
	}
	for _, d := range planned {
		f.planned[d.Step] = d
	}
	return f
}

// watch lets a world report to it.
func (f *facts) watch(b *sim.Backend) {
	b.Watch = func(s steps.Step) (scenarios.Deviation, bool) {
		f.scheduled(s)
		return scenarios.Deviation{}, false
	}
	b.Took = f.took
}

func (f *facts) scheduled(s steps.Step) {
	actor, does := steps.Told(s)
	d := &deed{Step: s, words: scenarios.Possessive(actor, does), cause: f.deeds[s.Cause]}
	f.count[d.words]++
	d.nth = f.count[d.words]
	f.deeds[steps.Name{Actor: s.Actor, Class: s.Class, N: s.N}] = d
	if s.Class == steps.ClassDeliver {
		f.news[s.Place] = append(f.news[s.Place], d)
	}
	switch planned, ok := f.planned[s.Name()]; {
	case !ok:
	case planned.Fault != "":
		f.add(wentWrong, s.At, planned.Tell(actor, does, ""), planned.Tell(actor, does, "")+fmt.Sprintf(" (no. %d)", d.nth), d)
		if strings.HasPrefix(string(planned.Fault), "crash") {
			f.add(someOf, s.At, actor+" died at "+d.words, actor+" died at "+d.numbered(), d)
		}
		f.add(someOf, s.At, d.words+" failed in some way", d.numbered()+" failed in some way", d)
	case planned.After != "":
		d.came = s.At + time.Duration(planned.Delay)
		f.waited = append(f.waited, d)
	default:
		f.late(wentWrong, d, time.Duration(planned.Delay), func(time.Duration) time.Duration { return s.At })
	}
}

// late notes how late a step was, and from when on that was so.
func (f *facts) late(rank int, d *deed, by time.Duration, from func(least time.Duration) time.Duration) {
	const text = "%s came %s late or more"
	for _, least := range Delays {
		if least <= by {
			f.add(rank, from(least), fmt.Sprintf(text, d.words, least), fmt.Sprintf(text, d.numbered(), least), d)
		}
	}
}

func (f *facts) took(name steps.Name, at time.Duration) {
	d := f.deeds[name]
	if d == nil {
		return // it was scheduled before the story
	}
	if f.add(came, at, d.words, ""); d.came > 0 { // that it came at all
		d.came = at
	}
	print := d.Footprint()
	for i, r := range slices.Concat(print.Writes, print.Reads) {
		if strings.HasPrefix(r, steps.PlaceProcess) || strings.HasPrefix(r, "watch/") {
			continue
		}
		for other, t := range f.last { // order does not matter: facts are sorted
			if !steps.Overlap(r, other) {
				continue
			}
			f.order(t.writer, d, at)
			if i < len(print.Writes) {
				for _, reader := range t.readers {
					f.order(reader, d, at)
				}
			}
		}
		t := f.last[r]
		if t == nil {
			t = new(touch)
			f.last[r] = t
		}
		if i < len(print.Writes) {
			t.writer, t.readers = d, nil
		} else {
			t.readers = append(t.readers, d)
		}
	}
	switch {
	case d.Class == steps.ClassDeliver:
		f.news[d.Place] = slices.DeleteFunc(f.news[d.Place], func(n *deed) bool { return n == d })
	case d.Class == steps.ClassStart:
		delete(f.news, d.Place)
	case d.Effect || d.Class == steps.ClassWork:
		for _, n := range f.news[d.Place] {
			f.both(notKnown, at, d, n, "%s came before %s")
		}
	}
}

// order notes that a step came after another one that depends on it, and isn't its cause.
func (f *facts) order(first, second *deed, at time.Duration) {
	if first == nil || first.Actor == second.Actor {
		return
	}
	for c, n := second.cause, 0; c != nil && n < 64; c, n = c.cause, n+1 {
		if c == first {
			return
		}
	}
	f.both(inOrder, at, first, second, "%s came before %s")
}

// both adds a fact about two deeds, once with their numbers and once without.
func (f *facts) both(rank int, at time.Duration, one, other *deed, text string) {
	f.add(rank, at, fmt.Sprintf(text, one.words, other.words), fmt.Sprintf(text, one.numbered(), other.numbered()), one, other)
}

func (d *deed) numbered() string { return fmt.Sprintf("%s (no. %d)", d.words, d.nth) }

// add adds a fact, and the same with numbers if there is such a one.
func (f *facts) add(rank int, at time.Duration, plain, numbered string, of ...*deed) {
	var names []string
	var needs []campaign.Point
	for _, d := range of {
		names = append(names, d.Name())
		needs = append(needs, pointOf(d.words))
	}
	if rank <= someOf {
		needs = nil // nothing goes wrong in the other schedules
	}
	f.found = append(f.found, fact{campaign.Fact{Point: pointOf(plain), Words: plain, Needs: needs}, 2 * rank, at, names})
	if numbered != "" && numbered != plain {
		f.found = append(f.found, fact{campaign.Fact{Point: pointOf(numbered), Words: numbered, Needs: needs}, 2*rank + 1, at, names})
	}
}

func pointOf(words string) campaign.Point {
	h := fnv.New32a()
	h.Write([]byte(words))
	return campaign.Point(h.Sum32())
}

// before returns the facts that came true before the violation of a run, if there was one. What
// comes at its very time may be its own news: of that only what its actor did not know remains.
func (f *facts) before(o *play.Outcome) []fact {
	for _, d := range f.waited {
		f.late(waited, d, d.came-d.At, func(least time.Duration) time.Duration { return d.At + least })
	}
	f.waited = nil
	v := o.Violation()
	if v == nil {
		return f.found
	}
	return slices.DeleteFunc(slices.Clone(f.found), func(t fact) bool {
		known := t.at < v.Second.At || t.at == v.Second.At && t.rank/2 == notKnown
		return !known
	})
}

// factsOf plays a schedule and returns what was true in it.
func (p *Player) factsOf(schedule campaign.Schedule) ([]fact, error) {
	f, backend := newFacts(schedule.Deviations), p.simulator.Backend()
	f.watch(backend)
	outcome, err := play.Run(context.Background(), p.story.PlanOf(schedule), backend, nil)
	if err == nil {
		err = outcome.Err
	}
	if err != nil {
		return nil, fmt.Errorf("look for what divides schedules: %w", err)
	}
	return f.before(outcome), nil
}

// Explain returns what was true in a failing schedule before it failed, what explains most first:
// facts about its deviations, then what went wrong or was not known, and among equals the last.
func (p *Player) Explain(schedule campaign.Schedule) (told []campaign.Fact, err error) {
	all, err := p.factsOf(schedule)
	if err != nil {
		return nil, err
	}
	involved := func(t fact) int {
		for _, d := range schedule.Deviations {
			if slices.Contains(t.of, d.Step) && (d.After == "" || slices.Contains(t.of, d.After)) {
				return 0
			}
		}
		for _, d := range schedule.Deviations {
			if slices.Contains(t.of, d.Step) || slices.Contains(t.of, d.After) {
				return 1
			}
		}
		return 2
	}
	all = slices.DeleteFunc(all, func(t fact) bool { return len(t.of) == 0 })
	slices.SortStableFunc(all, func(a, b fact) int {
		return cmp.Or(cmp.Compare(involved(a), involved(b)), cmp.Compare(a.rank, b.rank), cmp.Compare(b.at, a.at), strings.Compare(a.Words, b.Words))
	})
	seen := make(map[campaign.Point]bool)
	for _, t := range all {
		if !seen[t.Point] {
			seen[t.Point] = true
			told = append(told, t.Fact)
		}
	}
	return told, nil
}

// answer says which of these points were reached in a schedule.
func (p *Player) answer(schedule campaign.Schedule) (campaign.Result, error) {
	all, err := p.factsOf(schedule)
	result := campaign.Result{Number: schedule.Number, Variant: schedule.Variant}
	for _, t := range all {
		if _, asked := slices.BinarySearch(schedule.Ask, t.Point); asked {
			result.Reached = append(result.Reached, t.Point)
		}
	}
	slices.Sort(result.Reached)
	result.Reached = slices.Compact(result.Reached)
	return result, err
}
