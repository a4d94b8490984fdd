package guarantee

import (
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var bystandersSpared = invariant.Invariant{
	ID:    "bystanders-spared",
	Claim: "No controller cordons or deletes a Node, ends a Pod on it, or gives its host away, unless the Machine is marked for remediation, is being deleted, or its boot is to be fenced; and nothing is taken for the deletion of one that is paused.",
	Seed:  "002, 003, 004",
	New: func(p invariant.Params) invariant.Checker {
		return &bystanders{
			Ruling:     invariant.Ruling{ID: "bystanders-spared"},
			Hindrances: p.Hindrances,
			roles:      p.Roles,
			hosts:      invariant.NewRoster[bystander](p.Hosts),
		}
	},
}

// bystanders judges what controllers under test take from a Machine, by whether anybody
// else wanted something of it that their part answers: a mark for the remediation controller,
// a deletion for the deletion controller, and either a mark or a NodeFence for agents. A
// NodeFence is their own word, and was judged by the mark when it was made.
type bystanders struct {
	invariant.Ruling
	*invariant.Hindrances
	roles invariant.Roles
	hosts invariant.Roster[bystander]
}

type bystander struct {
	mark, deletion, fence wish
	// paused is the pause that keeps the deletion controller from the Machine, or zero.
	paused history.Event
}

// wish is a wish about a Machine: since an event, until another one.
type wish struct{ since, until history.Event }

func (w *wish) begin(e *history.Event) {
	if w.since.Kind == "" {
		*w = wish{since: *e}
	}
}

func (w *wish) end(e *history.Event) {
	if w.since.Kind != "" {
		*w = wish{until: *e}
	}
}

func (c *bystanders) Observe(e *history.Event) *invariant.Violation {
	if e.Host != "" && e.Kind.Layer() == history.API {
		c.judge(c.hosts.Of(e.Host), e)
	}
	return c.Tell()
}

func (c *bystanders) judge(h *bystander, e *history.Event) {
	if invariant.Takes(e) && c.roles.Tested(e.Actor) {
		c.taken(h, e)
	}
	switch e.Kind {
	case history.AnnotationSet:
		switch {
		case e.Key == invariant.ExternalAnnotation:
			h.mark.begin(e)
		case e.Key == invariant.PausedAnnotation && strings.HasPrefix(e.Object, "Machine/") && h.paused.Kind == "":
			h.paused = *e
		}
	case history.AnnotationRemoved:
		switch {
		case e.Key == invariant.ExternalAnnotation:
			h.mark.end(e)
		case e.Key == invariant.PausedAnnotation && strings.HasPrefix(e.Object, "Machine/"):
			h.paused = history.Event{}
		}
	case history.FieldIs:
		if wanted, is := invariant.OwnRequest(e); is && wanted {
			h.mark.begin(e)
		} else if is {
			h.mark.end(e)
		}
	case history.FenceRequested:
		h.fence.begin(e)
	case history.FenceEnded:
		h.fence.end(e)
	case history.MachineDeleting:
		h.deletion.begin(e)
	case history.MachineCreated:
		h.deletion, h.paused = wish{}, history.Event{}
	}
}

func (c *bystanders) taken(h *bystander, e *history.Event) {
	var wishes []*wish
	if invariant.Plays(e.Actor, c.roles.Deletion) {
		if h.paused.Kind != "" && !c.Unaware(e, &h.paused) {
			c.Judged++
			c.Breach(&h.paused, e, invariant.Clause(e)+" by "+e.Actor+", though the Machine is paused since "+invariant.Seconds(h.paused.At))
			return
		}
		wishes = append(wishes, &h.deletion)
	}
	if invariant.Plays(e.Actor, c.roles.Remediation) {
		wishes = append(wishes, &h.mark)
	}
	if c.roles.Agent(e.Actor) {
		wishes = append(wishes, &h.mark, &h.fence)
	}
	for _, w := range wishes {
		if w.since.Kind != "" {
			c.Judged++
			c.Allow(e, &w.since)
			return
		}
	}
	for _, w := range wishes {
		if c.Unaware(e, &w.until) {
			c.Excuse(e)
			return
		}
	}
	first := e
	for _, w := range wishes {
		if w.until.Kind != "" {
			first = &w.until
		}
	}
	c.Judged++
	c.Breach(first, e, invariant.Clause(e)+" by "+e.Actor+", though nobody wanted its Machine remediated or deleted")
}

func (c *bystanders) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "no controller took anything from a Machine")
}
