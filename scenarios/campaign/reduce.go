package campaign

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/fencelab/fencelab/scenarios"
)

// Telling makes a plan of a scenario's spec, as JSON has it, or nil if that is no scenario.
type Telling func(spec map[string]any) *scenarios.Plan

// Reduce returns the plan that is left of one that failed with this result, when it has lost the
// deviations that it doesn't take, and then all of its story: steps, hosts, controllers and
// settings. What is left fails in the same way. Only what is to be judged stays: the guarantee that
// was broken, if one was. Workers play candidates.
func Reduce(workers Workers, plan *scenarios.Plan, failed Result, tell Telling) (*scenarios.Plan, error) {
	data, err := json.Marshal(plan.Spec)
	if err != nil {
		return nil, fmt.Errorf("take the plan %s to pieces: %w", plan.Metadata.Name, err)
	}
	var spec map[string]any
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("take the plan %s to pieces: %w", plan.Metadata.Name, err)
	}
	s := &Search{}
	t := &trials{workers: workers, signature: failed.Signature, most: shrinkMost, waiting: &s.waiting, variants: &s.variants}
	found := len(plan.Deviations)
	left := t.shrink(Schedule{Deviations: plan.Deviations})
	story := &story{trials: t, schedule: left, tell: tell, judged: map[string]any{}}
	for _, key := range []string{"invariants", "expect"} {
		if value, ok := spec[key]; ok {
			story.judged[key] = value
			delete(spec, key)
		}
	}
	if failed.Invariant != "" {
		before := story.judged["invariants"]
		if story.judged["invariants"] = []any{failed.Invariant}; story.first(slices.Values([]map[string]any{spec})) < 0 {
			story.judged["invariants"] = before
		}
	}
	spec = story.less(spec, func(part any) map[string]any { return part.(map[string]any) }).(map[string]any)
	if told := story.plan(spec); told != nil {
		left.Plan = told
	} else {
		left.Plan = plan
	}
	// Some of the deviations may have been needed only by what is gone.
	left = t.shrink(left)
	reduced := left.Plan.With(left.Deviations)
	reduced.Shrunk = &scenarios.Shrunk{From: found, Tried: t.tried, Needed: left.Shrunk.Needed}
	return reduced, nil
}

// story is a scenario that is taken to pieces.
type story struct {
	*trials
	schedule Schedule
	tell     Telling
	// judged are the parts that stay.
	judged map[string]any
}

func (s *story) plan(spec map[string]any) *scenarios.Plan {
	whole := maps.Clone(spec)
	maps.Copy(whole, s.judged)
	return s.tell(whole)
}

// first is that of trials, of specs.
func (s *story) first(specs iter.Seq[map[string]any]) int {
	return s.trials.first(each(specs, func(spec map[string]any) *Schedule {
		candidate := s.schedule
		if candidate.Plan = s.plan(spec); candidate.Plan == nil {
			return nil
		}
		return &candidate
	}))
}

// less returns a part of the spec without what it doesn't need, from the outside to the inside.
// Whole is the spec with another part in its place.
func (s *story) less(part any, whole func(any) map[string]any) any {
	switch part := part.(type) {
	case []any:
		part = without(part, func(candidates iter.Seq[[]any]) int {
			return s.first(each(candidates, func(candidate []any) map[string]any { return whole(candidate) }))
		})
		for i := range part {
			in := func(inner any) []any {
				other := slices.Clone(part)
				other[i] = inner
				return other
			}
			part = in(s.less(part[i], func(inner any) map[string]any { return whole(in(inner)) }))
		}
		return part
	case map[string]any:
		only := func(keys []string) map[string]any {
			other := make(map[string]any, len(keys))
			for _, key := range keys {
				other[key] = part[key]
			}
			return other
		}
		part = only(without(slices.Sorted(maps.Keys(part)), func(candidates iter.Seq[[]string]) int {
			return s.first(each(candidates, func(keys []string) map[string]any { return whole(only(keys)) }))
		}))
		for _, key := range slices.Sorted(maps.Keys(part)) {
			in := func(inner any) map[string]any {
				other := maps.Clone(part)
				other[key] = inner
				return other
			}
			part = in(s.less(part[key], func(inner any) map[string]any { return whole(in(inner)) }))
		}
		return part
	}
	return part
}
