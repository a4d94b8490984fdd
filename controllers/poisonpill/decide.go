// Package poisonpill is the agent of seed 004, which runs on every host. It lets its own
// host be reset when that is to be fenced, or can't be known to be wanted; and it does
// for the others what survivors do: it releases the Node of a fenced host when the host
// must have been reset by then, and makes that Node again.
//
// Agents agree on a fencing by a NodeFence, which names the boot that has to end and is
// never taken back. docs/seeds.md argues why a Node that is deleted belongs to a boot
// that is over. In short: a host lives on what it has heard, each time for as long as its
// agent has announced on its Node. After the NodeFence exists, every answer says that it is
// fenced, with one exception: a majority of its peers may say that they can't reach the API
// server. A peer that knows the NodeFence doesn't say that any more. So the safe time begins
// when the NodeFence is there and half of the host's peers have announced that they know it.
package poisonpill

// Subject is which of the agent's decisions a State is for.
type Subject string

// The subjects.
const (
	// OfWatchdog: may the host run on for as long as its watchdog waits?
	OfWatchdog Subject = "watchdog"
	// OfLook: what follows from a look at the API server?
	OfLook Subject = "look"
	// OfVote: what follows from what peers have answered?
	OfVote Subject = "vote"
	// OfQuestion: what is a peer told that asks about itself?
	OfQuestion Subject = "question"
	// OfFence: what is the next thing to do about another boot that is fenced, or whose
	// Machine is marked?
	OfFence Subject = "fence"
)

// NodeIs is whose the Node of a fenced boot's host is by now.
type NodeIs string

// What the Node is.
const (
	NodeGone   NodeIs = "gone"
	NodeFenced NodeIs = "fenced" // it tells of the fenced boot
	NodeBlank  NodeIs = "blank"  // it tells of no boot, as one that was just made again
	NodeOther  NodeIs = "other"  // it tells of another boot: the fenced one is over
)

// State is every fact that a decision rests on. Which of them count depends on what it
// is about.
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
	// Overdue: the watchdog should have done that by now.
	Overdue bool `json:"overdue"`

	// Reached: the API server has answered.
	Reached bool `json:"reached"`
	// Failing: it has failed to as often as the settings allow.
	Failing bool `json:"failing"`
	// Marked: the Machine is, and no NodeFence answers that.
	Marked bool `json:"marked"`
	// Fenced: there is a NodeFence; in a look and a question, of this very boot.
	Fenced bool `json:"fenced"`

	// Alone: there is no peer to ask.
	Alone bool `json:"alone"`
	// Healthy, Unhealthy: some peer has said so.
	Healthy   bool `json:"healthy"`
	Unhealthy bool `json:"unhealthy"`
	// CutOff: some peer can't reach the API server either, and Most more than half.
	CutOff bool `json:"cutOff"`
	Most   bool `json:"most"`
	// Unasked: there are peers that were not asked yet.
	Unasked bool `json:"unasked"`

	// Known: this agent knows a NodeFence of the peer's boot.
	Known bool `json:"known"`
	// Looked: it has reached the API server in this boot.
	Looked bool `json:"looked"`

	// Node is that of the fenced boot's host.
	Node NodeIs `json:"node"`
	// Stamped: the Machine says that its mark is about the fenced boot, or was when it stood;
	// where there is no NodeFence, about any boot.
	Stamped bool `json:"stamped"`
	// Cordoned: the Node is, and says for which NodeFence.
	Cordoned bool `json:"cordoned"`
	// Bare: a kubelet has made the Node anew, and it lacks what somebody had given the one
	// before.
	Bare bool `json:"bare"`
	// Promised: the agent of the fenced boot has announced when it will be reset.
	Promised bool `json:"promised"`
	// Quorate: so many of its peers know the NodeFence that the others are not the most.
	Quorate bool `json:"quorate"`
	// Safe: the safe time is over. The others say of which term alone it may not be.
	Safe               bool `json:"safe"`
	OnlyReadsLeft      bool `json:"onlyReadsLeft"`
	OnlyRoundsLeft     bool `json:"onlyRoundsLeft"`
	OnlyPauseLeft      bool `json:"onlyPauseLeft"`
	OnlyResetLeft      bool `json:"onlyResetLeft"`
	OnlyClockErrorLeft bool `json:"onlyClockErrorLeft"`
	// Orphan: the Machine is not there any more.
	Orphan bool `json:"orphan"`
	// Backed: the NodeFence has what the Node is made of again.
	Backed bool `json:"backed"`
	// Lingering: the Node has not been gone for long enough for its Pods to be released.
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

	// LiveOn: the host is wanted, as of when the look or the vote began. Die: it isn't. Wait:
	// the round has not told.
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
	// Restore gives a Node that a kubelet has made what it lacks of the backup.
	Restore Action = "Restore"
	// Finish deletes the NodeFence.
	Finish Action = "Finish"
)

// Actions are all actions.
var Actions = []Action{
	Wait, Feed, Starve, Reboot, LiveOn, Die, Ask, SayHealthy, SayUnhealthy, SayCutOff, SayNothing,
	RequestFence, Cordon, DeleteNode, RemoveMark, RecreateNode, Uncordon, Restore, Finish,
}

// Decide says what to do.
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

// feed lets a host run on that nobody counts on and that nobody wants gone: its boot has
// not reached the API server yet, and a reset would bring it no nearer.
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

// vote is optimistic, as seed 004 has it: one peer that says healthy is enough, and no
// answer says nothing. Silence of all is what a host hears that is cut off itself. One that
// hears of a few that they are cut off as well has a network, and the others may have missed
// a single question: it asks in further rounds for as long as it may live on what it has heard.
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

// answer never says cut off to a boot of which this agent knows that it is fenced: that
// is what the agents who release its Node count on.
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

// survive is the next step for a fenced boot of another host. The mark stays until the
// host is back, so that nobody sees another reason to fence it in a Node that is not
// Ready yet; and so does the NodeFence, which answers it.
//
// A Node that is gone doesn't say any more what its agent has promised. An agent that doesn't
// remember it, as after a reboot of its own, waits for nothing: the Node was released by whoever deleted
// it, an agent when the safe time was over, or a user.
func (s State) survive() Action {
	if !s.Fenced {
		switch {
		case s.Marked && s.Node == NodeOther:
			return RequestFence
		case s.Stamped && !s.Marked:
			return RemoveMark // whoever took it away has left the stamp
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
		case !s.Safe:
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
