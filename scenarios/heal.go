package scenarios

import (
	"errors"
	"slices"
)

// Healer is a world's part in a heal. It gives access to every part that operations make fail, and
// repairs each. The heal itself decides what lasts for good, so that worlds can't differ in it.
type Healer interface {
	// EndSchedule ends the deviations: what is late comes now.
	EndSchedule()
	APIRestore(*struct{}) error
	// RestoreAllBut restores every link but some.
	RestoreAllBut([]Link) error
	// HealHost undoes what was done to a host, but for its power, and HealBMC what was done to its
	// BMC, but for some faults.
	HealHost(host string) error
	HealBMC(host string, but []string)
	// HealStorage ends what is wrong with the storage, but for some.
	HealStorage(but []StorageOp)
	// Running are the processes of controllers, those included that are down, in an order that
	// doesn't change.
	Running() []Running
	// ThawCaches has every cache catch up.
	ThawCaches()
}

// Running is a process of a controller.
type Running interface {
	// Plays reports whether it is the process that a scenario knows by a name.
	Plays(name string) bool
	// Second reports whether the scenario has started it beside another one.
	Second() bool
	// End ends it for good.
	End() error
	// Mend takes back what was to become of it, such as a crash that is still to come.
	Mend()
	// Revive starts it if it is down, and Resume lets it go on if it stands still.
	Revive() error
	Resume() error
}

// Perform withdraws every fault that doesn't last for good: those of the schedule, an API server
// that is away or refuses requests, links, what was done to hosts and BMCs, and to controllers.
// Second processes end, and those that are down are back. A watchdog that isn't fed fires all the
// same, and a host that is off stays so.
func (h *HealOp) Perform(t *Topology, w Healer) error {
	w.EndSchedule()
	errs := []error{w.APIRestore(nil), w.RestoreAllBut(h.Links(t))}
	for i := range t.Hosts {
		errs = append(errs, w.HealHost(t.Hosts[i].Name))
		w.HealBMC(t.Hosts[i].Name, h.Faults())
	}
	w.HealStorage(h.storage())
	paused := h.Paused()
	for _, p := range w.Running() {
		if p.Second() {
			errs = append(errs, p.End())
			continue
		}
		p.Mend()
		errs = append(errs, p.Revive())
		if !slices.ContainsFunc(paused, p.Plays) {
			errs = append(errs, p.Resume())
		}
	}
	w.ThawCaches()
	return errors.Join(errs...)
}
