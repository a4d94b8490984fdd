package network

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Impairment describes how a poor link treats the frames that pass it.
type Impairment struct {
	// Delay is the additional time until a frame arrives.
	Delay time.Duration
	// Loss is the probability that a frame is lost, from 0 to 1.
	Loss float64
	// Rate is how many bytes pass in a second; 0: any number. What doesn't fit into the queue
	// before it is lost.
	Rate int
}

func (i Impairment) String() string {
	var how []string
	if i.Delay > 0 {
		how = append(how, i.Delay.String()+" late")
	}
	if i.Loss > 0 {
		how = append(how, fmt.Sprintf("%g%% lost", 100*i.Loss))
	}
	if i.Rate > 0 {
		how = append(how, fmt.Sprintf("%d bytes a second", i.Rate))
	}
	return strings.Join(how, ", ")
}

// and combines the effects of two links, one behind the other.
func (i Impairment) and(o Impairment) Impairment {
	i.Delay += o.Delay
	i.Loss = 1 - (1-i.Loss)*(1-o.Loss)
	if i.Rate == 0 || o.Rate > 0 && o.Rate < i.Rate {
		i.Rate = o.Rate
	}
	return i
}

// Impair makes links poor, and returns those that were not so before, or differently.
func (s *Switch) Impair(how Impairment, links ...Link) (changed []Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range links {
		if before, poor := s.poor[l]; !poor || before != how {
			s.poor[l], changed = how, append(changed, l)
		}
	}
	return changed
}

// between returns the impairment from one endpoint to another, and whether there is any. It is
// called with mu held.
func (s *Switch) between(from, to string) (how Impairment, poor bool) {
	if len(s.poor) == 0 {
		return how, false
	}
	for _, l := range [...]Link{{from, to}, {From: from}, {To: to}} {
		if one, is := s.poor[l]; is {
			how, poor = how.and(one), true
		}
	}
	return how, poor
}

// transit holds the frames that are on their way over a poor link, in order.
type transit struct {
	frames chan timed
	free   time.Time // when the last of them has entered
}

type timed struct {
	due time.Time
	frame
}

// send has a frame arrive, now or later, or not at all. It is called with mu held.
func (s *Switch) send(from, to *port, data []byte) {
	how, poor := s.between(from.endpoint, to.endpoint)
	switch {
	case !poor:
		to.put(frame{from, data})
		return
	case rand.Float64() < how.Loss, s.closed:
		return
	}
	link := Link{from.endpoint, to.endpoint}
	p := s.transits[link]
	if p == nil {
		p = &transit{frames: make(chan timed, backlog)}
		s.transits[link] = p
		s.running.Go(func() { s.carry(p, to) })
	}
	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}
	enters := p.free
	if how.Rate > 0 {
		enters = enters.Add(time.Duration(len(data)) * time.Second / time.Duration(how.Rate))
	}
	select {
	case p.frames <- timed{enters.Add(how.Delay), frame{from, data}}:
		p.free = enters
	default:
	}
}

// carry delivers what is on its way, each when it is due.
func (s *Switch) carry(p *transit, to *port) {
	for {
		select {
		case <-s.done:
			return
		case f := <-p.frames:
			select {
			case <-s.done:
				return
			case <-time.After(time.Until(f.due)):
			}
			s.mu.Lock()
			to.put(f.frame)
			s.mu.Unlock()
		}
	}
}
