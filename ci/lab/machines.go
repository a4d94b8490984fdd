package lab

import (
	"context"
	"net/netip"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/vms"
	"github.com/fencelab/fencelab/vms/guest/evidence"
	"github.com/fencelab/fencelab/vms/network"
)

// machines are the hosts of a lab, whatever they are made of. What physically happens to
// them they tell the stream that they were made with.
type machines interface {
	// reach lets guests reach servers, which listen on addresses of this process's
	// machine, under the name of an endpoint, and returns where.
	reach(endpoint string, targets ...network.Target) ([]netip.AddrPort, error)
	// add defines a machine, which is off. Its guest runs a kubelet, and programs beside
	// it, and can reach its peers.
	add(host *scenarios.Host, peers []string, kubelet *evidence.Kubelet, programs []vms.Program) (machine, error)
	// cut, impair and restore are about links of their network, restoreAll about all but some.
	cut(links ...network.Link)
	impair(how network.Impairment, links ...network.Link)
	restore(links ...network.Link)
	restoreAll(but []network.Link)
	// hypervisor is the URI by which others reach it, or "" if they can't. The error is that it
	// is lost.
	hypervisor() (uri string, err error)
	// close ends every machine, and returns what they said on their consoles. No event comes
	// after it.
	close() ([]play.Artifact, error)
}

// machine is one of them, as its BMC and the scenario have it.
type machine interface {
	fakebmc.System
	// domainName is its name in the hypervisor, if it is there.
	domainName() string
	// systemUUID is its firmware's, which its kubelet reports.
	systemUUID() string
	// wiredTo is the machine behind the BMC of another host, which it is when wires are
	// swapped.
	wiredTo(bmc string) fakebmc.System

	// switchOn and cutPower are in the scenario's name.
	switchOn(context.Context) error
	cutPower(context.Context) error
	pause(context.Context) error
	// resume lets a paused machine go on; one that was switched off meanwhile has nothing to
	// resume.
	resume(context.Context) error
	// tell tells its guest something, and remembers what undoes it, if anything does.
	tell(ctx context.Context, do, undo evidence.Command) error
	// fedBy says who feeds its watchdog, instead of the guest's own PID 1: a reset by a
	// watchdog that nobody was told to starve is in that name.
	fedBy(agent string)
	// heal undoes what was done to it, but for its power.
	heal(context.Context) error
}

// asker tells whose reset a BMC has received last, of those of its type.
type asker func(bmc string, t fakebmc.ResetType) (client string)
