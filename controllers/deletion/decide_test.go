package deletion

import (
	"reflect"
	"slices"
	"testing"
)

// healthy is a Machine that was just marked for deletion: its Node has a Pod, and its host
// is on.
var healthy = State{Deleting: true, Finalizer: true, NodeExists: true, PodsToEvict: true, HostUsed: true, Provisioned: true}

func with(s State, change func(*State)) State {
	change(&s)
	return s
}

func TestDecide(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*State)
		want   Action
	}{
		{"a Machine gets the finalizer before anything can delete it", func(s *State) { *s = State{} }, AddFinalizer},
		{"one that has it is left alone", func(s *State) { *s = State{Finalizer: true, PreDrainHook: true} }, Nothing},
		{"one without it is somebody else's to finish", func(s *State) { s.Finalizer = false }, Nothing},
		{"what is about to happen is recorded first", func(*State) {}, Record},
		{"the Node is cordoned before anything leaves it", func(s *State) { s.Recorded = Draining }, Cordon},
		{"then its Pods are evicted", func(s *State) { s.Recorded, s.Cordoned = Draining, true }, Evict},
		{"whoever reads the condition learns whose hook it is", func(s *State) { s.Recorded, s.Cordoned, s.Stale = Draining, true, true }, Record},
		{"though not as fast as that may change", func(s *State) { s.Recorded, s.Cordoned, s.Stale, s.JustReported = Draining, true, true, true }, Evict},
		{"but soon", func(s *State) {
			s.PreDrainHook, s.Recorded, s.Stale, s.JustReported = true, WaitingForPreDrain, true, true
		}, Wait},
		{"the next phase is recorded at once", func(s *State) { s.Recorded, s.JustReported = WaitingForPreDrain, true }, Record},
		{"a refused Pod is asked for again later", func(s *State) { s.Recorded, s.Cordoned, s.PodsToEvict, s.PodsLater = Draining, true, false, true }, Wait},
		{"a Node with such Pods is not drained", func(s *State) {
			s.Recorded, s.Cordoned, s.PodsToEvict, s.PodsLater, s.PreTerminateHook = Draining, true, false, true, true
		}, Wait},
		{"Pods that stop are waited for", func(s *State) { s.Recorded, s.Cordoned, s.PodsToEvict, s.PodsLeaving = Draining, true, false, true }, Wait},
		{"on a Node out of reach none can", func(s *State) {
			s.Recorded, s.Cordoned, s.PodsToEvict, s.PodsLeaving, s.Unreachable = Terminating, true, false, true, true
		}, HoldOff},
		{"a pre-drain hook comes before the drain", func(s *State) { s.PreDrainHook = true }, Record},
		{"and pauses it", func(s *State) { s.PreDrainHook, s.Recorded = true, WaitingForPreDrain }, Nothing},
		{"one that comes during the drain pauses the rest of it", func(s *State) { s.PreDrainHook, s.Recorded, s.Cordoned = true, Draining, true }, Record},
		{"one without a Node pauses as well", func(s *State) { s.PreDrainHook, s.Recorded, s.NodeExists = true, WaitingForPreDrain, false }, Nothing},
		{"volumes are waited for", func(s *State) {
			s.Recorded, s.Cordoned, s.PodsToEvict, s.VolumesAttached = WaitingForDetach, true, false, true
		}, Wait},
		{"a pre-terminate hook doesn't pause the drain", func(s *State) { s.Recorded, s.PreTerminateHook, s.Cordoned = Draining, true, true }, Evict},
		{"but keeps the host on", func(s *State) {
			s.Recorded, s.PreTerminateHook, s.Cordoned, s.PodsToEvict = WaitingForTerminate, true, true, false
		}, Nothing},
		{"a drain that was finished is not begun again", func(s *State) { s.Recorded, s.PreTerminateHook, s.Cordoned = WaitingForTerminate, true, true }, Nothing},
		{"a host is asked to go off once that is recorded", func(s *State) { s.Recorded = Terminating }, HoldOff},
		{"a hook that comes before is heard", func(s *State) { s.Recorded, s.PreTerminateHook = Terminating, true }, Record},
		{"one that comes then is too late", func(s *State) {
			s.Recorded, s.Requested, s.PreDrainHook, s.PreTerminateHook = Terminating, true, true, true
		}, Wait},
		{"also where only the host tells", func(s *State) { s.Requested, s.PreDrainHook = true, true }, Record},
		{"until it is off nothing else happens", func(s *State) { s.Recorded, s.Requested = Terminating, true }, Wait},
		{"a host that is being provisioned can't be asked", func(s *State) { s.Recorded, s.Provisioned = Terminating, false }, Wait},
		{"under a host that is off the Node is deleted", func(s *State) { s.Recorded, s.Requested, s.HeldOff = DeletingNode, true, true }, DeleteNode},
		{"but by no answer that is too old", func(s *State) { s.Recorded, s.Requested, s.HeldOff, s.Outdated = DeletingNode, true, true, true }, HoldAgain},
		{"and a Node that has finalizers is waited for", func(s *State) { s.Recorded, s.Requested, s.HeldOff, s.NodeLeaving = DeletingNode, true, true, true }, Wait},
		{"power that comes back by itself begins it anew", func(s *State) { s.Recorded, s.Requested = DeletingNode, true }, Record},
		{"then the host is given back", func(s *State) { s.Recorded, s.Requested, s.HeldOff, s.NodeExists = Completed, true, true, false }, Release},
		{"but by no answer that is too old", func(s *State) {
			s.Recorded, s.Requested, s.HeldOff, s.NodeExists, s.Outdated = Completed, true, true, false, true
		}, HoldAgain},
		{"and the Machine goes", func(s *State) { s.Recorded, s.HostUsed, s.NodeExists = Completed, false, false }, RemoveFinalizer},
		{"a Node that comes then is that of the host's next user", func(s *State) { s.Recorded, s.HostUsed = Completed, false }, RemoveFinalizer},
		{"a Node that may be another's is not drained", func(s *State) {
			s.Recorded, s.NodeExists, s.NodeUnproven, s.PodsToEvict = WaitingForProof, false, true, false
		}, Wait},
		{"nor is the host switched off before that is known", func(s *State) {
			s.NodeExists, s.NodeUnproven, s.PodsToEvict = false, true, false
		}, Record},
		{"a Node that another host may have is neither drained", func(s *State) { s.Recorded, s.Shared = WaitingForProof, true }, Wait},
		{"though hooks before its drain are waited for first", func(s *State) { s.PreDrainHook, s.Shared = true, true }, Record},
		{"nor deleted if that comes to light later, and the host stays off", func(s *State) {
			s.Recorded, s.Requested, s.HeldOff, s.Shared, s.Outdated = WaitingForProof, true, true, true, true
		}, Wait},
		{"a host that was asked goes off all the same", func(s *State) { s.Recorded, s.Requested, s.Shared = Terminating, true, true }, Wait},
		{"without a host nobody can tell, so the Node is a person's to delete", func(s *State) { s.Recorded, s.HostUsed, s.SkipDrain = WaitingForPerson, false, true }, Wait},
		{"nor can anybody of one that is deprovisioned", func(s *State) {
			s.Recorded, s.Provisioned, s.Deprovisioned, s.SkipDrain = WaitingForPerson, false, true, true
		}, Wait},
		{"a Machine that never had anything goes at once", func(s *State) { *s = State{Deleting: true, Finalizer: true, Recorded: Completed} }, RemoveFinalizer},
	} {
		if got := Decide(with(healthy, test.change)); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// everyState calls each with every State there is.
func everyState(each func(State)) {
	phases := []Phase{NotDeleting, WaitingForPreDrain, Draining, WaitingForDetach, WaitingForTerminate, Terminating, DeletingNode, WaitingForPerson, WaitingForProof, Completed}
	// These say nothing that another doesn't.
	fixed := []string{"NodeLeaving", "Stale", "JustReported", "NodeUnproven", "Shared"}
	flags := reflect.TypeFor[State]().NumField() - 1 - len(fixed)
	for bits := range 1 << flags {
		var s State
		v, bit := reflect.ValueOf(&s).Elem(), 0
		for i := range v.NumField() {
			if v.Field(i).Kind() == reflect.Bool && !slices.Contains(fixed, v.Type().Field(i).Name) {
				v.Field(i).SetBool(bits>>bit&1 == 1)
				bit++
			}
		}
		for _, s.Recorded = range phases {
			each(s)
			s.NodeUnproven, s.Shared = !s.NodeExists, s.NodeExists // nobody knows whether it has one, or it alone
			each(s)
			s.NodeUnproven, s.Shared = false, false
		}
	}
}

// TestWhatIsNeverDone looks at every state for what must not be done in it.
func TestWhatIsNeverDone(t *testing.T) {
	if testing.Short() {
		t.Skip("there are millions of states")
	}
	failed := 0
	everyState(func(s State) {
		action := Decide(s)
		hooked := s.PreDrainHook && !s.terminating()
		for _, rule := range []struct {
			broken bool
			claim  string
		}{
			{!slices.Contains(Actions, action), "there is such an action"},
			{!s.Deleting && action != AddFinalizer && action != Nothing, "a Machine that is not deleted keeps all that it has"},
			{hooked && (action == Cordon || action == Evict), "no drain while there is a pre-drain hook"},
			{(s.PreDrainHook || s.PreTerminateHook) && !s.terminating() && (action == HoldOff || action == Release || action == DeleteNode), "no termination while there is a hook"},
			{action == HoldOff && s.Recorded != Terminating, "termination is on record before it begins"},
			{(action == Cordon || action == Evict) && s.Recorded != Draining, "a drain is on record before it begins"},
			{action == DeleteNode && !(s.HostUsed && s.HeldOff && s.NodeExists && !s.Outdated), "a Node goes only while its host is held off"},
			{s.Shared && (action == Cordon || action == Evict || action == DeleteNode || action == Release), "a Node that another host may have is left alone"},
			{action == Release && s.NodeUnproven, "a host is kept as long as nobody knows whose the Node is"},
			{action == Release && s.NodeExists, "a host is kept as long as its Node is there"},
			{action == Release && (s.Outdated || !s.HeldOff && !s.Deprovisioned), "a host is given back only while it is held off"},
			{action == RemoveFinalizer && s.HostUsed, "a Machine stays as long as it has a host"},
			{action == RemoveFinalizer && s.Left, "no host stays off for a Machine that is gone"},
			{action == LetGo && s.HostUsed, "a host is let go when it is the Machine's no more"},
			{action != Nothing && !s.Finalizer && s.Deleting, "without the finalizer nothing is done"},
		} {
			if rule.broken && failed < 20 {
				failed++
				t.Errorf("%s: %+v leads to %s", rule.claim, s, action)
			}
		}
	})
}

// ideal is a world in which whatever is asked for happens at once.
func ideal(s State, action Action) State {
	switch action {
	case Record:
		s.Recorded, s.Stale = s.Phase(), false
	case Cordon:
		s.Cordoned = true
	case Evict:
		s.PodsToEvict, s.PodsLeaving = false, true
	case HoldOff, HoldAgain:
		s.Requested, s.HeldOff, s.Outdated = true, true, false
	case DeleteNode:
		s.NodeExists = false
	case Release:
		s.HostUsed, s.Provisioned, s.Requested, s.HeldOff = false, false, false, false
	case LetGo:
		s.Left = false
	case Wait:
		switch {
		case s.Shared: // a person gives the other one its own
			s.Shared = false
		case s.NodeUnproven: // a person says whose it is
			s.NodeUnproven, s.NodeExists = false, true
		case s.PodsLeaving:
			s.PodsLeaving = false
		case s.PodsLater:
			s.PodsLater, s.PodsToEvict = false, true
		case s.VolumesAttached:
			s.VolumesAttached = false
		case s.HostUsed && !s.Provisioned && !s.Deprovisioned:
			s.Provisioned = true
		case s.Requested && !s.HeldOff:
			s.HeldOff = true
		case s.NodeLeaving || s.NodeExists: // or a person deletes it
			s.NodeExists, s.NodeLeaving = false, false
		}
	}
	return s
}

// TestEveryDeletionEnds follows every state without hooks to its end.
func TestEveryDeletionEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("there are millions of states")
	}
	failed := 0
	everyState(func(start State) {
		if !start.Deleting || !start.Finalizer || start.PreDrainHook || start.PreTerminateHook {
			return
		}
		s := start
		for range 30 {
			action := Decide(s)
			if action == RemoveFinalizer {
				return
			}
			s = ideal(s, action)
		}
		if failed++; failed < 20 {
			t.Errorf("%+v never ends: it is at %+v, and does %s", start, s, Decide(s))
		}
	})
}
