package phrase_test

import (
	"github.com/fencelab/fencelab/scenarios/phrase"
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	names := []string{"hosts", "host", "workload", "timings", "restore", "removeFault", "node-deleted", "node-created"}
	for _, tc := range []struct{ name, want string }{
		{"host", "host"},
		{"hsot", "host"},
		{"Host", "host"},
		{"worklod", "workload"},
		{"removefault", "removeFault"},
		{"node-deletd", "node-deleted"},
		{"node_deleted", "node-deleted"},
		{"restart", "restore"},
		{"h", ""},
		{"", ""},
		{"banana", ""},
		{strings.Repeat("workload", 1<<16), ""},
	} {
		if got := phrase.Nearest(tc.name, names); got != tc.want {
			t.Errorf("Nearest(%.20q) = %q, want %q", tc.name, got, tc.want)
		}
	}
	if got := phrase.Nearest("a", nil); got != "" {
		t.Errorf("Nearest among none = %q", got)
	}
}
