package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/page"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/scenarios/play"
)

// causes describes in at most n lines how the controllers under test stood at an event, after which
// something else should have come: which of them fail, which wait for nothing that is due, and
// which decide the same again and again. Lines about keys cover the hosts that matter, or all if
// none does.
func causes(o *play.Outcome, hosts []string, last, n int) []string {
	all := slices.DeleteFunc(standings(o, hosts, last), func(c cause) bool { return c.weight == 0 })
	var lines []string
	for _, c := range all[:min(n, len(all))] {
		if c.weight >= min(all[0].weight, idle) { // who waits is no news beside one who can't go on
			lines = append(lines, c.text)
		}
	}
	return lines
}

// standings says of each controller under test how it stood at an event, first what explains most.
func standings(o *play.Outcome, hosts []string, last int) (all []cause) {
	if last < 1 || last > o.History.Len() {
		return nil
	}
	run, err := Look(o)
	if err != nil {
		return nil // the report says so where it says what was believed
	}
	found := stood(o.History.Events()[:last], run.Trace, o.Timings.StandIns)
	hosts = slices.DeleteFunc(slices.Clone(hosts), func(host string) bool { return host == "" })
	for _, process := range slices.Sorted(maps.Keys(found)) {
		all = append(all, found[process].cause(process, hosts))
	}
	slices.SortStableFunc(all, func(a, b cause) int { return cmp.Compare(b.weight, a.weight) })
	return all
}

// What a cause weighs: nothing, if its controller is about to run.
const (
	waiting = iota + 1
	idle
	failing
)

// cause is a line, and how much it explains.
type cause struct {
	weight int
	text   string
}

// standing is how a process stood at some time.
type standing struct {
	// failures are the errors and panics of its reconciles.
	failures []history.Event
	// ran holds the last run of each key, and lastRan the last of all.
	ran     map[string]page.Entry
	lastRan page.Entry
	// decided holds the last decision about each key, since when it stands, and how often it was
	// made.
	decided map[string]*streak
	// effect is the time of its last effect, and since counts its runs from then on.
	effect time.Duration
	since  int
}

// streak is decisions that were the same, one after the other.
type streak struct {
	page.Entry
	from time.Duration
	n    int
}

// stood gathers how the processes under test stood after the last of these events.
func stood(events []history.Event, trace []page.Entry, standIns []string) map[string]*standing {
	found := make(map[string]*standing)
	of := func(process string) *standing {
		if found[process] == nil {
			found[process] = &standing{ran: make(map[string]page.Entry), decided: make(map[string]*streak)}
		}
		return found[process]
	}
	until := events[len(events)-1].At
	for _, e := range events {
		if e.Kind == history.ControllerStarted && !slices.Contains(standIns, e.Actor) {
			of(e.Actor)
		}
		p := found[e.Actor]
		switch {
		case p == nil:
		case e.Kind == history.ControllerError, e.Kind == history.ControllerPanicked:
			p.failures = append(p.failures, e)
		case e.Kind == history.ControllerEffect:
			p.effect, p.since = e.At, 0
		}
	}
	for _, t := range trace {
		p := found[t.Process]
		if p == nil || t.At > until {
			continue
		}
		switch t.What {
		case "ran":
			p.ran[t.Key], p.lastRan = t, t
			if t.At > p.effect {
				p.since++
			}
		case "decided":
			if s := p.decided[t.Key]; s != nil && s.Action == t.Action && string(s.Facts) == string(t.Facts) {
				s.n, s.At = s.n+1, t.At
			} else {
				p.decided[t.Key] = &streak{t, t.At, 1}
			}
		}
	}
	return found
}

// often is the number of equal decisions that are worth reporting as such.
const often = 3

// cause describes how a process stands.
func (p *standing) cause(process string, hosts []string) cause {
	fails := p.lastRan.What == "" || p.ran[p.lastRan.Key].Action == page.Failed
	if n := len(p.failures); n > 0 && fails {
		last := p.failures[n-1]
		about := ""
		if last.Object != "" {
			about = " about " + last.Object
		}
		where := ""
		if last.Note != "" {
			where = ", in " + last.Note
		}
		return cause{failing, fmt.Sprintf("%s has failed %s, last at %s%s: %s%s", process, phrase.Times(n), history.Seconds(last.At), about, phrase.FirstLine(last.Value), where)}
	}
	due := slices.ContainsFunc(slices.Collect(maps.Values(p.ran)), func(e page.Entry) bool { return e.Action != "" })
	if p.lastRan.What != "" && !due {
		return cause{idle, fmt.Sprintf("%s last ran at %s, about %s, and nothing is due: it waits for an event%s", process, history.Seconds(p.lastRan.At), p.lastRan.Key, p.decision(p.lastRan.Key))}
	}
	for _, key := range slices.Sorted(maps.Keys(p.decided)) {
		if s := p.decided[key]; s.n >= often && (len(hosts) == 0 || slices.ContainsFunc(hosts, func(host string) bool { return strings.Contains(key, host) })) {
			return cause{waiting, fmt.Sprintf("%s has decided the same about %s %s since %s%s", process, key, phrase.Times(s.n), history.Seconds(s.from), p.decision(key))}
		}
	}
	if len(p.decided) == 0 && p.since >= often {
		since := "and has changed nothing"
		if p.effect > 0 {
			since = "since it last changed anything, at " + history.Seconds(p.effect)
		}
		return cause{waiting, fmt.Sprintf("%s has run %s %s; it asks to run again, as if it waited for a time", process, phrase.Times(p.since), since)}
	}
	if p.lastRan.What == "" {
		return cause{text: process + " has not run"}
	}
	again := "is to run again, " + p.lastRan.Action
	switch p.lastRan.Action {
	case "":
		again = "waits for an event"
	case page.AtOnce, page.Failed:
		again = "is to run again at once"
	}
	return cause{text: fmt.Sprintf("%s last ran at %s, about %s, and %s%s", process, history.Seconds(p.lastRan.At), p.lastRan.Key, again, p.decision(p.lastRan.Key))}
}

// decision describes the last decision about a key, and the true facts behind it, for the end of a
// sentence.
func (p *standing) decision(key string) string {
	if s := p.decided[key]; s != nil {
		return ": " + decision(&s.Entry)
	}
	return ""
}

// decisionBehind is the last decision of an event's actor about its host before it happened, for
// the end of a sentence.
func decisionBehind(o *play.Outcome, e *history.Event) string {
	run, err := Look(o)
	if err != nil {
		return ""
	}
	t := run.Decision(e)
	if t == nil {
		return ""
	}
	return ", which had decided " + t.Action
}

// decision is an action, and the facts that were true when it was chosen.
func decision(e *page.Entry) string {
	facts := map[string]any{}
	if err := json.Unmarshal(e.Facts, &facts); err != nil {
		return e.Action
	}
	var known []string
	for _, name := range slices.Sorted(maps.Keys(facts)) {
		switch value := facts[name].(type) {
		case bool:
			if value {
				known = append(known, name)
			}
		case string:
			if value != "" {
				known = append(known, name+" "+value)
			}
		}
	}
	if len(known) == 0 {
		return e.Action
	}
	return fmt.Sprintf("%s (%s)", e.Action, strings.Join(known, ", "))
}
