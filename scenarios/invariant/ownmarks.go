package invariant

import (
	"cmp"
	"slices"

	"github.com/fencelab/fencelab/scenarios/history"
)

// ownMarks turns marks by objects of a system's own into those of the Machines that they stand for.
type ownMarks struct {
	// users has who uses each host, by its own word, and standing the objects that mark it.
	users    map[string]string
	standing map[string][]string
}

// judged is an event as checkers of guarantees see it: the first object that marks a host marks its
// Machine, and the last takes the mark away.
func (m *ownMarks) judged(e *history.Event) *history.Event {
	if m.users == nil {
		m.users, m.standing = make(map[string]string), make(map[string][]string)
	}
	if e.Kind == history.HostConsumer {
		m.users[e.Host] = e.Value
	}
	if e.Kind != history.FieldIs || e.Key != history.Marking {
		return e
	}
	others, kind := Without(slices.Clone(m.standing[e.Host]), e.Object), history.AnnotationRemoved
	had := len(others) < len(m.standing[e.Host])
	if m.standing[e.Host] = others; e.Value == history.FencingWanted {
		m.standing[e.Host], kind = append(others, e.Object), history.AnnotationSet
	}
	if len(others) > 0 || had == (kind == history.AnnotationSet) {
		return e
	}
	as := e.As(kind, cmp.Or(m.users[e.Host], "Machine/"+e.Host), ExternalAnnotation)
	return &as
}
