package record

import (
	"testing"
	"time"

	"github.com/fencelab/fencelab/vms"
)

// TestStarving: a host starves when its processors want to run and mostly wait, for long enough;
// not when they idle, when they get their share, when the host has just been switched on, or while
// little is known.
func TestStarving(t *testing.T) {
	const second = time.Second
	for name, c := range map[string]struct {
		ran, waited time.Duration // in each second
		restarts    int           // the second in which it has a new process
		want        string        // at the end of the fifth second
	}{
		"it waits":                     {200 * time.Millisecond, 800 * time.Millisecond, 0, "the processors of worker-1 waited 3.2s and ran 800ms of 4s"},
		"it gets a third":              {300 * time.Millisecond, 600 * time.Millisecond, 0, ""},
		"it idles, and waits for all":  {0, 400 * time.Millisecond, 0, ""},
		"it was switched on meanwhile": {200 * time.Millisecond, 800 * time.Millisecond, 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			at := vms.Processors{Process: 1}
			s := &starving{hosts: func() map[string]vms.Processors { return map[string]vms.Processors{"worker-1": at} }}
			for i := range 4 {
				if got := s.now(time.Duration(i) * second); got != "" {
					t.Errorf("after %d s it says %s", i, got)
				}
				at.Ran, at.Waited = at.Ran+c.ran, at.Waited+c.waited
				if i+1 == c.restarts {
					at = vms.Processors{Process: 2}
				}
			}
			if got := s.now(4 * second); got != c.want {
				t.Errorf("it says %q, want %q", got, c.want)
			}
		})
	}
	var models *starving
	if got := models.now(0); got != "" {
		t.Errorf("of models it says %q", got)
	}
}
