package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/lab/door"
	"github.com/fencelab/fencelab/lab/hosts"
	thismachine "github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/vms/guest/evidence"
	"github.com/fencelab/fencelab/vms/network"
)

// operations carries out a scenario's operations on the lab, within the time of a command. It
// implements scenarios.World.
type operations struct {
	*Backend
	objects.Users
	ctx context.Context
}

// Apply performs one operation.
func (b *Backend) Apply(op scenarios.Op) error {
	ctx, cancel := thismachine.WithBudget(b.ctx, hosts.CommandTimeout)
	defer cancel()
	users := objects.UsersOf(requests{b, ctx}, b.kinds, func() []client.Object { return b.plane.topology })
	return scenarios.Perform(op, operations{b, users, ctx})
}

func (o operations) SetClock(op *scenarios.ClockOp) error {
	return o.onHost(op.Host, func(m hosts.Machine) error {
		return m.Tell(o.ctx, evidence.SetClock.By(op.Offset()), evidence.SetClock.By(0))
	})
}

func (o operations) APIOutage(op *scenarios.OutageOp) error {
	o.plane.door.Shut(op.Hang)
	return nil
}

// EtcdOutage makes every write fail. The door refuses them. With a standard control plane some
// clients bypass the door, so etcd is paused, and reads that the API server's memory can't answer
// hang too.
func (o operations) EtcdOutage(*struct{}) error {
	o.plane.door.LoseStore()
	if o.plane.standard != nil {
		return o.plane.standard.PauseStore()
	}
	return nil
}

func (o operations) FreezeCache(op *scenarios.CacheOp) error {
	return o.onCache(op, o.plane.door.Freeze)
}
func (o operations) ThawCache(op *scenarios.CacheOp) error { return o.onCache(op, o.plane.door.Thaw) }
func (o operations) ExpireWatch(op *scenarios.CacheOp) error {
	return o.onCache(op, o.plane.door.Expire)
}

func (o operations) onCache(op *scenarios.CacheOp, do func(door.Watching)) error {
	return o.onProcess(op.Controller, func(p *proc) error {
		do(door.Watching{Actor: p.name, Kind: op.Kind})
		return nil
	})
}

func (b *Backend) onHost(name string, do func(hosts.Machine) error) error {
	h := b.hosts.ByName[name]
	if h == nil {
		return fmt.Errorf("the topology has no host %q", name)
	}
	return do(h)
}

func (o operations) Cut(op *scenarios.LinkOp) error { return o.onLinks(op, o.hosts.Machines.Cut) }
func (o operations) Impair(op *scenarios.ImpairOp) error {
	how := network.Impairment{Delay: time.Duration(op.Delay), Loss: op.Loss, Rate: op.Rate}
	return o.onLinks(op.Link(), func(links ...network.Link) { o.hosts.Machines.Impair(how, links...) })
}

func (o operations) Restore(op *scenarios.LinkOp) error {
	return o.onLinks(op, o.hosts.Machines.Restore)
}

// linksOf converts links of a scenario to those of the machines' network.
func linksOf(named []scenarios.Link) []network.Link {
	links := make([]network.Link, len(named))
	for i, l := range named {
		links[i] = network.Link(l)
	}
	return links
}

func (b *Backend) onLinks(op *scenarios.LinkOp, do func(...network.Link)) error {
	links := linksOf(op.Links(&b.plan.Spec.Topology))
	if op.Host != "" {
		return b.onHost(op.Host, func(hosts.Machine) error { do(links...); return nil })
	}
	do(links...)
	return nil
}

func (o operations) StopKubelet(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(m hosts.Machine) error { return m.Tell(o.ctx, evidence.StopKubelet, evidence.StartKubelet) })
}

func (o operations) StopFeeding(op *scenarios.HostOp) error {
	if a := o.feeder(op.Host); a != nil {
		if err := a.endBoot(); err != nil {
			return err
		}
	}
	return o.onHost(op.Host, func(m hosts.Machine) error { return m.Tell(o.ctx, evidence.StopFeeding, "") })
}

// MoveBMC fails: the lab's BMCs are where they are served.
func (operations) MoveBMC(*scenarios.MoveOp) error {
	return errors.New("move a BMC to another address: the lab cannot, and should have refused the scenario")
}

// StopAgent fails: the lab kills what runs in its guests.
func (operations) StopAgent(*scenarios.HostOp) error {
	return errors.New("stop an agent in order: the lab can only kill it, and should have refused the scenario")
}

func (o operations) IgnoreShutdown(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(m hosts.Machine) error {
		return m.Tell(o.ctx, evidence.IgnoreShutdown, evidence.ObeyShutdown.Taking(0))
	})
}

func (o operations) Pause(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(m hosts.Machine) error { return m.Pause(o.ctx) })
}

func (o operations) Resume(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(m hosts.Machine) error { return m.Resume(o.ctx) })
}

func (o operations) Hang(op *scenarios.HostOp) error  { return o.halt(op, evidence.Hang) }
func (o operations) Panic(op *scenarios.HostOp) error { return o.halt(op, evidence.Panic) }

// halt has a host do nothing any more in this boot. Whoever feeds its watchdog is not to blame for
// the end of it.
func (o operations) halt(op *scenarios.HostOp, how evidence.Command) error {
	return o.onHost(op.Host, func(m hosts.Machine) error { return m.Tell(o.ctx, how, "") })
}

func (o operations) DropVolume(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(m hosts.Machine) error { return m.Tell(o.ctx, evidence.DropVolumes, "") })
}

// BreakStorage, MendStorage, FenceStorage and UnfenceStorage act as its administrator would.
func (o operations) BreakStorage(op *scenarios.StorageOp) error {
	o.storage.Break(op)
	return nil
}

func (o operations) MendStorage(op *scenarios.StorageOp) error {
	o.storage.Mend(op)
	return nil
}

func (o operations) FenceStorage(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(hosts.Machine) error { o.storage.Fence(op.Host); return nil })
}

func (o operations) UnfenceStorage(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(hosts.Machine) error { o.storage.Unfence(op.Host); return nil })
}

func (o operations) FillDisk(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(m hosts.Machine) error { return m.Tell(o.ctx, evidence.FillDisk, evidence.FreeDisk) })
}

func (o operations) PowerLoss(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(m hosts.Machine) error { return m.CutPower(o.ctx) })
}

func (o operations) PowerUp(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(m hosts.Machine) error { return m.SwitchOn(o.ctx) })
}

func (o operations) AddFault(op *scenarios.FaultOp) error { return o.hosts.BMCs.Faults.Add(op) }
func (o operations) RemoveFault(op *scenarios.FaultName) error {
	return o.hosts.BMCs.Faults.Remove(op.Name)
}

// onProcess does something to the process of a controller.
func (b *Backend) onProcess(controller string, do func(*proc) error) error {
	for _, p := range b.procs.processes {
		if p.name == controller {
			return do(p)
		}
	}
	return fmt.Errorf("the controller %q is not part of this run", controller)
}

func (o operations) Crash(op *scenarios.CrashOp) error {
	if m := o.manager(op.Controller); m != nil {
		return m.crash(op)
	}
	return o.onProcess(op.Process(), func(p *proc) error {
		p.arm(op)
		return nil
	})
}

func (o operations) PauseController(op *scenarios.ControllerOp) error {
	if m := o.manager(op.Controller); m != nil {
		return m.stand(true)
	}
	return o.onProcess(op.Controller, func(p *proc) error { return p.stand(true) })
}

func (o operations) ResumeController(op *scenarios.ControllerOp) error {
	if m := o.manager(op.Controller); m != nil {
		return m.stand(false)
	}
	return o.onProcess(op.Controller, func(p *proc) error { return p.stand(false) })
}

func (o operations) StartSecond(op *scenarios.ControllerOp) error {
	return o.startSecond(op.Controller)
}
func (o operations) StopSecond(op *scenarios.ControllerOp) error { return o.stopSecond(op.Controller) }

func (o operations) FailAPI(op *scenarios.FailAPIOp) error {
	o.procs.refusals.add(op)
	return nil
}

func (o operations) APIRestore(*struct{}) error {
	o.procs.refusals.clear()
	return errors.Join(o.resumeStore(), o.plane.door.Open())
}

func (b *Backend) resumeStore() error {
	if b.plane.standard == nil {
		return nil
	}
	return b.plane.standard.ResumeStore()
}

// requests carries out the requests of users, within the time of a command. It implements
// objects.API.
type requests struct {
	*Backend
	ctx context.Context
}

func (r requests) Takes() bool { return r.plane.door.Takes() }

func (r requests) Names(kind *objects.Kind, labelled map[string]string) (names []string, err error) {
	in := []client.ListOption{client.MatchingLabels(labelled)}
	if kind.Namespaced {
		in = append(in, client.InNamespace(objects.Namespace))
	}
	list := kind.NewList()
	if err := r.plane.admin.List(r.ctx, list, in...); err != nil {
		return nil, err
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		names = append(names, item.(client.Object).GetName())
		return nil
	})
	return names, err
}

// meant has a request be about the workload's Pod, which a StatefulSet gives a name of its own.
func (r requests) meant(name string, obj client.Object) string {
	if name == "Pod/"+objects.WorkloadName && r.runs(cluster.StatefulSet) {
		obj.SetName(objects.WorkloadName + "-0")
		return name + "-0"
	}
	return name
}

func (r requests) Merge(by, name string, obj client.Object, patch []byte, status, strict bool) error {
	name = r.meant(name, obj)
	if status {
		return r.plane.admin.Status().Patch(r.ctx, obj, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(by))
	}
	options := []client.PatchOption{client.FieldOwner(by)}
	if strict { // what the definition hasn't would be dropped without a word
		options = append(options, client.FieldValidation(metav1.FieldValidationStrict))
	}
	r.record.Writers.Sends(name, by)
	defer r.record.Writers.Done(name, by)
	err := r.plane.admin.Patch(r.ctx, obj, client.RawPatch(types.MergePatchType, patch), options...)
	r.record.Writers.Wrote(obj.GetResourceVersion(), by)
	if err == nil && obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 {
		r.record.Writers.Released(name, by)
	}
	return err
}

func (r requests) Delete(by, name string, obj client.Object) error {
	name = r.meant(name, obj)
	r.record.Writers.Deletes(name, by)
	return r.plane.admin.Delete(r.ctx, obj)
}

func (r requests) Create(by string, kind *objects.Kind, obj client.Object, status bool) error {
	plain := *kind
	plain.Status = status
	if err := r.create(r.ctx, &plain, obj, by); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// Heal is an operation.
func (o operations) Heal(op *scenarios.HealOp) error {
	return op.Perform(&o.plan.Spec.Topology, healer{o})
}

// healer repairs failures. It implements scenarios.Healer.
type healer struct{ operations }

func (h healer) EndSchedule() { h.procs.schedule.heal() }

func (h healer) RestoreAllBut(links []scenarios.Link) error {
	h.hosts.Machines.RestoreAll(linksOf(links))
	return nil
}

func (h healer) HealStorage(but []scenarios.StorageOp) {
	if h.storage != nil {
		h.storage.Heal(but)
	}
}

func (h healer) HealHost(host string) error        { return h.hosts.ByName[host].Heal(h.ctx) }
func (h healer) HealBMC(host string, but []string) { h.hosts.BMCs.Heal(host, but) }
func (h healer) ThawCaches()                       { h.plane.door.ThawAll() }

func (h healer) Running() (all []scenarios.Running) {
	for _, m := range h.managers {
		all = append(all, m)
	}
	for _, p := range h.procs.processes {
		all = append(all, p)
	}
	return all
}

// KillIronic and StartIronic are operations.
func (o operations) KillIronic(*struct{}) error {
	if o.ironic.own == nil {
		return errors.New("kill Ironic: it is not the lab's own")
	}
	return o.ironic.own.Kill()
}

func (o operations) StartIronic(*struct{}) error {
	if o.ironic.own == nil {
		return errors.New("start Ironic: it is not the lab's own")
	}
	// It takes longer than other commands; nothing else of the scenario goes on meanwhile.
	return o.ironic.own.Start(o.Backend.ctx)
}
