package scenarios

import (
	"cmp"
	"slices"

	"github.com/fencelab/fencelab/scenarios/history"
)

// Field is a field of an object whose values a story asks for.
type Field struct {
	// Object is KIND/NAME, Key the JSONPath of the field.
	Object, Key string
}

// Fields returns the fields that a story waits for, claims something of, or claims as such, each
// once.
func (s *Spec) Fields() []Field {
	var fields []Field
	add := func(t Trigger) {
		if field := (Field{t.Object, t.Key}); t.Event == string(history.FieldIs) && !slices.Contains(fields, field) {
			fields = append(fields, field)
		}
	}
	for _, step := range s.Steps {
		several, _ := step.When.List()
		for _, t := range append([]Trigger{step.When}, several...) {
			add(t)
		}
	}
	for _, claim := range s.Expect.Events {
		for _, t := range [...]Trigger{claim.Happens, claim.Never, claim.Only, claim.If, claim.Until, claim.After, claim.Before} {
			add(t)
		}
	}
	for i := range s.Claims {
		for j := range s.Topology.Hosts {
			if field := s.Claims[i].Field(&s.Topology.Hosts[j]); !s.Claims[i].IsUsual() && !slices.Contains(fields, field) {
				fields = append(fields, field)
			}
		}
	}
	slices.SortFunc(fields, func(a, b Field) int { return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Key, b.Key)) })
	return fields
}

// isState reports whether a trigger is met as long as something lasts, and not only when
// it begins: a field has its value also if it got it before.
func (t Trigger) isState() bool {
	return t.Event == string(history.FieldIs) && t.Value != "" && t.Occurrence <= 1
}

// Holds reports whether a trigger that is a state is met after the events.
func (t Trigger) Holds(events []history.Event) bool {
	if !t.isState() {
		return false
	}
	for i := len(events) - 1; i >= 0; i-- {
		if e := &events[i]; e.Kind == history.FieldIs && e.Object == t.Object && e.Key == t.Key {
			return t.Matches(*e)
		}
	}
	return false
}

// claimIsTrue is the guarantee about claims.
const claimIsTrue = "claim-is-true"

// completeClaims writes the defaults out. A plan that names the guarantee, and no claim, has the
// usual one.
func (s *Spec) completeClaims() {
	if len(s.Claims) == 0 && slices.Contains(s.Invariants, claimIsTrue) {
		s.Claims = []OffClaim{{}}
	}
	for i := range s.Claims {
		s.Claims[i] = s.Claims[i].Completed()
	}
}

// Field is the field of a host.
func (c *OffClaim) Field(h *Host) Field {
	name := h.Name
	switch c.Kind {
	case "Node":
		name = h.Node()
	case "Machine":
		name = h.Machine()
	}
	return Field{c.Kind + "/" + name, c.Path}
}
