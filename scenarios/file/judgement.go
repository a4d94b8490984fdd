package file

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// tellable checks that the named worlds can play the story.
func (v *validator) tellable() {
	for _, u := range scenarios.Uses(v.spec, v.vocab.Needs) {
		var others []string
		reason := ""
		for _, world := range v.vocab.Worlds {
			why, lacks := world.Lacks[u.Feature]
			switch {
			case !lacks:
				others = append(others, world.World)
			case reason == "" && (len(v.spec.Worlds) == 0 || slices.Contains(v.spec.Worlds, world.World)):
				reason = u.Because(why)
			}
		}
		switch {
		case reason == "":
		case len(others) == 0:
			v.Bad(u.Path, "%s", reason)
		default:
			v.Bad(u.Path, "%s: write worlds: [%s] in spec", reason, strings.Join(others, ", "))
		}
	}
}

// claimList checks the claims.
func (v *validator) claimList() {
	for i := range v.spec.Claims {
		c, at := v.spec.Claims[i].Completed(), fmt.Sprintf("spec.claims[%d]", i)
		if !v.OneOf(at+".kind", "kind of object", c.Kind, v.vocab.Kinds.Names(scenarios.AnyKind)) || v.vocab.CheckField == nil {
			continue
		}
		if err := v.vocab.CheckField(c.Kind, c.Path); err != nil {
			v.Bad(at+".path", "%s", phrase.OneLine(err))
		}
	}
}

// one reports whether exactly one is so.
func one(of ...bool) bool {
	return len(slices.DeleteFunc(of, func(so bool) bool { return !so })) == 1
}

// requestList checks what a story or a system says of its own kinds.
func (v *validator) requestList(requests map[string]scenarios.Request) {
	for _, kind := range slices.Sorted(maps.Keys(requests)) {
		r, at := requests[kind], join("spec.requests", kind)
		if known := v.vocab.Kinds.Names(scenarios.AnyKind); !scenarios.IsGrouped(kind) && !slices.Contains(known, kind) {
			text := unknown("kind of object", kind, known)
			if !strings.HasSuffix(text, "?") {
				text += "; one that a system's program installs has its group behind it, as " + kind + ".acme.example, and one of a module comes with fencelab --module DIR"
			}
			v.Bad(at, "%s", text)
			continue
		}
		if r.Fences == "" && r.Marks == "" && r.Releases == "" {
			v.Bad(at, "say what it means: fences, marks or releases, with the field that has the host, such as spec.host")
		}
		if r.Done != "" && r.Releases != "" {
			v.Bad(at+".done", "a release is never done: say when it is one, by when")
		}
		done, doneIs := r.DoneField()
		when, whenIs := r.WhenField()
		for _, f := range [...]struct{ name, text, path, value string }{
			{"fences", r.Fences, r.Fences, "-"}, {"marks", r.Marks, r.Marks, "-"}, {"releases", r.Releases, r.Releases, "-"},
			{"when", r.When, when, whenIs}, {"done", r.Done, done, doneIs},
		} {
			switch {
			case f.text == "":
			case f.path == "" || f.value == "":
				v.Bad(at+"."+f.name, "%s names no field and its value: write status.phase=Done", phrase.Quote(f.text))
			case v.vocab.CheckField != nil:
				if err := v.vocab.CheckField(kind, f.path); err != nil {
					v.Bad(at+"."+f.name, "%s", phrase.OneLine(err))
				}
			}
		}
	}
}

// assertion checks one claim of a scenario about its events.
func (v *validator) assertion(path string, a *scenarios.Assertion) {
	switch {
	case !one(!a.Happens.IsZero(), !a.Never.IsZero(), !a.Only.IsZero()):
		v.doc.bad(path, "give either happens, never or only")
	case a.Only.IsZero() != a.If.IsZero():
		v.doc.bad(path, "give only and if together: what may happen, and what must have")
	case a.Only.IsZero() && (a.For != 0 || !a.Until.IsZero()):
		v.doc.bad(path, "for and until are about only and if: leave them out")
	case !a.Only.IsZero() && (!a.After.IsZero() || !a.Before.IsZero() || a.Within != 0):
		v.doc.bad(path, "only has no after, before or within: say when in if, for and until")
	case !a.Before.IsZero() && a.Within > 0:
		v.Bad(path+".within", "cannot be combined with before: both set the end, leave one out")
	}
	for _, field := range [...]struct {
		name    string
		trigger *scenarios.Trigger
	}{{"happens", &a.Happens}, {"never", &a.Never}, {"only", &a.Only}, {"if", &a.If}, {"until", &a.Until}, {"after", &a.After}, {"before", &a.Before}} {
		at := path + "." + field.name
		if field.trigger.IsZero() {
			continue
		}
		for _, list := range [...]string{"allOf", "anyOf"} {
			v.Bad(at+"."+list, "is for steps only: write one assertion for each event")
		}
		v.Bad(at+".since", "is for steps only: use after to name the event")
		if _, list := field.trigger.List(); list == "" {
			v.event(at, *field.trigger)
		}
	}
}

func (v *validator) judgement() {
	inv := func(i int) string { return fmt.Sprintf("spec.invariants[%d]", i) }
	for i, id := range v.spec.Invariants {
		v.OneOf(inv(i), "invariant", id, v.invariants)
	}
	v.distinct(v.spec.Invariants, inv)
	judged := v.spec.Invariants
	if violated := v.spec.Expect.Violated; violated == "held" {
		v.Bad("spec.expect.violated", "to expect that nothing is violated, leave it out")
	} else if v.OneOf("spec.expect.violated", "invariant", violated, v.invariants) &&
		len(judged) > 0 && !slices.Contains(judged, violated) {
		v.Bad("spec.expect.violated", "%s is not judged: add it to spec.invariants", violated)
	}
	v.claimList()
	v.requestList(v.spec.Requests)
	if events := v.spec.Expect.Events; len(events) > 0 && v.spec.Expect.Violated != "" {
		v.Bad("spec.expect.events", "cannot be combined with violated: a violation ends the run before the story has been told")
	}
	for i := range v.spec.Expect.Events {
		v.assertion(fmt.Sprintf("spec.expect.events[%d]", i), &v.spec.Expect.Events[i])
	}
	world := func(i int) string { return fmt.Sprintf("spec.worlds[%d]", i) }
	for i, name := range v.spec.Worlds {
		if names := v.vocab.worlds(); names != nil {
			v.OneOf(world(i), "world", name, names)
		}
	}
	v.distinct(v.spec.Worlds, world)
	premise := func(i int) string { return fmt.Sprintf("spec.assumes[%d]", i) }
	for i, name := range v.spec.Assumes {
		v.OneOf(premise(i), "premise", name, scenarios.Premises)
	}
	v.distinct(v.spec.Assumes, premise)
}
