package guarantee

import (
	"strings"
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// TestPromises: a claim waits for what controllers can do. What depends on a fault that
// lasts for good is excused, and a step that waits in vain for what was promised breaks the
// promise.
func TestPromises(t *testing.T) {
	const machine, clause = "Machine/m1", "worker-1 is cut off"
	deleting := []history.Event{
		{Kind: history.NodeCreated, Host: "worker-1", Object: "Node/worker-1", UID: "n1", Actor: "worker-1.kubelet"},
		{Kind: history.HostConsumer, Host: "worker-1", Object: "BareMetalHost/worker-1", Value: machine, Actor: "scenario"},
		{Kind: history.RunStarted},
		{At: time.Second, Kind: history.MachineDeleting, Host: "worker-1", Object: machine, Actor: "user"},
	}
	standsStill := func(party string) history.Event {
		return history.Event{At: 2 * time.Second, Kind: history.OpApplied, Hinders: &history.Hindrance{Party: party, Name: clause}}
	}
	vain := func(host string, kind history.Kind) history.Event {
		return history.Event{At: 60 * time.Second, Kind: history.StepOverdue, Host: host, Value: string(kind)}
	}
	healed := history.Event{At: 70 * time.Second, Kind: history.Healed, Lasting: []string{clause}}
	for name, tc := range map[string]struct {
		then []history.Event
		want string
	}{
		"nothing holds it up":                  {[]history.Event{healed}, "violated: Machine/m1 was marked for deletion at 1.0 s and is still there; the faults were withdrawn at 70.0 s"},
		"its host is cut off for good":         {[]history.Event{standsStill("host/worker-1"), healed}, "violated: Machine/m1 was marked for deletion at 1.0 s and is still there; the faults were withdrawn at 70.0 s"},
		"its controller stands still":          {[]history.Event{standsStill("controller/deletion"), healed}, "unknown: never put to the test: what lasts for good keeps it from coming true"},
		"its BMC is dead for good":             {[]history.Event{standsStill("bmc/worker-1"), healed}, "unknown: never put to the test: what lasts for good keeps it from coming true"},
		"another BMC is dead for good":         {[]history.Event{standsStill("bmc/worker-2"), healed}, "violated: Machine/m1 was marked for deletion"},
		"the story waits for it":               {[]history.Event{vain("worker-1", history.MachineDeleted)}, "violated: Machine/m1 was marked for deletion at 1.0 s and is still there, and at 60.0 s the story had waited in vain for it"},
		"it waits for it on any host":          {[]history.Event{vain("", history.MachineDeleted)}, "violated: Machine/m1 was marked for deletion"},
		"it waits for it elsewhere":            {[]history.Event{vain("worker-2", history.MachineDeleted)}, "unknown: the history was cut short"},
		"it waits for something else":          {[]history.Event{vain("worker-1", history.NodeReady)}, "unknown: the history was cut short"},
		"it waits, and its BMC doesn't answer": {[]history.Event{standsStill("bmc/worker-1"), vain("worker-1", history.MachineDeleted)}, "unknown: the history was cut short"},
	} {
		t.Run(name, func(t *testing.T) {
			params := usual()
			params.Patience = 60 * time.Second
			panel := invariant.NewPanel([]invariant.Invariant{deletionEnds}, All(), params)
			all := append(append([]history.Event(nil), deleting...), tc.then...)
			complete := all[len(all)-1].Kind == history.Healed
			if complete {
				all = append(all, history.Event{At: 200 * time.Second, Kind: history.Done})
			}
			for _, e := range record(all).Events() {
				panel.Observe(&e)
			}
			r := panel.Results(complete)[0]
			if got := string(r.Verdict) + ": " + r.Reason; !strings.HasPrefix(got, tc.want) {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// TestYoungLacks: against a fault that lasts controllers may go on for ever, so what has
// been missing for a short time only is under way.
func TestYoungLacks(t *testing.T) {
	for since, want := range map[time.Duration]invariant.Verdict{time.Second: invariant.Violated, 190 * time.Second: invariant.Held} {
		params := usual()
		params.Patience = 60 * time.Second
		panel := invariant.NewPanel([]invariant.Invariant{powerRestored}, All(), params)
		for _, e := range record([]history.Event{
			{Kind: history.BootStarted, Host: "worker-2", Boot: "b1"}, {Kind: history.RunStarted},
			{At: time.Second, Kind: history.OpApplied, Hinders: &history.Hindrance{Party: "host/worker-1", Name: "cut"}},
			{At: 2 * time.Second, Kind: history.Healed, Lasting: []string{"cut"}},
			{At: 2*time.Second + since, Kind: history.PowerOff, Host: "worker-2", Boot: "b1", Actor: "reboot"},
			{At: 200 * time.Second, Kind: history.Done},
		}).Events() {
			panel.Observe(&e)
		}
		if r := panel.Results(true)[0]; r.Verdict != want {
			t.Errorf("off since %s: %s (%s), want %s", since, r.Verdict, r.Reason, want)
		}
	}
}

// TestOwnSettings: a Node that is away is cycled again by the settings of its remediation. A step,
// or a run, that doesn't wait for so long says nothing against it.
func TestOwnSettings(t *testing.T) {
	for waited, want := range map[time.Duration]invariant.Verdict{2 * time.Minute: invariant.Unknown, 10 * time.Minute: invariant.Unknown, 11 * time.Minute: invariant.Violated} {
		for _, end := range []history.Event{
			{Kind: history.StepOverdue, Host: "worker-1", Value: string(history.NodeReady)},
			{Kind: history.Healed},
		} {
			params := usual()
			params.Hosts, params.Timings.Return = []string{"worker-1"}, 10*time.Minute
			panel := invariant.NewPanel([]invariant.Invariant{nodeRestored}, All(), params)
			end.At = 3*time.Second + waited
			for _, e := range record([]history.Event{
				{Kind: history.BootStarted, Host: "worker-1", Boot: "b1"}, {Kind: history.BootComplete, Host: "worker-1", Boot: "b1"},
				{Kind: history.NodeCreated, Host: "worker-1", Object: "Node/worker-1", UID: "n1"}, {Kind: history.NodeReady, Host: "worker-1", Object: "Node/worker-1", UID: "n1"},
				{Kind: history.RunStarted},
				{At: 3 * time.Second, Kind: history.NodeDeleted, Host: "worker-1", Object: "Node/worker-1", UID: "n1", Actor: "remediation"},
				end,
				{At: end.At, Kind: history.Done},
			}).Events() {
				panel.Observe(&e)
			}
			r := panel.Results(true)[0]
			if r.Verdict != want {
				t.Errorf("%s after %s: %s: %s", end.Kind, waited, r.Verdict, r.Reason)
			}
		}
	}
}
