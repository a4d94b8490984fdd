package reboot

import (
	"encoding/json"
	"testing"
)

// everyState calls f with each possible State.
func everyState(f func(State)) {
	for bits := range 1 << 15 {
		bit := func(i int) bool { return bits>>i&1 == 1 }
		for _, power := range []PowerState{On, Off, Unreachable} {
			f(State{
				Provisioned: bit(0), Deprovisioned: bit(1), Online: bit(2), Plain: bit(3), Keyed: bit(4), Hard: bit(5),
				StatusOn: bit(6), Power: power, Pending: bit(7), SoftFailed: bit(8), ShutDownSent: bit(9),
				Commanded: bit(10), ErrorStale: bit(11), BootRecorded: bit(12), OnSent: bit(13),
				Unanswered: bit(14),
			})
		}
	}
}

func TestDecideProperties(t *testing.T) {
	properties := []struct {
		name string
		// applies says which decisions the claim is about, holds whether it is true.
		applies func(State, Action) bool
		holds   func(State, Action) bool
	}{
		{
			"an unprovisioned host is left alone but for what deprovisioning ends",
			func(s State, _ Action) bool { return !s.Provisioned },
			func(s State, a Action) bool {
				return a == Nothing || s.Deprovisioned && (a == ClearAnnotations || a == ForgetRequest)
			},
		},
		{
			"annotations are cleared only by deprovisioning, and then first",
			func(s State, a Action) bool {
				return a == ClearAnnotations || !s.Provisioned && s.Deprovisioned && (s.Plain || s.Keyed)
			},
			func(s State, a Action) bool {
				return a == ClearAnnotations && !s.Provisioned && s.Deprovisioned && (s.Plain || s.Keyed)
			},
		},
		{
			"a host is powered on only while it is off, online, and nothing asks for a reboot, but that it may be powering on already",
			func(_ State, a Action) bool { return a == PowerOn },
			func(s State, _ Action) bool {
				return s.Power == Off && s.Online && !s.Pending && !s.Keyed && s.BootRecorded && (!s.Plain || s.OnSent && !s.Hard)
			},
		},
		{
			"a request is not answered by an Off from before a boot",
			func(s State, _ Action) bool { return s.PoweringOn() },
			func(_ State, a Action) bool { return a != RecordAnswer && a != RemovePlain },
		},
		{
			"a request is answered by a reading that says off, which the status says too",
			func(_ State, a Action) bool { return a == RecordAnswer },
			func(s State, _ Action) bool { return s.Provisioned && s.Power == Off && !s.StatusOn && s.Unanswered },
		},
		{
			"a host that is off is not let on before whoever holds it has an answer and has let go",
			func(s State, _ Action) bool { return s.Provisioned && s.Power == Off && s.Keyed && !s.PoweringOn() },
			func(_ State, a Action) bool { return a != RecordBoot && a != PowerOn },
		},
		{
			"a host goes down only for a recorded request or because it should not be online",
			func(_ State, a Action) bool { return a == ShutDown || a == PowerOff },
			func(s State, a Action) bool {
				return s.Power == On && (s.Pending || !s.Online) || a == PowerOff && s.CallsOff() && (s.Plain || s.Keyed)
			},
		},
		{
			"power is cut only for a hard request, after a soft shutdown failed, or before the host was seen on",
			func(_ State, a Action) bool { return a == PowerOff },
			func(s State, _ Action) bool { return s.Hard || s.SoftFailed || s.CallsOff() },
		},
		{
			"a hard request waits for no soft shutdown",
			func(s State, _ Action) bool {
				return s.Provisioned && s.Power == On && s.StatusOn && s.Pending && s.Hard && !s.ErrorStale && !s.Commanded
			},
			func(_ State, a Action) bool { return a == PowerOff },
		},
		{
			"the status is brought up to date before anything else is done",
			func(s State, _ Action) bool {
				return s.Provisioned && s.Power != Unreachable && (s.Power == On) != s.StatusOn
			},
			func(_ State, a Action) bool { return a == RecordPower },
		},
		{
			"power is recorded only by a reading, and only when it changes",
			func(_ State, a Action) bool { return a == RecordPower },
			func(s State, _ Action) bool { return s.Power != Unreachable && (s.Power == On) != s.StatusOn },
		},
		{
			"a request is recorded once, with a status that is true",
			func(_ State, a Action) bool { return a == RecordPending },
			func(s State, _ Action) bool {
				return (s.Plain || s.Keyed) && !s.Pending && s.Power == On && s.StatusOn
			},
		},
		{
			"a boot is recorded only while the host is off and nobody holds it",
			func(_ State, a Action) bool { return a == RecordBoot },
			func(s State, _ Action) bool {
				return s.Power == Off && s.Online && (s.Pending || !s.BootRecorded) && !s.Plain && !s.Keyed
			},
		},
		{
			"the plain annotation goes only from a host that is off and about to boot",
			func(_ State, a Action) bool { return a == RemovePlain },
			func(s State, _ Action) bool { return s.Power == Off && s.Plain && !s.Keyed && s.Online },
		},
		{
			"a host without an answering BMC is not commanded",
			func(s State, _ Action) bool { return s.Provisioned && s.Power == Unreachable },
			func(_ State, a Action) bool { return a == Wait || a == RecordError },
		},
		{
			"a command that was just accepted is not repeated",
			func(s State, a Action) bool { return s.Commanded },
			func(_ State, a Action) bool { return a != PowerOff && a != PowerOn },
		},
		{
			"a host that is as it should be is left alone",
			func(s State, _ Action) bool {
				return s.Provisioned && !s.Pending && !s.Plain && !s.Keyed && !s.ErrorStale && !s.Unanswered &&
					(s.Power == On) == s.StatusOn && s.Power != Unreachable && (s.Power == On) == s.Online
			},
			func(_ State, a Action) bool { return a == Nothing },
		},
		{
			"nothing to do is said only when nothing is asked for",
			func(s State, a Action) bool { return a == Nothing && s.Provisioned },
			func(s State, _ Action) bool {
				return s.Power != Unreachable && (s.Power == On) == (s.Online && !s.Pending)
			},
		},
	}
	exercised := map[string]int{}
	seen := map[Action]int{}
	everyState(func(s State) {
		action := Decide(s)
		seen[action]++
		for _, p := range properties {
			if !p.applies(s, action) {
				continue
			}
			exercised[p.name]++
			if !p.holds(s, action) && exercised[p.name] > 0 {
				exercised[p.name] = -1 << 40 // say it once
				t.Errorf("%s; not so: %+v leads to %s", p.name, s, action)
			}
		}
	})
	for _, p := range properties {
		if exercised[p.name] == 0 {
			t.Errorf("no state exercises: %s", p.name)
		}
	}
	for _, a := range Actions {
		if seen[a] == 0 {
			t.Errorf("no state leads to %s", a)
		}
		delete(seen, a)
	}
	for a := range seen {
		t.Errorf("the action %s is missing among Actions", a)
	}
}

func TestOnlyOffIsOff(t *testing.T) {
	for property, want := range map[string]PowerState{
		"Off": Off, "On": On, "PoweringOff": On, "PoweringOn": On, "Paused": On, "": On, "off": On, "OFF": On,
	} {
		if got := ParsePowerState(property); got != want {
			t.Errorf("a BMC that says %q: %s, want %s", property, got, want)
		}
	}
}

func TestPowerStateRefusesOtherNames(t *testing.T) {
	var p PowerState
	if err := json.Unmarshal([]byte(`"PoweringOff"`), &p); err == nil {
		t.Errorf("PoweringOff was accepted as %s", p)
	}
	if err := json.Unmarshal([]byte(`"Off"`), &p); err != nil || p != Off {
		t.Errorf("Off became %s, %v", p, err)
	}
}

func BenchmarkDecide(b *testing.B) {
	s := State{Provisioned: true, Online: true, StatusOn: true, Power: On}
	for b.Loop() {
		if Decide(s) != Nothing {
			b.Fatal("something to do")
		}
	}
}
