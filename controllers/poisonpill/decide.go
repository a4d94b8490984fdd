// Package poisonpill is the agent of seed 004, which runs on every host. It lets its own host be
// reset when that host is to be fenced, or when it can't learn whether the host is wanted. As a
// survivor it releases the Node of another, fenced host once that host must have been reset, and
// recreates the Node.
//
// Agents agree on a fencing by a NodeFence, which names the boot that has to end and is never
// taken back. docs/seeds.md argues why a deleted Node belongs to a boot that is over. In short: a
// host lives on the answers that it has heard, each time for as long as its agent has announced on
// its Node. After the NodeFence exists, every answer says that the boot is fenced, with one
// exception: a majority of its peers may say that they can't reach the API server. A peer that
// knows the NodeFence no longer says so. So the safe time begins when the NodeFence exists and
// half of the host's peers have announced that they know it.
package poisonpill

// Subject names the decision that a State is for.
type Subject string

// The subjects.
const (
	// OfWatchdog: may the host run on for as long as its watchdog waits?
	OfWatchdog Subject = "watchdog"
	// OfLook: what follows from a look at the API server?
	OfLook Subject = "look"
	// OfVote: what follows from what peers have answered?
	OfVote Subject = "vote"
	// OfQuestion: how to answer a peer that asks about itself?
	OfQuestion Subject = "question"
	// OfFence: what is the next thing to do about another boot that is fenced, or whose Machine is
	// marked?
	OfFence Subject = "fence"
)

// NodeIs is the present state of the Node of a fenced boot's host.
type NodeIs string

// The states of the Node.
const (
	NodeGone   NodeIs = "gone"
	NodeFenced NodeIs = "fenced" // it reports the fenced boot
	NodeBlank  NodeIs = "blank"  // it reports no boot, like one that was just recreated
	NodeOther  NodeIs = "other"  // it reports another boot: the fenced one is over
)

// State is every fact that a decision rests on. Its subject determines which of them count.
type State struct {
	About Subject `json:"about"`

	// Watched: the host has a watchdog.
	Watched bool `json:"watched"`
	// Announced: others count on this boot's being reset.
	Announced bool `json:"announced"`
	// Fresh: what the agent has heard is young enough to live on.
	Fresh bool `json:"fresh"`
	// Condemned: it knows that the host has to be reset.
	Condemned bool `json:"condemned"`
	// Overdue: the watchdog should have reset the host by now.
	Overdue bool `json:"overdue"`

	// Reached: the API server has answered.
	Reached bool `json:"reached"`
	// Failing: it has failed to answer as often as the settings allow.
	Failing bool `json:"failing"`
	// Marked: the Machine is marked, and no NodeFence answers the mark.
	Marked bool `json:"marked"`
	// Fenced: there is a NodeFence; in a look and a question, of this very boot.
	Fenced bool `json:"fenced"`

	// Alone: there is no peer to ask.
	Alone bool `json:"alone"`
	// Healthy, Unhealthy: some peer has said so.
	Healthy   bool `json:"healthy"`
	Unhealthy bool `json:"unhealthy"`
	// CutOff: some peer can't reach the API server either. Most: more than half of them can't.
	CutOff bool `json:"cutOff"`
	Most   bool `json:"most"`
	// Unasked: there are peers that were not asked yet.
	Unasked bool `json:"unasked"`

	// Known: this agent knows a NodeFence of the peer's boot.
	Known bool `json:"known"`
	// Looked: it has reached the API server in this boot.
	Looked bool `json:"looked"`

	// Node is the Node of the fenced boot's host.
	Node NodeIs `json:"node"`
	// Stamped: the Machine says that its mark is about the fenced boot, or was when it stood;
	// where there is no NodeFence, about any boot.
	Stamped bool `json:"stamped"`
	// Cordoned: the Node names the NodeFence, and while it reports the fenced boot it is cordoned.
	Cordoned bool `json:"cordoned"`
	// Leaving: the Node is being deleted, and another keeps it.
	Leaving bool `json:"leaving"`
	// Bare: a kubelet has recreated the Node, which lacks what users had set on the previous one.
	Bare bool `json:"bare"`
	// Promised: the agent of the fenced boot has announced when it will be reset.
	Promised bool `json:"promised"`
	// Quorate: enough of its peers know the NodeFence that the others are no majority.
	Quorate bool `json:"quorate"`
	// Safe: the safe time is over. The others say that only the named term may be left of it.
	Safe               bool `json:"safe"`
	OnlyReadsLeft      bool `json:"onlyReadsLeft"`
	OnlyRoundsLeft     bool `json:"onlyRoundsLeft"`
	OnlyPauseLeft      bool `json:"onlyPauseLeft"`
	OnlyResetLeft      bool `json:"onlyResetLeft"`
	OnlyClockErrorLeft bool `json:"onlyClockErrorLeft"`
	// Orphan: the Machine no longer exists.
	Orphan bool `json:"orphan"`
	// Backed: the NodeFence has the backup to recreate the Node from.
	Backed bool `json:"backed"`
	// Lingering: the Node has not been gone for long enough for its Pods to be released, or some of
	// them are still bound to its name.
	Lingering bool `json:"lingering"`
}

// Action is the one thing to do next.
type Action string

// The actions.
const (
	Wait Action = "Wait"

	// Feed keeps the host running, Starve leaves it to its watchdog, and Reboot asks the
	// kernel.
	Feed   Action = "Feed"
	Starve Action = "Starve"
	Reboot Action = "Reboot"

	// LiveOn: the host was wanted when the look or the vote began. Die: it isn't wanted. Wait: the
	// round is still undecided.
	LiveOn Action = "LiveOn"
	Die    Action = "Die"
	// Ask asks a set of peers, or a further one.
	Ask Action = "Ask"

	SayHealthy   Action = "SayHealthy"
	SayUnhealthy Action = "SayUnhealthy"
	SayCutOff    Action = "SayCutOff"
	SayNothing   Action = "SayNothing"

	// RequestFence stamps the mark and makes the NodeFence. RemoveMark takes mark and stamp
	// away.
	RequestFence Action = "RequestFence"
	Cordon       Action = "Cordon"
	DeleteNode   Action = "DeleteNode"
	RemoveMark   Action = "RemoveMark"
	RecreateNode Action = "RecreateNode"
	Uncordon     Action = "Uncordon"
	// Restore adds to a Node made by a kubelet what it lacks of the backup.
	Restore Action = "Restore"
	// Finish deletes the NodeFence.
	Finish Action = "Finish"
)

// Actions are all actions.
var Actions = []Action{
	Wait, Feed, Starve, Reboot, LiveOn, Die, Ask, SayHealthy, SayUnhealthy, SayCutOff, SayNothing,
	RequestFence, Cordon, DeleteNode, RemoveMark, RecreateNode, Uncordon, Restore, Finish,
}

// Decide returns the next action.
func Decide(s State) Action {
	switch s.About {
	case OfWatchdog:
		return s.feed()
	case OfLook:
		return s.look()
	case OfVote:
		return s.vote()
	case OfQuestion:
		return s.answer()
	default:
		return s.survive()
	}
}

// feed feeds the watchdog of a host whose boot is neither counted on nor condemned: it has not
// reached the API server yet, and a reset would bring it no nearer.
func (s State) feed() Action {
	switch {
	case !s.Condemned && (s.Fresh || !s.Announced):
		return Feed
	case s.Watched && !s.Overdue:
		return Starve
	default:
		return Reboot
	}
}

func (s State) look() Action {
	switch {
	case !s.Reached && s.Failing:
		return Ask
	case !s.Reached:
		return Wait
	case s.Fenced:
		return Die
	case s.Marked:
		return RequestFence
	default:
		return LiveOn
	}
}

// vote is optimistic, as in seed 004: one healthy reply is enough, and silence proves nothing. If
// all peers are silent, the host is itself cut off. If a few reply that they are cut off as well,
// the host has a network, and the others may have missed a single question: it asks in further
// rounds for as long as it may live on what it has heard.
func (s State) vote() Action {
	switch {
	case s.Alone, s.Healthy:
		return LiveOn
	case s.Unhealthy:
		return Die
	case s.Most:
		return LiveOn
	case s.Unasked:
		return Ask
	case s.CutOff && s.Fresh:
		return Wait
	default:
		return Die
	}
}

// answer never says cut off to a boot that this agent knows to be fenced: the agents that release
// its Node count on that.
func (s State) answer() Action {
	switch {
	case s.Reached && s.Marked && !s.Fenced:
		return RequestFence
	case s.Fenced, !s.Reached && s.Known:
		return SayUnhealthy
	case s.Reached:
		return SayHealthy
	case s.Looked:
		return SayCutOff
	default:
		return SayNothing // it may have known in an earlier boot
	}
}

// survive returns the next step for a fenced boot of another host. The mark stays until the host
// is back, so that a Node which is not Ready yet gives no reason for another fencing. So does the
// NodeFence, which answers the mark.
//
// A Node that is gone no longer shows the promise of its agent. A survivor that doesn't remember
// the promise, as after a reboot of its own, waits for nothing: the Node was released by its
// deletion, whether by an agent after the safe time or by a user.
func (s State) survive() Action {
	if !s.Fenced {
		switch {
		case s.Marked && s.Node == NodeOther:
			return RequestFence
		case s.Stamped && !s.Marked:
			// the mark was removed, but its stamp was left
			return RemoveMark
		}
		return Wait
	}
	switch s.Node {
	case NodeOther:
		switch {
		case s.Bare:
			return Restore // while the mark still says that this isn't over
		case s.Stamped:
			return RemoveMark // but no other: that is about a later boot
		case s.Cordoned:
			return Uncordon
		}
		return Finish
	case NodeFenced:
		switch {
		case s.Marked && !s.Stamped:
			return RequestFence // this one answers a mark that was set anew, too
		case !s.Cordoned:
			return Cordon
		case !s.Safe, s.Leaving:
			return Wait
		}
		return DeleteNode
	case NodeBlank:
		if s.Orphan {
			return Finish
		}
		return Wait // for its host
	default:
		switch {
		case s.Promised && !s.Safe:
			return Wait
		case s.Orphan:
			return Finish // whoever deleted the Machine wants no Node
		case s.Lingering || !s.Backed:
			return Wait
		}
		return RecreateNode
	}
}
