package hosts

import (
	"slices"
	"time"

	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/model"
)

// writeTime is how long a workload takes for a write.
const writeTime = 100 * time.Millisecond

// Storage implements Machines.
func (a *modelMachines) Storage(v scenarios.Volume) (*Storage, error) {
	s := &Storage{takes: v, do: a.do, await: a.await, stir: a.write}
	s.array = model.NewArray(v.Name, a.stream.Since, func(e history.Event) {
		a.stream.Now(e)
		if e.Kind != history.VolumeWritten {
			a.write()
		}
	})
	a.storage = s
	return s, nil
}

// write lets every workload that uses the volume write to it, soon. It is called with mu held.
func (a *modelMachines) write() {
	for _, m := range a.models {
		m.write()
	}
}

// write lets what runs on the host do so. The processors may stand still, or the boot may end,
// before it gets to it.
func (m *modelled) write() {
	if m.all.storage == nil || m.writes != nil || len(m.host.Workloads()) == 0 {
		return
	}
	boot := m.host.Boot()
	m.writes = m.After(writeTime, model.Boot, "write", func() {
		m.writes = nil
		m.host.UnlessHalted(func() {
			if boot == m.host.Boot() && len(m.host.Workloads()) > 0 && m.reachesStorage() {
				m.all.storage.array.Write(m.name)
			}
		})
	})
}

// reachesStorage reports whether the way from the host to the storage is open.
func (m *modelled) reachesStorage() bool {
	return m.all.carries(scenarios.HostEnd(m.name), scenarios.Storage)
}

// volumes are a model's, as a kubelet of its has them. It implements kubelet.Volumes.
type volumes struct{ l *kubeletLife }

// Mount implements kubelet.Volumes.
func (v volumes) Mount(string) (err error) {
	m := v.l.m
	over := v.l.act(func() { err = m.all.storage.mount(m.name, m.reachesStorage()) })
	if over != nil {
		return over
	}
	return err
}

// Unmount implements kubelet.Volumes.
func (v volumes) Unmount(string) (err error) {
	over := v.l.act(func() { err = v.l.m.all.storage.unmount(v.l.m.name) })
	if over != nil {
		return over
	}
	return err
}

// Mounted implements kubelet.Volumes.
func (v volumes) Mounted() (names []string) {
	m := v.l.m
	m.all.do(func() {
		if m.all.storage.array.Mounted(m.name) {
			names = append(names, m.all.storage.Volume())
		}
	})
	return names
}

// Reported implements kubelet.Volumes.
func (v volumes) Reported(names []string) []string {
	v.l.m.all.mu.Lock()
	defer v.l.m.all.mu.Unlock()
	if v.l.m.drops {
		return nil
	}
	return slices.Clone(names)
}
