package page

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/guarantee"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

var (
	//go:embed page.html
	markup string
	// Style is the look of this page and of others that lead to it.
	//
	//go:embed page.css
	Style string
	//go:embed page.js
	script string

	page = template.Must(template.New("page").Parse(markup))
)

// hash returns the source of an inline text in a content security policy.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Policy is the content security policy of a page that has one style, at most one script, and
// nothing from elsewhere.
func Policy(style, script string) string {
	policy := fmt.Sprintf("default-src 'none'; style-src '%s'; ", hash(style))
	if script != "" {
		policy += fmt.Sprintf("script-src '%s'; ", hash(script))
	}
	return policy + "base-uri 'none'; form-action 'none'"
}

// The heights of rows, in pixels.
const (
	axisHeight  = 42
	groupHeight = 28
	laneHeight  = 24
)

// view is the template's input. It has a field for each thing that the template names.
type view struct {
	Run        *Run
	Title      string
	Word       string
	Policy     string
	Style      template.CSS
	Script     template.JS
	Broken     *broken
	Beside     *beside
	Guarantees []promise
	Rows       []row
	// Quiet counts the lanes that are folded because nothing changes in them.
	Quiet         int
	Ticks, Cuts   []tick
	Grid          string
	Width, Height float64
	Table         []chunk
	Hosts, Actors []string
	Layers        []history.Layer
	Model         model
}

// broken is the picture of the promise that was broken.
type broken struct {
	promise
	First, Second moment
	Margin        string
	// Limit is the deadline of the second event after the first, if the guarantee sets one.
	Limit string
	// Bar is the margin as a width.
	Bar int
}

// bar draws a margin on a scale of tens, from 1 ms to 1,000 s: 20 for each ten.
func bar(seconds float64) int {
	return min(120, max(1, int(20*math.Log10(max(seconds, 0.001)*1000))))
}

type moment struct {
	Seq          int
	At, What, By string
}

type promise struct {
	Guarantee
	Claim, Times string
	// Closest is where a promise that was kept was nearest to being broken.
	Closest *broken
}

// row is the heading of a group, or a lane.
type row struct {
	Group string
	ID    string
	Name  string
	Help  string
	Y     float64
	// Quiet says that the row is folded.
	Quiet bool
	// Bands holds the bands of each kind, Untrue lies over them, and Ticks holds the marks of each
	// kind. Each is one path.
	Bands, Untrue, Ticks strokes
	Words                []word
}

// strokes are paths, one of a kind, in the order in which the kinds come.
type strokes []*stroke

type stroke struct {
	Kind string
	d    strings.Builder
}

// D is the path as SVG has it.
func (s *stroke) D() string { return s.d.String() }

// add adds to the path of a kind.
func (s *strokes) add(kind, format string, args ...any) {
	i := slices.IndexFunc(*s, func(s *stroke) bool { return s.Kind == kind })
	if i < 0 {
		i = len(*s)
		*s = append(*s, &stroke{Kind: kind})
	}
	fmt.Fprintf(&(*s)[i].d, format, args...)
}

// bands draws the bands of a lane.
func (r *row) bands(lane *Lane, axis *axis) {
	for _, b := range lane.Bands {
		from, to := axis.place(b.From), axis.place(b.To)
		wide := round(max(to-from, 1))
		if b.Kind == "late" {
			r.Bands.add(b.Kind, "M%g 14v6m0 -3h%g", round(from), wide)
			if !b.Cut {
				r.Bands.add(b.Kind, "m-5 -4l5 4l-5 4")
			}
			r.Words = append(r.Words, word{X: round(from), Class: "late always", Text: b.Text})
			continue
		}
		r.Bands.add(b.Kind, "M%g 3h%gv18h-%gz", round(from), wide, wide)
		if b.Differs {
			r.Untrue.add("differs", "M%g 3h%gv18h-%gz", round(from), wide, wide)
		}
		if room := to - from; b.Kind != "up" && room*closest > 7*float64(len(b.Text))+8 {
			w := word{X: round(from), Text: b.Text, Room: round(room)}
			switch {
			case b.Differs:
				w.Class = "untrue"
			case b.Kind == "gone":
				w.Class = b.Kind
			}
			r.Words = append(r.Words, w)
		}
	}
}

// again is the least distance between labels of the same text.
const again = 150.0

// marks draws the events of a lane, and says where each of them is.
func (r *row) marks(lane *Lane, axis *axis, key []int) map[int]float64 {
	where := make(map[int]float64, len(lane.Marks))
	last, shift := -1.0, 0.0
	var said word
	for _, m := range lane.Marks {
		x := axis.place(m.At)
		if shift += 2.5; x != last {
			last, shift = x, 0
		}
		at := round(x + shift)
		where[m.Seq] = at
		switch m.Kind {
		case panicked:
			r.Ticks.add(m.Kind, "M%g 22l-5 -9h10z", at)
		case trouble:
			r.Ticks.add(m.Kind, "M%g 4v18", at)
		default:
			r.Ticks.add(m.Kind, "M%g 15v7", at)
		}
		if m.Text != "" && (m.Text != said.Text || at-said.X >= again) {
			said = word{X: at, Class: "deed", Text: m.Text}
			switch {
			case m.Kind == panicked:
				said.Class = "deed panic key always"
			case slices.Contains(key, m.Seq):
				said.Class = "deed key always"
			}
			r.Words = append(r.Words, said)
		}
	}
	return where
}

// word is the label of a band or a mark. The page shows it where there is room, or always.
type word struct {
	X           float64
	Class, Text string
	// Room is the width of the band; for a mark, the free space beside it.
	Room float64
}

// chunk is some rows of the table of events, which browsers lay out when they are
// looked at.
type chunk struct{ Events []line }

type line struct {
	Seq                                   int
	At, Layer, Kind, Host, What, By, Note string
	Marked                                bool
}

// model is the data for the page's script. Times are milliseconds. In its tuples a text is its
// index in Words, since most texts recur.
type model struct {
	Words []string    `json:"words"`
	Lanes []modelLane `json:"lanes"`
	// Requests are [host, asked, received, executed, answered, answer, actual, rules].
	Requests [][8]any `json:"requests"`
	// Decisions are [at, process, key, facts, action], where facts are the number of one
	// of Facts; Changes are [at, by, object, what, fields].
	Decisions [][5]any          `json:"decisions"`
	Facts     []json.RawMessage `json:"facts"`
	// Behind are [event, the decision behind it].
	Behind  [][2]int `json:"behind"`
	Changes [][5]any `json:"changes"`
	// Times and Places are the axis.
	Times  []float64 `json:"times"`
	Places []float64 `json:"places"`
	Marked []int     `json:"marked"`

	numbers map[string]int
}

// word is the number of a text.
func (m *model) word(text string) int {
	n, known := m.numbers[text]
	if !known {
		if m.numbers == nil {
			m.numbers = make(map[string]int)
		}
		n = len(m.Words)
		m.numbers[text], m.Words = n, append(m.Words, text)
	}
	return n
}

type modelLane struct {
	ID    string  `json:"id"`
	Group string  `json:"group"`
	Name  string  `json:"name"`
	Y     float64 `json:"y"`
	// Bands are [from, to, text, whether it differs].
	Bands [][4]any `json:"bands"`
	Marks []int    `json:"marks"`
	// Broke are where on the lane the events that broke the promise are.
	Broke []float64 `json:"broke,omitempty"`
}

func milliseconds(d time.Duration) float64 {
	if d < 0 {
		return -1
	}
	return float64(d.Microseconds()) / 1000
}

// chunkLength is the number of events that are laid out together.
const chunkLength = 100

// Render draws the page of a run.
func Render(run *Run) ([]byte, error) {
	v := &view{
		Run: run, Title: cmp.Or(run.Report.Scenario, "a history"), Word: string(run.Report.Verdict),
		Style: template.CSS(Style), Script: template.JS(script),
		Policy: Policy(Style, script),
	}
	v.judge(run)
	v.draw(run)
	v.explain(run)
	v.Beside = besideHeld(run)
	v.tabulate(run)
	var out bytes.Buffer
	if err := page.Execute(&out, v); err != nil {
		return nil, fmt.Errorf("draw the page of %s: %w", v.Title, err)
	}
	return out.Bytes(), nil
}

// asTold is the name of a story's claims about its own events. What one forbids is at no time too
// early.
const asTold = "as-told"

// judge says what came of the guarantees.
func (v *view) judge(run *Run) {
	describe := func(g Guarantee) promise {
		d := promise{Guarantee: g, Times: "never"}
		if inv, err := guarantee.Lookup(g.ID); err == nil {
			d.Claim = inv.Claim
		} else {
			d.Claim = g.Reason // a claim of the story's own
		}
		switch {
		case g.Judged == 1:
			d.Times = "once"
		case g.Judged > 1:
			d.Times = fmt.Sprintf("%d times", g.Judged)
		}
		return d
	}
	for _, g := range run.Report.Invariants {
		d := describe(g)
		if first, second := run.event(g.First), run.event(g.Second); g.Verdict == invariant.Held && first != nil && second != nil {
			d.Closest = &broken{First: momentOf(first), Second: momentOf(second), Margin: fmt.Sprintf("%.3f s", g.Margin), Bar: bar(g.Margin)}
			if g.Limit > 0 {
				d.Closest.Limit = fmt.Sprintf("%.3f s", g.Limit)
			}
		}
		v.Guarantees = append(v.Guarantees, d)
	}
	if g := run.broken(); g != nil {
		first, second := run.event(g.First), run.event(g.Second)
		v.Broken = &broken{promise: describe(*g), First: momentOf(first), Second: momentOf(second)}
		if g.Margin > 0 && g.ID != asTold {
			v.Broken.Margin = fmt.Sprintf("%.3f s", g.Margin)
		}
		v.Model.Marked = []int{g.First, g.Second}
	}
}

func momentOf(e *history.Event) moment {
	return moment{e.Seq, history.Seconds(e.At), e.Phrase(), e.Actor}
}

// draw lays the lanes out.
func (v *view) draw(run *Run) {
	axis := newAxis(run)
	v.Width, v.Ticks, v.Cuts = axis.width(), axis.ticks(), axis.cuts()
	for i, t := range axis.times {
		v.Model.Times = append(v.Model.Times, milliseconds(t))
		v.Model.Places = append(v.Model.Places, round(leftEdge+axis.places[i]))
	}
	matters := run.hosts()
	y, began, end := float64(axisHeight), run.began(), axis.times[len(axis.times)-1]
	for _, group := range Lanes(run) {
		heading := len(v.Rows)
		v.Rows = append(v.Rows, row{Group: group.Name, Y: y, Quiet: true})
		below := y + groupHeight
		for _, lane := range group.Lanes {
			r := row{ID: lane.ID, Name: lane.Name, Help: lane.Help, Y: below}
			m := modelLane{ID: lane.ID, Group: group.Name, Name: lane.Name}
			r.bands(lane, axis)
			for _, b := range lane.Bands {
				differs := 0
				if b.Differs {
					differs = 1
				}
				m.Bands = append(m.Bands, [4]any{milliseconds(b.From), milliseconds(b.To), v.Model.word(b.Said()), differs})
			}
			where := r.marks(lane, axis, v.Model.Marked)
			for _, mark := range lane.Marks {
				m.Marks = append(m.Marks, mark.Seq)
			}
			for _, seq := range v.Model.Marked {
				e := run.event(seq)
				x, marked := where[seq]
				switch {
				case marked:
					m.Broke = append(m.Broke, x)
				case e.Host == group.Name && lane.Name == laneOf(e.Kind): // a band begins or ends at the event
					m.Broke = append(m.Broke, round(axis.place(e.At)))
				}
			}
			// Whether a host was on that matters is shown even if it was all along.
			power := lane.Name == laneOf(history.PowerOn) && slices.Contains(matters, group.Name)
			if r.Quiet = len(m.Broke) == 0 && !power && lane.quiet(began, end); r.Quiet {
				v.Quiet++
			} else {
				v.Rows[heading].Quiet = false
				below += laneHeight
			}
			v.Rows, v.Model.Lanes = append(v.Rows, r), append(v.Model.Lanes, m)
		}
		if !v.Rows[heading].Quiet {
			y = below
		}
	}
	v.Height = y + 8
	for _, t := range v.Ticks {
		v.Grid += fmt.Sprintf("M%g 38V9999", t.X) // as far down as there are lanes
	}
	for _, r := range run.Requests {
		asked := strings.TrimSpace(r.Request.Method + " " + r.Request.Path)
		if r.Request.Reset != "" {
			asked += " " + r.Request.Reset
		}
		if r.Request.Client != "" {
			asked = r.Request.Client + ": " + asked
		}
		answer := fmt.Sprintf("%d %s %s %s", r.Answer.Status, r.Answer.PowerState, r.Answer.MessageID, r.Answer.Message)
		if r.Answer.Status == 0 {
			answer = "no answer"
		}
		v.Model.Requests = append(v.Model.Requests, [8]any{
			v.Model.word(r.Host), v.Model.word(asked), milliseconds(r.Received), milliseconds(r.Executed), milliseconds(r.Answered),
			v.Model.word(strings.Join(strings.Fields(answer), " ")), v.Model.word(r.Actual), v.Model.word(strings.Join(r.Rules, ", ")),
		})
	}
}

// explain hands the script why things happened, and what they changed.
func (v *view) explain(run *Run) {
	numbers, word := map[string]int{}, v.Model.word
	made, places := decisionsIn(run.Trace), map[*Entry]int{}
	for i := range run.Trace {
		switch t := &run.Trace[i]; t.What {
		case "decided":
			n, known := numbers[string(t.Facts)]
			if !known && len(t.Facts) > 0 {
				n = len(v.Model.Facts)
				numbers[string(t.Facts)] = n
				v.Model.Facts = append(v.Model.Facts, t.Facts)
			}
			places[t] = len(v.Model.Decisions)
			v.Model.Decisions = append(v.Model.Decisions, [5]any{milliseconds(t.At), word(t.Process), word(t.Key), n, word(t.Action)})
		case "changed":
			var fields [][3]int
			for _, f := range t.Fields {
				fields = append(fields, [3]int{word(f.Path), word(f.Was), word(f.Is)})
			}
			v.Model.Changes = append(v.Model.Changes, [5]any{milliseconds(t.At), word(t.Process), word(t.Object), word(t.Action), fields})
		}
	}
	for i := range run.Events {
		if t := made.behind(&run.Events[i]); t != nil {
			v.Model.Behind = append(v.Model.Behind, [2]int{run.Events[i].Seq, places[t]})
		}
	}
}

// laneOf is the lane of a host on which a physical event is seen.
func laneOf(kind history.Kind) string {
	switch kind {
	case history.WorkloadStarted, history.WorkloadStopped:
		return "workload"
	case history.WatchdogFired, history.WatchdogDisarmed:
		return "watchdog"
	case history.LinkCut, history.LinkRestored, history.LinkImpaired:
		return "network"
	}
	if kind.Layer() == history.World {
		return "power"
	}
	return ""
}

func round(x float64) float64 { return float64(int(x*10+0.5)) / 10 }

// tabulate lists the events.
func (v *view) tabulate(run *Run) {
	v.Layers = []history.Layer{history.World, history.API, history.BMC, history.Controller, history.Engine}
	for i, e := range run.Events {
		if i%chunkLength == 0 {
			v.Table = append(v.Table, chunk{})
		}
		what := strings.Join(slices.DeleteFunc([]string{e.Object, e.Key, e.Value}, func(s string) bool { return s == "" }), " ")
		if e.Kind == history.OpApplied {
			what = e.Value
		}
		if e.Boot != "" {
			what = strings.TrimSpace("boot " + e.Boot + " " + what)
		}
		if e.Host != "" && !slices.Contains(v.Hosts, e.Host) {
			v.Hosts = append(v.Hosts, e.Host)
		}
		if e.Actor != "" && !slices.Contains(v.Actors, e.Actor) {
			v.Actors = append(v.Actors, e.Actor)
		}
		last := &v.Table[len(v.Table)-1]
		last.Events = append(last.Events, line{
			Seq: e.Seq, At: fmt.Sprintf("%.3f", e.At.Seconds()), Layer: string(e.Kind.Layer()), Kind: string(e.Kind), Host: e.Host,
			What: what, By: e.Actor, Note: e.Note, Marked: slices.Contains(v.Model.Marked, e.Seq),
		})
	}
	slices.Sort(v.Hosts)
	slices.Sort(v.Actors)
}
