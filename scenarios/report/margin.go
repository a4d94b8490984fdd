package report

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// Margins are how near the guarantees of a story are to being broken. All times are seconds.
type Margins struct {
	Scenario string `json:"scenario"`
	// Steps are how many steps were made late, one at a time, by at most UpTo; Schedules is how
	// many schedules that took.
	Steps      int      `json:"steps"`
	UpTo       float64  `json:"upToSeconds"`
	Schedules  int      `json:"schedules"`
	Guarantees []Margin `json:"guarantees"`
}

// Margin is that of one guarantee.
type Margin struct {
	Guarantee string `json:"guarantee"`
	// Default is the closest call of the default schedule. Tightest is the closest of all
	// schedules in which it held, and By the lateness that led to it, if that is closer.
	Default  Call  `json:"default"`
	Tightest *Call `json:"tightest,omitempty"`
	By       *Late `json:"by,omitempty"`
	// Breaks are the steps whose lateness breaks it, the least first.
	Breaks []Break `json:"breaks,omitempty"`
	// Governs is the setting that moves the default margin most when it is doubled.
	Governs *Governs `json:"governs,omitempty"`
	// Measured are the margins of saved runs.
	Measured *Measured `json:"measured,omitempty"`
}

// Call is two events in the promised order, or of which the second had to come within Limit.
type Call struct {
	First  string  `json:"first"`
	Second string  `json:"second"`
	Margin float64 `json:"marginSeconds"`
	Limit  float64 `json:"limitSeconds,omitempty"`
}

// Late is a step that is late.
type Late struct {
	Step string  `json:"step"`
	What string  `json:"what"`
	Late float64 `json:"lateSeconds"`
}

// Break is a step whose lateness breaks a guarantee: from Late on, and not yet at Held.
type Break struct {
	Step string  `json:"step"`
	What string  `json:"what"`
	Late float64 `json:"lateSeconds"`
	Held float64 `json:"heldSeconds"`
	How  string  `json:"how"`
}

// Governs is a setting, and by how much it moves a margin when it is doubled.
type Governs struct {
	Setting string  `json:"setting"`
	Is      float64 `json:"seconds"`
	Moves   float64 `json:"movesSeconds"`
}

// Measured are the margins that a guarantee had in runs that were saved.
type Measured struct {
	Runs   int     `json:"runs"`
	Least  float64 `json:"leastSeconds"`
	Median float64 `json:"medianSeconds"`
	Most   float64 `json:"mostSeconds"`
}

// Breaking is the least lateness that breaks it, or infinity.
func (m *Margin) Breaking() float64 {
	if len(m.Breaks) == 0 {
		return math.Inf(1)
	}
	return m.Breaks[0].Late
}

// Least is the closest margin with which it held, or infinity.
func (m *Margin) Least() float64 {
	switch {
	case m.Tightest != nil:
		return m.Tightest.Margin
	case m.Default.First != "":
		return m.Default.Margin
	}
	return math.Inf(1)
}

// Measure adds the margins of the runs of the same scenario that were saved in some directories,
// and returns how many there are.
func (m *Margins) Measure(dirs []string) (runs int, err error) {
	of := make(map[string][]float64)
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.Name() != "report.json" {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			var r result // that of a whole invocation has no scenario of its own
			if err := json.Unmarshal(data, &r); err != nil {
				return fmt.Errorf("read the report %s: %w", path, err)
			}
			if r.Scenario != m.Scenario {
				return nil
			}
			runs++
			for _, i := range r.Invariants {
				if i.Verdict == invariant.Held && i.First > 0 {
					of[i.ID] = append(of[i.ID], i.Margin)
				}
			}
			return nil
		})
		if err != nil {
			return runs, fmt.Errorf("look for runs in %s: %w", dir, err)
		}
	}
	for i := range m.Guarantees {
		g := &m.Guarantees[i]
		if all := of[g.Guarantee]; len(all) > 0 {
			slices.Sort(all)
			g.Measured = &Measured{len(all), all[0], all[len(all)/2], all[len(all)-1]}
		}
	}
	return runs, nil
}

// Text writes the margins for people, the tightest first.
func (m *Margins) Text(w io.Writer) error {
	e := &texts{w: w}
	e.say("%s: %s, each up to %s late, in %s", m.Scenario, phrase.Count(m.Steps, "step"), span(m.UpTo), phrase.Count(m.Schedules, "schedule"))
	if len(m.Guarantees) == 0 {
		e.say("  no guarantee had two events to order, or a time to keep")
	}
	for i := range m.Guarantees {
		g := &m.Guarantees[i]
		e.say("%s", g.Guarantee)
		if g.Default.First != "" {
			e.say("  by default   %s", g.Default.words())
		}
		if g.Tightest != nil {
			e.say("  tightest     %s, when %s came %s late (%s)", g.Tightest.words(), g.By.What, span(g.By.Late), g.By.Step)
		}
		for _, b := range g.Breaks[:min(breaksShown, len(g.Breaks))] {
			e.say("  broken when  %s comes %s late, and not yet at %s (%s): %s", b.What, span(b.Late), span(b.Held), b.Step, b.How)
		}
		switch more := len(g.Breaks) - breaksShown; {
		case len(g.Breaks) == 0:
			e.say("  broken when  no single step is late")
		case more > 0:
			e.say("               and by %s", phrase.Count(more, "more step"))
		}
		if s := g.Governs; s != nil {
			much := span(max(s.Moves, -s.Moves)) + " more"
			if s.Moves < 0 {
				much = span(-s.Moves) + " less"
			}
			e.say("  governed by  %s, %s: twice that leaves %s", s.Setting, span(s.Is), much)
		}
		if s := g.Measured; s != nil {
			e.say("  measured     %s at least, %s in the middle, %s at most, in %s", span(s.Least), span(s.Median), span(s.Most), phrase.Count(s.Runs, "run"))
		}
	}
	return e.err
}

// breaksShown is how many steps are shown that break one guarantee.
const breaksShown = 3

func (c *Call) words() string {
	if c.Limit > 0 {
		return fmt.Sprintf("%s left: %s, of the %s after %s", span(c.Margin), c.Second, span(c.Limit), c.First)
	}
	return fmt.Sprintf("%s: %s, and %s", span(c.Margin), c.First, c.Second)
}

// span renders seconds, to the millisecond.
func span(seconds float64) string {
	return time.Duration(math.Round(seconds*1000) * float64(time.Millisecond)).String()
}

// texts writes lines until one fails.
type texts struct {
	w   io.Writer
	err error
}

func (t *texts) say(format string, args ...any) {
	_, err := fmt.Fprintf(t.w, format+"\n", args...)
	if t.err == nil {
		t.err = err
	}
}
