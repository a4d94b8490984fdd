// Package fakebmc is a BMC that real clients believe and that can misbehave like
// real ones.
//
// Three states are kept apart, because clients are hurt where they differ:
//
//	actual    what the System (a libvirt domain, a simulated or an in-memory host) is
//	internal  what the BMC remembers: requests under way, edges it has seen
//	reported  what a client reads: the actual state, bent by Rules
//
// The BMC lives apart from its host: it restarts and forgets, and both lose their
// AC power together. Presets name what real BMCs were seen to do.
//
// BMC is the controller, independent of any protocol. It has no goroutine, no clock
// and no network of its own, so the simulator drives it on virtual time exactly as
// its faces (packages redfish and ipmi) drive it for clients on wall time: one
// implementation of every fault, two clocks. A face hands over its requests with Do,
// or with Serve what rules may look at besides.
package fakebmc
