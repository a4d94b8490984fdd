package record

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	thismachine "github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/scenarios/history"
)

// TestPulse slows down reads of the API server, and checks the record of the lab's lateness, in
// order with an event at 1.5 s.
func TestPulse(t *testing.T) {
	const ever = time.Hour
	for name, c := range map[string]struct {
		reads []time.Duration // how long each takes, the others none
		want  []string
	}{
		"in time":         {nil, []string{"1.500s node-ready"}},
		"slow":            {[]time.Duration{1900 * time.Millisecond}, []string{"1.500s node-ready"}},
		"late":            {[]time.Duration{3 * time.Second}, []string{"1.000s lab-stalled", "1.500s node-ready", "4.000s lab-recovered 3s"}},
		"late again":      {[]time.Duration{0, 3 * time.Second}, []string{"1.500s node-ready", "2.000s lab-stalled", "5.000s lab-recovered 3s"}},
		"never in time":   {[]time.Duration{ever}, []string{"1.000s lab-stalled", "1.500s node-ready"}},
		"a late refusal":  {[]time.Duration{-3 * time.Second}, []string{"1.000s lab-stalled", "1.500s node-ready", "4.000s lab-recovered 3s"}},
		"a quick refusal": {[]time.Duration{-time.Millisecond}, []string{"1.500s node-ready"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				start := time.Now()
				s := NewStream(func() time.Duration { return time.Since(start) })
				p := pulse{stream: s, read: func(ctx context.Context) error {
					if len(c.reads) == 0 {
						return nil
					}
					took := c.reads[0]
					c.reads = c.reads[1:]
					thismachine.Sleep(ctx, took.Abs())
					if took < 0 {
						return errors.New("refused")
					}
					return nil
				}}
				done := make(chan struct{})
				go func() { p.beat(ctx); close(done) }()
				time.AfterFunc(1500*time.Millisecond, func() { s.Now(history.Event{Kind: history.NodeReady, Host: "worker-1"}) })

				var got []string
				if _, err := s.Advance(ctx, 10*time.Second, func(e history.Event) bool {
					line := history.Seconds(e.At) + " " + string(e.Kind)
					if e.Value != "" {
						line += " " + e.Value
					}
					got = append(got, line)
					return false
				}); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("told %q, want %q", got, c.want)
				}
				cancel()
				<-done
			})
		})
	}
}
