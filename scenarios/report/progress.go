package report

import (
	"fmt"
	"io"
	"time"

	"github.com/fencelab/fencelab/scenarios/campaign"
)

// Progress says how far a search has come: on a terminal in a line that changes, and elsewhere in a
// line now and then, so that a long search doesn't look dead.
type Progress struct {
	to       io.Writer
	terminal bool
	now      func() time.Time
	name     string
	total    int
	of       string
	began    time.Time
	last     time.Time
}

const (
	// redrawn is how often the line on a terminal changes at most, and said how often
	// there is a line elsewhere.
	redrawn = 100 * time.Millisecond
	said    = 30 * time.Second
	// width is the longest line that doesn't wrap.
	width = 79
)

// NewProgress returns the progress of a search of total schedules.
func NewProgress(to io.Writer, name string, total int) *Progress {
	return newProgress(to, terminal(to), time.Now, name, total)
}

func newProgress(to io.Writer, terminal bool, now func() time.Time, name string, total int) *Progress {
	began := now()
	return &Progress{to, terminal, now, name, total, "schedules", began, began}
}

// At says how many schedules have been played, and how many of them did not hold.
func (p *Progress) At(played, failed int) {
	now := p.now()
	if !p.due(now) {
		return
	}
	rate := float64(played) / now.Sub(p.began).Seconds()
	text := fmt.Sprintf("%d of %d %s, %.0f/s, %s left", played, p.total, p.of, rate, left(p.total-played, rate))
	if p.of == "schedules" {
		text += fmt.Sprintf(", %d failed", failed)
	}
	if p.total == campaign.Endless {
		text = fmt.Sprintf("%d schedules, %.0f/s, %s gone, %d failed", played, rate, now.Sub(p.began).Round(time.Second), failed)
	}
	p.say(text)
}

// Explaining gives the number of schedules tried to explain a failure, and their limit.
func (p *Progress) Explaining(tried, most int) {
	if p.due(p.now()) {
		p.say(fmt.Sprintf("explaining a failure, %d schedules tried of at most %d", tried, most))
	}
}

// due reports whether it is time to say something again.
func (p *Progress) due(now time.Time) bool {
	every := said
	if p.terminal {
		every = redrawn
	}
	if now.Sub(p.last) < every {
		return false
	}
	p.last = now
	return true
}

func (p *Progress) say(text string) {
	if !p.terminal {
		fmt.Fprintf(p.to, "  %s: %s\n", p.name, text)
		return
	}
	name := p.name
	if room := width - len(text) - 4; len(name) > room {
		name = name[:max(0, room)]
	}
	fmt.Fprintf(p.to, "\r\x1b[K  %s: %s", name, text)
}

// left estimates how long these schedules still take.
func left(schedules int, rate float64) string {
	if rate <= 0 {
		return "?"
	}
	return time.Duration(float64(schedules) / rate * float64(time.Second)).Round(time.Second).String()
}

// Clear removes the line.
func (p *Progress) Clear() {
	if p.terminal {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}
