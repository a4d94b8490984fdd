package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/ci/mutants/finding"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/campaign"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/leads"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/search"
)

// guide looks for leads of the controllers that this is built with.
type guide struct {
	s     *sim.Simulator
	twins *twins
	began time.Time
	led   finding.Led
}

// guides looks for leads for a while: first in the default schedules of the stories in which a
// controller takes part, then in retellings of those stories, then in random schedules. The story
// that was made for the mistake is the first of them.
func guides(catalog, first, controller, right string, limit time.Duration) (*finding.Led, error) {
	plans, err := load(catalog)
	if err != nil {
		return nil, err
	}
	g := &guide{began: time.Now()}
	if g.s, err = sim.New(); err != nil {
		return nil, err
	}
	if g.twins, err = startTwins(right); err != nil {
		return nil, err
	}
	defer g.twins.close() // it ends with its input
	plans = slices.DeleteFunc(plans, func(p *scenarios.Plan) bool { return p.Spec.Expect.Violated != "" })
	order := func(p *scenarios.Plan) int {
		switch {
		case p.Metadata.Name == first:
			return 0
		case p.Spec.Controller(controller) != nil:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(plans, func(a, b *scenarios.Plan) int { return cmp.Compare(order(a), order(b)) })
	within := func(share int) bool { return time.Since(g.began) < limit*time.Duration(share)/4 }

	var held []*play.Outcome
	for i, plan := range plans {
		if !within(3) || order(plan) > 1 && g.led.Twin != nil {
			break
		}
		o, err := play.Run(context.Background(), plan, g.s.Backend(), nil)
		if err == nil {
			err = g.beside(o, plan)
		}
		if err != nil {
			return nil, err
		}
		switch verdict, _ := o.VerdictOfSchedule(); {
		case verdict != invariant.Held:
			g.led.Broken = cmp.Or(g.led.Broken, plan.Metadata.Name)
		case i < 100:
			held = append(held, o)
		}
	}
	for _, o := range held {
		if !within(4) || g.led.Retold != nil {
			break
		}
		if err := g.again(o); err != nil {
			return nil, err
		}
	}
	for seed := uint64(1); within(4) && g.led.Twin == nil && len(held) > 0; seed++ {
		for _, o := range held {
			if !within(4) || g.led.Twin != nil {
				break
			}
			deviant, played, err := search.NewPlayer(g.s, &campaign.Story{Plan: o.Plan}).Play(campaign.Schedule{Seed: seed, Draw: true})
			if err == nil {
				err = g.beside(deviant, o.Plan.With(played.Deviations))
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return &g.led, nil
}

// beside compares a run that held with that of the right controllers in its schedule.
func (g *guide) beside(o *play.Outcome, plan *scenarios.Plan) error {
	g.led.Schedules++
	if verdict, _ := o.VerdictOfSchedule(); verdict != invariant.Held {
		return nil
	}
	named, err := g.s.Named(context.Background(), plan, nil)
	if err != nil {
		return err
	}
	a, err := g.twins.put(question{Plan: string(plan.With(nil).Text()), Deviations: named, For: forHistory, Digest: o.History.Digest()})
	if err != nil || !a.Held || a.Missed > 0 || a.History == "" {
		return err
	}
	h, err := history.Read(strings.NewReader(a.History))
	if err != nil {
		return err
	}
	right := play.Outcome{Plan: plan, History: h}
	return g.note(&g.led.Twin, o, leads.Compare(o.Side(), right.Side()))
}

// again compares a run with the retellings of its story, and leaves out what the right controllers
// show.
func (g *guide) again(o *play.Outcome) error {
	found, err := retoldLeads(g.s, o)
	if err != nil || len(found) == 0 {
		return err
	}
	a, err := g.twins.put(question{Plan: string(o.Plan.Text()), For: forRetold})
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(l leads.Lead) bool { return slices.Contains(a.Leads, l.Name()) })
	return g.note(&g.led.Retold, o, found)
}

// note keeps the strangest of the leads that a run has, if it is the first run with any.
func (g *guide) note(first **finding.Lead, o *play.Outcome, found []leads.Lead) error {
	if *first != nil || len(found) == 0 {
		return nil
	}
	var all leads.All
	all.Add(o.Plan.Metadata.Name, found)
	groups, _ := all.Groups(nil)
	l := groups[0].Lead
	*first = &finding.Lead{Name: l.Name(), Mine: l.Mine, Reference: l.Reference, Scenario: o.Plan.Metadata.Name,
		Schedules: g.led.Schedules, Took: time.Since(g.began)}
	for _, d := range o.Plan.Deviations {
		(*first).Deviations = append((*first).Deviations, d.String())
	}
	return nil
}

// retoldLeads are the leads of a run beside each retelling of its story.
func retoldLeads(s *sim.Simulator, o *play.Outcome) (all []leads.Lead, err error) {
	told, err := s.Retold(context.Background(), o.Plan)
	for i := range told {
		all = append(all, told[i].Leads(o)...)
	}
	return all, err
}
