package memory_test

import (
	"testing"
	"time"

	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/fakebmc/systemtest"
)

func TestHostIsASystem(t *testing.T) {
	for name, timing := range map[string]memory.Timing{
		"instant": {},
		"slow":    {On: 4 * time.Second, Off: 2 * time.Second, Shutdown: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			systemtest.Run(t, func(t *testing.T, on bool) systemtest.Fixture {
				clk := &systemtest.Clock{}
				h := memory.New(clk, timing, on)
				return systemtest.Fixture{
					System: h, Boots: h.Boots, Advance: clk.Advance,
					Step: time.Second / 2, Limit: time.Minute, Hold: time.Minute, Image: "http://127.0.0.1/boot.iso",
				}
			})
		})
	}
}
