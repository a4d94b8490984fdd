package invariant

import (
	"iter"

	"github.com/fencelab/fencelab/scenarios/history"
)

var annotationsCleared = Invariant{
	ID:       "annotations-cleared",
	Claim:    "No remediation or reboot annotation is left on any Machine or host.",
	Seed:     "000, 001, 002",
	Liveness: true,
	New: func(p Params) Checker {
		return &annotations{promise: newPromise(p, ruling{id: "annotations-cleared"}), offline: map[string]bool{}}
	},
}

// annotations judges what is left after healing. A keyed annotation that the
// scenario's user set is theirs to remove, and the scenario has to. A plain one
// stays while spec.online is false (seed 000).
type annotations struct {
	promise
	offline map[string]bool
	left    []history.Event // the AnnotationSet of each, oldest first
}

func (c *annotations) Observe(e *history.Event) *Violation {
	c.promise.observe(e)
	switch e.Kind {
	case history.OnlineWanted:
		c.offline[e.Host] = e.Value == "false"
	case history.AnnotationSet:
		if c.concerned(e) && c.find(e) < 0 {
			c.judged++
			c.left = append(c.left, *e)
		}
	case history.AnnotationRemoved:
		if i := c.find(e); i >= 0 {
			c.left = append(c.left[:i], c.left[i+1:]...)
		}
	}
	return nil
}

func (c *annotations) concerned(e *history.Event) bool {
	_, reboot := rebootRequest(e)
	return reboot || e.Key == externalAnnotation || e.Key == poweredOffAnnotation
}

func (c *annotations) find(e *history.Event) int {
	for i := range c.left {
		if c.left[i].Object == e.Object && c.left[i].Key == e.Key {
			return i
		}
	}
	return -1
}

func (c *annotations) lacks() iter.Seq[lack] {
	return func(yield func(lack) bool) {
		for i := range c.left {
			e := &c.left[i]
			if e.Key == rebootAnnotation && c.offline[e.Host] {
				continue
			}
			if !yield(lack{
				sentence: e.Key + " is still on " + e.Object + ", where it was set at " + seconds(e.At), since: e,
				host: e.Host, comes: []history.Kind{history.AnnotationRemoved}, on: parties{host: e.Host, bmc: e.Host, any: true},
			}) {
				return
			}
		}
	}
}

func (c *annotations) Pending() string { return c.pending(c.lacks()) }

func (c *annotations) Finish(complete bool) Result {
	return c.verdictAfterHealing(complete, c.lacks(), "nobody set an annotation")
}
