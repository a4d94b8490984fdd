package sim

import "time"

// drifting is a clock that nobody sets, and that may run too fast or too slow.
type drifting struct {
	// shown is what it showed at a time of the world's.
	shown, at time.Duration
	// gains is what it gains in each second.
	gains time.Duration
}

// start has the clock show nothing yet.
func (c *drifting) start(now time.Duration) { c.shown, c.at = 0, now }

// read is what the clock shows.
func (c *drifting) read(now time.Duration) time.Duration { return c.shown + scale(now-c.at, c.gains) }

// gain has the clock run at another rate from now on.
func (c *drifting) gain(now, gains time.Duration) {
	c.shown, c.at = c.read(now), now
	c.gains = gains
}

// lasts is how long a time lasts that somebody measures by this clock.
func (c *drifting) lasts(d time.Duration) time.Duration {
	if c.gains == 0 {
		return d
	}
	return d/1000*1000_000/(1000_000+c.gains/1000)*1000 + time.Microsecond
}

// scale adds what a clock gains. It counts in microseconds, so that days fit.
func scale(d, gains time.Duration) time.Duration { return d + d/1000*(gains/1000)/1000_000*1000 }
