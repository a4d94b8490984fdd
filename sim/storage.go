package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/model"
	"github.com/fencelab/fencelab/sim/steps"
)

// The latencies of a kubelet's volumes, and of what writes to them.
const (
	mountTime   = 200 * time.Millisecond
	unmountTime = 100 * time.Millisecond
	mountRetry  = time.Second
	writeTime   = 100 * time.Millisecond
	// reconstruction is how long a kubelet that starts takes to find its mounts. Until then it says
	// nothing of volumes.
	reconstruction = time.Second
)

// storage is the storage of a world whose workload has a volume, with what is wrong with it.
type storage struct {
	*model.Array
	w        *world
	actor    actor
	takes    scenarios.Volume
	hosts    func(node string) *host
	all      []*host
	troubles []scenarios.StorageOp
}

// addStorage makes the storage of a topology that has a volume.
func (b *Backend) addStorage() {
	v := b.spec.Topology.Workload.Volume
	if v == nil {
		return
	}
	s := &storage{w: b.w, actor: actor{name: "storage", place: steps.PlaceStorage}, takes: *v, all: b.hosts}
	s.Array = model.NewArray(v.Name, func() time.Duration { return b.w.now }, func(e history.Event) {
		b.w.emit(e)
		if e.Kind != history.VolumeWritten {
			s.stir()
		}
	})
	s.hosts = func(node string) *host { return b.host(b.names.OfNode(node)) }
	for _, h := range b.hosts {
		s.Connect(h.name, h.Boot)
		h.storage = s
	}
	b.storage = s
}

// stir lets whatever writes do so once more, since somebody else has access now.
func (s *storage) stir() {
	for _, h := range s.all {
		h.kubelet.write()
	}
}

// trouble returns the failure of a deed for a host, nil if it succeeds.
func (s *storage) trouble(does scenarios.StorageDeed, host string) *scenarios.StorageOp {
	i := slices.IndexFunc(s.troubles, func(t scenarios.StorageOp) bool { return t.Does == does && (t.Host == "" || t.Host == host) })
	if i < 0 {
		return nil
	}
	return &s.troubles[i]
}

// BreakStorage makes the storage fail, MendStorage ends that.
func (o operations) BreakStorage(op *scenarios.StorageOp) error {
	o.storage.troubles = append(o.storage.troubles, *op)
	return nil
}

func (o operations) MendStorage(op *scenarios.StorageOp) error {
	o.storage.troubles = slices.DeleteFunc(o.storage.troubles, func(t scenarios.StorageOp) bool { return t.Does == op.Does && t.Host == op.Host })
	return nil
}

// FenceStorage has the storage keep a host out, UnfenceStorage lets it in again.
func (o operations) FenceStorage(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(h *host) { o.storage.Fence(h.name, byScenario) })
}

func (o operations) UnfenceStorage(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(h *host) { o.storage.Unfence(h.name, byScenario) })
}

// HealStorage ends what is wrong with the storage, but for some.
func (h healer) HealStorage(but []scenarios.StorageOp) {
	if h.storage != nil {
		h.storage.troubles = slices.DeleteFunc(h.storage.troubles, func(t scenarios.StorageOp) bool { return !slices.Contains(but, t) })
		h.storage.stir()
	}
}

// DropVolume makes a kubelet forget what it has mounted.
func (o operations) DropVolume(op *scenarios.HostOp) error {
	return o.onHost(op.Host, func(h *host) {
		h.kubelet.drops = true
		h.kubelet.podChanged()
	})
}

// driver is how one incarnation of a controller reaches the storage. It implements release.Storage.
type driver struct {
	p        *process
	life     int
	patience time.Duration
}

func (d driver) Attach(_ context.Context, _, node string) error {
	s := d.p.uplink.storage
	return d.ask(scenarios.StorageAttach, node, time.Duration(s.takes.Attach), s.Array.Attach)
}

func (d driver) Detach(_ context.Context, _, node string) error {
	s := d.p.uplink.storage
	return d.ask(scenarios.StorageDetach, node, time.Duration(s.takes.Detach), s.Array.Detach)
}

func (d driver) Fence(_ context.Context, node string) error {
	return d.ask(scenarios.StorageFence, node, 0, d.p.uplink.storage.Array.Fence)
}

func (d driver) Unfence(_ context.Context, node string) error {
	return d.ask(scenarios.StorageUnfence, node, 0, d.p.uplink.storage.Array.Unfence)
}

// ask sends one request to the storage in a step of the client. The storage carries it out in a
// step of its own, which takes a while, whether or not the client still waits.
func (d driver) ask(does scenarios.StorageDeed, node string, takes time.Duration, do func(host, by string)) error {
	p, s := d.p, d.p.uplink.storage
	c := &call{
		class: steps.ClassStorage, deed: steps.Deed{Verb: string(does), On: steps.Object{Kind: "Volume", Name: s.Volume()}, Effect: true},
		effect: "storage " + string(does) + " " + node, lost: func() error { return errStorageSilent }, patience: d.patience,
	}
	h := s.hosts(node)
	c.run = func(_ bool, done func(error)) {
		if h == nil {
			done(fmt.Errorf("%s Node %s: the storage knows no such host", does, node))
			return
		}
		switch t := s.trouble(does, h.name); {
		case t != nil && t.Refuses:
			done(fmt.Errorf("%s %s: the storage refused", does, h.name))
		case t != nil:
		default:
			p.w.schedule(&s.actor, steps.ClassAnswer, c.deed, takes, func(trouble) {
				do(h.name, p.actor.name)
				done(nil)
			})
		}
	}
	return p.flights.perform(d.life, c)
}

var errStorageSilent = errors.New("the storage did not answer")

// On is a step's object for the volume.
func (s *storage) on() steps.Object { return steps.Object{Kind: "Volume", Name: s.Volume()} }

// bring has a container's volume mounted, and then starts it. What is to be mounted is said on the
// Node first. The volume has to be attached by what the Node and the VolumeAttachment say.
func (k *kubelet) bring(c *container) {
	s := k.host.storage
	var look func(trouble)
	again := func(after time.Duration) {
		c.change = k.do(steps.ClassKubelet, steps.Deed{Verb: "mount", On: steps.Object{Kind: "Node", Name: k.node}}, after, look)
	}
	look = func(t trouble) {
		c.change = nil
		if k.unreachable() || t.fault != "" || !k.reconstructed {
			again(mountRetry)
			return
		}
		k.reportVolumes()
		if !k.isAttached() {
			again(mountRetry)
			return
		}
		c.change = k.do(steps.ClassWorkload, steps.Deed{Verb: "mount", On: s.on()}, mountTime, func(trouble) {
			c.change = nil
			if s.trouble(scenarios.StorageMount, k.host.name) != nil || !k.reachesStorage() || s.Mount(k.host.name) != nil {
				again(mountRetry)
				return
			}
			k.run(c)
		})
	}
	again(podNoticed)
}

// isAttached reports whether the API server says that the volume is attached to the Node.
func (k *kubelet) isAttached() bool {
	volume := k.host.storage.Volume()
	node, err := k.store.Get(k.kinds.node, client.ObjectKey{Name: k.node})
	if err != nil || !slices.ContainsFunc(node.(*corev1.Node).Status.VolumesAttached, func(v corev1.AttachedVolume) bool { return v.Name == api.UniqueVolume(volume) }) {
		return false
	}
	a, err := k.store.Get(k.kinds.attachment, client.ObjectKey{Name: api.AttachmentName(volume, k.node)})
	return err == nil && a.(*storagev1.VolumeAttachment).Status.Attached && a.GetDeletionTimestamp() == nil
}

// unmount unmounts the volume once nothing runs that uses it, as soon as the storage lets it.
func (k *kubelet) unmount(then func()) {
	s := k.host.storage
	var try func(trouble)
	again := func(after time.Duration) {
		k.do(steps.ClassWorkload, steps.Deed{Verb: "unmount", On: s.on()}, after, try)
	}
	try = func(trouble) {
		if slices.ContainsFunc(k.containers, func(c *container) bool { return c.volume }) {
			then() // another container uses it by now
			return
		}
		if s.trouble(scenarios.StorageUnmount, k.host.name) != nil {
			again(mountRetry)
			return
		}
		s.Unmount(k.host.name)
		then()
		k.tellVolumes()
	}
	again(unmountTime)
}

// tellStopped reports that the process of a Pod has stopped, before its volume is unmounted: from
// then on the Pod no longer wants the volume.
func (k *kubelet) tellStopped(c *container) {
	k.do(steps.ClassKubelet, steps.Deed{Verb: "report", On: steps.Object{Kind: "Pod"}}, podNoticed, func(t trouble) {
		obj, err := k.store.Get(k.kinds.pod, c.key)
		if t.fault != "" || !k.alive || k.unreachable() || err != nil || obj.GetUID() != c.pod {
			return
		}
		pod := obj.(*corev1.Pod).DeepCopy()
		if pod.Status.Phase == corev1.PodRunning {
			pod.Status.Phase = corev1.PodSucceeded
			if _, err := k.store.UpdateStatus(k.actor.name, pod); err != nil {
				k.w.fail(err)
			}
		}
	})
}

// tidy unmounts the volume where a kubelet that has started anew finds it, and no Pod wants it.
func (k *kubelet) tidy() {
	if s := k.host.storage; s != nil && k.reconstructed && !k.tidying && s.Mounted(k.host.name) && !slices.ContainsFunc(k.containers, func(c *container) bool { return c.volume }) {
		k.tidying = true
		k.unmount(func() { k.tidying = false })
	}
}

// reconstruct ends the time in which a kubelet that has started knows nothing of volumes.
func (k *kubelet) reconstruct() {
	k.reconstructed, k.tidying = false, false
	if k.host.storage == nil {
		return
	}
	k.do(steps.ClassKubelet, k.deed("report"), reconstruction, func(t trouble) {
		k.reconstructed = true
		if k.uid != "" && !k.unreachable() && t.fault == "" {
			k.reportVolumes()
		}
		k.podChanged()
	})
}

// tellVolumes reports what is in use as a step of its own.
func (k *kubelet) tellVolumes() {
	k.do(steps.ClassKubelet, k.deed("report"), podNoticed, func(t trouble) {
		if k.alive && !k.unreachable() && t.fault == "" { // or with the next renewal
			k.reportVolumes()
		}
	})
}

// usesVolume reports whether the kubelet has mounted the volume, or is to mount it.
func (k *kubelet) usesVolume() bool {
	return !k.drops && (k.host.storage.Mounted(k.host.name) || slices.ContainsFunc(k.containers, func(c *container) bool { return c.volume }))
}

// reportVolumes writes to the Node what is in use, if it says something else.
func (k *kubelet) reportVolumes() {
	obj, err := k.store.Get(k.kinds.node, client.ObjectKey{Name: k.node})
	if err != nil || k.saysVolumes(obj.(*corev1.Node)) {
		return
	}
	node := obj.DeepCopyObject().(*corev1.Node)
	k.tellUse(node)
	if _, err := k.store.UpdateStatus(k.actor.name, node); err != nil {
		k.w.fail(err)
	}
}

// saysVolumes reports whether the Node says of volumes what the kubelet would say.
func (k *kubelet) saysVolumes(node *corev1.Node) bool {
	return k.host.storage == nil || !k.reconstructed || (len(node.Status.VolumesInUse) > 0) == k.usesVolume()
}

func (k *kubelet) tellUse(node *corev1.Node) {
	if k.host.storage == nil || !k.reconstructed {
		return
	}
	if node.Status.VolumesInUse = nil; k.usesVolume() {
		node.Status.VolumesInUse = []corev1.UniqueVolumeName{api.UniqueVolume(k.host.storage.Volume())}
	}
}

// reachesStorage reports whether the way from the host to the storage is open.
func (k *kubelet) reachesStorage() bool {
	return k.w.network.carries(k.host.at, scenarios.Storage)
}

// write lets the container that uses the volume write to it, soon.
func (k *kubelet) write() {
	i := slices.IndexFunc(k.containers, func(c *container) bool { return c.volume && c.running })
	if i < 0 || k.containers[i].writes != nil {
		return
	}
	c := k.containers[i]
	c.writes = k.w.schedule(&k.actor, steps.ClassWorkload, steps.Deed{Verb: "write", On: k.host.storage.on()}, writeTime, func(trouble) {
		c.writes = nil
		boot := k.host.Boot()
		k.host.UnlessHalted(func() {
			if boot == k.host.Boot() && slices.Contains(k.containers, c) && c.running && k.reachesStorage() {
				k.host.storage.Write(k.host.name)
			}
		})
	})
}
