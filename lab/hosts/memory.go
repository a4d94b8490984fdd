package hosts

import (
	"context"
	"net/netip"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/fakebmc/memory"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/vms"
	"github.com/fencelab/fencelab/vms/guest/evidence"
	"github.com/fencelab/fencelab/vms/network"
)

// inMemory is a machine in memory, for the tests of what stands around machines.
type inMemory struct{ *memory.Host }

func (inMemory) DomainName() string                                  { return "" }
func (inMemory) SystemUUID() string                                  { return "" }
func (m inMemory) wiredTo(string) fakebmc.System                     { return m }
func (m inMemory) SwitchOn(context.Context) error                    { return m.Reset(fakebmc.ResetOn) }
func (m inMemory) CutPower(context.Context) error                    { return m.Reset(fakebmc.ResetForceOff) }
func (inMemory) Pause(context.Context) error                         { return nil }
func (inMemory) Resume(context.Context) error                        { return nil }
func (inMemory) Heal(context.Context) error                          { return nil }
func (inMemory) FedBy(string)                                        {}
func (inMemory) Tell(_ context.Context, _, _ evidence.Command) error { return nil }

// Memory are all of them, without a network, in no time.
type Memory struct{ Clock fakebmc.Clock }

// One is a machine in memory that is on.
func (m Memory) One() Machine {
	return inMemory{memory.New(m.Clock, memory.Timing{}, true)}
}

func (m Memory) Add(*scenarios.Host, []string, *evidence.Kubelet, []vms.Program) (Machine, error) {
	return m.One(), nil
}
func (Memory) Reach(_ string, targets ...network.Target) ([]netip.AddrPort, error) {
	return make([]netip.AddrPort, len(targets)), nil
}
func (Memory) Cut(...network.Link)                        {}
func (Memory) Impair(network.Impairment, ...network.Link) {}
func (Memory) Restore(...network.Link)                    {}
func (Memory) RestoreAll([]network.Link)                  {}
func (Memory) Storage(scenarios.Volume) (*Storage, error) { return nil, nil }
func (Memory) Processors() map[string]vms.Processors      { return nil }
func (Memory) Hypervisor() (string, error)                { return "", nil }
func (Memory) Close() ([]play.Artifact, error)            { return nil, nil }
