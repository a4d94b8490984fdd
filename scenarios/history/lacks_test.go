package history

import "testing"

func TestLacks(t *testing.T) {
	for _, tc := range []struct {
		event Event
		want  string
	}{
		{Event{Kind: RunStarted}, ""},
		{Event{Kind: EvidenceLost}, ""},
		{Event{Kind: PowerOff}, "host"},
		{Event{Kind: PowerOff, Host: "h"}, ""},
		{Event{Kind: BootComplete, Host: "h"}, "boot"},
		{Event{Kind: NodeDeleted, Object: "Node/h", UID: "u"}, "host"},
		{Event{Kind: NodeDeleted, Host: "h", Object: "Node/h"}, "uid"},
		{Event{Kind: PodDeleted, Object: "Pod/p", UID: "u"}, ""},
		{Event{Kind: AnnotationSet, Host: "h", Object: "Machine/m"}, "key"},
		{Event{Kind: WorkloadStarted, Host: "h", Object: "db"}, ""},
	} {
		if got := tc.event.Lacks(); got != tc.want {
			t.Errorf("%+v lacks %q, want %q", tc.event, got, tc.want)
		}
	}
}
