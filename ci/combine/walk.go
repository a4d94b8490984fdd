package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// walks returns some stories of a seed, named SET.SEED-NUMBER.OPERATION+OPERATION: a host goes
// through the phases of its protocol, and two to four operations come on the way, to any of the
// hosts, each in a phase of its own, and are taken back in a later one.
func walks(n int, seed uint64) []story {
	var all []story
	for i := range n {
		all = append(all, walk(seed, i))
	}
	return all
}

// way is an operation on the way.
type way struct {
	operation
	host string
	// from and to are the phases in which it is done and taken back, each a while after that began.
	from, to int
	after    [2]int
}

func walk(seed uint64, number int) story {
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	s := &sets[r.IntN(len(sets))]
	ops := slices.DeleteFunc(s.operations(), func(op operation) bool { return op.do == "" })
	r.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
	reached := r.IntN(len(s.phases))
	var ways []way
	var names []string
	onVolume := s.onVolume || r.IntN(2) == 0
	for _, op := range ops[:2+r.IntN(3)] {
		w := way{operation: op, host: "worker-1", from: r.IntN(reached + 1), after: [2]int{r.IntN(8), r.IntN(30)}}
		if r.IntN(3) == 0 {
			w.host = fmt.Sprintf("worker-%d", 2+r.IntN(2))
		}
		w.to = w.from + r.IntN(reached+1-w.from)
		if twice := strings.TrimSuffix(op.name, "ForGood"); !slices.Contains(names, twice) {
			ways, names = append(ways, w), append(names, twice)
			onVolume = onVolume || op.onVolume
		}
	}
	slices.SortStableFunc(ways, func(a, b way) int { return cmp.Compare(a.from, b.from) })
	what := make([]string, len(ways))
	for i, w := range ways {
		what[i] = w.name
	}
	name := fmt.Sprintf("%s.%d-%d.%s", s.name, seed, number, strings.Join(what, "+"))
	return story{name, func() string { return s.walked(name, reached, onVolume, ways) }, true}
}

// walked leads a host through its phases, with what comes on the way. What still lasts in the end
// is taken back, but for what lasts for good.
func (s *set) walked(name string, reached int, onVolume bool, ways []way) string {
	workload, spec := "{host: worker-1}", s.spec
	if onVolume {
		workload = "{host: worker-1, volume: {name: data}}"
	}
	if onVolume && reached < s.unseen {
		spec = keepsAttached(spec)
	}
	var steps []string
	do := func(w way, text string, after int) {
		if text != "" {
			steps = append(steps, fmt.Sprintf("after: %ds, do: {%s}", after, strings.ReplaceAll(text, "HOST", w.host)))
		}
	}
	isCut := false
	for at, phase := range s.phases[:reached+1] {
		for _, step := range phase.steps {
			step = strings.ReplaceAll(step, "HOST", "worker-1")
			if strings.HasPrefix(step, "when:") && !strings.Contains(step, "since:") { // it may have come while an operation was waited for
				step = strings.TrimSuffix(step, "}") + ", since: start}"
			}
			steps = append(steps, step)
			isCut = (isCut || strings.Contains(step, "cut:")) && !strings.Contains(step, "restore:")
		}
		for _, w := range ways {
			if w.from == at {
				do(w, w.do, w.after[0])
			}
		}
		for _, w := range ways {
			if w.to == at {
				do(w, w.undo, w.after[1])
			}
		}
	}
	steps = append(steps, "after: 30s")
	if isCut {
		steps = append(steps, "do: {restore: {host: worker-1}}")
	}
	if !slices.ContainsFunc(steps, func(step string) bool {
		return strings.Contains(step, "removeAnnotation: {object: Machine/worker-1, key: "+hook)
	}) && s.name == "hooked" {
		steps = append(steps, "do: {removeAnnotation: {object: Machine/worker-1, key: "+hook+"}}")
	}
	steps = append(steps, "after: 1m")
	return s.file(name, "Operations on the way from phase to phase.", workload, spec, steps)
}
