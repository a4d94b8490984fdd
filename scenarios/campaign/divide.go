package campaign

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Explainer says what the deviations of schedules come to.
type Explainer interface {
	// Explain returns the fact that a schedule fails by, which needs each of its deviations. It
	// plays neighbours: fail says which of the deviations it is given lead to the same failure.
	Explain(ctx context.Context, s Schedule, fail func([][]scenarios.Deviation) []bool) (*Fact, error)
	// Is reports whether a fact is true in a schedule.
	Is(context.Context, *Fact, Schedule) (bool, error)
}

// Fact is a property that deviations share which have the same effect.
type Fact struct {
	// Parts are true together. Each is one deviation.
	Parts []Part
}

// Part is a deviation in general.
type Part struct {
	// Words are a clause: "deletion's read of Node/worker-1 failed with any error". Order, unless
	// it is empty, is another: what comes first by that, "a's patch came before b's read".
	Words, Order string
	// Deed says what the step does, and Nth, which is sorted, which of the steps that do this it
	// is; none is any of them.
	Deed string
	Nth  []int
	// It may have any of Faults, or none. Least and Most say how late it is, or how far the fault
	// goes; no Most is any more.
	Faults      []scenarios.StepFault
	Least, Most scenarios.Duration
}

const (
	// At most dividedKinds kinds of failures are divided, each by up to dividedParts facts: the
	// first explains the schedule that is shown, and the others explain some of the rest. Up to
	// dividedWays of these may come to the same order, and count as one.
	dividedKinds, dividedParts, dividedWays = 6, 3, 6
	// To explain all of them takes at most dividedTrials schedules, an equal share for each. More
	// than dividedFew deviations can't be read.
	dividedTrials, dividedFew = 1800, 3
	// Schedules of several deviations have to be played again: dividedAgain of those that failed
	// alike, and as many that held. Those of one deviation are all looked at.
	dividedAgain = 60
)

// cameOut is a schedule that was played and how it came out.
type cameOut struct {
	Schedule
	verdict invariant.Verdict
	// of is the group that it belongs to, if it failed: a signature and a cause.
	of Failure
}

// Explain shrinks the failures of a search and then divides them: what divides them is looked for
// in schedules that have no more than they need.
func (s *Search) Explain(ctx context.Context, workers Workers, t *Tally) error {
	s.Shrink(workers, t)
	return s.Divide(ctx, workers, t)
}

// Divide looks for what divides the failures of a search from the schedules that held, and notes it
// in the tally. That is a fact that was intervened in: the deviations without which a schedule
// holds, as far as others of their kind lead to the same. Once the context is done it notes nothing
// more.
func (s *Search) Divide(ctx context.Context, workers Workers, t *Tally) error {
	if s.Explainer == nil {
		return nil
	}
	slices.SortFunc(s.played, func(a, b cameOut) int { return a.Number - b.Number })
	held := s.some(func(p cameOut) bool { return p.verdict == invariant.Held })
	failures := t.Failures()
	failures = failures[:min(dividedKinds, len(failures))]
	for _, f := range failures {
		divides, err := s.divide(ctx, workers, f, held, dividedTrials/len(failures))
		switch {
		case ctx.Err() != nil:
			return nil // it was interrupted: what was found so far divides nothing
		case err != nil:
			return err
		}
		at := slices.IndexFunc(t.Failed, f.alike)
		t.Failed[at].Divides = divides
		if shrunk := t.Failed[at].Schedule.Shrunk; shrunk != nil {
			shrunk.Divides = divides
		}
	}
	return nil
}

// some returns the schedules of one deviation that are chosen, and others spread over those of
// several.
func (s *Search) some(which func(cameOut) bool) (some []Schedule) {
	var several []Schedule
	for _, p := range s.played {
		switch {
		case !which(p):
		case len(p.Deviations) > 1:
			several = append(several, p.Schedule)
		default:
			some = append(some, p.Schedule)
		}
	}
	n := min(dividedAgain, len(several))
	for i := range n {
		some = append(some, several[i*len(several)/n])
	}
	return some
}

// divide puts into words what divides the failures of a kind from the schedules that held, or says
// that nothing does. It plays most schedules at most.
func (s *Search) divide(ctx context.Context, workers Workers, f Failure, held []Schedule, most int) (string, error) {
	failed := s.some(func(p cameOut) bool { return f.alike(p.of) })
	if !slices.ContainsFunc(failed, func(o Schedule) bool { return o.Number == f.Schedule.Number }) {
		failed = append(failed, f.Schedule)
	}
	t := &trials{workers: workers, signature: f.Signature, most: most, said: s.Explaining, waiting: &s.waiting, variants: &s.variants}
	if f.Missing {
		t.never = f.Invariant
	}
	var facts []*Fact
	left, tried := slices.Clone(failed), make(map[int]bool)
	for of := f.Schedule; len(byOrder(facts)) < dividedParts && len(facts) < dividedWays; {
		if tried[of.Number] = true; of.Shrunk == nil || f.Missing {
			of = t.shrink(of)
		}
		if t.over() {
			break
		}
		if n := len(of.Deviations); n > 0 && n <= dividedFew {
			fact, err := s.Explainer.Explain(ctx, of, func(candidates [][]scenarios.Deviation) []bool { return t.which(of, candidates) })
			if err != nil {
				return "", fmt.Errorf("look for what divides failures: %w", err)
			}
			facts = append(facts, fact)
			_, left, err = s.split(ctx, left, fact)
			if err != nil {
				return "", err
			}
			left = slices.DeleteFunc(left, func(o Schedule) bool { return o.Number == of.Number })
		}
		next := slices.DeleteFunc(slices.Clone(left), func(o Schedule) bool { return tried[o.Number] })
		if len(next) == 0 {
			break
		}
		of = slices.MinFunc(next, func(a, b Schedule) int { return len(a.Deviations) - len(b.Deviations) })
	}
	if len(facts) == 0 {
		return fmt.Sprintf("no deviation divides %s from %d that held: it takes none, or more than %d", phrase.Count(f.Count, "schedule"), len(held), dividedFew), nil
	}
	slices.SortStableFunc(facts, func(a, b *Fact) int { return len(a.Parts) - len(b.Parts) }) // the simplest first
	with, _, err := s.split(ctx, held, facts...)
	return divided(facts, len(failed)-len(left), len(failed), len(with), len(held)), err
}

// split separates the schedules in which one of these facts is true from the others.
func (s *Search) split(ctx context.Context, schedules []Schedule, facts ...*Fact) (with, without []Schedule, err error) {
	for _, o := range schedules {
		is := false
		for _, fact := range facts {
			if is, err = s.Explainer.Is(ctx, fact, o); is || err != nil {
				break
			}
		}
		switch {
		case err != nil:
			return nil, nil, err
		case is:
			with = append(with, o)
		default:
			without = append(without, o)
		}
	}
	return with, without, nil
}

// divided says by which facts of the schedules that failed were divided from those that held, of
// which with have one of these facts, too.
func divided(facts []*Fact, of, failed, with, held int) string {
	var words []string
	for _, alike := range byOrder(facts) {
		words = append(words, tellAll(alike))
	}
	text := fmt.Sprintf("failed in %d of %s in which %s, and held in %d of %d others", of, phrase.Count(of+with, "schedule"),
		strings.Join(words, ", or in which "), held-with, held-with+failed-of)
	switch failed - of {
	case 0:
		return text
	case 1:
		return text + "; nothing divides the other from these"
	}
	return fmt.Sprintf("%s; nothing divides the other %d from these", text, failed-of)
}

// order returns what a fact comes to that is one deviation, if it is an order.
func (f *Fact) order() string {
	if len(f.Parts) == 1 {
		return f.Parts[0].Order
	}
	return ""
}

func (f *Fact) words() string {
	var words []string
	for _, part := range f.Parts {
		if part.Order != "" {
			part.Words += ", so that " + part.Order
		}
		words = append(words, part.Words)
	}
	return strings.Join(words, ", and ")
}

// byOrder puts facts that come to the same order together.
func byOrder(facts []*Fact) (groups [][]*Fact) {
	for _, fact := range facts {
		i := slices.IndexFunc(groups, func(g []*Fact) bool {
			return g[0].order() == fact.order() && (fact.order() != "" || g[0].words() == fact.words())
		})
		if i < 0 {
			groups = append(groups, []*Fact{fact})
		} else if !slices.ContainsFunc(groups[i], func(f *Fact) bool { return f.words() == fact.words() }) {
			groups[i] = append(groups[i], fact)
		}
	}
	return groups
}

// tellAll joins the words of facts that come to the same order.
func tellAll(alike []*Fact) string {
	if len(alike) == 1 {
		return alike[0].words()
	}
	var words []string
	for _, fact := range alike {
		words = append(words, fact.Parts[0].Words)
	}
	return alike[0].order() + " because " + strings.Join(words, ", or because ")
}
