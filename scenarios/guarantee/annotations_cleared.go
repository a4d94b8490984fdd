package guarantee

import (
	"iter"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var annotationsCleared = invariant.Invariant{
	ID:       "annotations-cleared",
	Claim:    "No remediation or reboot annotation is left on any Machine or host.",
	Seed:     "000, 001, 002",
	Liveness: true,
	New: func(p invariant.Params) invariant.Checker {
		return &annotations{Promise: invariant.NewPromise(p, invariant.Ruling{ID: "annotations-cleared"}), within: p.Timings.Return, away: map[string]bool{}, offline: map[string]bool{}, consumer: map[string]string{}}
	},
}

// annotations judges what is left after healing. A keyed annotation that the
// scenario's user set is theirs to remove, and the scenario has to. A plain one
// stays while spec.online is false (seed 000).
type annotations struct {
	invariant.Promise
	// within is how long a mark may stay on a Machine whose Node is away.
	within  time.Duration
	away    map[string]bool // hosts, while their Node is deleted or not Ready
	offline map[string]bool
	left    []history.Event // the AnnotationSet of each, oldest first
	// consumer is the user of each host by its own word, as Kind/name. Nobody answers the mark of
	// a Machine that names the host of another.
	consumer map[string]string
}

func (c *annotations) Observe(e *history.Event) *invariant.Violation {
	c.Promise.Observe(e)
	switch e.Kind {
	case history.HostConsumer:
		c.consumer[e.Host] = e.Value
	case history.NodeDeleted, history.NodeNotReady:
		c.away[e.Host] = true
	case history.NodeReady:
		c.away[e.Host] = false
	case history.OnlineWanted:
		c.offline[e.Host] = e.Value == "false"
	case history.AnnotationSet:
		if c.concerned(e) && c.find(e) < 0 {
			c.Judged++
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
	_, reboot := invariant.RebootRequest(e)
	return reboot || e.Key == invariant.ExternalAnnotation || e.Key == invariant.PoweredOffAnnotation
}

func (c *annotations) find(e *history.Event) int {
	for i := range c.left {
		if c.left[i].Object == e.Object && c.left[i].Key == e.Key {
			return i
		}
	}
	return -1
}

func (c *annotations) Lacks() iter.Seq[invariant.Lack] {
	return func(yield func(invariant.Lack) bool) {
		for i := range c.left {
			e := &c.left[i]
			user := c.consumer[e.Host]
			if e.Key == invariant.RebootAnnotation && c.offline[e.Host] || e.Key == invariant.ExternalAnnotation && user != "" && user != e.Object {
				continue
			}
			var within time.Duration
			if strings.HasPrefix(e.Object, "Machine/") && c.away[e.Host] {
				within = c.within
			}
			if !yield(invariant.Lack{
				Within: within, Sentence: e.Key + " is still on " + e.Object + ", where it was set at " + invariant.Seconds(e.At), Since: e,
				Host: e.Host, Comes: []history.Kind{history.AnnotationRemoved}, On: invariant.Parties{Host: e.Host, BMC: e.Host, Any: true},
			}) {
				return
			}
		}
	}
}

func (c *annotations) Pending() string { return c.Owing(c.Lacks()) }

func (c *annotations) Finish(complete bool) invariant.Result {
	return c.ConcludeAfterHealing(complete, c.Lacks(), "nobody set an annotation")
}
