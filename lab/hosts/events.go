package hosts

import (
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/vms"
	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// worldEvents translates what the hypervisor and the guest saw. A line of a boot
// that has ended was late, and everything in it is over. by is in whose name the
// machine's power changed, or its boot ended.
func worldEvents(e vms.Event, by string) []history.Event {
	event := history.Event{Host: e.Host, Boot: e.Boot, Actor: by, Note: e.Detail}
	of := func(kinds ...history.Kind) []history.Event {
		var events []history.Event
		for _, kind := range kinds {
			if (kind == history.BootEnded || kind == history.BootStarted || kind == history.BootComplete) && e.Boot == "" {
				continue // the boot was never heard of
			}
			event.Kind = kind
			events = append(events, event)
		}
		return events
	}
	if e.Late {
		return nil
	}
	switch e.Kind {
	case vms.PoweredOn:
		return of(history.PowerOn)
	case vms.PoweredOff:
		return of(history.BootEnded, history.PowerOff)
	case vms.Reset:
		if e.Detail == vms.ResetWatchdog {
			return of(history.WatchdogFired, history.BootEnded)
		}
		return of(history.BootEnded)
	case vms.Paused:
		return of(history.HostPaused)
	case vms.Halted:
		return of(history.HostPaused)
	case vms.Resumed:
		return of(history.HostResumed)
	case vms.EvidenceLost:
		return of(history.EvidenceLost)
	case vms.EvidenceRegained:
		return of(history.EvidenceRegained)
	case vms.LinkDown, vms.LinkUp, vms.LinkPoor:
		event.Boot, event.Note = "", ""
		switch {
		case e.Link.From == "":
			return nil // one event reports a host's links, both ways
		case e.Link.To == "":
			event.Object = scenarios.API
		default:
			event.From, event.To = e.Link.From, e.Link.To
		}
		switch e.Kind {
		case vms.LinkDown:
			return of(history.LinkCut)
		case vms.LinkPoor:
			event.Note = e.Detail
			return of(history.LinkImpaired)
		}
		return of(history.LinkRestored)
	case vms.Kind(evidence.Boot):
		return of(history.BootStarted)
	case vms.Kind(evidence.KubeletStarted):
		return of(history.BootComplete)
	case vms.Kind(evidence.WorkloadStarted), vms.Kind(evidence.WorkloadStopped):
		event.Object, event.UID, event.Note = e.Process, e.Detail, ""
		if e.Kind == vms.Kind(evidence.WorkloadStarted) {
			return of(history.WorkloadStarted)
		}
		return of(history.WorkloadStopped)
	}
	return nil
}
