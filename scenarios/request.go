package scenarios

import "strings"

// Request says of a kind of a system's own that its objects ask for a host to be fenced.
type Request struct {
	// fences is the JSONPath of the name of the host, its Node or its Machine, such as spec.node.
	Fences string `json:"fences"`
	// done is a field and the value that says that the request was carried out, such as
	// status.phase=Done. Left out: it is over when its object is gone.
	Done string `json:"done,omitempty"`
}

// DoneField is the JSONPath that says that the request was carried out, and the value that does.
func (r Request) DoneField() (path, value string) {
	path, value, _ = strings.Cut(r.Done, "=")
	return strings.TrimSpace(path), strings.TrimSpace(value)
}
