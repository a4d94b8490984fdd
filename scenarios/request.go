package scenarios

import (
	"regexp"
	"strings"
)

// Request says what the objects of a kind mean that no guarantee knows by itself. Each path is the
// JSONPath of the name of a host, its Node or its Machine, such as spec.node.
type Request struct {
	// fences names the host that an object asks to be fenced.
	Fences string `json:"fences,omitempty"`
	// marks names the host whose Node an object finds unhealthy, by its condition Ready: it is then
	// judged as the mark of the host's Machine is.
	Marks string `json:"marks,omitempty"`
	// releases names the host of which an object says that nothing runs there any more.
	Releases string `json:"releases,omitempty"`
	// when is a field and the value with which an object means this, such as
	// spec.taints[?(@.key=="a")].effect=NoExecute. Default: as long as it exists.
	When string `json:"when,omitempty"`
	// done is a field and the value that says that the request was carried out, such as
	// status.phase=Done. Default: it is over when its object is gone.
	Done string `json:"done,omitempty"`
}

// fieldIs parts a field and its value at the last equals sign: a filter in the path may have more.
func fieldIs(text string) (path, value string) {
	i := max(0, strings.LastIndex(text, "="))
	return strings.TrimSpace(text[:i]), strings.TrimSpace(strings.TrimPrefix(text[i:], "="))
}

// DoneField is the JSONPath that says that the request was carried out, and the value that does.
func (r *Request) DoneField() (path, value string) { return fieldIs(r.Done) }

// WhenField is the JSONPath that says whether an object means anything, and the value with which it
// does.
func (r *Request) WhenField() (path, value string) { return fieldIs(r.When) }

// grouped is a kind that fencelab doesn't have, with its group: a system's program installs it.
var grouped = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`)

// IsGrouped reports whether a kind is named with its group, as Kind.group.
func IsGrouped(kind string) bool { return grouped.MatchString(kind) }

// AsksForFencing reports whether any of the kinds asks for hosts to be fenced.
func AsksForFencing(requests map[string]Request) bool {
	for _, r := range requests { // order does not matter: any of them
		if r.Fences != "" {
			return true
		}
	}
	return false
}

// AddRequests adds those of a module or a system to a story's, which come first.
func (s *Spec) AddRequests(others map[string]Request) {
	for kind, r := range others { // order does not matter: each by itself
		if _, own := s.Requests[kind]; own {
			continue
		}
		if s.Requests == nil {
			s.Requests = make(map[string]Request)
		}
		s.Requests[kind] = r
	}
}
