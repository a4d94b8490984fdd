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

// facts gathers what may divide schedules: which of two dependent steps came first, what a
// controller had not learned when it acted, how old its knowledge was and what came since, and what
// went wrong with a step.
type facts struct {
	*terms
	deeds map[steps.Name]*deed
	// count numbers the deeds that are worded alike.
	count map[int]int
	// touched has who wrote each resource last, and who has read it since. Resources has their
	// places there, and meets says which of them are the same or parts of each other.
	touched   []*touch
	resources map[string]int
	meets     [][]bool
	// news are the deliveries that a process waits for, and lives what it did and knows.
	news  map[string][]*deed
	lives map[string]*life
	// decided has the last decision of each process.
	decided map[string]sim.Decision
	// planned are the deviations of the schedule, by step.
	planned map[string]scenarios.Deviation
	// waited are the steps that waited for another one.
	waited []*deed
	// aged counts the spans that a deed had reached, at most, when another one came.
	aged  map[[2]int]int
	taken int
	found []fact
	known map[about]bool
}

// terms are the words of deeds and the points of facts. They outlive a schedule: to make them takes
// longer than to gather what is true in it.
type terms struct {
	words  []string
	number map[string]int
	points map[about]campaign.Point
}

func newTerms() *terms {
	return &terms{words: []string{""}, number: make(map[string]int), points: make(map[about]campaign.Point)}
}

// of returns the number of some words.
func (t *terms) of(words string) int {
	n, ok := t.number[words]
	if !ok {
		n = len(t.words)
		t.words, t.number[words] = append(t.words, words), n
	}
	return n
}

// deed is a step in words, which is the nth with these. Acts says what was decided, too.
type deed struct {
	steps.Step
	name             string
	words, nth, acts int
	cause            *deed
	// came is when it was taken, if it had waited.
	came time.Duration
	// at is when it was taken, and place its place among those that were.
	at    time.Duration
	place int
	// writes and reads are the resources that it touches beyond its own process.
	writes, reads []int
}

// touch is who wrote a resource last, and who has read it since.
type touch struct {
	writer  *deed
	readers []*deed
}

// life has the last step of each kind that a process took, or whose result it read, in the order in
// which they first came.
type life struct {
	known []*deed
	// start is how it began, if it began anew.
	start *deed
}

func (l *life) add(d *deed) {
	if i := slices.IndexFunc(l.known, func(k *deed) bool { return k.acts == d.acts }); i >= 0 {
		l.known[i] = d
	} else {
		l.known = append(l.known, d)
	}
}

// about identifies a fact.
type about struct {
	sort
	// of are terms, and nth which deeds with these words; 0 is any.
	of, nth [3]int
	span    time.Duration
}

// fact is one that came true at a time. Of are the steps that it is about.
type fact struct {
	about
	at time.Duration
	of []*deed
}

// sort is a sort of facts. The first explain most.
type sort int

const (
	wentWrong sort = iota
	died
	failed
	late
	notKnown
	older
	inOrder
	between
	after
	waited
	came
)

// say puts a fact into words.
func (t *terms) say(a about) string {
	part := func(i int) string {
		if a.nth[i] > 0 {
			return fmt.Sprintf("%s (no. %d)", t.words[a.of[i]], a.nth[i])
		}
		return t.words[a.of[i]]
	}
	switch a.sort {
	case failed:
		return part(0) + " failed in some way"
	case older:
		return part(0) + " rested on " + part(1)
	case notKnown, inOrder:
		return part(0) + " came before " + part(1)
	case between:
		return part(0) + " came between " + part(1) + " and " + part(2)
	case after:
		return fmt.Sprintf("%s came %s or more after %s", part(1), a.span, part(0))
	case late, waited:
		return fmt.Sprintf("%s came %s late or more", part(0), a.span)
	}
	return part(0)
}

// needs are the deeds without which a fact says only that a schedule went another way.
func (a about) needs() []int {
	switch a.sort {
	case wentWrong, died, failed, late:
		return nil
	case older, waited, came:
		return a.of[:1]
	case between:
		return a.of[1:]
	}
	return a.of[:2]
}

// point stands for a fact wherever it is made.
func (t *terms) point(a about) campaign.Point {
	p, ok := t.points[a]
	if !ok {
		p = pointOf(t.say(a))
		t.points[a] = p
	}
	return p
}

func pointOf(words string) campaign.Point {
	h := fnv.New32a()
	h.Write([]byte(words))
	return campaign.Point(h.Sum32())
}

// spans separate the ages of deeds.
var spans = []time.Duration{
	10 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second,
	20 * time.Second, 30 * time.Second, 45 * time.Second, time.Minute, 90 * time.Second, 2 * time.Minute, 3 * time.Minute, 5 * time.Minute, 10 * time.Minute,
}

func newFacts(t *terms, planned []scenarios.Deviation) *facts {
	f := &facts{
		terms: t, deeds: make(map[steps.Name]*deed), count: make(map[int]int), news: make(map[string][]*deed), lives: make(map[string]*life),
		decided: make(map[string]sim.Decision), planned: make(map[string]scenarios.Deviation), known: make(map[about]bool),
		resources: make(map[string]int), aged: make(map[[2]int]int),
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
	b.Decided = func(d sim.Decision) {
		d.Reads = slices.Clone(d.Reads)
		f.decided[d.Process] = d
	}
}

// process is the process that takes a step, or "".
func (d *deed) process() string {
	if p, ok := strings.CutPrefix(d.Place, steps.PlaceProcess); ok {
		return p
	}
	if d.Place == steps.PlaceAgent {
		return d.Actor
	}
	return ""
}

func (f *facts) scheduled(s steps.Step) {
	actor, does := steps.Told(s)
	d := &deed{Step: s, name: s.Name(), cause: f.deeds[s.Cause]}
	plain := scenarios.Possessive(actor, does)
	d.words = f.of(plain)
	d.acts = d.words
	if by, ok := f.decided[d.process()]; ok && s.Effect {
		d.acts = f.of(fmt.Sprintf("%s (%s)", plain, by.Action))
	}
	f.count[d.words]++
	d.nth = f.count[d.words]
	f.deeds[steps.Name{Actor: s.Actor, Class: s.Class, N: s.N}] = d
	if s.Class == steps.ClassDeliver {
		f.news[s.Place] = append(f.news[s.Place], d)
	}
	text := func(sort sort, words string) {
		for _, nth := range []int{0, d.nth} {
			f.add(about{sort: sort, of: [3]int{f.of(words)}, nth: [3]int{nth}}, s.At, d)
		}
	}
	switch planned, ok := f.planned[d.name]; {
	case !ok:
	case planned.Fault != "":
		text(wentWrong, planned.Tell(actor, does, ""))
		if strings.HasPrefix(string(planned.Fault), "crash") {
			text(died, actor+" died at "+plain)
		}
		text(failed, plain)
	case planned.After != "":
		d.came = s.At + time.Duration(planned.Delay)
		f.waited = append(f.waited, d)
	default:
		f.late(late, d, time.Duration(planned.Delay), func(time.Duration) time.Duration { return s.At })
	}
}

// late notes how late a step was, and from when on that was so.
func (f *facts) late(sort sort, d *deed, by time.Duration, from func(least time.Duration) time.Duration) {
	for _, least := range Delays {
		if least <= by {
			f.both(about{sort: sort, span: least}, from(least), d)
		}
	}
}

func (f *facts) took(name steps.Name, at time.Duration) {
	d := f.deeds[name]
	if d == nil {
		return // it was scheduled before the story
	}
	f.taken++
	d.at, d.place = at, f.taken
	for _, words := range []int{d.words, d.acts} { // that it came at all
		f.add(about{sort: came, of: [3]int{words}}, at, d)
	}
	if d.came > 0 {
		d.came = at
	}
	print := d.Footprint()
	d.writes, d.reads = f.shared(print.Writes), f.shared(print.Reads)
	process := d.process()
	mine := f.life(process)
	for i, t := range f.touched {
		writes := f.meet(d.writes, i)
		if !writes && !f.meet(d.reads, i) {
			continue
		}
		if f.order(t.writer, d); t.writer != nil && process != "" && t.writer.process() != process {
			mine.add(t.writer)
		}
		if writes {
			for _, reader := range t.readers {
				f.order(reader, d)
			}
		}
	}
	switch {
	case d.Class == steps.ClassDeliver:
		f.news[d.Place] = slices.DeleteFunc(f.news[d.Place], func(n *deed) bool { return n == d })
		if d.cause != nil {
			mine.add(d.cause)
		}
		mine.add(d)
	case d.Class == steps.ClassStart:
		delete(f.news, d.Place)
		mine.start = d
		mine.add(d)
	case d.Effect || d.Class == steps.ClassWork:
		for _, n := range f.news[d.Place] {
			f.both(about{sort: notKnown}, at, d, n)
		}
	}
	if d.Effect && process != "" {
		f.rests(d, mine)
	}
	if d.Class.Sends() {
		mine.add(d)
	}
	for _, r := range d.reads {
		t := f.touched[r]
		t.readers = append(slices.DeleteFunc(t.readers, func(k *deed) bool { return k.words == d.words }), d)
	}
	for _, r := range d.writes {
		*f.touched[r] = touch{writer: d}
	}
}

// rests notes what a deed of a process rests on: how old that is, and what came in between.
func (f *facts) rests(d *deed, mine *life) {
	for _, k := range mine.known {
		if k == d || k.place == 0 {
			continue
		}
		f.age(k, d)
		if k.process() != d.process() || !k.Class.Sends() {
			continue
		}
		since := func(w *deed) { f.add(about{sort: between, of: [3]int{w.words, k.acts, d.acts}}, d.at, w, k, d) }
		for i, t := range f.touched {
			w := t.writer
			if w != nil && w.place > k.place && w.process() != d.process() && (f.meet(k.writes, i) || f.meet(k.reads, i) || f.meet(d.writes, i) || f.meet(d.reads, i)) {
				since(w)
			}
		}
		if s := mine.start; s != nil && s.place > k.place {
			since(s)
		}
	}
	unseen(f.decided[d.process()], func(o old) {
		f.add(about{sort: older, of: [3]int{d.acts, f.of(o.version())}}, d.at, d)
	})
}

// life returns what a process did and knows.
func (f *facts) life(process string) *life {
	l := f.lives[process]
	if l == nil {
		l = new(life)
		f.lives[process] = l
	}
	return l
}

// age notes how old a deed was when another one came.
func (f *facts) age(k, d *deed) {
	pair := [2]int{k.acts, d.acts}
	for n := f.aged[pair]; n < len(spans) && spans[n] <= d.at-k.at; n++ {
		f.aged[pair] = n + 1
		f.add(about{sort: after, of: [3]int{k.acts, d.acts}, span: spans[n]}, d.at, k, d)
	}
}

// shared are the resources beyond a process and the order of its news.
func (f *facts) shared(names []string) (all []int) {
	for _, name := range names {
		if strings.HasPrefix(name, steps.PlaceProcess) || strings.HasPrefix(name, "watch/") {
			continue
		}
		i, ok := f.resources[name]
		if !ok {
			i = len(f.touched)
			f.touched = append(f.touched, new(touch))
			f.meets = append(f.meets, make([]bool, i+1))
			f.resources[name] = i
			for other, j := range f.resources { // order does not matter: each has its own place
				if meets := steps.Overlap(name, other); j < i {
					f.meets[i][j], f.meets[j] = meets, append(f.meets[j], meets)
				}
			}
			f.meets[i][i] = true
		}
		all = append(all, i)
	}
	return all
}

// meet reports whether one of some resources is the same as another one, or a part of it or its
// whole.
func (f *facts) meet(some []int, resource int) bool {
	return slices.ContainsFunc(some, func(r int) bool { return f.meets[r][resource] })
}

// order notes that a step came after another one that depends on it, and isn't its cause.
func (f *facts) order(first, second *deed) {
	if first == nil || first.Actor == second.Actor {
		return
	}
	for c, n := second.cause, 0; c != nil && n < 64; c, n = c.cause, n+1 {
		if c == first {
			return
		}
	}
	f.both(about{sort: inOrder}, second.at, first, second)
}

// both adds a fact about deeds, once with their numbers and once without.
func (f *facts) both(a about, at time.Duration, of ...*deed) {
	for i, d := range of {
		a.of[i] = d.words
	}
	f.add(a, at, of...)
	for i, d := range of {
		a.nth[i] = d.nth
	}
	f.add(a, at, of...)
}

// add adds a fact where it came true first.
func (f *facts) add(a about, at time.Duration, of ...*deed) {
	if !f.known[a] {
		f.known[a] = true
		f.found = append(f.found, fact{a, at, of})
	}
}

// before returns the facts that came true before the violation of a run, if there was one, or with
// it. What a process or a host learns or does next at that very time may be its news.
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
		last := t.of[len(t.of)-1]
		return t.at > v.Second.At || t.at == v.Second.At && t.sort != notKnown && !last.Effect
	})
}

// factsOf plays a schedule and returns what was true in it.
func (p *Player) factsOf(schedule campaign.Schedule) ([]fact, error) {
	if p.terms == nil {
		p.terms = newTerms()
	}
	f, backend := newFacts(p.terms, schedule.Deviations), p.simulator.Backend()
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
		has := func(step string) bool {
			return slices.ContainsFunc(t.of, func(d *deed) bool { return d.name == step })
		}
		least := 2
		for _, d := range schedule.Deviations {
			switch {
			case has(d.Step) && (d.After == "" || has(d.After)):
				return 0
			case has(d.Step), has(d.After):
				least = 1
			}
		}
		return least
	}
	type ranked struct {
		fact
		involved int
		words    string
	}
	var list []ranked
	for _, t := range all {
		list = append(list, ranked{t, involved(t), p.terms.say(t.about)})
	}
	open := func(r ranked) int {
		if r.nth == [3]int{} {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.involved, b.involved), cmp.Compare(a.sort, b.sort), cmp.Compare(open(a), open(b)), cmp.Compare(b.at, a.at), strings.Compare(a.words, b.words))
	})
	seen := make(map[campaign.Point]bool)
	for _, r := range list {
		one := campaign.Fact{Point: p.terms.point(r.about), Words: r.words}
		if seen[one.Point] {
			continue
		}
		seen[one.Point] = true
		for _, words := range r.needs() {
			one.Needs = append(one.Needs, p.terms.point(about{sort: came, of: [3]int{words}}))
		}
		told = append(told, one)
	}
	return told, nil
}

// answer says which of these points were reached in a schedule.
func (p *Player) answer(schedule campaign.Schedule) (campaign.Result, error) {
	all, err := p.factsOf(schedule)
	result := campaign.Result{Number: schedule.Number, Variant: schedule.Variant}
	for _, t := range all {
		point := p.terms.point(t.about)
		if _, asked := slices.BinarySearch(schedule.Ask, point); asked {
			result.Reached = append(result.Reached, point)
		}
	}
	slices.Sort(result.Reached)
	result.Reached = slices.Compact(result.Reached)
	return result, err
}
