package history

import (
	"encoding/json"
	"time"
)

// Check is the content of a health check. A CheckChanged has it as its Value, in JSON.
type Check struct {
	// Paused: it marks no Machine.
	Paused bool `json:"paused,omitempty"`
	// LeavesOut are the Machines that it does not select, by name, sorted.
	LeavesOut []string `json:"leavesOut,omitempty"`
	// Unhealthy are the states of conditions that are unhealthy when they last.
	Unhealthy []Minded `json:"unhealthy,omitempty"`
	// Startup is how long a Machine may be without a Node; 0 is for ever.
	Startup Age `json:"startup"`
	// Least is how many Machines have to be unhealthy for any to be marked, and Most how many may
	// be; with Share, Most is in percent of those that it selects.
	Least int  `json:"least,omitempty"`
	Most  int  `json:"most"`
	Share bool `json:"share,omitempty"`
}

// Minded is a status of a condition that is unhealthy when it has lasted for so long.
type Minded struct {
	// OfMachine says that the condition is one of the Machine, and not of its Node.
	OfMachine bool `json:"ofMachine,omitempty"`

	Type   string `json:"type"`
	Status string `json:"status"`
	After  Age    `json:"after"`
}

// Age is a duration that JSON has in words: "1m30s".
type Age time.Duration

// MarshalText implements encoding.TextMarshaler.
func (a Age) MarshalText() ([]byte, error) { return []byte(time.Duration(a).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Age) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*a = Age(d)
	return err
}

// String is the check in JSON.
func (c *Check) String() string {
	data, _ := json.Marshal(c) // of strings, it never fails
	return string(data)
}

// ParseCheck reads the Value of a CheckChanged. That of a check that is gone is nil.
func ParseCheck(value string) (*Check, error) {
	if value == "" {
		return nil, nil
	}
	c := new(Check)
	return c, json.Unmarshal([]byte(value), c)
}
