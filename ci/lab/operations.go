package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/vms"
	"github.com/fencelab/fencelab/vms/guest/evidence"
	"github.com/fencelab/fencelab/vms/network"
)

// Capabilities are what the lab can do.
var Capabilities = scenarios.Capabilities{
	World: "lab", Title: "lab",
	Lacks: map[scenarios.Feature]string{
		scenarios.FeatureDeviations:                "the lab's steps take their own time",
		scenarios.FeatureReplicas:                  "the lab runs one process of each controller, and two by startSecond",
		scenarios.FeatureAgents:                    "the lab's guests run no agents",
		scenarios.FeatureControllerLinks:           "the lab's network is that of the hosts",
		scenarios.FeatureStaleLists:                "the lab's API server is never behind",
		scenarios.FeatureLateRequests:              "the lab holds no request back",
		scenarios.FeaturePausedWatchdog:            "the watchdog of a virtual machine stands still with it",
		"pauseController":                          "the lab cannot let one controller stand still",
		"resumeController":                         "the lab cannot let one controller stand still",
		"setClock":                                 "the lab has one clock",
		"freezeCache":                              "the lab cannot freeze a cache",
		"thawCache":                                "the lab cannot freeze a cache",
		"apiOutage":                                "the lab's observers need the API server",
		scenarios.Feature(fakebmc.NeedsIPMI):       "the lab's controllers speak Redfish, not IPMI",
		scenarios.Feature(history.ControllerError): "the lab doesn't see what a reconcile returns",
	},
}

// operations are what a scenario does to the lab, within the time of a command. It
// implements scenarios.World.
type operations struct {
	*Backend
	ctx context.Context
}

// Apply performs one operation.
func (b *Backend) Apply(op scenarios.Op) error {
	ctx, cancel := context.WithTimeout(b.ctx, commandTimeout)
	defer cancel()
	return scenarios.Perform(op, operations{b, ctx})
}

// errLacking is of what was refused before anything started: see Capabilities.
var errLacking = errors.New("the lab cannot do this, and should not have been asked to")

func (operations) PauseController(*scenarios.ControllerOp) error  { return errLacking }
func (operations) ResumeController(*scenarios.ControllerOp) error { return errLacking }
func (operations) SetClock(*scenarios.ClockOp) error              { return errLacking }
func (operations) FreezeCache(*scenarios.CacheOp) error           { return errLacking }
func (operations) ThawCache(*scenarios.CacheOp) error             { return errLacking }
func (operations) APIOutage(*scenarios.OutageOp) error            { return errLacking }

func (b *Backend) onHost(name string, do func(*host) error) error {
	h := b.hosts[name]
	if h == nil {
		return fmt.Errorf("the topology has no host %q", name)
	}
	return do(h)
}

func (o operations) Cut(op *scenarios.LinkOp) error     { return o.onLinks(op, o.vms.Cut) }
func (o operations) Restore(op *scenarios.LinkOp) error { return o.onLinks(op, o.vms.Restore) }

func (b *Backend) onLinks(op *scenarios.LinkOp, do func(...network.Link)) error {
	var links []network.Link
	for _, l := range op.Links() {
		links = append(links, network.Link(l))
	}
	if op.Host != "" {
		return b.onHost(op.Host, func(*host) error { do(links...); return nil })
	}
	do(links...)
	return nil
}

// tell tells the guest of a host something, which is undone when the faults are
// withdrawn.
func (o operations) tell(name string, c, undo evidence.Command) error {
	return o.onHost(name, func(h *host) error {
		h.told = append(h.told, undo)
		return h.domain.Tell(o.ctx, c)
	})
}

func (o operations) StopKubelet(op *scenarios.HostOp) error {
	return o.tell(op.Host, evidence.StopKubelet, evidence.StartKubelet)
}

func (o operations) StopFeeding(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(h *host) error { return h.domain.Tell(o.ctx, evidence.StopFeeding) })
}

func (o operations) IgnoreShutdown(op *scenarios.HostOp) error {
	return o.tell(op.Host, evidence.IgnoreShutdown, evidence.ObeyShutdown.Taking(0))
}

func (o operations) Pause(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(h *host) error { h.paused = true; return h.domain.Pause(o.ctx) })
}

func (o operations) Resume(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(h *host) error { return h.resume(o.ctx) })
}

func (o operations) PowerLoss(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(h *host) error {
		h.system.blame(string(history.Engine), false)
		return h.domain.ForceOff(o.ctx)
	})
}

func (o operations) PowerUp(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(h *host) error {
		h.system.blame(string(history.Engine), true)
		return h.domain.On(o.ctx)
	})
}

func (o operations) AddFault(op *scenarios.FaultOp) error      { return o.faults.Add(op) }
func (o operations) RemoveFault(op *scenarios.FaultName) error { return o.faults.Remove(op.Name) }

func (o operations) Crash(op *scenarios.CrashOp) error {
	for _, p := range o.processes {
		if p.name == op.Controller {
			p.arm(op)
			return nil
		}
	}
	return fmt.Errorf("the controller %q is not part of this run", op.Controller)
}

func (o operations) StartSecond(op *scenarios.ControllerOp) error {
	return o.startSecond(op.Controller)
}
func (o operations) StopSecond(op *scenarios.ControllerOp) error { return o.stopSecond(op.Controller) }

func (o operations) FailAPI(op *scenarios.FailAPIOp) error {
	o.refusals.add(op)
	return nil
}

func (o operations) APIRestore(*struct{}) error {
	o.refusals.clear()
	return nil
}

// resume lets a paused host go on; one that was switched off meanwhile has
// nothing to resume.
func (h *host) resume(ctx context.Context) error {
	if !h.paused {
		return nil
	}
	h.paused = false
	if h.domain.State() != vms.StatePaused {
		return nil
	}
	return h.domain.Resume(ctx)
}

// user is who does what users do.
const user = client.FieldOwner("user")

func (o operations) Annotate(op *scenarios.AnnotateOp) error { return o.annotate(op, &op.Value) }

func (o operations) RemoveAnnotation(op *scenarios.AnnotateOp) error { return o.annotate(op, nil) }

// annotate sets or, with a nil value, removes an annotation.
func (o operations) annotate(op *scenarios.AnnotateOp, value *string) error {
	return o.merge(op.Object, map[string]any{"metadata": map[string]any{"annotations": map[string]any{op.Key: value}}})
}

func (o operations) SetOnline(op *scenarios.OnlineOp) error {
	return o.merge("BareMetalHost/"+op.Host, map[string]any{"spec": map[string]any{"online": op.Online}})
}

// merge changes an object as a user would.
func (o operations) merge(object string, change map[string]any) error {
	data, err := json.Marshal(change)
	if err != nil {
		return err
	}
	return o.Patch(&scenarios.PatchOp{Object: object, Merge: data})
}

func (o operations) Patch(op *scenarios.PatchOp) error {
	obj, err := objects.New(o.set, op.Object)
	if err != nil {
		return err
	}
	object, status, err := op.Split()
	if err == nil && object != nil {
		err = o.admin.Patch(o.ctx, obj, client.RawPatch(types.MergePatchType, object), user)
		o.writers.wrote(obj.GetResourceVersion(), history.User)
	}
	if err == nil && status != nil {
		err = o.admin.Status().Patch(o.ctx, obj, client.RawPatch(types.MergePatchType, status), user)
	}
	if apierrors.IsNotFound(err) {
		return &scenarios.Ineffective{Reason: err.Error()}
	}
	return err
}

func (o operations) Delete(op *scenarios.ObjectOp) error {
	obj, err := objects.New(o.set, op.Object)
	if err != nil {
		return err
	}
	o.writers.deletes(op.Object, history.User)
	return client.IgnoreNotFound(o.admin.Delete(o.ctx, obj))
}

func (o operations) Create(op *scenarios.CreateOp) error {
	obj, err := objects.Create(o.set, op, o.topology)
	if err != nil {
		return err
	}
	if err := o.create(o.ctx, obj, string(user)); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// Heal withdraws every fault.
func (o operations) Heal(*struct{}) error {
	o.vms.Restore(o.vms.CutLinks()...)
	var errs []error
	for _, name := range o.names {
		h := o.hosts[name]
		errs = append(errs, h.resume(o.ctx))
		for _, undo := range h.told {
			if h.domain.State() != vms.StateOn {
				break // its next boot knows nothing of this
			}
			if err := h.domain.Tell(o.ctx, undo); err != nil {
				o.logf("%s is not told to %s, perhaps because it boots: %v", name, undo, err)
			}
		}
		h.told = nil
		h.bmc.Heal()
	}
	o.faults = objects.NewFaults(o.bmcs)
	o.refusals.clear()
	for _, p := range o.processes {
		p.heal()
	}
	return errors.Join(errs...)
}
