package scenarios

import (
	"cmp"
	"time"
)

// OffClaim is a field by which a system says that a host is off, and others act on that: as long as
// it has the value, the host must be off. There is one such field for each host, of the object that
// is called like the host, or like its Node.
type OffClaim struct {
	// kind is the kind of the objects. Left out: BareMetalHost.
	Kind string `json:"kind,omitempty"`
	// path is the JSONPath of the field. Left out: status.poweredOn.
	Path string `json:"path,omitempty"`
	// value is the text that says off, quoted if YAML takes it for something else. Left out:
	// "false".
	Value string `json:"value,omitempty"`
	// within is how long the field and the host may differ. Left out: 10s.
	Within Duration `json:"within,omitzero"`
}

// The claim that everybody makes who keeps to seed 000, and how long its writer has for looking at
// the host again.
const (
	usualClaim  = "BareMetalHost"
	usualField  = "status.poweredOn"
	usualOff    = "false"
	usualWithin = Duration(10 * time.Second)
)

// Completed is the claim with its defaults written out.
func (c OffClaim) Completed() OffClaim {
	c.Kind, c.Path, c.Value = cmp.Or(c.Kind, usualClaim), cmp.Or(c.Path, usualField), cmp.Or(c.Value, usualOff)
	c.Within = cmp.Or(c.Within, usualWithin)
	return c
}

// IsUsual reports whether every run has an event of its own for the field.
func (c *OffClaim) IsUsual() bool { return c.Kind == usualClaim && c.Path == usualField }
