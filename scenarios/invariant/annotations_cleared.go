package invariant

import "github.com/fencelab/fencelab/scenarios/history"

var annotationsCleared = Invariant{
	ID:       "annotations-cleared",
	Claim:    "No remediation or reboot annotation is left on any Machine or host.",
	Seed:     "000, 001, 002",
	Liveness: true,
	New: func(Params) Checker {
		return &annotations{ruling: ruling{id: "annotations-cleared"}, offline: map[string]bool{}}
	},
}

// annotations judges what is left after healing. A keyed annotation that the
// scenario's user set is theirs to remove, and the scenario has to. A plain one
// stays while spec.online is false (seed 000).
type annotations struct {
	ruling
	offline map[string]bool
	left    []history.Event // the AnnotationSet of each, oldest first
	healed  history.Event
}

func (c *annotations) Observe(e history.Event) *Violation {
	switch e.Kind {
	case history.Healed:
		c.healed = e
	case history.OnlineWanted:
		c.offline[e.Host] = e.Value == "false"
	case history.AnnotationSet:
		if c.concerned(&e) && c.find(&e) < 0 {
			c.judged++
			c.left = append(c.left, e)
		}
	case history.AnnotationRemoved:
		if i := c.find(&e); i >= 0 {
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

func (c *annotations) lacking() lack {
	for i := range c.left {
		if e := &c.left[i]; e.Key != rebootAnnotation || !c.offline[e.Host] {
			return lack{sentence: e.Key + " is still on " + e.Object + ", where it was set at " + seconds(e.At), since: e}
		}
	}
	return lack{}
}

func (c *annotations) Pending() string { return c.lacking().sentence }

func (c *annotations) Finish(complete bool) Result {
	return c.verdictAfterHealing(complete, &c.healed, c.lacking(), "nobody set an annotation")
}
