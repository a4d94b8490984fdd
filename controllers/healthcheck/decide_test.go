package healthcheck

import "testing"

// everyState calls f with each possible State.
func everyState(f func(State)) {
	for bits := range 1 << 8 {
		bit := func(i int) bool { return bits>>i&1 == 1 }
		for _, recorded := range []Verdict{Healthy, Waiting, Unhealthy} {
			f(State{
				Remediating: bit(0), Missing: bit(1), Sick: bit(2), Expired: bit(3), Allowed: bit(4), Calm: bit(5), Guarded: bit(6), Shared: bit(7),
				Recorded: recorded,
			})
		}
	}
}

func TestDecideProperties(t *testing.T) {
	seen := map[Action]int{}
	everyState(func(s State) {
		action := Decide(s)
		seen[action]++
		unhealthy := s.Missing || s.Sick
		if marks := action == Mark; marks && !(unhealthy && s.Expired && s.Allowed && s.Calm && !s.Guarded && !s.Shared && !s.Remediating) {
			t.Errorf("marked without cause: %+v", s)
		}
		if s.Remediating && action != RecordUnhealthy && s.Recorded != Unhealthy {
			t.Errorf("the remediation is not recorded, so its end would start no clock: %+v", s)
		}
		if action == Mark && s.Missing && s.Recorded != Waiting {
			t.Errorf("marked without a start-up time: %+v", s)
		}
		if action == Mark && s.Recorded == Unhealthy {
			t.Errorf("marked again right after a remediation: %+v", s)
		}
		if !s.Remediating && !unhealthy && action != Nothing && action != RecordHealthy {
			t.Errorf("%s of a healthy Machine: %+v", action, s)
		}
		// A record settles: deciding again on what was recorded does something
		// else, or nothing.
		after := s
		switch action {
		case RecordHealthy:
			after.Recorded = Healthy
		case RecordWaiting:
			after.Recorded = Waiting
		case RecordUnhealthy:
			after.Recorded = Unhealthy
		default:
			return
		}
		if again := Decide(after); again == action {
			t.Errorf("%s for ever in %+v", action, s)
		}
	})
	for _, a := range Actions {
		if seen[a] == 0 {
			t.Errorf("no state leads to %s", a)
		}
	}
	if len(seen) != len(Actions) {
		t.Errorf("actions %v, and listed are %v", seen, Actions)
	}
}
