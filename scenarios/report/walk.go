package report

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/page"
	"github.com/fencelab/fencelab/scenarios/play"
)

// Walk says how a replay is looked at: up to an event, or event by event.
type Walk struct {
	// Until is the number of an event, or 0.
	Until int
	// Step lets the user go through the run.
	Step bool
}

// Check says why a replay can't be looked at like this.
func (w Walk) Check(world string) error {
	switch {
	case w.Until < 0:
		return fmt.Errorf("--until %d: events are numbered from 1", w.Until)
	case w != (Walk{}) && world != "sim":
		return fmt.Errorf("--until and --step need the simulator: only there does a replay have the same event numbers")
	}
	return nil
}

// Take shows a run that was replayed, as far as the user wants to see it.
func (w Walk) Take(in io.Reader, out io.Writer, o *play.Outcome) error {
	run, err := Look(o)
	switch {
	case w == (Walk{}):
		return nil
	case err != nil:
		return exit.Coded(exit.Internal, err)
	case w.Until > len(run.Events):
		return exit.Coded(exit.Invalid, fmt.Errorf("--until %d: the run has %d events", w.Until, len(run.Events)))
	}
	v := &viewer{run: run, out: out, at: w.Until}
	for seq := max(1, w.Until-before); seq <= w.Until; seq++ {
		v.event(seq)
	}
	if w.Until > 0 && !w.Step {
		v.facts(false, "")
		v.facts(true, "")
	}
	if !w.Step {
		return nil
	}
	asked := bufio.NewScanner(in)
	for v.prompt(in); asked.Scan(); v.prompt(in) {
		if !v.obey(asked.Text()) {
			return nil
		}
	}
	return asked.Err()
}

// before is how many events are shown before the one that was asked for.
const before = 10

// viewer goes through a run.
type viewer struct {
	run *page.Run
	out io.Writer
	// at is the event at which it is, 0 before the first.
	at int
}

// orders are a viewer's commands. A line may abbreviate them.
var orders = []struct{ name, argument, help string }{
	{"next", "[ACTOR]", "the next event, or the next of an actor; so does an empty line"},
	{"back", "[ACTOR]", "the event before, or the one before of an actor"},
	{"go", "N", "to an event"},
	{"true", "[HOST]", "what is true"},
	{"believed", "[HOST]", "what is said and believed"},
	{"help", "", "this"},
	{"quit", "", "the end"},
}

func (v *viewer) prompt(in io.Reader) {
	if file, ok := in.(io.Writer); ok && terminal(file) {
		fmt.Fprintf(v.out, "%d of %d> ", v.at, len(v.run.Events))
	}
}

// obey does what a line says, and reports whether there may be another.
func (v *viewer) obey(line string) bool {
	word, argument, _ := strings.Cut(strings.TrimSpace(line), " ")
	argument = strings.TrimSpace(argument)
	order := ""
	for _, o := range orders {
		if strings.HasPrefix(o.name, word) {
			order = o.name
			break
		}
	}
	switch order {
	case "next":
		v.move(1, argument)
	case "back":
		v.move(-1, argument)
	case "go":
		n, err := strconv.Atoi(argument)
		if err != nil || n < 1 || n > len(v.run.Events) {
			fmt.Fprintf(v.out, "there is no event %q: choose 1 to %d\n", argument, len(v.run.Events))
			break
		}
		v.at = n
		v.event(n)
	case "true":
		v.facts(false, argument)
	case "believed":
		v.facts(true, argument)
	case "quit":
		return false
	default:
		if order == "" {
			fmt.Fprintf(v.out, "there is no %q\n", word)
		}
		for _, o := range orders {
			fmt.Fprintf(v.out, "  %-18s %s\n", strings.TrimSpace(o.name+" "+o.argument), o.help)
		}
	}
	return true
}

// move goes to the next event in a direction, of an actor if one is given.
func (v *viewer) move(direction int, actor string) {
	for at := v.at + direction; at >= 1 && at <= len(v.run.Events); at += direction {
		if actor == "" || v.run.Events[at-1].Actor == actor {
			v.at = at
			v.event(at)
			return
		}
	}
	of := ""
	if actor != "" {
		of = " of " + actor + "; there are " + strings.Join(v.actors(), ", ")
	}
	fmt.Fprintf(v.out, "no further event%s\n", of)
}

func (v *viewer) actors() []string {
	known := map[string]bool{}
	for _, e := range v.run.Events {
		known[e.Actor] = e.Actor != ""
	}
	maps.DeleteFunc(known, func(_ string, is bool) bool { return !is })
	return slices.Sorted(maps.Keys(known))
}

func (v *viewer) event(seq int) {
	fmt.Fprintf(v.out, "%5d %s\n", seq, v.run.Events[seq-1])
}

// facts says what is true, or what is believed, of a host, or of everything.
func (v *viewer) facts(believed bool, of string) {
	if v.at == 0 {
		fmt.Fprintln(v.out, "nothing has happened yet")
		return
	}
	title := "true"
	if believed {
		title = "believed"
	}
	fmt.Fprintf(v.out, "%s after event %d, at %s\n", title, v.at, history.Seconds(v.run.Events[v.at-1].At))
	said := page.Moment(v.run, v.at)
	for _, group := range slices.Sorted(maps.Keys(said)) {
		if of != "" && of != group {
			continue
		}
		for _, fact := range said[group] {
			if fact.Believed != believed {
				continue
			}
			fmt.Fprintf(v.out, "  %-12s %-22s %s\n", group, fact.Lane, fact.Text)
		}
	}
}
