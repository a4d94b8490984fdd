// Package wall is the time of this machine as a fakebmc.Clock. It is apart from the
// core, which gives the same history for the same seed and so knows no other time
// than that of its Clock.
package wall

import (
	"time"

	"github.com/fencelab/fencelab/fakebmc"
)

// Clock returns a Clock on the machine's monotonic time that starts now.
func Clock() fakebmc.Clock { return clock{start: time.Now()} }

type clock struct{ start time.Time }

func (c clock) Now() time.Duration { return time.Since(c.start) }

func (c clock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}
