package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/ci/mutants/finding"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/leads"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
)

// question asks right controllers about a schedule that a wrong one was in: what they were excused
// of in it, unless For says something else.
type question struct {
	Plan       string      `json:"plan"`
	Deviations []sim.Named `json:"deviations"`
	For        string      `json:"for,omitempty"`
	Digest     string      `json:"digest,omitempty"`
}

// What else is asked for: the history, unless it has the digest of the question, or the leads of
// the retold story.
const (
	forHistory = "history"
	forRetold  = "retold"
)

// answer says what right controllers were excused of, and violated, how many of the deviations they
// missed, whether they held, and what else was asked for.
type answer struct {
	Excused  []string `json:"excused,omitempty"`
	Violated []string `json:"violated,omitempty"`
	Missed   int      `json:"missed,omitempty"`
	Held     bool     `json:"held,omitempty"`
	History  string   `json:"history,omitempty"`
	Leads    []string `json:"leads,omitempty"`
}

// answerAll answers questions on standard input with the controllers that this is built with.
func answerAll() error {
	s, err := sim.New()
	if err != nil {
		return err
	}
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var q question
		if err := in.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		plan, err := file.LoadPlan("plan", []byte(q.Plan), objects.Vocabulary())
		if err != nil {
			return err
		}
		o, missed, err := s.PlayNamed(context.Background(), plan, q.Deviations)
		if err != nil {
			return err
		}
		a := &answer{Missed: len(missed)}
		verdict, _ := o.VerdictOfSchedule()
		a.Held = verdict == invariant.Held
		switch q.For {
		case forHistory:
			if q.Digest == o.History.Digest() {
				break
			}
			var text strings.Builder
			_, err = o.History.WriteTo(&text)
			a.History = text.String()
		case forRetold:
			var found []leads.Lead
			found, err = retoldLeads(s, o)
			for i := range found {
				a.Leads = append(a.Leads, found[i].Name())
			}
		default:
			a = answerOf(o, len(missed))
		}
		if err == nil {
			err = out.Encode(a)
		}
		if err != nil {
			return err
		}
	}
}

func answerOf(o *play.Outcome, missed int) *answer {
	a := &answer{Missed: missed}
	for _, r := range o.Excuses() {
		a.Excused = append(a.Excused, r.Invariant)
	}
	for _, r := range o.Results {
		if r.Verdict == invariant.Violated {
			a.Violated = append(a.Violated, r.Invariant)
		}
	}
	return a
}

// twins is a process of the right controllers that answers questions.
type twins struct {
	cmd *exec.Cmd
	to  io.WriteCloser
	out *json.Encoder
	in  *json.Decoder
}

func startTwins(right string) (*twins, error) {
	t := &twins{cmd: exec.Command(right, "-answer")}
	t.cmd.Stderr = os.Stderr
	from, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if t.to, err = t.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	t.out, t.in = json.NewEncoder(t.to), json.NewDecoder(from)
	return t, t.cmd.Start()
}

func (t *twins) put(q question) (*answer, error) {
	a := new(answer)
	err := t.out.Encode(q)
	if err == nil {
		err = t.in.Decode(a)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the right controllers: %w", err)
	}
	return a, nil
}

func (t *twins) close() error {
	return errors.Join(t.to.Close(), t.cmd.Wait())
}

// asked is how many schedules of a kind are shown to the twin, until it does without the
// excuse in one.
const asked = 4

// auditor looks for excuses that a wrong controller was granted, and that the right one has
// no need of in the same schedule.
type auditor struct {
	s     *sim.Simulator
	twins *twins // nil where the twin is built into the same program
	tries map[string]int
	audit finding.Audit
}

// audits looks for such excuses for a while: in the story that was made for a mistake, and in
// some schedules of the others. Without a right program it looks at the stories of wrong
// controllers, whose mistakes are overlays.
func audits(catalog, first, right string, limit time.Duration) (*finding.Audit, error) {
	plans, err := load(catalog)
	if err != nil {
		return nil, err
	}
	a := &auditor{tries: make(map[string]int)}
	if a.s, err = sim.New(); err != nil {
		return nil, err
	}
	if right != "" {
		if a.twins, err = startTwins(right); err != nil {
			return nil, err
		}
		defer a.twins.close() // it ends with its input
	}
	began := time.Now()
	plans = slices.DeleteFunc(plans, func(p *scenarios.Plan) bool { return (p.Spec.Expect.Violated != "") != (right == "") })
	shuffle := rand.New(rand.NewPCG(1, uint64(len(first))))
	shuffle.Shuffle(len(plans), func(i, j int) { plans[i], plans[j] = plans[j], plans[i] })
	if i := slices.IndexFunc(plans, func(p *scenarios.Plan) bool { return p.Metadata.Name == first }); i >= 0 {
		plans[0], plans[i] = plans[i], plans[0]
	}
	for _, plan := range plans {
		if time.Since(began) >= limit {
			break
		}
		steps, benign, err := search.Benign(context.Background(), a.s, plan)
		if err != nil {
			return nil, err
		}
		if err := a.look(benign, plan); err != nil {
			return nil, err
		}
		singles := search.Singles(steps)
		shuffle.Shuffle(len(singles), func(i, j int) { singles[i], singles[j] = singles[j], singles[i] })
		share := 6
		if plan.Metadata.Name == first {
			share = 150
		}
		for i := range singles[:min(share, len(singles))] {
			deviant := plan.With(singles[i : i+1])
			o, err := play.Run(context.Background(), deviant, a.s.Backend(), nil)
			if err != nil {
				return nil, err
			}
			if err := a.look(o, deviant); err != nil {
				return nil, err
			}
		}
	}
	return &a.audit, nil
}

// look asks the twin of a run in which something was excused. A twin that broke a guarantee itself
// excuses nothing.
func (a *auditor) look(o *play.Outcome, plan *scenarios.Plan) error {
	a.audit.Schedules++
	if o.Err != nil || o.Broken != nil || o.Violation() != nil {
		return nil
	}
	excuses := o.Excuses()
	if len(excuses) == 0 {
		return nil
	}
	a.audit.Excused++
	excuses = slices.DeleteFunc(excuses, func(e invariant.Excuse) bool {
		a.tries[kindOf(&e)]++
		return a.tries[kindOf(&e)] > asked
	})
	if len(excuses) == 0 {
		return nil
	}
	twin, err := a.ask(plan)
	if err != nil {
		return err
	}
	for _, e := range excuses {
		if twin.Missed > 0 || slices.Contains(twin.Excused, e.Invariant) || slices.Contains(twin.Violated, e.Invariant) {
			continue
		}
		a.tries[kindOf(&e)] = asked // one example will do
		hole := finding.Hole{Scenario: plan.Metadata.Name, Guarantee: e.Invariant, Sentence: e.Reason}
		for _, because := range e.Because {
			hole.HeldUp = append(hole.HeldUp, because.String())
		}
		hole.HeldUp = slices.Compact(hole.HeldUp)
		for _, d := range plan.Deviations {
			hole.Deviations = append(hole.Deviations, d.String())
		}
		a.audit.Holes = append(a.audit.Holes, hole)
	}
	return nil
}

func (a *auditor) ask(plan *scenarios.Plan) (*answer, error) {
	if a.twins == nil {
		twin, err := a.s.Twin(context.Background(), plan)
		if err != nil {
			return nil, err
		}
		return answerOf(twin.Outcome, len(twin.Missed)), nil
	}
	named, err := a.s.Named(context.Background(), plan, nil)
	if err != nil {
		return nil, err
	}
	return a.twins.put(question{Plan: string(plan.With(nil).Text()), Deviations: named})
}

// kindOf is the common part of excuses of one kind: the guarantee, the event, and the hindrance.
func kindOf(r *invariant.Excuse) string {
	kinds := func(e *history.Event) string { return string(e.Kind) + " " + e.Key + " " + e.Actor }
	kind := []string{r.Invariant, kinds(&r.Violation.First), kinds(&r.Violation.Second)}
	for _, e := range r.Because {
		kind = append(kind, string(e.Event.Kind)+" "+e.Party)
	}
	return strings.Join(slices.Compact(kind), ", ")
}
