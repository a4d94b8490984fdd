package poisonpill

import "testing"

// TestFeed: what is heard too long ago is nothing to live on where others count on it, and
// nothing else is, either, when the host is known to be fenced.
func TestFeed(t *testing.T) {
	for _, c := range []struct {
		state State
		want  Action
	}{
		{State{}, Feed}, // this boot has not reached the API server yet
		{State{Watched: true}, Feed},
		{State{Announced: true, Fresh: true}, Feed},
		{State{Announced: true}, Reboot},
		{State{Announced: true, Watched: true}, Starve},
		{State{Announced: true, Watched: true, Overdue: true}, Reboot},
		{State{Announced: true, Fresh: true, Condemned: true, Watched: true}, Starve},
		{State{Announced: true, Fresh: true, Condemned: true}, Reboot},
		{State{Condemned: true, Watched: true}, Starve},
	} {
		decide(t, OfWatchdog, c.state, c.want)
	}
}

func TestLook(t *testing.T) {
	for _, c := range []struct {
		state State
		want  Action
	}{
		{State{}, Wait},
		{State{Failing: true}, Ask},
		{State{Reached: true}, LiveOn},
		{State{Reached: true, Failing: true}, LiveOn},
		{State{Reached: true, Marked: true}, RequestFence},
		{State{Reached: true, Marked: true, Fenced: true}, Die},
		{State{Reached: true, Fenced: true}, Die},
	} {
		decide(t, OfLook, c.state, c.want)
	}
}

// TestEveryVote plays every combination of answers (seed 004).
func TestEveryVote(t *testing.T) {
	for bits := range 1 << 7 {
		bit := func(i int) bool { return bits>>i&1 == 1 }
		s := State{Alone: bit(0), Healthy: bit(1), Unhealthy: bit(2), CutOff: bit(3), Most: bit(4), Unasked: bit(5), Fresh: bit(6)}
		if s.Most && !s.CutOff || s.Alone && (s.Healthy || s.Unhealthy || s.CutOff || s.Unasked) {
			continue // can't be
		}
		want := Die // no peer answered, or too few of those who did count
		switch {
		case s.Alone, s.Healthy: // one is enough, whatever the others say
			want = LiveOn
		case s.Unhealthy:
		case s.Most:
			want = LiveOn
		case s.Unasked:
			want = Ask
		case s.CutOff && s.Fresh: // somebody hears it, and it may still live on what it has heard
			want = Wait
		}
		decide(t, OfVote, s, want)
	}
}

// TestEveryAnswer: an agent that knows of a fencing says so even when it can't look, and
// one that knows nothing says nothing.
func TestEveryAnswer(t *testing.T) {
	for _, c := range []struct {
		state State
		want  Action
	}{
		{State{Reached: true, Looked: true}, SayHealthy},
		{State{Reached: true}, SayHealthy},
		{State{Reached: true, Known: true}, SayHealthy}, // that fencing is over
		{State{Reached: true, Fenced: true}, SayUnhealthy},
		{State{Reached: true, Fenced: true, Marked: true}, SayUnhealthy},
		{State{Reached: true, Marked: true}, RequestFence},
		{State{Looked: true}, SayCutOff},
		{State{Looked: true, Known: true}, SayUnhealthy},
		{State{}, SayNothing},
	} {
		decide(t, OfQuestion, c.state, c.want)
	}
}

// TestEveryStepOfTheSurvivors goes through all that a survivor can find.
func TestEveryStepOfTheSurvivors(t *testing.T) {
	for _, c := range []struct {
		state State
		want  Action
	}{
		{State{Node: NodeOther}, Wait},
		{State{Marked: true, Node: NodeOther}, RequestFence},
		{State{Marked: true, Node: NodeGone}, Wait},  // nothing can be released
		{State{Marked: true, Node: NodeBlank}, Wait}, // nothing runs yet
		{State{Fenced: true, Node: NodeFenced}, Cordon},
		{State{Fenced: true, Node: NodeFenced, Safe: true}, Cordon},
		{State{Fenced: true, Node: NodeFenced, Cordoned: true}, Wait},
		{State{Fenced: true, Node: NodeFenced, Cordoned: true, Promised: true, Quorate: true}, Wait},
		{State{Fenced: true, Node: NodeFenced, Cordoned: true, Safe: true}, DeleteNode},
		{State{Fenced: true, Node: NodeFenced, Cordoned: true, Safe: true, Leaving: true}, Wait},
		{State{Fenced: true, Node: NodeGone, Backed: true, Promised: true}, Wait},
		{State{Fenced: true, Node: NodeGone, Backed: true, Promised: true, Orphan: true}, Wait},
		{State{Fenced: true, Node: NodeGone, Backed: true, Promised: true, Safe: true, Lingering: true}, Wait},
		{State{Fenced: true, Node: NodeGone, Backed: true, Promised: true, Safe: true, Marked: true}, RecreateNode},
		{State{Fenced: true, Node: NodeGone, Backed: true, Promised: true, Safe: true, Orphan: true}, Finish},
		{State{Fenced: true, Node: NodeGone, Backed: true, Lingering: true}, Wait},
		{State{Fenced: true, Node: NodeGone, Backed: true}, RecreateNode}, // the promise is forgotten
		{State{Fenced: true, Node: NodeGone}, Wait},                       // there is nothing to make it of
		{State{Fenced: true, Node: NodeGone, Orphan: true}, Finish},
		{State{Fenced: true, Node: NodeBlank, Marked: true}, Wait},
		{State{Fenced: true, Node: NodeBlank, Orphan: true}, Finish},
		{State{Fenced: true, Node: NodeOther, Marked: true, Stamped: true, Cordoned: true}, RemoveMark},
		{State{Fenced: true, Node: NodeOther, Stamped: true, Cordoned: true}, RemoveMark}, // of one that was taken away
		{State{Fenced: true, Node: NodeOther, Marked: true, Cordoned: true}, Uncordon},    // that mark is another one
		{State{Fenced: true, Node: NodeOther, Marked: true}, Finish},
		{State{Marked: true, Stamped: true, Node: NodeOther}, RequestFence},
		{State{Fenced: true, Node: NodeFenced, Marked: true}, RequestFence}, // set anew
		{State{Fenced: true, Node: NodeFenced, Marked: true, Stamped: true}, Cordon},
		{State{Stamped: true, Node: NodeOther}, RemoveMark},
		{State{Stamped: true, Node: NodeGone}, RemoveMark},
		{State{Fenced: true, Node: NodeOther, Cordoned: true}, Uncordon},
		{State{Fenced: true, Node: NodeOther, Marked: true, Stamped: true, Bare: true}, Restore},
		{State{Fenced: true, Node: NodeOther}, Finish},
	} {
		decide(t, OfFence, c.state, c.want)
	}
}

func decide(t *testing.T, about Subject, s State, want Action) {
	t.Helper()
	s.About = about
	if got := Decide(s); got != want {
		t.Errorf("%+v: %s, want %s", s, got, want)
	}
}
