package reboot

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write states.md anew")

// phase is a host in the middle of a reboot: where it physically is, what its
// status has on record, and what the controller remembers. Everything else that
// Decide knows follows from it.
type phase struct {
	// plain and keyed are the annotation that is there, hard its mode.
	plain, keyed, hard bool
	on                 bool // physically
	statusOn           bool
	pending            bool // pendingRebootSince is the later of the two times
	booting            bool // lastPoweredOn is, and no reading has shown that boot yet
	answered           bool // heldOffFor answers the annotation
	shutDownSent       bool
	softFailed         bool
	command            Action // the last one that was accepted a moment ago, or ""
	onSent             bool
	// poweringOn says that the BMC has a PowerOn that it has not carried out yet.
	poweringOn bool
}

// facts returns the controller's observations of the phase.
func (p phase) facts() State {
	s := State{
		Provisioned: true, Online: true, Plain: p.plain, Keyed: p.keyed, Hard: p.hard && (p.plain || p.keyed),
		StatusOn: p.statusOn, Power: Off, Pending: p.pending, Unanswered: p.keyed != p.answered,
		BootRecorded: p.booting, OnSent: p.onSent, SoftFailed: p.softFailed, ShutDownSent: p.shutDownSent,
	}
	if p.on {
		s.Power = On
	}
	expected := PowerOn
	if s.Power == On || s.CallsOff() {
		expected = PowerOff
	}
	s.Commanded = p.command == expected
	return s
}

// act returns the phase after an action.
func (p phase) act(a Action) phase {
	switch a {
	case RecordPower:
		p.statusOn, p.command, p.answered = p.on, "", !p.on && p.keyed
		p.booting = p.booting && !p.statusOn
		if !p.on {
			p.shutDownSent, p.softFailed = false, false // the next boot is shut down like any other
		}
	case RecordPending:
		p.pending, p.booting = true, false
	case RecordAnswer:
		p.answered = p.keyed
	case RemovePlain:
		p.plain = false
	case RecordBoot:
		p.pending, p.booting, p.answered, p.onSent = false, true, false, false
		p.shutDownSent, p.softFailed = false, false
	case ShutDown:
		p.shutDownSent, p.command = true, ShutDown
	case PowerOff:
		p.command = PowerOff
	case PowerOn:
		p.command, p.onSent, p.poweringOn = PowerOn, true, true
	}
	return p
}

// edge is one thing that can happen to it.
type edge struct {
	what string
	to   phase
}

// others returns the edges that the controller doesn't cause: the host executes a command or lets
// the time pass, or a holder lets go of it.
func (p phase) others() (edges []edge) {
	add := func(what string, change func(*phase)) {
		next := p
		change(&next)
		edges = append(edges, edge{what, next})
	}
	if p.on && p.shutDownSent && !p.softFailed {
		add("the guest shuts down", func(n *phase) { n.on = false })
		add("softTimeout passes", func(n *phase) { n.softFailed = true })
	}
	if p.on && p.command == PowerOff {
		add("the host loses its power", func(n *phase) { n.on = false })
	}
	if !p.on && p.poweringOn {
		add("the host comes on", func(n *phase) { n.on, n.poweringOn = true, false })
	}
	if !p.on && p.booting && p.command == PowerOff {
		add("commandInterval passes", func(n *phase) { n.booting, n.onSent, n.poweringOn, n.command = false, false, false, "" })
	}
	if p.keyed && p.answered {
		add("the holder lets go", func(n *phase) { n.keyed = false })
	}
	return edges
}

// String is the phase in words: what is true, what is on record, what is remembered.
func (p phase) String() string {
	word := map[bool]string{true: "on", false: "off"}
	words := []string{word[p.on]}
	say := func(when bool, what string) {
		if when {
			words = append(words, what)
		}
	}
	say(p.plain, "annotated")
	say(p.keyed, "held")
	say(p.on != p.statusOn, "recorded as "+word[p.statusOn])
	say(p.pending, "pending")
	say(p.booting, "boot recorded")
	say(p.answered, "answered")
	say(p.shutDownSent && p.on && !p.softFailed, "shutdown sent")
	say(p.softFailed && p.on, "soft failed")
	say(p.command == PowerOff, "power-off sent")
	say(p.poweringOn && p.command != PowerOff, "power-on sent")
	return strings.Join(words, ", ")
}

// explore lists the edges that lead away from a phase and all that follow, in the
// order in which they are come upon.
func explore(from phase) []string {
	var lines []string
	seen, queue := map[string]bool{}, []phase{from}
	known := map[phase]bool{from: true}
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		var edges []edge
		if a := Decide(p.facts()); a != Nothing && a != Wait {
			edges = append(edges, edge{"**" + string(a) + "**", p.act(a)})
		}
		for _, e := range append(edges, p.others()...) {
			line := fmt.Sprintf("| %s | %s | %s |", p, e.what, e.to)
			if p.String() != e.to.String() && !seen[line] {
				seen[line] = true
				lines = append(lines, line)
			}
			if !known[e.to] {
				known[e.to] = true
				queue = append(queue, e.to)
			}
		}
	}
	return lines
}

const statesTitle = `# The states of a reboot

What [Decide](decide.go) makes of one request to a host that is on, wanted on, and
whose BMC answers: every state that it can come to. A state says where the host
physically is; what its status has on record, where that is not the same or a
reboot is under way (*pending*: pendingRebootSince is later than lastPoweredOn;
*boot recorded*: lastPoweredOn is, and the host was not seen on since; *answered*:
heldOffFor names the request); and what the controller remembers (*shutdown sent*,
*soft failed*, *power-off sent*, *power-on sent*). A power-off that is answered calls
a power-on off: nothing that was sent before it counts commandInterval later. In bold is what the controller
does next; where it does nothing, it waits. What is remembered may be lost at any
time: the state then is the one without those words, and the table goes on there.

A test writes this page: ` + "`go test ./controllers/reboot -update`" + `.
`

// TestStates prints the diagram, and holds what it promises: whatever happens, a
// request ends with the host on, and with nothing on record about it.
func TestStates(t *testing.T) {
	page := statesTitle
	for _, request := range []struct {
		title string
		from  phase
	}{
		{"A soft reboot: the plain annotation", phase{plain: true, on: true, statusOn: true}},
		{"A hard reboot: the plain annotation with mode hard", phase{plain: true, hard: true, on: true, statusOn: true}},
		{"A host that is held off: a keyed annotation with mode hard", phase{keyed: true, hard: true, on: true, statusOn: true}},
		{"A host that is held off while it may be powering on already", phase{keyed: true, hard: true, booting: true, onSent: true, poweringOn: true}},
	} {
		lines := explore(request.from)
		page += "\n## " + request.title + "\n\n| state | what happens | leads to |\n|---|---|---|\n" + strings.Join(lines, "\n") + "\n"
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasSuffix(l, "| on |") }) {
			t.Errorf("%s: the host never comes to rest", request.title)
		}
	}
	if *update {
		if err := os.WriteFile("states.md", []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if golden, err := os.ReadFile("states.md"); err != nil || string(golden) != page {
		t.Errorf("states.md is not what Decide does (%v): run this test with -update and review the difference", err)
	}
}
