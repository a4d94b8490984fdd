// Package fencetest runs scenarios from the tests of any Go module, with the
// controllers and kinds that the module brings:
//
//	func TestFencing(t *testing.T) {
//		fencetest.Run(t, "story.yaml", fencetest.With(fencer.Module()))
//	}
//
//	func TestEveryDelay(t *testing.T) {
//		fencetest.Sweep(t, "story.yaml", fencetest.With(fencer.Module()))
//	}
//
// A test fails if its scenario does not come out as spec.expect says; it then shows the
// report and how to replay the run. The world is the simulator; the same module plays the
// same stories in the lab with fencelab --module DIR run FILE --backend lab.
//
// [docs/examples/team-fencer] in the repository of fencelab is a module that uses it.
//
// [docs/examples/team-fencer]:
// https://github.com/fencelab/fencelab/tree/main/docs/examples/team-fencer
package fencetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/leads"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
)

const (
	// Replay is the plan.txt of a saved run. Run and Sweep play it instead of the
	// scenario of that name, and skip others.
	Replay = "FENCELAB_REPLAY"
)

// An Option says how to run a scenario.
type Option func(*run)

// With adds the controllers and kinds of a module, or of several, or of what a function returns. It
// may be given several times.
func With[M controllers.Given](given M) Option {
	modules, _ := controllers.ModulesOf(given) // the compiler has seen to that
	return func(r *run) { r.modules = append(r.modules, modules...) }
}

// Instead runs the controller by in place of the controller of, with its own default
// settings, so that stories written for one judge the other. It may be given several times.
// A scenario that makes of wrong on purpose can't be played this way.
func Instead(of, by string) Option {
	return func(r *run) { r.cast = append(r.cast, [2]string{of, by}) }
}

// Settle delays the beginning of the story after the topology is up, for controllers that
// need time to take over what exists.
func Settle(d time.Duration) Option { return func(r *run) { r.settle = d } }

// Seed is the seed for the choices of the scenario and of the strategy. The default is 1.
func Seed(seed uint64) Option { return func(r *run) { r.options.Seed = seed } }

// Strategy has Sweep try the given number of schedules instead of every single deviation: "pairs",
// "random" ones or, with "sweep", single deviations, those most likely to find something first.
func Strategy(name string, schedules int) Option {
	return func(r *run) { r.options.Strategy, r.options.Schedules = name, schedules }
}

// Out is the directory in which runs that do not come out as expected are saved. The
// default is out, beside the test.
func Out(dir string) Option { return func(r *run) { r.out = dir } }

// AsFound has Sweep show failing schedules as they were found, with deviations that they don't
// need.
func AsFound() Option { return func(r *run) { r.asFound = true } }

// Lands has Plan fail unless a deviation of the plan does this, in the words of the report: a step
// within a process has no deed, and is found by its number. replay --test writes it.
func Lands(deed string) Option { return func(r *run) { r.lands = append(r.lands, deed) } }

// Claim has every run judged by a function as well. It is given all that happened, in order, and
// returns an error if something is wrong: one of Breach names the event. Reports have the claim
// under its name.
func Claim(name string, check func(events []history.Event) error) Option {
	return func(r *run) { r.claims = append(r.claims, claim(name, check)) }
}

// Leads has Run and Sweep log what the controllers of runs that held did, and fencelab's own in the
// same schedule did not. Those that are accepted, each with a reason, are left out.
func Leads(accepted ...leads.Accepted) Option {
	return func(r *run) { r.leads = &campaign.Leads{Accepted: accepted} }
}

// NoLeads is Leads, and fails the test if there are others.
func NoLeads(accepted ...leads.Accepted) Option {
	return func(r *run) { r.leads, r.noLeads = &campaign.Leads{Accepted: accepted}, true }
}

// run is one call of Run or Sweep.
type run struct {
	t       testing.TB
	modules []controllers.Module
	cast    [][2]string
	settle  time.Duration
	options search.Options
	out     string
	asFound bool
	lands   []string
	claims  []invariant.Invariant
	leads   *campaign.Leads
	noLeads bool

	set      *controllers.Set
	scenario *scenarios.Scenario
	plan     *scenarios.Plan
	// original is the plan with the controllers that the scenario names.
	original *scenarios.Plan
}

// Run plays the default schedule of a scenario, and fails the test unless it comes out
// as expected.
func Run(t testing.TB, file string, options ...Option) {
	t.Helper()
	for _, r := range load(t, file, options) {
		r.single(r.plan)
	}
}

// Play plays the default schedule of a scenario and returns the outcome, one for each cell
// of a matrix, for tests that judge it themselves. It fails the test only if the scenario
// can't be played.
func Play(t testing.TB, file string, options ...Option) (outcomes []*play.Outcome) {
	t.Helper()
	for _, r := range load(t, file, options) {
		outcomes = append(outcomes, r.play(r.plan))
	}
	return outcomes
}

// Plan plays the plan in a file, as fencelab replay --test saves it, and fails the test unless it
// comes out as the plan expects. Each deviation is found by its deed, also when its controller has
// gained steps, and the test fails where that is no longer done.
func Plan(t testing.TB, path string, options ...Option) {
	t.Helper()
	r := configured(t, options)
	data, err := file.ReadFile(path)
	if err == nil {
		r.plan, err = file.LoadPlan(path, data, objects.VocabularyOf(r.set))
	}
	if err != nil {
		t.Fatalf("read the plan: %v", err)
	}
	r.single(r.plan)
}

// Sweep plays every schedule that differs from the default one in a single place, or
// those of another Strategy, and fails the test with the first schedule of each kind
// of failure.
func Sweep(t testing.TB, file string, options ...Option) {
	t.Helper()
	for _, r := range load(t, file, options) {
		if os.Getenv(Replay) != "" {
			r.single(r.plan)
			continue
		}
		r.sweep()
	}
}

// sweep tries the schedules of the strategy and reports on those that fail.
func (r *run) sweep() {
	r.t.Helper()
	simulator := r.simulator()
	session, to := r.session(simulator)
	code, err := search.Explore(r.t.Context(), session, simulator, r.scenario, r.plan, r.options, func(s *campaign.Search) (campaign.Pool, error) {
		return search.NewAlone(simulator, s.Story), nil
	})
	r.ended(session, to, code, err)
}

// session plays plans as the command does. What comes of them goes to the test.
func (r *run) session(simulator *sim.Simulator) (*campaign.Session, *sink) {
	to := &sink{Console: report.Console{World: worldName}, run: r}
	to.Out, to.Talk = &to.text, &to.text
	session := &campaign.Session{World: worldName, To: to, AsFound: r.asFound}
	session.Another = func() play.Backend { return simulator.Evident() }
	if r.leads != nil {
		compared := *r.leads
		session.Leads = &compared
		session.Leads.Reference = simulator.Reference
		if r.original != nil {
			instead := make(map[string]string)
			for _, role := range r.cast {
				instead[role[1]] = role[0]
			}
			session.Leads.Reference = func(ctx context.Context, plan *scenarios.Plan) (*play.Outcome, error) {
				return simulator.ReferenceAs(ctx, plan, r.original, instead)
			}
		}
	}
	return session, to
}

// ended says what a session has printed, and fails the test unless all came out as expected.
func (r *run) ended(session *campaign.Session, to *sink, code int, err error) {
	r.t.Helper()
	if led := session.Led(); led > 0 && r.noLeads && err == nil {
		code = exit.Worse(code, exit.Unknown)
	}
	var unsupported *play.Unsupported
	var missing *play.Missing
	switch text := strings.TrimRight(to.text.String(), "\n"); {
	case errors.As(err, &unsupported), errors.As(err, &missing):
		r.t.Skip(err)
	case err != nil:
		r.t.Fatal(err)
	case code != exit.Held:
		r.t.Error(text)
	default:
		r.t.Log(text)
	}
}

// sink takes over what comes of the runs of a test.
type sink struct {
	report.Console
	run  *run
	text bytes.Buffer
}

// Outcome implements campaign.Sink: it saves what did not come out as expected beside the test, and
// says how the test plays it again.
func (s *sink) Outcome(o *play.Outcome, _ time.Duration) (*campaign.Shown, error) {
	s.Headline(o)
	for told := report.Told(o); len(s.run.lands) > 0; s.run.lands = s.run.lands[1:] {
		if deed := s.run.lands[0]; !slices.Contains(told, deed) {
			s.run.t.Errorf("the plan's deviation no longer lands on its deed: %s. What it does now: %s. Find it again with a sweep, and write the test anew with replay --test, or remove it",
				deed, cmp.Or(strings.Join(told, "; "), "nothing"))
		}
	}
	if o.Meets() == "" {
		for _, note := range o.Notes {
			s.Print("  note: %s\n", note)
		}
		return &campaign.Shown{Report: report.JSON(o, "")}, nil
	}
	dir := filepath.Join(s.run.out, fmt.Sprintf("%s-%s-%s", o.Plan.Metadata.Name, worldName, o.Plan.ID()))
	saved, err := filepath.Abs(filepath.Join(dir, "plan.txt"))
	if err != nil {
		return nil, err
	}
	replay := fmt.Sprintf("go test -run '^%s$'", s.run.t.Name())
	if s.run.scenario != nil { // otherwise it is the plan that the test names
		replay = fmt.Sprintf("%s=%s %s", Replay, saved, replay)
	}
	text := report.Brief(o, dir, replay)
	s.Print("%s", text)
	return &campaign.Shown{Directory: dir, Report: report.JSON(o, replay), Text: text, Replay: replay}, report.Save(o, dir, replay)
}

// Progress implements campaign.Sink: a test shows none.
func (s *sink) Progress(string, int) campaign.Progress { return silent{} }

type silent struct{}

func (silent) At(campaign.Tally)   {}
func (silent) Explaining(int, int) {}
func (silent) Done()               {}

// Broken returns the guarantees that a Sweep would find violated, each once, in the order
// of their first schedules. It is for tests which show that a mistake is found.
func Broken(t testing.TB, file string, options ...Option) []string {
	t.Helper()
	var broken []string
	for _, r := range load(t, file, options) {
		tally := r.search()
		for _, f := range tally.Failures() {
			if f.Invariant != "" && !slices.Contains(broken, f.Invariant) {
				broken = append(broken, f.Invariant)
			}
		}
	}
	return broken
}

// configured is a run with options.
func configured(t testing.TB, options []Option) *run {
	t.Helper()
	r := &run{t: t, options: search.Options{Strategy: "sweep", Seed: 1}, out: "out"}
	for _, o := range options {
		o(r)
	}
	var err error
	if r.set, err = controllers.NewSet(r.modules...); err != nil {
		t.Fatal(err)
	}
	return r
}

// load reads the scenarios of a file, one for each cell of its matrix, and makes plans of
// them, or reads the plan to be replayed.
func load(t testing.TB, path string, options []Option) []*run {
	t.Helper()
	r := configured(t, options)
	vocabulary := objects.VocabularyOf(r.set)
	data, err := file.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	original := data
	warnings, err := file.Lint(path, data, vocabulary)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range warnings {
		t.Logf("warning: %s", w)
	}
	if data, err = recast(data, r.cast, r.settle); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	cells, err := file.LoadCells(path, data, vocabulary, nil)
	if err != nil {
		t.Fatal(err)
	}
	if saved := os.Getenv(Replay); saved != "" {
		if data, err = file.ReadFile(saved); err == nil {
			r.plan, err = file.LoadPlan(saved, data, vocabulary)
		}
		if err != nil {
			t.Fatalf("read the plan of %s: %v", Replay, err)
		}
		for _, scenario := range cells {
			if r.scenario = scenario; scenario.Metadata.Name == r.plan.Metadata.Name {
				return []*run{r}
			}
		}
		t.Skipf("%s is a run of %s", saved, r.plan.Metadata.Name)
	}
	var all []*run
	for _, scenario := range cells {
		one := *r
		one.scenario = scenario
		if one.plan, err = scenarios.Compile(scenario, r.options.Seed); err != nil {
			t.Fatal(err)
		}
		all = append(all, &one)
	}
	if r.leads == nil || len(r.cast) == 0 {
		return all
	}
	if original, err = recast(original, nil, r.settle); err == nil {
		cells, err = file.LoadCells(path, original, vocabulary, nil)
	}
	for i, one := range all {
		if err == nil {
			one.original, err = scenarios.Compile(cells[i], r.options.Seed)
		}
	}
	if err != nil {
		t.Fatalf("%s, as it is told: %v", path, err)
	}
	return all
}

// search tries the schedules of the strategy.
func (r *run) search() campaign.Tally {
	r.t.Helper()
	simulator := r.simulator()
	s, first, err := search.New(r.t.Context(), simulator, r.scenario, r.plan, r.options)
	if err == nil {
		err = first.Err
	}
	if err != nil {
		r.t.Fatal(err)
	}
	workers := search.NewAlone(simulator, s.Story)
	tally := s.Run(workers, nil)
	if err := workers.Close(); err != nil {
		r.t.Fatal(err)
	}
	return tally
}

// simulator plays the run's schedules.
func (r *run) simulator() *sim.Simulator {
	r.t.Helper()
	simulator, err := sim.With(r.set)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, own := range r.claims {
		simulator.Claim(own)
	}
	return simulator
}

// worldName is the world of every run, as reports name it.
const worldName = "sim"

// play plays one plan.
func (r *run) play(plan *scenarios.Plan) *play.Outcome {
	r.t.Helper()
	outcome, err := play.Run(r.t.Context(), plan, r.simulator().Evident(), nil)
	var unsupported *play.Unsupported
	var missing *play.Missing
	switch {
	case errors.As(err, &unsupported), errors.As(err, &missing):
		r.t.Skip(err)
	case err != nil:
		r.t.Fatal(err)
	}
	outcome.World = worldName
	return outcome
}

// single plays one plan and reports on it.
func (r *run) single(plan *scenarios.Plan) {
	r.t.Helper()
	simulator := r.simulator()
	session, to := r.session(simulator)
	code, err := session.Single(r.t.Context(), plan, simulator.Evident())
	r.ended(session, to, code, err)
}
