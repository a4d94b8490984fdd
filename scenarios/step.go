package scenarios

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Title is the step's name in reports.
func (s *Step) Title() string {
	switch {
	case s.Name != "":
		return s.Name
	case s.Do != nil:
		return s.Do.String()
	default:
		return "wait for " + s.When.String()
	}
}

// Matches reports whether an event is one that the trigger waits for.
func (t Trigger) Matches(e history.Event) bool {
	return t.Event == string(e.Kind) &&
		matches(t.Host, e.Host) && matches(t.Object, e.Object) && matches(t.Actor, e.Actor) &&
		matches(t.Key, e.Key) && matches(t.Value, e.Value)
}

// ItsHost is the host of the event that it waits for, "" if that may be any.
func (t Trigger) ItsHost() string {
	if t.Host == "" && t.Object != "" {
		return nameIn(t.Object)
	}
	return t.Host
}

func matches(want, got string) bool { return want == "" || want == got }

// IsZero reports whether the trigger waits for nothing.
func (t Trigger) IsZero() bool { return reflect.ValueOf(t).IsZero() }

// List is the list of events that stands in for one, and the name of its field; nil and "" where
// there is none.
func (t *Trigger) List() (events []Trigger, field string) {
	switch {
	case len(t.AllOf) > 0:
		return t.AllOf, "allOf"
	case len(t.AnyOf) > 0:
		return t.AnyOf, "anyOf"
	}
	return nil, ""
}

func (t Trigger) String() string {
	if events, field := t.List(); field != "" {
		all := make([]string, len(events))
		for i := range events {
			all[i] = events[i].String()
		}
		if field == "anyOf" {
			return strings.Join(all, " or ")
		}
		return strings.Join(all, " and ")
	}
	var b strings.Builder
	b.WriteString(t.Event)
	for _, field := range [...]struct{ name, value string }{
		{"host", t.Host}, {"object", t.Object}, {"actor", t.Actor}, {"key", t.Key}, {"value", t.Value},
	} {
		if field.value != "" {
			fmt.Fprintf(&b, " %s=%s", field.name, field.value)
		}
	}
	if t.Occurrence > 1 {
		fmt.Fprintf(&b, " (occurrence %d)", t.Occurrence)
	}
	return b.String()
}

// InForce names what the steps have begun to bend and not ended, in order.
func InForce(steps []Step) []string {
	type open struct {
		clause string
		step   int
	}
	var all []open
	end := func(what string) {
		all = slices.DeleteFunc(all, func(o open) bool { return Ended(o.clause, what) })
	}
	for i := range steps {
		op := steps[i].Do
		if op == nil {
			continue
		}
		o := op.declared()
		for _, what := range o.ends(op) {
			end(what)
		}
		if s := o.begins(op); s.clause != "" && !s.brief {
			end(s.clause)
			all = append(all, open{s.clause, i + 1})
		}
	}
	var told []string
	for _, o := range all {
		told = append(told, fmt.Sprintf("%s (step %d)", o.clause, o.step))
	}
	return told
}

// SinceStart is the value of since for the beginning of the story.
const SinceStart = "start"
