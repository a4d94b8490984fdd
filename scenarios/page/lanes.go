package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
)

// Group is lanes that belong together: those of one host, of the controllers, of
// the scenario.
type Group struct {
	Name  string
	Lanes []*Lane
}

// Lane is one thing through time.
type Lane struct {
	// ID is the lane's on the page: its group and its name.
	ID, Name string
	// Help says what it shows.
	Help  string
	Bands []Band
	// Marks are events, by their numbers.
	Marks []Mark
	// Believed marks an observer's statement rather than a fact.
	Believed bool
	// last is the band in which the run ends, however short it is.
	last *Band
	// answered is when a BMC last gave the answer that it shows.
	answered time.Duration
}

// Band is a stretch of time.
type Band struct {
	From, To time.Duration
	// Kind selects its look, and Text is its label.
	Kind, Text string
	// Differs says that what is believed in it is not true, and Marked is the text with a mark at
	// each item that isn't.
	Differs bool
	Marked  string
	// Cut says that the run ended before what the band shows did.
	Cut bool
}

// Said is the text, with its marks if it has any.
func (b *Band) Said() string { return cmp.Or(b.Marked, b.Text) }

// Mark is a moment. Text says in a few words what was done, if that is worth a label.
type Mark struct {
	Seq  int
	At   time.Duration
	Kind string
	Text string
}

// The kinds of marks that are not a layer: what went wrong, and a reconciler's panic.
const (
	trouble  = "trouble"
	panicked = "panicked"
)

// Fact is the content of a lane at a moment, with a mark at each item that isn't true.
type Fact struct {
	Lane, Text string
	// Believed marks a statement or belief, and Differs marks it as untrue.
	Believed, Differs bool
}

// Moment returns the content of the lanes just after an event, group by group.
func Moment(run *Run, seq int) map[string][]Fact {
	until := *run
	until.Events = run.Events[:seq]
	at := until.Events[seq-1].At
	until.Trace = slices.DeleteFunc(slices.Clone(run.Trace), func(t Entry) bool { return t.At > at })
	until.Lines = slices.DeleteFunc(slices.Clone(run.Lines), func(l Line) bool { return l.At > at })
	until.Requests = slices.DeleteFunc(slices.Clone(run.Requests), func(r Request) bool { return r.Answered > at })
	said := make(map[string][]Fact)
	for _, group := range Lanes(&until) {
		for _, lane := range group.Lanes {
			b := lane.last
			if b == nil {
				continue
			}
			fact := Fact{lane.Name, b.Said(), lane.Believed, b.Differs}
			if lane.Name == bmcSays {
				fact.Lane = bmcAnswered
				fact.Text = answer(b, lane.answered, at, group.Lanes[0])
			}
			said[group.Name] = append(said[group.Name], fact)
		}
	}
	return said
}

const (
	bmcSays     = "BMC says"
	bmcAnswered = "BMC last answered"
)

// answer describes a BMC's last answer, how long ago it came, and whether it was true then. A later
// change of the host doesn't make it a lie.
func answer(b *Band, answered, now time.Duration, power *Lane) string {
	text := fmt.Sprintf("%s, %s ago", b.Text, (now - answered).Round(10*time.Millisecond))
	if !b.Differs {
		return text
	}
	then := power.last // which goes on, whatever its end is in the picture
	for i := range power.Bands {
		if t := &power.Bands[i]; t.From <= answered && answered < t.To {
			then = t
		}
	}
	if differ(b, then) {
		return text + notTrue
	}
	return text + ", which was true then"
}

// bands builds the bands of a lane: each ends where the next begins.
type bands struct {
	done []Band
	open *Band
}

// begin ends the band that is open and begins another; no kind is none.
func (b *bands) begin(at time.Duration, kind, text string) {
	if b.open != nil && b.open.Kind == kind && b.open.Text == text {
		return
	}
	b.end(at)
	if kind != "" {
		b.open = &Band{From: at, Kind: kind, Text: text}
	}
}

func (b *bands) end(at time.Duration) {
	if b.open == nil {
		return
	}
	b.open.To = at
	if at > b.open.From {
		b.done = append(b.done, *b.open)
	}
	b.open = nil
}

// host collects the events of one host so far. It has a field for each lane, and fields to
// distinguish them.
type host struct {
	name                               string
	power, workload, node, status, bmc bands
	console                            bands
	link, requests, volume             bands
	faults                             map[string]*bands
	on, booting, paused                bool
	boot                               string
	copies                             []string
	access                             access
	exists, gone, ready, cordoned      bool
	annotations                        []string
	watchdog, api, commands, writes    []Mark
	cuts                               []string
	views                              []cached
	answered                           time.Duration // by its BMC, about its power
}

// access is how a host can use the volume.
type access struct{ attached, mounted, fenced bool }

// of takes note of an event of the storage, or of the end of a boot.
func (a *access) of(e *history.Event) {
	switch e.Kind {
	case history.VolumeAttached, history.VolumeDetached:
		a.attached = e.Kind == history.VolumeAttached
	case history.VolumeMounted, history.VolumeUnmounted:
		a.mounted = e.Kind == history.VolumeMounted
	case history.VolumeFenced, history.VolumeUnfenced:
		a.fenced = e.Kind == history.VolumeFenced
	case history.PowerOff, history.BootEnded:
		a.mounted = false
	}
}

// band is the kind of a band of the volume's lane and its text, empty without any access.
func (a *access) band() (kind, text string) {
	switch {
	case a.mounted && a.fenced:
		return "off", "mounted, kept out"
	case a.mounted && !a.attached:
		return "gone", "mounted, detached"
	case a.mounted:
		return "workload", "mounted"
	case a.fenced:
		return "off", "kept out"
	case a.attached:
		return "booting", "attached"
	}
	return "", ""
}

// process collects the events of one controller.
type process struct {
	name  string
	up    bands
	marks []Mark
}

// drawer goes through a history once.
type drawer struct {
	run       *Run
	decisions decisions
	end       time.Duration
	hosts     []*host
	processes []*process
	story     []Mark
	users     []Mark
	// late are the deviations that bring a delay: each from when the step was scheduled until it
	// was taken.
	late [][]Band
}

// Lanes draws a run's lanes.
func Lanes(run *Run) []Group {
	d := &drawer{run: run, decisions: decisionsIn(run.Trace)}
	if n := len(run.Events); n > 0 {
		d.end = run.Events[n-1].At
	}
	for _, e := range run.Events {
		d.event(e)
	}
	for _, r := range run.Requests {
		d.request(r)
	}
	for _, h := range d.hosts {
		h.wrote(run)
	}
	d.caches()
	return d.groups()
}

func (d *drawer) host(name string) *host {
	for _, h := range d.hosts {
		if h.name == name {
			return h
		}
	}
	h := &host{name: name, faults: map[string]*bands{}}
	d.hosts = append(d.hosts, h)
	return h
}

func (d *drawer) process(name string) *process {
	for _, p := range d.processes {
		if p.name == name {
			return p
		}
	}
	p := &process{name: name}
	d.processes = append(d.processes, p)
	return p
}

// event takes note of one event.
func (d *drawer) event(e history.Event) {
	mark := Mark{Seq: e.Seq, At: e.At, Kind: string(e.Kind.Layer())}
	switch e.Kind.Layer() {
	case history.Engine:
		switch e.Kind {
		case history.OpApplied:
			mark.Text = e.Value
		case history.Healed:
			mark.Text = "healed"
		case history.Deviated:
			d.deviated(e)
		}
		d.story = append(d.story, mark)
		d.operation(e)
		return
	case history.Controller:
		p := d.process(e.Actor)
		switch e.Kind {
		case history.ControllerPanicked:
			mark.Kind, mark.Text = panicked, "panic"
		case history.ControllerError, history.ControllerWarning, history.APIFault, history.ControllerCrashed:
			mark.Kind = trouble
		case history.ControllerEffect:
			mark.Text = d.decisions.deed(&e)
		}
		p.marks = append(p.marks, mark)
		switch e.Kind {
		case history.ControllerStarted:
			p.up.begin(e.At, "up", "runs")
		case history.ControllerCrashed:
			p.up.begin(e.At, "down", "is down")
		}
		return
	}
	if history.IsUser(e.Actor) {
		d.users = append(d.users, mark)
	}
	if e.Host == "" {
		return
	}
	h := d.host(e.Host)
	if e.Kind == history.NodeTakenOver {
		was := d.host(e.Value)
		h.exists, h.ready, h.cordoned = true, was.ready, was.cordoned
		was.exists, was.gone = false, true
	}
	switch e.Kind.Layer() {
	case history.World:
		h.world(e, mark)
	case history.BMC:
		if e.Kind == history.BMCFault {
			mark.Kind = trouble
		}
		h.commands = append(h.commands, mark)
	case history.API:
		h.api = append(h.api, mark)
		h.object(e)
	}
}

// lateLanes bounds the lanes for late arrivals.
const lateLanes = 6

// deviated takes note of a delay, in the first lane that has room for it.
func (d *drawer) deviated(e history.Event) {
	by, err := time.ParseDuration(e.Key)
	if err != nil {
		return // a fault, and no delay
	}
	b := Band{From: e.At, To: e.At + by, Kind: "late", Text: d.run.toldOf(&e)}
	if len(e.Frees) > 0 { // it has come after its wait
		b.From, b.To = e.At-by, e.At
	} else if i := slices.IndexFunc(d.run.Trace, func(t Entry) bool { return t.What == "deviated" && t.Key == e.Value }); i >= 0 {
		b.To = d.run.Trace[i].At // its delay begins when it would have been taken
	}
	if b.To > d.end {
		b.To, b.Cut = d.end, true
	}
	if b.To <= b.From {
		return
	}
	i := slices.IndexFunc(d.late, func(lane []Band) bool { return lane[len(lane)-1].To <= b.From })
	switch {
	case i >= 0:
		d.late[i] = append(d.late[i], b)
	case len(d.late) < lateLanes:
		d.late = append(d.late, []Band{b})
	}
}

// operation takes note of what the scenario did to a BMC: the fault is in force
// from then on.
func (d *drawer) operation(e history.Event) {
	change := scenarios.FaultChangeOf(e.Key)
	switch {
	case change == scenarios.FaultBegins && e.Host != "":
		b := &bands{}
		b.begin(e.At, "fault", e.Object)
		d.host(e.Host).faults[e.Object] = b
	case change == scenarios.FaultEnds:
		for _, h := range d.hosts {
			if b := h.faults[e.Object]; b != nil {
				b.end(e.At)
			}
		}
	case e.Kind == history.Healed:
		for _, h := range d.hosts {
			for _, b := range h.faults { // order does not matter: each is ended
				b.end(e.At)
			}
		}
	}
}

// linkOf says what an event of the network is about.
func linkOf(e history.Event) string {
	if e.From != "" {
		return e.From + " to " + e.To
	}
	return e.Object
}

// world takes note of a physical fact.
func (h *host) world(e history.Event, mark Mark) {
	switch e.Kind {
	case history.PowerOn:
		h.on, h.booting = true, true
	case history.PowerOff:
		h.on, h.booting, h.paused, h.boot, h.copies = false, false, false, "", nil
	case history.BootStarted:
		h.on, h.booting, h.boot = true, true, e.Boot
	case history.BootComplete:
		h.booting, h.boot = false, cmp.Or(e.Boot, h.boot)
	case history.BootEnded:
		h.paused, h.boot, h.copies = false, "", nil
	case history.HostPaused:
		h.paused = true
	case history.HostResumed:
		h.paused = false
	case history.WorkloadStarted:
		h.copies = append(h.copies, e.Object)
	case history.WorkloadStopped:
		if i := slices.Index(h.copies, e.Object); i >= 0 {
			h.copies = slices.Delete(h.copies, i, i+1)
		}
	case history.WatchdogFired:
		h.watchdog = append(h.watchdog, Mark{Seq: mark.Seq, At: mark.At, Kind: trouble})
	case history.LinkCut, history.LinkImpaired:
		h.cuts = append(h.cuts, linkOf(e))
		h.link.begin(e.At, "cut", "cut off from "+strings.Join(h.cuts, ", "))
	case history.LinkRestored:
		h.cuts = slices.DeleteFunc(h.cuts, func(c string) bool { return c == linkOf(e) })
		if len(h.cuts) == 0 {
			h.link.end(e.At)
		} else {
			h.link.begin(e.At, "cut", "cut off from "+strings.Join(h.cuts, ", "))
		}
	}
	switch {
	case h.paused:
		h.power.begin(e.At, "paused", "paused, boot "+h.boot)
	case !h.on:
		h.power.begin(e.At, "off", "off")
	case h.boot == "":
		h.power.begin(e.At, "booting", "on, nothing runs")
	case h.booting:
		h.power.begin(e.At, "booting", "boots, boot "+h.boot)
	default:
		h.power.begin(e.At, "on", "runs, boot "+h.boot)
	}
	if h.access.of(&e); e.Kind == history.VolumeWritten {
		h.writes = append(h.writes, mark)
	}
	kind, text := h.access.band()
	h.volume.begin(e.At, kind, text)
	if len(h.copies) == 0 {
		h.workload.end(e.At)
	} else {
		h.workload.begin(e.At, "workload", strings.Join(h.copies, ", "))
	}
}

// wrote takes note of the console, which stands still when the power goes.
func (h *host) wrote(run *Run) {
	events := run.Events
	until := func(at time.Duration) {
		for ; len(events) > 0 && events[0].At <= at; events = events[1:] {
			if e := &events[0]; e.Kind == history.PowerOff && e.Host == h.name {
				h.console.end(e.At)
			}
		}
	}
	for _, l := range run.Lines {
		if l.Host == h.name {
			until(l.At)
			if text := strings.TrimSpace(printable([]byte(l.Text))); text != "" {
				h.console.begin(l.At, "console", text)
			}
		}
	}
	if len(run.Events) > 0 {
		until(run.Events[len(run.Events)-1].At)
	}
}

// object takes note of a version of an object.
func (h *host) object(e history.Event) {
	switch e.Kind {
	case history.NodeCreated:
		h.exists, h.ready, h.cordoned = true, false, false
	case history.NodeDeleted:
		h.exists, h.gone = false, true
	case history.NodeReady:
		h.ready = true
	case history.NodeNotReady:
		h.ready = false
	case history.NodeCordoned:
		h.cordoned = true
	case history.NodeUncordoned:
		h.cordoned = false
	case history.PowerReported:
		if e.Value == "true" {
			h.status.begin(e.At, "on", "poweredOn: true")
		} else {
			h.status.begin(e.At, "off", "poweredOn: false")
		}
	case history.AnnotationSet:
		if !slices.Contains(h.annotations, e.Key) {
			h.annotations = append(h.annotations, e.Key)
		}
	case history.AnnotationRemoved:
		h.annotations = slices.DeleteFunc(h.annotations, func(key string) bool { return key == e.Key })
	case history.BareMetalHostDeleted:
		h.status.end(e.At)
	}
	cordoned := ""
	if h.cordoned {
		cordoned = ", cordoned"
	}
	switch {
	case !h.exists && h.gone:
		h.node.begin(e.At, "gone", "there is none")
	case !h.exists:
	case h.ready:
		h.node.begin(e.At, "ready", "Ready"+cordoned)
	default:
		h.node.begin(e.At, "notready", "not Ready"+cordoned)
	}
	if len(h.annotations) == 0 {
		h.requests.end(e.At)
	} else {
		short := make([]string, 0, len(h.annotations))
		for _, key := range h.annotations {
			short = append(short, key[strings.Index(key, "/")+1:])
		}
		h.requests.begin(e.At, "request", strings.Join(short, ", "))
	}
}

// request takes note of what a BMC said of the power.
func (d *drawer) request(r Request) {
	if r.Request.Method != "GET" || r.Request.Reset != "" || r.Answered < 0 {
		return
	}
	h := d.host(r.Host)
	switch {
	case r.Answer.Status == 0:
		h.bmc.begin(r.Answered, "silent", "no answer")
	case r.Answer.Status >= 300:
		h.bmc.begin(r.Answered, "silent", "refused")
	case r.Answer.PowerState == "":
		return // asked about something else
	case r.Answer.PowerState == "On" || r.Answer.PowerState == "Off":
		h.bmc.begin(r.Answered, strings.ToLower(r.Answer.PowerState), r.Answer.PowerState)
	default:
		h.bmc.begin(r.Answered, "booting", r.Answer.PowerState)
	}
	h.answered = max(h.answered, r.Answered)
}

// groups puts the lanes in order: the scenario, each host, the controllers.
func (d *drawer) groups() []Group {
	add := func(g *Group, name, help string, b *bands, marks []Mark) {
		lane := &Lane{ID: g.Name + ": " + name, Name: name, Help: help, Marks: marks}
		if b != nil {
			lane.last = b.open
			b.end(d.end)
			lane.Bands = b.done
		}
		if len(lane.Bands) > 0 || len(marks) > 0 || lane.last != nil {
			g.Lanes = append(g.Lanes, lane)
		}
	}
	var groups []Group
	story := Group{Name: "scenario"}
	add(&story, "steps", "What the scenario did, and its phases.", nil, d.story)
	add(&story, "users", "What users wrote to the API.", nil, d.users)
	for i, late := range d.late {
		story.Lanes = append(story.Lanes, &Lane{ID: fmt.Sprintf("%s: late %d", story.Name, i+1), Name: "late", Help: "What the schedule delayed: from when it was sent until it arrived.", Bands: late})
	}
	controllers := Group{Name: "controllers"}
	for _, p := range d.processes {
		add(&controllers, p.name, "When the process ran, and what it did.", &p.up, p.marks)
	}
	groups = append(groups, story, controllers)
	matters := d.run.hosts()
	slices.SortFunc(d.hosts, func(a, b *host) int {
		return cmp.Or(cmp.Compare(place(matters, a.name), place(matters, b.name)), cmp.Compare(a.name, b.name))
	})
	for _, h := range d.hosts {
		g := Group{Name: h.name}
		add(&g, "power", "What the host physically did.", &h.power, nil)
		add(&g, "workload", "The copies of the exclusive workload that physically ran here.", &h.workload, nil)
		add(&g, "volume", "How this host could use the workload's volume, and when it wrote to it.", &h.volume, h.writes)
		add(&g, "watchdog", "When the watchdog fired.", nil, h.watchdog)
		add(&g, "console", "The last line that the host wrote to its console.", &h.console, nil)
		add(&g, "network", "What the host was cut off from.", &h.link, nil)
		truth := h.power.done
		var truly *Band
		if lane := g.Lanes; len(lane) > 0 && lane[0].Name == "power" {
			truly = lane[0].last
		}
		add(&g, bmcSays, "The power state that the BMC last answered.", &h.bmc, h.commands)
		add(&g, "status says", "status.poweredOn of the BareMetalHost.", &h.status, nil)
		for _, lane := range g.Lanes {
			if lane.Name == bmcSays || lane.Name == "status says" {
				lane.answered = h.answered
				lane.Believed, lane.Bands = true, compare(lane.Bands, truth, otherPower)
				if lane.last != nil && truly != nil {
					lane.last.Marked, lane.last.Differs = otherPower(lane.last, truly)
				}
			}
		}
		for _, v := range h.views {
			if lane := v.lane(g.Name, d.end, truth, truly); len(lane.Bands) > 0 || lane.last != nil {
				g.Lanes = append(g.Lanes, lane)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(h.faults)) {
			add(&g, "fault "+name, "When this fault of the BMC was in force.", h.faults[name], nil)
		}
		add(&g, "requests", "The annotations that ask for fencing, on the BareMetalHost and the Machine.", &h.requests, nil)
		add(&g, "Node", "The Node object, as the API has it.", &h.node, h.api)
		groups = append(groups, g)
	}
	return groups
}

// place is where a host stands among those that matter, behind them if it doesn't.
func place(matters []string, host string) int {
	if i := slices.Index(matters, host); i >= 0 {
		return i
	}
	return len(matters)
}

// quiet says that nothing changes in a lane once the story has begun.
func (l *Lane) quiet(began, end time.Duration) bool {
	for _, m := range l.Marks {
		if m.At > began {
			return false
		}
	}
	for _, b := range l.Bands {
		if b.Differs || b.From > 0 && b.From >= began || b.To > began && b.To < end {
			return false
		}
	}
	return true
}

// compare splits bands of what is believed where the truth changes, and marks what in them differs.
func compare(believed, truth []Band, differs func(believed, truly *Band) (marked string, differs bool)) []Band {
	var split []Band
	add := func(part Band) {
		if n := len(split); n > 0 {
			last := &split[n-1]
			if last.To == part.From && last.Kind == part.Kind && last.Said() == part.Said() && last.Differs == part.Differs {
				last.To = part.To
				return
			}
		}
		split = append(split, part)
	}
	for _, b := range believed {
		at := b.From
		for i := range truth {
			t := &truth[i]
			from, to := max(at, t.From), min(b.To, t.To)
			if from >= to {
				continue
			}
			if from > at { // nothing is known of the truth
				part := b
				part.From, part.To = at, from
				add(part)
			}
			part := b
			part.From, part.To = from, to
			if marked, other := differs(&b, t); other {
				part.Marked, part.Differs = marked, true
			}
			add(part)
			at = to
		}
		if at < b.To {
			part := b
			part.From = at
			add(part)
		}
	}
	return split
}

// differ says that a host is not what it is believed to be: off is believed of one
// that is not off, or on of one that is.
func differ(believed, truly *Band) bool {
	return believed.Kind == "off" && truly.Kind != "off" || believed.Kind == "on" && truly.Kind == "off"
}

// notTrue marks an item.
const notTrue = " (not true)"

// otherPower is a comparison: the item that says how the power is, or all of a text that says
// nothing else, is marked.
func otherPower(believed, truly *Band) (marked string, differs bool) {
	if !differ(believed, truly) {
		return believed.Marked, believed.Differs
	}
	items := strings.Split(believed.Said(), itemEnd)
	for i, item := range items {
		if (strings.HasPrefix(item, "poweredOn") || len(items) == 1) && !strings.HasSuffix(item, notTrue) {
			items[i] += notTrue
		}
	}
	return strings.Join(items, itemEnd), true
}

// itemEnd ends an item of what is believed, listEnd one of a list that is an item.
const itemEnd, listEnd = "; ", ", "

// outdated is a comparison with what the API has: each item is marked that it doesn't have, or else
// what is missing is named.
func outdated(believed, truly *Band) (marked string, differs bool) {
	if believed.Text == truly.Text {
		return "", false
	}
	parts := func(text string) (all []string) {
		for item := range strings.SplitSeq(text, itemEnd) {
			all = append(all, strings.Split(item, listEnd)...)
		}
		return all
	}
	known, has := parts(believed.Text), parts(truly.Text)
	var items []string
	wrong := false
	for item := range strings.SplitSeq(believed.Text, itemEnd) {
		list := strings.Split(item, listEnd)
		for i, one := range list {
			if !slices.Contains(has, one) {
				list[i], wrong = one+notTrue, true
			}
		}
		items = append(items, strings.Join(list, listEnd))
	}
	missing := slices.DeleteFunc(has, func(one string) bool { return slices.Contains(known, one) })
	if !wrong && len(missing) > 0 {
		items = append(items, "not yet "+strings.Join(missing, listEnd))
	}
	return strings.Join(items, itemEnd), true
}
