package invariant

import (
	"encoding/json"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
)

// HealthCheck says when a Machine may be marked, and how many.
type HealthCheck struct {
	// UnhealthyAfter is how long a Node may be not Ready, and Startup how long a
	// Machine may be without one.
	UnhealthyAfter, Startup time.Duration
	// MinUnhealthy is how many Machines have to be unhealthy for any to be marked,
	// and MaxUnhealthy how many may be. With Share, MaxUnhealthy is in percent of the Machines
	// that the check is concerned with, rounded down.
	MinUnhealthy, MaxUnhealthy int
	Share                      bool
	// Minds are the states that are unhealthy beside a Node that is not Ready.
	Minds []Minded
}

// Minded is a status of a Node's condition that is unhealthy when it has lasted for so long.
type Minded struct {
	Type, Status string
	After        time.Duration
}

// most is the largest number of unhealthy Machines among this many on which the check acts.
func (h *HealthCheck) most(machines int) int {
	if h.Share {
		return machines * h.MaxUnhealthy / 100
	}
	return h.MaxUnhealthy
}

// Targets are the Machines that a health check is concerned with, and what the check says, as
// the history has them so far.
type Targets struct {
	// Check joins all health checks. It is nil if there is none, if the history has changed one in
	// a way that is not understood here, or if they differ in how many Machines they act on.
	// Changed is the event that changed one last.
	Check   *HealthCheck
	Changed history.Event
	checks  []namedCheck
	hosts   Roster[Target]
	nodes   Roster[Named]
}

// namedCheck is one health check, and unread says that its content was not understood.
type namedCheck struct {
	object string
	HealthCheck
	unread bool
}

// NewTargets returns those of a story that has not begun.
func NewTargets(p Params) Targets {
	t := Targets{hosts: NewRoster[Target](p.Hosts)}
	if p.HealthCheck != nil {
		t.checks = []namedCheck{{"MachineHealthCheck/fencelab", *p.HealthCheck, false}}
		t.together()
	}
	return t
}

// Target is what decides whether a health check is concerned with the Machine of a host.
type Target struct {
	// Gone says that there is no Machine any more, Leaving that it is being deleted; Paused and
	// Skipped that an annotation keeps the check from it; Unmanaged that its host isn't
	// provisioned.
	Gone, Leaving, Paused, Skipped, Unmanaged bool
	// Since is the event that last changed whether it counts.
	Since history.Event
	// node is the Node that the Machine names, and names says that the history has that.
	node  string
	names bool
}

// Named is a Node by its name.
type Named struct {
	// UID is that of the Node, "" if there is none, and host the one that the name stands for.
	UID, host string
	// Ready says that it is so since the last change, and Had that it has been at some time. Empty
	// says that a user has made it and no kubelet has written to it: it stands for no host yet.
	Ready, Had, Empty bool
	Since             history.Event
	// conditions have had an event.
	conditions []condition
}

// condition is a status that a Node's condition has since an event, and the one before.
type condition struct {
	kind, status, was string
	since, began      history.Event
}

// become notes that a condition of the Node has a status from e on.
func (n *Named) become(kind, status string, e *history.Event) {
	i := slices.IndexFunc(n.conditions, func(c condition) bool { return c.kind == kind })
	if i < 0 {
		i, n.conditions = len(n.conditions), append(n.conditions, condition{kind: kind})
	}
	if c := &n.conditions[i]; c.status != status {
		c.was, c.began = c.status, c.since
		c.status, c.since = status, *e
	}
}

// Ailment is a state of a Node that a health check minds, since an event. Over is the event that
// ended it, if one did.
type Ailment struct {
	Minded
	Since, Over history.Event
}

// Lasted reports whether it has lasted long enough for a mark at a time, or until it was over. It
// may have begun before the history has it.
func (a *Ailment) Lasted(at time.Duration) bool {
	older, _ := time.ParseDuration(a.Since.Note) // or it says nothing else
	if a.Over.Kind != "" {
		at = a.Over.At
	}
	return at-a.Since.At+max(Coarse, older) >= a.After
}

// Ailments are the states of the Node of a host's Machine that a health check minds: those that
// last, and the latest that are over.
func (t *Targets) Ailments(host string) (all []Ailment) {
	if t.Check == nil || len(t.Check.Minds) == 0 {
		return nil
	}
	for _, c := range t.Node(host).conditions {
		for _, m := range t.Check.Minds {
			switch {
			case m.Type != c.kind:
			case m.Status == c.status:
				all = append(all, Ailment{Minded: m, Since: c.since})
			case m.Status == c.was:
				all = append(all, Ailment{Minded: m, Since: c.began, Over: c.since})
			}
		}
	}
	return all
}

// Counts reports whether the Machine is a target: it takes part in the number of Machines,
// healthy or not, and may be marked.
func (t *Target) Counts() bool { return !t.Gone && !t.Leaving && !t.Paused && !t.Skipped }

// Observe takes in an event.
func (t *Targets) Observe(e *history.Event) {
	if e.Kind == history.OpApplied && strings.HasPrefix(e.Object, "MachineHealthCheck/") {
		t.Changed = *e
		t.change(e)
	}
	if OfNode(e) && e.Kind != history.MachineNode {
		t.node(e)
	}
	switch e.Kind {
	case history.AnnotationSet, history.AnnotationRemoved, history.ProvisioningState, history.MachineCreated, history.MachineDeleting, history.MachineDeleted, history.MachineNode:
	default:
		return
	}
	if e.Host == "" {
		return
	}
	h := t.hosts.Of(e.Host)
	counted := h.Counts()
	switch set := e.Kind == history.AnnotationSet; e.Kind {
	case history.ProvisioningState:
		h.Unmanaged = !Managed(e.Value)
	case history.MachineCreated:
		h.Gone, h.Leaving = false, false
	case history.MachineDeleting:
		h.Leaving = true
	case history.MachineDeleted:
		h.Gone, h.Paused, h.Skipped = true, false, false
		h.names = false
	case history.MachineNode:
		h.node, h.names = e.Value, true
	default:
		switch {
		case !strings.HasPrefix(e.Object, "Machine/"):
		case e.Key == PausedAnnotation:
			h.Paused = set
		case e.Key == SkipAnnotation:
			h.Skipped = set
		}
	}
	if h.Counts() != counted {
		h.Since = *e
	}
}

// OfNode reports whether an event is a change of a Node, or of which one a Machine names.
func OfNode(e *history.Event) bool {
	return e.Host != "" && (e.Kind == history.MachineNode || strings.HasPrefix(e.Object, "Node/") && e.Kind.Layer() == history.API)
}

func (t *Targets) node(e *history.Event) {
	n := t.nodes.Of(strings.TrimPrefix(e.Object, "Node/"))
	n.host = e.Host
	switch e.Kind {
	case history.NodeCreated, history.NodeDeleted:
		if *n = (Named{host: e.Host, Since: *e}); e.Kind == history.NodeCreated {
			n.UID, n.Empty = e.UID, ByUser(e)
		}
	case history.NodeTakenOver:
		n.Empty = false
	case history.NodeReady:
		n.Ready, n.Had, n.Empty, n.Since = true, true, false, *e
		n.become("Ready", "True", e)
	case history.NodeNotReady:
		n.Ready, n.Since = false, *e
		n.become("Ready", e.Note, e)
	case history.NodeCondition:
		n.become(e.Key, e.Value, e)
	}
}

// Concerns reports whether an event of OfNode is about the Node of a host's Machine. It is about
// each Machine that names the Node, whichever host runs that. Where the history has no names, it is
// about the host that the Node stands for.
func (t *Targets) Concerns(e *history.Event, host string) bool {
	if h := t.hosts.Of(host); h.names && e.Kind != history.MachineNode {
		return e.Object[len("Node/"):] == h.node
	}
	return e.Host == host
}

// Concerned yields the hosts that an event of OfNode is about, and the Nodes of their Machines. Of
// any other event it yields none.
func Concerned[T any](t *Targets, hosts *Roster[T], e *history.Event) iter.Seq2[*T, *Named] {
	return func(yield func(*T, *Named) bool) {
		if !OfNode(e) {
			return
		}
		hosts.Of(e.Host)
		for i := range hosts.Hosts {
			if h := &hosts.Hosts[i]; t.Concerns(e, h.Name) && !yield(&h.State, t.Node(h.Name)) {
				return
			}
		}
	}
}

// Node is that of a host's Machine.
func (t *Targets) Node(host string) *Named {
	h := t.hosts.Of(host)
	if h.names {
		return t.nodes.Of(h.node)
	}
	for i := range t.nodes.Hosts {
		if n := &t.nodes.Hosts[i].State; n.host == host {
			return n
		}
	}
	return new(Named)
}

// Shared reports whether the Node that a host's Machine names may be another host's: another
// Machine names it too, or another host's kubelet wrote to it last. Then nothing that the Node says
// is certainly about this host.
func (t *Targets) Shared(host string) bool {
	h := t.hosts.Of(host)
	if !h.names || h.node == "" {
		return false
	}
	n := t.nodes.Of(h.node)
	if n.UID == "" {
		return false
	}
	return n.host != host || slices.ContainsFunc(t.hosts.Hosts, func(o Entry[Target]) bool {
		return o.Name != host && o.State.names && o.State.node == h.node
	})
}

// change takes in what a user has done to a health check. One that is new is made. What
// quotes no content, as a deletion, leaves it open what holds from then on.
func (t *Targets) change(e *history.Event) {
	i := slices.IndexFunc(t.checks, func(c namedCheck) bool { return c.object == e.Object })
	if i < 0 { // with the defaults of Cluster API
		i, t.checks = len(t.checks), append(t.checks, namedCheck{object: e.Object, HealthCheck: HealthCheck{
			UnhealthyAfter: math.MaxInt64 / 4, Startup: 10 * time.Minute, MaxUnhealthy: 100, Share: true,
		}})
	}
	c := &t.checks[i]
	c.unread = !c.patch(e) || c.unread
	t.together()
}

// together makes one of all checks: a Machine may be marked, and has to be, when the first of them
// says so.
func (t *Targets) together() {
	t.Check = nil
	if len(t.checks) == 0 {
		return
	}
	one := t.checks[0].HealthCheck
	for i := range t.checks {
		c := &t.checks[i]
		if c.unread || c.MinUnhealthy != one.MinUnhealthy || c.MaxUnhealthy != one.MaxUnhealthy || c.Share != one.Share {
			return
		}
		one.UnhealthyAfter, one.Startup = min(one.UnhealthyAfter, c.UnhealthyAfter), min(one.Startup, c.Startup)
		if i > 0 {
			one.Minds = slices.Concat(one.Minds, c.Minds)
		}
	}
	t.Check = &one
}

// Of is the target of a host.
func (t *Targets) Of(host string) *Target { return t.hosts.Of(host) }

// ActsOn is how many Machines may be unhealthy, at least and at most, by what somebody knows who
// may have missed the changes that known denies; and how many have to be.
func (t *Targets) ActsOn(known func(since *history.Event) bool) (few, many, least int) {
	if !t.Check.Share {
		return t.Check.MaxUnhealthy, t.Check.MaxUnhealthy, t.Check.MinUnhealthy
	}
	fewest, most := 0, 0
	for i := range t.hosts.Hosts {
		h := &t.hosts.Hosts[i].State
		sure := h.Since.Kind == "" || known(&h.Since)
		if h.Counts() && sure {
			fewest++
		}
		if h.Counts() || !sure {
			most++
		}
	}
	return t.Check.most(fewest), t.Check.most(most), t.Check.MinUnhealthy
}

// Unsettled is why a clause that counts Machines, or their conditions, can't be judged, or "".
func (t *Targets) Unsettled() string {
	if t.Check == nil && t.Changed.Kind != "" {
		return "what the health check acts on is not known since it was changed at " + Seconds(t.Changed.At)
	}
	return ""
}

// patch takes in a merge patch, as the history quotes it, and reports whether it is understood.
func (h *HealthCheck) patch(e *history.Event) bool {
	var merge struct {
		Spec struct {
			Cluster  string `json:"clusterName"`
			Selector struct {
				Labels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			Checks struct {
				Conditions []struct {
					Type    string `json:"type"`
					Status  string `json:"status"`
					Timeout int    `json:"timeoutSeconds"`
				} `json:"unhealthyNodeConditions"`
				Startup *int `json:"nodeStartupTimeoutSeconds"`
			} `json:"checks"`
			Remediation struct {
				TriggerIf struct {
					Most  any    `json:"unhealthyLessThanOrEqualTo"`
					Range string `json:"unhealthyInRange"`
				} `json:"triggerIf"`
			} `json:"remediation"`
		} `json:"spec"`
	}
	_, text, quoted := strings.Cut(e.Value, " with ")
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if !quoted || strings.Contains(text, "null") || decoder.Decode(&merge) != nil {
		return false
	}
	for key := range merge.Spec.Selector.Labels { // order does not matter: each has to be the label of all
		if key != "cluster.x-k8s.io/cluster-name" {
			return false
		}
	}
	if seconds := merge.Spec.Checks.Startup; seconds != nil {
		h.Startup = time.Duration(*seconds) * time.Second
	}
	if conditions := merge.Spec.Checks.Conditions; conditions != nil {
		h.Minds, h.UnhealthyAfter = nil, math.MaxInt64/4
		for _, c := range conditions {
			after := time.Duration(c.Timeout) * time.Second
			if c.Type == "Ready" && c.Status != "True" {
				h.UnhealthyAfter = min(h.UnhealthyAfter, after)
			} else {
				h.Minds = append(h.Minds, Minded{c.Type, c.Status, after})
			}
		}
	}
	switch most := merge.Spec.Remediation.TriggerIf.Most.(type) {
	case nil:
	case float64:
		h.MaxUnhealthy, h.Share = int(most), false
	case string:
		n, err := strconv.Atoi(strings.TrimSuffix(most, "%"))
		if err != nil {
			return false
		}
		h.MaxUnhealthy, h.Share = n, strings.HasSuffix(most, "%")
	default:
		return false
	}
	return merge.Spec.Remediation.TriggerIf.Range == "" // which takes precedence, and is not read here
}
