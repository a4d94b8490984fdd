package sim

import (
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc/systemtest"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/kube"
)

// TestHostIsASystem holds the simulated host against the contract of what a BMC
// controls.
func TestHostIsASystem(t *testing.T) {
	systemtest.Run(t, func(t *testing.T, on bool) systemtest.Fixture {
		s, err := New()
		if err != nil {
			t.Fatal(err)
		}
		b := s.Backend()
		b.w = &world{notice: func(history.Event) {}}
		b.store = kube.NewStore(s.server, wallClock{b.w}.Now, nil)
		h := &host{w: b.w, actor: actor{name: "h"}, name: "h", timings: hostTimings{boot: 8 * time.Second, softOff: 3 * time.Second, hardOff: 300 * time.Millisecond}}
		h.kubelet = &kubelet{w: b.w, actor: actor{name: "h.kubelet"}, host: h, store: b.store, kinds: &s.kinds, lease: time.Second}
		if on {
			h.powerOn()
			h.w.cancel(h.transition)
			h.complete()
		}
		boots := 0
		look := func(e history.Event) bool {
			if e.Kind == history.BootStarted {
				boots++
			}
			return false
		}
		return systemtest.Fixture{
			System: h,
			Advance: func(d time.Duration) {
				if _, err := b.w.advance(b.w.now+d, look); err != nil {
					t.Fatal(err)
				}
			},
			Step: 50 * time.Millisecond, Limit: 5 * time.Second, Hold: 10 * time.Second,
			Boots: func() int {
				b.w.handOver(look)
				return boots
			},
		}
	})
}
