package guarantee

import (
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var bystandersSpared = invariant.Invariant{
	ID:    "bystanders-spared",
	Claim: "No controller cordons or deletes a Node, ends a Pod on it, deletes a Machine, or asks its host to go off, gives it away, switches it off or deprovisions it, unless the wish of another allows its part that deed: a mark for remediation, a deletion, a boot that is to be fenced; no other field of what a user wants is changed, no label, annotation, condition or error of others is lost, nothing is taken for the deletion of one that is paused, no health check is changed, and no Pod of a Node that is Ready is ended past the budget that protects it.",
	Seed:  "000, 002, 003, 004",
	New: func(p invariant.Params) invariant.Checker {
		return &bystanders{
			Ruling:     invariant.Ruling{ID: "bystanders-spared"},
			Hindrances: p.Hindrances,
			roles:      p.Roles,
			hosts:      invariant.NewRoster[bystander](p.Hosts),
			machines:   map[string]*wanted{}, entries: map[[2]string]string{},
		}
	},
}

// licence allows the processes of a part some deeds, because of a wish of another. The wish is
// about one Machine, or one boot, and ends with it.
type licence struct {
	part  func(r *invariant.Roles, actor string) bool
	wish  func(h *bystander, m *wanted) *wish
	deeds []history.Kind
}

// The deeds of licences: vacates empties a Node and takes it away, fences also asks its host to go
// off, and retires takes away all that a Machine has.
var (
	vacates = []history.Kind{history.NodeCordoned, history.NodeDeleting, history.NodeDeleted, history.PodTerminating, history.PodDeleted}
	retires = append(slices.Clip(vacates), history.AnnotationSet, history.HostConsumer, history.OnlineWanted, history.MachineDeleted)
	fences  = append(slices.Clip(vacates), history.AnnotationSet, history.StorageFenceAsked)
)

// licences lists all that permits anybody anything. A Machine that is marked gets its host and its
// Node back: the mark permits its remediation to give nothing away, and no part to deprovision a
// host, or to delete a BareMetalHost. Only a user asks for the deletion of a Machine.
var licences = []licence{
	{(*invariant.Roles).Remediates, marked, fences},
	{(*invariant.Roles).Remediates, ownRequest, fences},
	{(*invariant.Roles).Agent, marked, vacates},
	{(*invariant.Roles).Agent, ownRequest, vacates},
	{(*invariant.Roles).Agent, sentencedBoot, vacates},
	{(*invariant.Roles).Deletes, deleted, retires},
}

func marked(_ *bystander, m *wanted) *wish        { return &m.mark }
func ownRequest(h *bystander, _ *wanted) *wish    { return &h.asked }
func deleted(_ *bystander, m *wanted) *wish       { return &m.deletion }
func sentencedBoot(h *bystander, _ *wanted) *wish { return &h.fence }

// bystanders judges what controllers under test take from a Machine by the licences. A NodeFence is
// the agents' own word, and was judged by the mark when it was made.
//
// A mark and a deletion follow their Machine, wherever its host is; what is taken from a host is
// taken from the Machine that uses it.
type bystanders struct {
	invariant.Ruling
	*invariant.Hindrances
	roles    invariant.Roles
	hosts    invariant.Roster[bystander]
	machines map[string]*wanted
	// entries says who has written an entry of an object last, if it was written since the run
	// began.
	entries map[[2]string]string
}

// bystander is a host: machine is the last one that was heard of, consumer its user by its own
// word, fence a boot that is to be fenced, and asked a request of a system's own for that. Ready
// says so of its Node.
type bystander struct {
	machine, consumer string
	fence, asked      wish
	ready             bool
}

// wanted holds the wishes of others about a Machine. Paused is the pause that keeps the deletion
// controller from it, or zero.
type wanted struct {
	mark, deletion wish
	paused         history.Event
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
	switch {
	case e.Kind == history.CheckChanged && e.Key == "" && c.roles.Tested(e.Actor):
		c.Judged++
		c.Breach(e, e, invariant.Clause(e)+" by "+e.Actor+": what a health check asks for is its user's to say")
	case e.Host != "" && e.Kind.Layer() == history.API:
		c.judge(c.hosts.Of(e.Host), e)
	}
	return c.Tell()
}

// of returns the wishes of others about a Machine.
func (c *bystanders) of(machine string) *wanted {
	m := c.machines[machine]
	if m == nil {
		m = &wanted{}
		c.machines[machine] = m
	}
	return m
}

func (c *bystanders) judge(h *bystander, e *history.Event) {
	about := strings.HasPrefix(e.Object, "Machine/")
	if about && e.Kind != history.MachineDeleted || h.machine == "" {
		h.machine = e.Object
	}
	owner := c.owner(e)
	if c.roles.Tested(e.Actor) && invariant.Takes(e) && !(e.IsEntry() && (e.Note == "" || invariant.Same(owner, e.Actor))) {
		victim := h.machine
		switch {
		case about:
			victim = e.Object
		case strings.HasPrefix(h.consumer, "Machine/"):
			victim = h.consumer
		}
		c.taken(h, c.of(victim), e)
	}
	switch e.Kind {
	case history.NodeReady, history.NodeNotReady, history.NodeDeleted:
		h.ready = e.Kind == history.NodeReady
	case history.HostConsumer:
		h.consumer = e.Value
	case history.BareMetalHostDeleted:
		h.consumer = ""
	case history.AnnotationSet, history.AnnotationRemoved:
		if about {
			c.of(e.Object).annotated(e)
		}
	case history.FieldIs:
		if wanted, is := invariant.OwnRequest(e); is && wanted {
			h.asked.begin(e)
		} else if is {
			h.asked.end(e)
		}
	case history.FenceRequested:
		h.fence.begin(e)
	case history.FenceEnded:
		h.fence.end(e)
	case history.MachineDeleting:
		if !c.roles.Tested(e.Actor) {
			c.of(e.Object).deletion.begin(e)
		}
	case history.MachineDeleted:
		c.of(e.Object).mark.end(e)
	case history.MachineCreated:
		c.machines[e.Object] = &wanted{}
	}
}

// owner returns who had an entry that e is about, and notes who has it now.
func (c *bystanders) owner(e *history.Event) (owner string) {
	if !e.IsEntry() {
		return ""
	}
	key := [2]string{e.UID, e.Key}
	owner, c.entries[key] = c.entries[key], e.Actor
	if c.roles.Tested(e.Actor) && (e.Note == "" || invariant.Same(owner, e.Actor)) {
		c.Allow(e, e) // it is its own
	}
	return owner
}

func (m *wanted) annotated(e *history.Event) {
	set := e.Kind == history.AnnotationSet
	switch {
	case e.Key == invariant.ExternalAnnotation && set:
		m.mark.begin(e)
	case e.Key == invariant.ExternalAnnotation:
		m.mark.end(e)
	case e.Key == invariant.PausedAnnotation && !set:
		m.paused = history.Event{}
	case e.Key == invariant.PausedAnnotation && m.paused.Kind == "":
		m.paused = *e
	}
}

func (c *bystanders) taken(h *bystander, m *wanted, e *history.Event) {
	switch {
	case e.Kind == history.HostConsumer && h.consumer == "" && e.Value != "", e.Kind == history.HostConsumer && e.Value == h.consumer:
		c.Allow(e, e) // whoever takes a free host takes it from no Machine
		return
	case e.Kind == history.ProvisioningState && c.roles.Powers(e.Actor) && e.Value != "": // no host loses its state
		c.SetAside(e, "the image that a host is to have is not in the history, and a power controller that provisions hosts as well follows that")
		return
	case c.roles.Deletes(e.Actor) && m.paused.Kind != "" && !c.Unaware(e, &m.paused):
		c.Judged++
		c.Breach(&m.paused, e, invariant.Clause(e)+" by "+e.Actor+", though the Machine is paused since "+invariant.Seconds(m.paused.At))
		return
	case e.Kind == history.PodTerminating && h.ready && strings.HasPrefix(e.Key, "PodDisruptionBudget/"):
		c.Judged++
		c.Breach(e, e, invariant.Clause(e)+" by "+e.Actor+" without an eviction, though "+e.Key+" allowed none")
		return
	}
	var until history.Event
	for i := range licences {
		l := &licences[i]
		if !l.part(&c.roles, e.Actor) || !slices.Contains(l.deeds, e.Kind) {
			continue
		}
		w := l.wish(h, m)
		if w.since.Kind != "" {
			c.Judged++
			c.Allow(e, &w.since)
			return
		}
		if w.until.Seq > until.Seq {
			until = w.until
		}
	}
	if c.Unaware(e, &until) {
		c.Excuse(e)
		return
	}
	if until.Kind == "" {
		until = *e
	}
	c.Judged++
	c.Breach(&until, e, invariant.Clause(e)+" by "+e.Actor+", and no wish of another allows it that: no mark, no deletion and no fencing of this Machine")
}

func (c *bystanders) Finish(complete bool) invariant.Result {
	return c.Conclude(complete, "no controller took anything from a Machine")
}
