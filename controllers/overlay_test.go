package controllers

import (
	"strings"
	"testing"

	"github.com/fencelab/fencelab/controllers/reboot"
	"github.com/fencelab/fencelab/controllers/remediation"
)

// TestWrongControllers spells the wrong machine remediation controllers that the
// scenarios need, and checks that each is wrong where it should be and right
// elsewhere.
func TestWrongControllers(t *testing.T) {
	type when = map[string]any
	marked := remediation.State{NodeExists: true, NeedsRemediation: true}
	with := func(change func(*remediation.State)) remediation.State { s := marked; change(&s); return s }
	held := with(func(s *remediation.State) { s.RebootAnnotation, s.AnswersRequest = true, true })
	on := with(func(s *remediation.State) { s.RebootAnnotation, s.StatusOn = true, true })
	stale := with(func(s *remediation.State) { s.RebootAnnotation = true })
	for name, tc := range map[string]struct {
		rules []Rule
		in    remediation.State
		want  remediation.Action
	}{
		"deletes the Node before power-off": {
			[]Rule{{when{"needsRemediation": true, "nodeExists": true, "rebootAnnotation": true, "statusOn": true}, "DeleteNode"}},
			on, remediation.DeleteNode,
		},
		"powers on before the Node is deleted": {
			[]Rule{{when{"nodeExists": true, "needsRemediation": true, "statusOn": false, "answersRequest": true}, "RemoveReboot"}},
			held, remediation.RemoveReboot,
		},
		"trusts a stale poweredOn": {
			[]Rule{{when{"nodeExists": true, "needsRemediation": true, "rebootAnnotation": true, "statusOn": false, "answersRequest": false}, "DeleteNode"}},
			stale, remediation.DeleteNode,
		},
		"asks for a reboot whatever the power, then trusts it": { // as upstream does
			[]Rule{
				{when{"needsRemediation": true, "rebootAnnotation": false}, "AddReboot"},
				{when{"nodeExists": true, "needsRemediation": true, "rebootAnnotation": true, "statusOn": false}, "DeleteNode"},
			},
			stale, remediation.DeleteNode,
		},
	} {
		decide, err := Overlaid(remediation.Decide, remediation.Actions, tc.rules)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := decide(tc.in); got != tc.want || remediation.Decide(tc.in) == tc.want {
			t.Errorf("%s: %s, and the right one %s", name, got, remediation.Decide(tc.in))
		}
		if calm := (remediation.State{NodeExists: true, StatusOn: true}); decide(calm) != remediation.Nothing {
			t.Errorf("%s: a healthy host leads to %s", name, decide(calm))
		}
	}
}

func TestFirstRuleDecides(t *testing.T) {
	decide, err := Overlaid(reboot.Decide, reboot.Actions, []Rule{
		{When: map[string]any{"power": "Off", "keyed": true}, Then: "PowerOn"},
		{When: map[string]any{"power": "Off"}, Then: "Wait"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for want, s := range map[reboot.Action]reboot.State{
		reboot.PowerOn: {Power: reboot.Off, Keyed: true},
		reboot.Wait:    {Power: reboot.Off},
		reboot.Nothing: {Power: reboot.On},
	} {
		if got := decide(s); got != want {
			t.Errorf("%+v: %s, want %s", s, got, want)
		}
	}
}

func TestRulesAreChecked(t *testing.T) {
	r, err := Lookup("reboot")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		rule Rule
		want []string
	}{
		{Rule{map[string]any{"plane": true}, "Wait"}, []string{`rule 1: there is no fact "plane"; did you mean plain?`}},
		{Rule{map[string]any{"plain": "yes"}, "Wait"}, []string{"the fact plain can't be yes: it is a bool"}},
		{Rule{map[string]any{"plain": nil}, "Wait"}, []string{"leave it out"}},
		{Rule{map[string]any{"power": "PoweringOff"}, "Wait"}, []string{"is none of On, Off, Unreachable"}},
		{Rule{nil, "powerOff"}, []string{`there is no action "powerOff"; did you mean PowerOff?`}},
		{Rule{nil, "xyzzy"}, []string{`there is no action "xyzzy"; known are Nothing, `}},
		{Rule{map[string]any{"a": 1, "b": 2}, "c"}, []string{`fact "a"`, `fact "b"`, `action "c"`}},
	} {
		err := r.CheckOverlay([]Rule{tc.rule})
		if err == nil {
			t.Errorf("%+v was accepted", tc.rule)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v\nwant %q", tc.rule, err, want)
			}
		}
		if _, err := r.New(Deps{Overlay: []Rule{tc.rule}}); err == nil {
			t.Errorf("a controller was made with %+v", tc.rule)
		}
	}
}

func BenchmarkOverlaid(b *testing.B) {
	decide, err := Overlaid(remediation.Decide, remediation.Actions, []Rule{
		{When: map[string]any{"nodeExists": true, "needsRemediation": true}, Then: "DeleteNode"},
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if decide(remediation.State{NodeExists: true}) != remediation.Nothing {
			b.Fatal("something to do")
		}
	}
}
