package sim

import (
	"time"

	"github.com/fencelab/fencelab/sim/steps"
)

// stillness holds what a process that stands still does as soon as it goes on. What the process
// has sent goes its way meanwhile.
type stillness struct {
	paused bool
	held   []func()
}

func (s *stillness) end() { s.paused, s.held = false, nil }

// pause lets the process stand still.
func (p *process) pause() { p.still.paused = p.alive() }

// resume lets a paused process go on where it was.
func (p *process) resume() {
	held := p.still.held
	p.still.end()
	for _, do := range held {
		do()
	}
}

// runs reports whether an incarnation is the present one, and doesn't stand still.
func (p *process) runs(life int) bool {
	return life == p.life && !p.still.paused && (p.seat() == nil || !p.seat().Halted())
}

// unlessPaused does something in an incarnation, or keeps it until that goes on.
func (p *process) unlessPaused(life int, do func()) {
	switch {
	case life != p.life:
	case p.runs(life):
		do()
	case p.still.paused:
		p.still.held = append(p.still.held, func() { p.unlessPaused(life, do) })
	default:
		p.seat().UnlessHalted(func() { p.unlessPaused(life, do) })
	}
}

// schedule lets a step of the present incarnation happen after a delay, or when that goes on.
func (p *process) schedule(a *actor, class steps.Class, d steps.Deed, delay time.Duration, run func(trouble)) *step {
	s := p.w.schedule(a, class, d, delay, run)
	s.of, s.life = p, p.life
	return s
}
