package sim

import "time"

// drifting is a clock that is never set and may run too fast or too slow.
type drifting struct {
	// shown is the time that the clock showed when the world's time was at.
	shown, at time.Duration
	// gains is how much the clock gains in each second.
	gains time.Duration
}

// start makes the clock start from zero.
func (c *drifting) start(now time.Duration) { c.shown, c.at = 0, now }

// read returns the time that the clock shows.
func (c *drifting) read(now time.Duration) time.Duration { return c.shown + scale(now-c.at, c.gains) }

// gain makes the clock run at another rate from now on.
func (c *drifting) gain(now, gains time.Duration) {
	c.shown, c.at = c.read(now), now
	c.gains = gains
}

// lasts returns how long a duration measured by this clock lasts in the world's time.
func (c *drifting) lasts(d time.Duration) time.Duration {
	if c.gains == 0 {
		return d
	}
	return d/1000*1000_000/(1000_000+c.gains/1000)*1000 + time.Microsecond
}

// scale adds to a duration what the clock gains in it. It counts in microseconds, so that days
// fit.
func scale(d, gains time.Duration) time.Duration { return d + d/1000*(gains/1000)/1000_000*1000 }
