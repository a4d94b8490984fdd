package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/ci/lab/door"
	"github.com/fencelab/fencelab/ci/lab/hosts"
	thismachine "github.com/fencelab/fencelab/ci/machine"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/vms/guest/evidence"
	"github.com/fencelab/fencelab/vms/network"
)

// operations are what a scenario does to the lab, within the time of a command. It
// implements scenarios.World.
type operations struct {
	*Backend
	ctx context.Context
}

// Apply performs one operation.
func (b *Backend) Apply(op scenarios.Op) error {
	ctx, cancel := thismachine.WithBudget(b.ctx, hosts.CommandTimeout)
	defer cancel()
	return scenarios.Perform(op, operations{b, ctx})
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

// EtcdOutage has nobody write anything: where all go through the door that refuses it, and where standard controllers and
// real kubelets have a way of their own, etcd stands still, for which readers of what is not in the API server's memory wait as well.
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

// linksOf are links of a scenario as the machines' network has them.
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

// halt has a host do nothing any more in this boot. Whoever feeds its watchdog is not to blame for the end of it.
func (o operations) halt(op *scenarios.HostOp, how evidence.Command) error {
	return o.onHost(op.Host, func(m hosts.Machine) error { return m.Tell(o.ctx, how, "") })
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
	if o.managed(op.Controller) {
		return o.manager.crash(op)
	}
	return o.onProcess(op.Process(), func(p *proc) error {
		p.arm(op)
		return nil
	})
}

func (o operations) PauseController(op *scenarios.ControllerOp) error {
	if o.managed(op.Controller) {
		return o.manager.stand(true)
	}
	return o.onProcess(op.Controller, func(p *proc) error { return p.stand(true) })
}

func (o operations) ResumeController(op *scenarios.ControllerOp) error {
	if o.managed(op.Controller) {
		return o.manager.stand(false)
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

func (o operations) Annotate(op *scenarios.AnnotateOp) error { return o.annotate(op, &op.Value) }

func (o operations) RemoveAnnotation(op *scenarios.AnnotateOp) error { return o.annotate(op, nil) }

// annotate sets or, with a nil value, removes an annotation.
func (o operations) annotate(op *scenarios.AnnotateOp, value *string) error {
	return o.merge(op.Selection(), op.As, map[string]any{"metadata": map[string]any{"annotations": map[string]any{op.Key: value}}})
}

func (o operations) SetOnline(op *scenarios.OnlineOp) error {
	return o.merge(scenarios.Selection{Object: "BareMetalHost/" + op.Host}, op.As, map[string]any{"spec": map[string]any{"online": op.Online}})
}

// merge changes objects as a user would.
func (o operations) merge(which scenarios.Selection, as string, change map[string]any) error {
	data, err := json.Marshal(change)
	if err != nil {
		return err
	}
	return o.Patch(&scenarios.PatchOp{Object: which.Object, Kind: which.Kind, Labels: which.Labels, Merge: data, As: as})
}

// each does something to every object that is meant, one after the other.
func (o operations) each(which scenarios.Selection, do func(object string) error) error {
	if which.Object != "" {
		return do(which.Object)
	}
	kind, _, err := o.kinds.Find(which.Kind)
	if err != nil {
		return err
	}
	in := []client.ListOption{client.MatchingLabels(which.Labels)}
	if kind.Namespaced {
		in = append(in, client.InNamespace(objects.Namespace))
	}
	list := kind.NewList()
	if err := o.plane.admin.List(o.ctx, list, in...); err != nil {
		return fmt.Errorf("find %s: %w", which, err)
	}
	if meta.LenList(list) == 0 {
		return &play.Ineffective{Reason: which.String() + ": there is none"}
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		return do(which.Kind + "/" + item.(client.Object).GetName())
	})
}

// writable is an error while users can write nothing.
func (o operations) writable() error {
	if !o.plane.door.Takes() {
		return &play.Ineffective{Reason: "the API server is away, or cannot write"}
	}
	return nil
}

func (o operations) Patch(op *scenarios.PatchOp) error {
	object, status, err := op.Split()
	if err = errors.Join(err, o.writable()); err != nil {
		return err
	}
	options := []client.PatchOption{client.FieldOwner(op.By())}
	if op.Foreign { // what the definition hasn't would be dropped without a word
		options = append(options, client.FieldValidation(metav1.FieldValidationStrict))
	}
	return o.each(op.Selection(), func(name string) error { return o.patch(name, op.By(), object, status, options) })
}

func (o operations) patch(name, by string, object, status []byte, options []client.PatchOption) error {
	_, obj, err := o.kinds.Find(name)
	if err == nil && object != nil {
		o.record.Writers.Sends(name, by)
		defer o.record.Writers.Done(name, by)
		err = o.plane.admin.Patch(o.ctx, obj, client.RawPatch(types.MergePatchType, object), options...)
		o.record.Writers.Wrote(obj.GetResourceVersion(), by)
		if err == nil && obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 {
			o.record.Writers.Released(name, by)
		}
	}
	if err == nil && status != nil {
		err = o.plane.admin.Status().Patch(o.ctx, obj, client.RawPatch(types.MergePatchType, status), client.FieldOwner(by))
	}
	if apierrors.IsNotFound(err) {
		return &play.Ineffective{Reason: err.Error(), Missing: true}
	}
	return err
}

func (o operations) Delete(op *scenarios.ObjectOp) error {
	if err := o.writable(); err != nil {
		return err
	}
	return o.each(op.Selection(), func(name string) error {
		_, obj, err := o.kinds.Find(name)
		if err != nil {
			return err
		}
		o.record.Writers.Deletes(name, op.By())
		return client.IgnoreNotFound(o.plane.admin.Delete(o.ctx, obj))
	})
}

func (o operations) Create(op *scenarios.CreateOp) error {
	kind, obj, err := o.kinds.Create(op, o.plane.topology)
	if err = errors.Join(err, o.writable()); err != nil {
		return err
	}
	if kind.Custom && !op.SaysStatus() {
		plain := *kind
		plain.Status = false
		kind = &plain
	}
	if err := o.create(o.ctx, kind, obj, op.By()); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// Heal withdraws every fault that doesn't last for good.
func (o operations) Heal(op *scenarios.HealOp) error {
	o.procs.schedule.heal()
	o.hosts.Machines.RestoreAll(linksOf(op.Links(&o.plan.Spec.Topology)))
	var errs []error
	for _, name := range o.hosts.Names {
		errs = append(errs, o.hosts.ByName[name].Heal(o.ctx))
	}
	o.hosts.BMCs.Heal(op.Faults())
	o.procs.refusals.clear()
	errs = append(errs, o.resumeStore(), o.plane.door.Open(), o.manager.heal(op))
	o.plane.door.ThawAll()
	for _, p := range o.procs.processes {
		errs = append(errs, p.heal(op))
	}
	return errors.Join(errs...)
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
