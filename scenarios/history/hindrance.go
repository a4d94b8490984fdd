package history

import (
	"strings"
	"time"
)

// Hindrance says which party an event holds up, and for how long. An event without one holds up no
// party. A hindrance can excuse lateness, by as much as was held up. It excuses an action only if
// that was Decided.
type Hindrance struct {
	// Party is held up: Everybody, the RequestsOf somebody, or a process, a host or a
	// BMC, named like the ends of links.
	Party string `json:"party"`
	// Name is that by which a later event Frees the party, which is held up For so long beyond
	// that. Without one it lasts For so long, and begins so much After the event.
	Name  string        `json:"name,omitempty"`
	After time.Duration `json:"after,omitempty"`
	For   time.Duration `json:"for,omitempty"`
	// Hangs says that what is held up never has an effect: For is how long its client waits for an
	// answer, who may have sent it just before the party is freed.
	Hangs bool `json:"hangs,omitempty"`
	// Fails says that what is held up fails. It is tried again in growing intervals, so that
	// time is lost beyond the end of what held it up; what is only late goes on at once.
	Fails bool `json:"fails,omitempty"`
	// Told says that other events report each time that a party is held up. The hindrance itself
	// costs no time until it is lifted; it only names the party that is indispensable if it lasts
	// for good.
	Told bool `json:"told,omitempty"`
	// Decided says that the delayed action had been decided before: a request on its way, a process
	// that stands still. Then no read could have shown its author that the world has changed since.
	Decided bool `json:"decided,omitempty"`
}

// BootOf is the name of a hindrance that the end of a host's boot ends.
func BootOf(host string) string { return "the boot of " + host }

// KubeletOf names what lasts until a host boots, or the faults are withdrawn: its kubelet is
// stopped.
func KubeletOf(host string) string { return "the kubelet of " + host + " is stopped" }

// LinkOf is the name of a hindrance that the restoring of a link ends; both ends are "" for
// all links of a host.
func LinkOf(from, to string) string { return ALink + from + " to " + to }

// ClockOf is the name of a hindrance that the setting right of a clock ends.
func ClockOf(whose string) string { return aClock + whose + " is wrong" }

const aClock = "the clock of "

// IsAClock reports whether a name is a ClockOf.
func IsAClock(name string) bool { return strings.HasPrefix(name, aClock) }

// ALink begins each LinkOf.
const ALink = "the link from "

// WaitOf is the name of the hindrance of a step that waits for another one.
func WaitOf(step string) string { return AWait + step + " for another" }

// AWait begins each WaitOf.
const AWait = "the wait of "

// Everybody is the party of whatever holds up all that ask the API server.
const Everybody = "api"

// RequestsOf is the party of what a process asks of an API server that refuses it.
func RequestsOf(process string) string { return Everybody + "/" + process }

// HostEnd, ControllerEnd and BMCEnd are the ends of links at a host, at a process of a
// controller, and at the BMC of a host: and the parties of hindrances.
func HostEnd(name string) string       { return "host/" + name }
func ControllerEnd(name string) string { return "controller/" + name }
func BMCEnd(host string) string        { return "bmc/" + host }

// KeptEnd is the party of whatever waits for the end of a thing of a kind, and of a host, that a
// user keeps: an object, or a hold.
func KeptEnd(kind, host string) string { return "kept/" + kind + "/" + host }

// KeptOf is the kind and the host of a KeptEnd, and false for any other party.
func KeptOf(party string) (kind, host string, kept bool) {
	if party, kept = strings.CutPrefix(party, "kept/"); kept {
		kind, host, _ = strings.Cut(party, "/")
	}
	return kind, host, kept
}
