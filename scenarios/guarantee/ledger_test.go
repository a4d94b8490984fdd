package guarantee

import (
	"testing"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// TestEveryHarmIsJudged: what a process without a part does is a harm on which no guarantee has
// ruled; a process with a part is judged by a guarantee, also where observers don't agree on what
// came first.
func TestEveryHarmIsJudged(t *testing.T) {
	events := []history.Event{
		{Kind: history.BootStarted, Host: "worker-1", Boot: "b1"}, {Kind: history.BootComplete, Host: "worker-1", Boot: "b1"},
		{Kind: history.NodeCreated, Host: "worker-1", Object: "Node/worker-1", UID: "n1"}, {Kind: history.RunStarted},
		{Kind: history.OpApplied, Key: "annotate", Value: "words"},
		{Kind: history.NodeCordoned, Host: "worker-1", Object: "Node/worker-1", UID: "n1", Actor: "team"},
		{Kind: history.BMCCommand, Host: "worker-1", Value: "ForceOff", Actor: "team"},
		{Kind: history.PowerOff, Host: "worker-1", Boot: "b1", Actor: "team"},
		{Kind: history.NodeDeleted, Host: "worker-1", Object: "Node/worker-1", UID: "n1", Actor: "team"},
		{Kind: history.HostReleased, Host: "worker-1", Object: "Server/worker-1", Actor: "team"}, // judged whoever does it
		{Kind: history.Done},
	}
	for _, tc := range []struct {
		roles    invariant.Roles
		unjudged int
		skew     time.Duration
	}{
		{invariant.Roles{Others: []string{"team"}}, 3, 0},
		{invariant.Roles{Remediation: "team"}, 0, 0},
		{invariant.Roles{Remediation: "team"}, 0, time.Second},
		{invariant.Roles{Power: "reboot"}, 0, 0}, // a stranger: a user's own doing
	} {
		params := usual()
		params.Timings.Skew = tc.skew
		params.Hosts, params.Roles = []string{"worker-1"}, tc.roles
		p := invariant.NewPanel([]invariant.Invariant{powerRestored}, All(), params)
		for _, e := range record(events).Events() {
			p.Observe(&e)
		}
		if got := p.Unjudged(); len(got) != tc.unjudged {
			t.Errorf("%+v: %d harms are unjudged, want %d: %+v", tc.roles, len(got), tc.unjudged, got)
		}
		for _, h := range p.Harms() {
			if h.NoPart != (len(tc.roles.Others) > 0) || h.Judge == "" || h.What == "" {
				t.Errorf("%+v", h)
			}
		}
	}
}

// TestEveryHarmHasAJudge: each kind of harm is looked at by a guarantee that exists, and shows
// in an event of a kind that exists.
func TestEveryHarmHasAJudge(t *testing.T) {
	for i := range invariant.HarmKinds {
		if _, err := Lookup(invariant.HarmKinds[i].Judge); err != nil || invariant.HarmKinds[i].What == "" {
			t.Errorf("harm %d: %v", i, err)
		}
		shown := 0
		for _, layer := range []history.Layer{history.World, history.API, history.BMC, history.Controller, history.Engine} {
			for _, kind := range history.Kinds(layer) {
				for _, key := range []string{"", invariant.ExternalAnnotation, invariant.RebootAnnotation, invariant.PausedAnnotation} {
					if invariant.HarmKinds[i].Shows(&history.Event{Kind: kind, Object: map[bool]string{true: "BareMetalHost/h", false: "Machine/m"}[key == invariant.RebootAnnotation], Key: key}) {
						shown++
					}
				}
			}
		}
		if shown == 0 && invariant.HarmKinds[i].What != "a host was not wanted any more" && invariant.HarmKinds[i].What != "a host was wanted on" { // whose value tells
			t.Errorf("nothing shows that %s", invariant.HarmKinds[i].What)
		}
	}
}
