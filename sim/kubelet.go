package sim

import (
	"math"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim/kube"
	"github.com/fencelab/fencelab/sim/model"
	"github.com/fencelab/fencelab/sim/steps"
)

// The latencies of a kubelet and its container runtime. The scenario sets the lease interval.
const (
	registerAfter  = 200 * time.Millisecond
	registerRetry  = time.Second
	podNoticed     = 50 * time.Millisecond
	containerStart = 300 * time.Millisecond
	containerStop  = 100 * time.Millisecond
	// leastGrace is the grace period of a Pod that is gone from the API.
	leastGrace = time.Second
	// shutdownGrace is the grace period of containers when the operating system shuts down.
	shutdownGrace = 90 * time.Second
)

// leaseNamespace is where kubelets keep their Leases.
const leaseNamespace = "kube-node-lease"

// kubelet is the kubelet process of a host's boot. It registers the Node, renews its Lease, and
// runs the Pods that are bound to that Node. The containers that it started run on when it dies or
// loses the API server.
//
// It has many fields because a kubelet's Node, Lease and containers begin and end with it.
type kubelet struct {
	w     *world
	actor actor
	host  *host
	// node is the name of its Node.
	node   string
	store  *kube.Store
	api    *apiServer
	kinds  *kinds
	labels map[string]string
	lease  time.Duration
	// adopts says that the kubelet also runs Pods that belong to earlier Nodes of the same name.
	adopts bool
	// offset is how far the kubelet's clock is ahead. Its Leases carry the world's time all the
	// same: watchers note when a Lease changes and don't read the times in it, except for our
	// stand-in.
	offset time.Duration
	// unsure says that the outcome of the last renewal is unknown, and with it the version of the
	// Lease: the kubelet must read the Lease before it can write again.
	unsure bool

	// life numbers the processes, so that a step of one that died does nothing.
	life  int
	alive bool
	// uid is the UID of the Node, once it is registered.
	uid types.UID
	// stopped says that the scenario killed only the kubelet.
	stopped bool
	// renewal is the next renewal of the Lease, and renewed the time of the last one. Once nothing
	// goes wrong any more the Lease is renewed in advance, up to the time ahead. No observer can
	// see the difference, and idle time costs next to nothing.
	renewal        *step
	renewed, ahead time.Duration
	// missed says that Pods changed while the API server was out of reach.
	missed     bool
	syncing    bool
	containers []*container
	// reconstructed says that it knows its mounts, tidying that it unmounts one that no Pod wants,
	// and drops that it reports none.
	reconstructed, tidying, drops bool
}

// container is one Pod's process, running or about to run.
type container struct {
	pod     types.UID
	key     client.ObjectKey
	running bool
	change  *step
	// stops is how long the process takes to stop. While it stops, ends is when it will have
	// stopped.
	stops, ends time.Duration
	// volume says that it uses the topology's volume, and writes is its next write to it.
	volume bool
	writes *step
}

// do schedules an action of the kubelet. It is dropped if the kubelet dies first, and waits while
// the host's processors stand still.
func (k *kubelet) do(class steps.Class, d steps.Deed, delay time.Duration, f func(trouble)) *step {
	life := k.life
	return k.w.schedule(&k.actor, class, d, delay, func(t trouble) {
		k.host.UnlessHalted(func() {
			if life == k.life {
				f(t)
			}
		})
	})
}

// deed returns a deed on the kubelet's Node.
func (k *kubelet) deed(verb string) steps.Deed {
	return steps.Deed{Verb: verb, On: steps.Object{Kind: "Node", Name: k.node}, Watched: k.w.leasesWatched}
}

// start starts the kubelet process, in a new boot or again in the same one.
func (k *kubelet) start() {
	k.life++
	k.alive, k.stopped, k.uid, k.syncing, k.missed, k.unsure = true, false, "", false, false, false
	k.do(steps.ClassKubelet, k.deed("register"), registerAfter, k.register)
	k.reconstruct()
}

// stop kills only the kubelet process. Containers that it was about to start or stop stay as they
// are.
func (k *kubelet) stop() {
	k.stopped = k.stopped || k.alive
	k.die()
	k.containers = slices.DeleteFunc(k.containers, func(c *container) bool {
		k.w.cancel(c.change)
		c.change = nil
		return !c.running
	})
}

// die ends the kubelet process.
func (k *kubelet) die() {
	k.life++
	k.alive = false
	k.rouse()
}

// revive starts a kubelet that was stopped, in the same boot.
func (k *kubelet) revive() {
	if k.stopped {
		k.start()
	}
}

// kill ends the boot: every process is gone.
func (k *kubelet) kill() {
	k.die()
	k.stopped = false
	for _, c := range k.containers {
		k.w.cancel(c.change)
		k.w.cancel(c.writes)
	}
	k.containers, k.drops = nil, false
	if k.host.storage != nil {
		k.host.storage.Ended(k.host.name)
	}
}

// shutDown stops the containers, which is how a graceful shutdown of the host begins.
func (k *kubelet) shutDown() {
	k.die()
	k.stopped = false
	for _, c := range slices.Clone(k.containers) {
		k.stopContainer(c, shutdownGrace)
	}
}

// register creates the Node that represents this boot, or takes over an existing one.
func (k *kubelet) register(t trouble) {
	if k.unreachable() || t.fault != "" {
		if t.fault == "" && k.speaks() {
			k.introduce()
		}
		k.do(steps.ClassKubelet, k.deed("register"), registerRetry, k.register)
		return
	}
	obj, err := k.store.Get(k.kinds.node, client.ObjectKey{Name: k.node})
	switch {
	case apierrors.IsNotFound(err):
		node := k.newNode()
		created, err := k.store.Create(k.actor.name, node)
		if err != nil {
			k.w.fail(err)
			return
		}
		k.uid = created.GetUID()
	case err != nil:
		k.w.fail(err)
		return
	default:
		k.uid = obj.GetUID()
	}
	k.renew(trouble{})
	k.sync(trouble{})
}

// introduce creates the Node when the request arrives but the answer is lost.
func (k *kubelet) introduce() {
	if _, err := k.store.Get(k.kinds.node, client.ObjectKey{Name: k.node}); !apierrors.IsNotFound(err) {
		return
	}
	if _, err := k.store.Create(k.actor.name, k.newNode()); err != nil {
		k.w.fail(err)
	}
}

// renew renews the Lease, makes sure that the Node is Ready, and schedules the next renewal.
func (k *kubelet) renew(t trouble) {
	next, renewal := k.lease, k.renewal
	if !k.unreachable() && t.fault == "" {
		k.renewed, k.ahead, k.unsure = k.w.now, 0, false
		if k.w.healed {
			next = max(k.lease, restfulLease.Truncate(k.lease))
			k.ahead = k.w.now + next - k.lease
		}
		k.renewLease(max(k.w.now, k.ahead))
		k.reportReady()
	} else if t.fault == "" && k.speaks() && !k.unsure {
		k.renewLease(k.w.now)
		k.unsure = true
	}
	if k.renewal == renewal { // else its own write to the Node has called off the renewal ahead
		k.renewal = k.do(steps.ClassKubelet, k.deed(steps.Renews), next, k.renew)
	}
}

// restfulLease is how far ahead a Lease is renewed at once when nothing goes wrong.
const restfulLease = time.Minute

// rouse ends the renewal in advance. The Lease gets the time of the last regular renewal, as if
// none had been made ahead. A live kubelet renews it again, and reports on its Node, at its next
// regular turn.
func (k *kubelet) rouse() {
	if k.ahead <= k.w.now {
		return
	}
	last := k.renewed + (k.w.now - k.renewed).Truncate(k.lease)
	k.ahead = 0
	k.renewLease(last)
	if k.alive {
		k.w.cancel(k.renewal)
		k.renewal = k.do(steps.ClassKubelet, k.deed(steps.Renews), last+k.lease-k.w.now, k.renew)
	}
}

func (k *kubelet) renewLease(at time.Duration) {
	key := client.ObjectKey{Namespace: leaseNamespace, Name: k.node}
	now := metav1.NewMicroTime(epoch.Add(at))
	obj, err := k.store.Get(k.kinds.lease, key)
	if apierrors.IsNotFound(err) {
		seconds := int32(max(1, 4*k.lease/time.Second))
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &key.Name, &seconds, &now
		_, err = k.store.Create(k.actor.name, lease)
	} else if err == nil {
		lease := *obj.(*coordinationv1.Lease)
		lease.Spec.RenewTime = &now
		_, err = k.store.Put(k.actor.name, &lease)
	}
	if err != nil {
		k.w.fail(err)
	}
}

// reportReady sets the Ready condition and the boot ID. Like the real kubelet, it doesn't recreate
// a deleted Node before it starts anew, but it takes over a Node that somebody else creates in its
// place.
func (k *kubelet) reportReady() {
	obj, err := k.store.Get(k.kinds.node, client.ObjectKey{Name: k.node})
	if err != nil {
		return
	}
	if obj.GetUID() != k.uid {
		k.uid = obj.GetUID()
		k.podChanged()
	}
	node := obj.(*corev1.Node)
	if isReady(node) && node.Status.NodeInfo.BootID == k.host.Boot() && k.saysVolumes(node) {
		return
	}
	node = node.DeepCopy()
	k.tellBoot(node)
	k.tellUse(node)
	if !isReady(node) {
		node.Status.Conditions = []corev1.NodeCondition{k.readyCondition()}
	}
	if _, err := k.store.UpdateStatus(k.actor.name, node); err != nil {
		k.w.fail(err)
	}
}

// podChanged notifies the kubelet that a Pod bound to its Node has changed.
func (k *kubelet) podChanged() {
	switch {
	case !k.alive || k.uid == "" || k.syncing:
	case !k.hears():
		k.missed = true
	default:
		k.syncing = true
		k.do(steps.ClassKubelet, k.deed("sync"), podNoticed, k.sync)
	}
}

// speaks reports whether the kubelet's writes get through; hears reports whether answers and
// changes do. Where only one of them holds, no call completes, so the kubelet counts as out of
// reach.
func (k *kubelet) speaks() bool {
	return k.api.takes() && k.w.network.carries(k.host.at, scenarios.API)
}

func (k *kubelet) hears() bool {
	return k.api.answers() && k.w.network.carries(scenarios.API, k.host.at)
}

func (k *kubelet) unreachable() bool { return !k.speaks() || !k.hears() }

// reconnect catches up on missed changes once the API server is back in reach.
func (k *kubelet) reconnect() {
	if k.missed && k.hears() {
		k.missed = false
		k.podChanged()
	}
}

// sync starts and stops containers to match the Pods bound to this incarnation of the Node. A
// kubelet that adopts also runs those of earlier incarnations, like a real one.
func (k *kubelet) sync(t trouble) {
	k.syncing = false
	if !k.hears() || t.fault != "" {
		k.missed = true
		if k.hears() {
			k.do(steps.ClassKubelet, k.deed("sync"), registerRetry, func(trouble) { k.reconnect() })
		}
		return
	}
	var wanted []types.UID
	var terminating []*corev1.Pod
	for _, obj := range k.store.List(k.kinds.pod, "") {
		pod := obj.(*corev1.Pod)
		// A Pod that names no Node belongs to any.
		of := pod.Annotations[api.NodeUIDAnnotation]
		if pod.Spec.NodeName == k.node && (k.adopts || of == "" || of == string(k.uid)) {
			if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
				terminating = append(terminating, pod)
				continue
			}
			wanted = append(wanted, pod.UID)
			k.startContainer(pod)
		}
	}
	for _, c := range slices.Clone(k.containers) {
		if !slices.Contains(wanted, c.pod) {
			k.stopContainer(c, graceOf(terminating, c.pod))
		}
	}
	k.tidy()
	// A Pod of an earlier boot, or one that never ran, has no container.
	for _, pod := range terminating {
		if !slices.ContainsFunc(k.containers, func(c *container) bool { return c.pod == pod.UID }) {
			k.confirmDeletion(&container{pod: pod.UID, key: client.ObjectKeyFromObject(pod)})
		}
	}
}

// graceOf returns how long the process of a Pod has to stop. A Pod that is gone gets the least.
func graceOf(terminating []*corev1.Pod, uid types.UID) time.Duration {
	for _, pod := range terminating {
		if pod.UID == uid && pod.DeletionGracePeriodSeconds != nil {
			return max(leastGrace, time.Duration(*pod.DeletionGracePeriodSeconds)*time.Second)
		}
	}
	return leastGrace
}

// stops returns how long the processes of a Pod take to stop.
func stops(pod *corev1.Pod) time.Duration {
	switch value := pod.Annotations[api.StopsAnnotation]; {
	case value == "never":
		return math.MaxInt64
	case value != "":
		if d, err := time.ParseDuration(value); err == nil {
			return max(containerStop, d)
		}
	}
	return containerStop
}

func (k *kubelet) startContainer(pod *corev1.Pod) {
	for _, c := range k.containers {
		if c.pod == pod.UID {
			return
		}
	}
	c := &container{pod: pod.UID, key: client.ObjectKeyFromObject(pod), stops: stops(pod), volume: k.host.storage != nil && api.VolumeOf(pod) != ""}
	k.containers = append(k.containers, c)
	if c.volume {
		k.bring(c)
		return
	}
	k.run(c)
}

// run starts the process of a container.
func (k *kubelet) run(c *container) {
	c.change = k.do(steps.ClassWorkload, steps.Deed{Verb: "start", On: steps.Object{Kind: "Pod", Name: c.key.Name}}, containerStart, func(trouble) {
		c.change, c.running = nil, true
		k.host.StartWorkload(model.Workload{Name: c.key.Name, Pod: string(c.pod)})
		if c.volume {
			k.write()
		}
		k.reportPods()
	})
}

// reportPods reports that Pods run, but only if there is a disruption budget, or a volume: nothing
// else reads the report.
func (k *kubelet) reportPods() {
	if !k.alive || k.uid == "" || k.host.storage == nil && len(k.store.List(k.kinds.budget, "")) == 0 {
		return
	}
	k.do(steps.ClassKubelet, steps.Deed{Verb: "report", On: steps.Object{Kind: "Pod"}}, podNoticed, func(t trouble) {
		if k.unreachable() || t.fault != "" {
			k.do(steps.ClassKubelet, steps.Deed{Verb: "report", On: steps.Object{Kind: "Pod"}}, registerRetry, func(trouble) { k.reportPods() })
			return
		}
		for _, c := range k.containers {
			obj, err := k.store.Get(k.kinds.pod, c.key)
			if err != nil || obj.GetUID() != c.pod || !c.running || obj.(*corev1.Pod).Status.Phase == corev1.PodRunning {
				continue
			}
			pod := obj.(*corev1.Pod).DeepCopy()
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
				Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(wallClock{k.w, &k.offset}.Now()),
			})
			if _, err := k.store.UpdateStatus(k.actor.name, pod); err != nil {
				k.w.fail(err)
			}
		}
	})
}

// stopContainer asks a container's process to stop and kills it after its grace period. A later
// call can only shorten the time.
func (k *kubelet) stopContainer(c *container, grace time.Duration) {
	left := min(c.stops, grace)
	switch {
	case c.running && (c.change == nil || k.w.now+left < c.ends):
		k.w.cancel(c.change)
		c.ends = k.w.now + left
		c.change = k.do(steps.ClassWorkload, steps.Deed{Verb: "stop", On: steps.Object{Kind: "Pod", Name: c.key.Name}}, left, func(trouble) {
			k.host.StopWorkload(model.Workload{Name: c.key.Name, Pod: string(c.pod)})
			k.forget(c)
			if c.volume {
				k.tellStopped(c)
				k.unmount(func() { k.confirmDeletion(c) })
				return
			}
			k.confirmDeletion(c)
		})
	case !c.running:
		k.w.cancel(c.change)
		k.forget(c)
		if c.volume {
			k.unmount(func() { k.confirmDeletion(c) })
		}
	}
}

func (k *kubelet) forget(c *container) {
	if i := slices.Index(k.containers, c); i >= 0 {
		k.containers = slices.Delete(k.containers, i, i+1)
	}
}

// confirmDeletion removes a Pod whose graceful deletion waited for its container to stop.
func (k *kubelet) confirmDeletion(c *container) {
	obj, err := k.store.Get(k.kinds.pod, c.key)
	if !k.alive || k.unreachable() || err != nil || obj.GetUID() != c.pod || obj.GetDeletionTimestamp() == nil {
		return
	}
	zero := int64(0)
	if err := k.store.Delete(k.actor.name, k.kinds.pod, c.key, &metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &c.pod}}); err != nil {
		k.w.fail(err)
	}
}

func (k *kubelet) newNode() *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.node, Labels: map[string]string{corev1.LabelHostname: k.node}}}
	for key, value := range k.labels { // order does not matter: into a map
		node.Labels[key] = value
	}
	node.Spec.ProviderID = objects.ProviderID(k.host.name)
	k.tellBoot(node)
	node.Status.Conditions = []corev1.NodeCondition{k.readyCondition()}
	return node
}

// tellBoot sets the Node's boot ID and system UUID: a kubelet writes both at once.
func (k *kubelet) tellBoot(node *corev1.Node) {
	node.Status.NodeInfo.BootID, node.Status.NodeInfo.SystemUUID = k.host.Boot(), systemUUID(k.host.name)
}

func (k *kubelet) readyCondition() corev1.NodeCondition {
	now := metav1.NewTime(wallClock{k.w, &k.offset}.Now())
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
}

func isReady(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return node.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}
