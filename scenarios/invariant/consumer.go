package invariant

import "github.com/fencelab/fencelab/scenarios/history"

// Consumer is who uses a host by its BareMetalHost's word, as Kind/name.
type Consumer struct {
	name  string
	known bool
}

// Observe takes in an event of the host.
func (c *Consumer) Observe(e *history.Event) {
	switch e.Kind {
	case history.HostConsumer:
		c.name, c.known = e.Value, true
	case history.BareMetalHostDeleted:
		c.name, c.known = "", true
	}
}

// MayBe reports whether a Machine may have the host: nothing says that another has it, or none.
func (c *Consumer) MayBe(machine string) bool { return !c.known || c.name == machine }
