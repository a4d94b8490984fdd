// Package hosts makes the hosts of a lab: machines, with a BMC in front of each.
//
// Machines are libvirt domains ([OpenVirtual]) or models on this machine's clock ([OpenModels]).
// They record what physically happens to them. The BMCs are fencelab's own, or one foreign
// program, and record the requests to them.
package hosts

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/vms"
	"github.com/fencelab/fencelab/vms/guest/evidence"
	"github.com/fencelab/fencelab/vms/network"
)

// CommandTimeout bounds what is asked of a host or of the API server, on a machine that is not
// slow.
const CommandTimeout = time.Minute

// DefaultAssets is FENCELAB_LAB, or the lab directory beside cluster.DefaultBin.
func DefaultAssets() string {
	return cmp.Or(os.Getenv("FENCELAB_LAB"), filepath.Join(filepath.Dir(cluster.DefaultBin()), "lab"))
}

// Hosts are all of a lab: their machines, in the order of their names in the plan, and the BMCs in
// front.
type Hosts struct {
	Machines Machines
	Names    []string
	ByName   map[string]Machine
	BMCs     *BMCs
}

// SwitchOn switches all of them on, in the scenario's name.
func (h *Hosts) SwitchOn(ctx context.Context) error {
	for _, name := range h.Names {
		if err := h.ByName[name].SwitchOn(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the BMCs and the machines, as far as there are any, and returns what was asked of them
// and what they said.
func (h *Hosts) Close() (artifacts []play.Artifact, err error) {
	if h.BMCs != nil {
		artifacts, err = h.BMCs.Close()
	}
	if h.Machines != nil {
		consoles, failed := h.Machines.Close()
		artifacts, err = append(artifacts, consoles...), errors.Join(err, failed)
	}
	return artifacts, err
}

// Machines are the hosts of a lab, whatever they are made of. They report what physically happens
// to them to the record that they were made with.
type Machines interface {
	// Reach lets guests reach servers, which listen on addresses of this process's
	// machine, under the name of an endpoint, and returns where.
	Reach(endpoint string, targets ...network.Target) ([]netip.AddrPort, error)
	// Add defines a machine, which is off. Its guest runs a kubelet, and programs beside
	// it, and can reach its peers.
	Add(host *scenarios.Host, peers []string, kubelet *evidence.Kubelet, programs []vms.Program) (Machine, error)
	// Cut, impair and restore are about links of their network, restoreAll about all but some.
	Cut(links ...network.Link)
	Impair(how network.Impairment, links ...network.Link)
	Restore(links ...network.Link)
	RestoreAll(but []network.Link)
	// Storage makes the storage that has the workload's volume, before hosts are added.
	Storage(scenarios.Volume) (*Storage, error)
	// Processors returns, for each machine that is on, the time that its processors had of this
	// machine's; nil if machines have none.
	Processors() map[string]vms.Processors
	// Hypervisor is the URI by which others reach it, or "" if they can't. The error is that it
	// is lost.
	Hypervisor() (uri string, err error)
	// Close ends every machine, and returns what they said on their consoles. No event comes
	// after it.
	Close() ([]play.Artifact, error)
}

// Machine is one of them, as its BMC and the scenario have it.
type Machine interface {
	fakebmc.System
	// DomainName is its name in the hypervisor, if it is there.
	DomainName() string
	// SystemUUID is its firmware's, which its kubelet reports.
	SystemUUID() string
	// wiredTo is the machine behind the BMC of another host, which it is when wires are
	// swapped.
	wiredTo(bmc string) fakebmc.System

	// SwitchOn and cutPower are in the scenario's name.
	SwitchOn(context.Context) error
	CutPower(context.Context) error
	Pause(context.Context) error
	// Resume lets a paused machine go on; one that was switched off meanwhile has nothing to
	// resume.
	Resume(context.Context) error
	// Tell sends a command to its guest, and remembers the one that undoes it, if there is any.
	Tell(ctx context.Context, do, undo evidence.Command) error
	// FedBy names the agent that feeds its watchdog, instead of the guest's own PID 1: a reset by
	// a watchdog is in that name, unless the scenario starved it.
	FedBy(agent string)
	// Heal undoes what was done to it, but for its power.
	Heal(context.Context) error
}

// asker names the client whose reset a BMC has received last, among resets of a type.
type asker func(bmc string, t fakebmc.ResetType) (client string)
