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

// What a kubelet and its container runtime take, beside the lease interval that
// the scenario sets.
const (
	registerAfter  = 200 * time.Millisecond
	registerRetry  = time.Second
	podNoticed     = 50 * time.Millisecond
	containerStart = 300 * time.Millisecond
	containerStop  = 100 * time.Millisecond
	// leastGrace is what a kubelet gives to a Pod that is gone from the API.
	leastGrace = time.Second
	// shutdownGrace is what an operating system gives to what it stops.
	shutdownGrace = 90 * time.Second
)

// leaseNamespace is where kubelets keep their Leases.
const leaseNamespace = "kube-node-lease"

// kubelet is the kubelet process of a host's boot: it registers the Node, renews
// its Lease, and runs the Pods that are bound to that Node. What it started goes
// on running when it dies or loses the API server.
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
	// adopts says that it runs the Pods of earlier Nodes of its name as well.
	adopts bool
	// offset is how far its clock is ahead. Leases go by the world's all the same:
	// whoever watches them notes when they change, and reads no time in them, but for
	// our stand-in.
	offset time.Duration
	// unsure says that it doesn't know what became of its last renewal, and so not which
	// version of its Lease there is: it can't write another one before it has read it.
	unsure bool

	// life numbers the processes, so that a step of one that died does nothing.
	life  int
	alive bool
	// uid is that of the Node, once it is registered.
	uid types.UID
	// stopped says that the scenario killed it alone.
	stopped bool
	// renewal is the next one of the Lease. Once nothing goes wrong any more the
	// Lease is renewed for a while ahead, up to ahead: nobody can tell the
	// difference, and idle time costs next to nothing. renewed is when.
	renewal        *step
	renewed, ahead time.Duration
	// missed says that Pods changed while the API server was out of reach.
	missed     bool
	syncing    bool
	containers []*container
}

// container is one Pod's process, or about to be.
type container struct {
	pod     types.UID
	key     client.ObjectKey
	running bool
	change  *step
	// stops is how long the process takes to stop, and ends when it will have, if that is
	// under way.
	stops, ends time.Duration
}

// do lets the kubelet do something after a delay, unless it is dead by then. A
// host whose processors stand still makes it wait.
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

// deed is what it does about its Node.
func (k *kubelet) deed(verb string) steps.Deed {
	return steps.Deed{Verb: verb, On: steps.Object{Kind: "Node", Name: k.node}}
}

// start is the kubelet process starting, in a new boot or again in the same one.
func (k *kubelet) start() {
	k.life++
	k.alive, k.stopped, k.uid, k.syncing, k.missed, k.unsure = true, false, "", false, false, false
	k.do(steps.ClassKubelet, k.deed("register"), registerAfter, k.register)
}

// stop kills the kubelet process alone. What it was about to start or stop stays
// as it is.
func (k *kubelet) stop() {
	k.stopped = k.stopped || k.alive
	k.die()
	k.containers = slices.DeleteFunc(k.containers, func(c *container) bool {
		k.w.cancel(c.change)
		c.change = nil
		return !c.running
	})
}

// die is the end of the process.
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

// kill is the end of the boot: every process is gone.
func (k *kubelet) kill() {
	k.die()
	k.stopped = false
	for _, c := range k.containers {
		k.w.cancel(c.change)
	}
	k.containers = nil
}

// shutDown stops the containers, as a graceful shutdown of the host does first.
func (k *kubelet) shutDown() {
	k.die()
	k.stopped = false
	for _, c := range slices.Clone(k.containers) {
		k.stopContainer(c, shutdownGrace)
	}
}

// register makes the Node that represents this boot, or takes over the one that
// is there.
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

// introduce makes the Node where the answer doesn't arrive.
func (k *kubelet) introduce() {
	if _, err := k.store.Get(k.kinds.node, client.ObjectKey{Name: k.node}); !apierrors.IsNotFound(err) {
		return
	}
	if _, err := k.store.Create(k.actor.name, k.newNode()); err != nil {
		k.w.fail(err)
	}
}

// renew renews the Lease, sees to it that the Node is Ready, and comes again.
func (k *kubelet) renew(t trouble) {
	next := k.lease
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
	k.renewal = k.do(steps.ClassKubelet, k.deed("renew"), next, k.renew)
}

// restfulLease is for how long a Lease is renewed at once where nothing goes wrong.
const restfulLease = time.Minute

// rouse ends a Lease's being renewed ahead: when the kubelet cannot renew it any
// more, it was renewed for the last time as if it never had been, and when it has
// something to say about its Node, it does so at its next turn.
func (k *kubelet) rouse() {
	if k.ahead <= k.w.now {
		return
	}
	last := k.renewed + (k.w.now - k.renewed).Truncate(k.lease)
	k.ahead = 0
	k.renewLease(last)
	if k.alive {
		k.w.cancel(k.renewal)
		k.renewal = k.do(steps.ClassKubelet, k.deed("renew"), last+k.lease-k.w.now, k.renew)
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

// reportReady sets the Ready condition, and tells which boot it is of. A Node that
// was deleted is not made again before the kubelet starts anew, as with the real
// kubelet; but one that somebody else makes in its place is the kubelet's.
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
	if isReady(node) && node.Status.NodeInfo.BootID == k.host.Boot() {
		return
	}
	node = node.DeepCopy()
	k.tellBoot(node)
	if !isReady(node) {
		node.Status.Conditions = []corev1.NodeCondition{k.readyCondition()}
	}
	if _, err := k.store.UpdateStatus(k.actor.name, node); err != nil {
		k.w.fail(err)
	}
}

// podChanged tells the kubelet that a Pod bound to its Node is different.
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

// speaks and hears report whether what the kubelet writes, and whether answers and
// changes, get through. Where only one does no call comes back: the kubelet is out of
// reach all the same.
func (k *kubelet) speaks() bool {
	return k.api.takes() && k.w.network.carries(k.host.at, scenarios.API)
}

func (k *kubelet) hears() bool {
	return !k.api.away && k.w.network.carries(scenarios.API, k.host.at)
}

func (k *kubelet) unreachable() bool { return !k.speaks() || !k.hears() }

// reconnect is the API server coming back into reach, if it does.
func (k *kubelet) reconnect() {
	if k.missed && k.hears() {
		k.missed = false
		k.podChanged()
	}
}

// sync starts and stops containers so that they match the Pods bound to this
// Node: to this very incarnation of it, unless the kubelet adopts those of earlier
// ones, as real ones do.
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
		of := pod.Annotations[api.NodeUIDAnnotation] // one that names no Node is of any
		if pod.Spec.NodeName == k.node && (k.adopts || of == "" || of == string(k.uid)) {
			if pod.DeletionTimestamp != nil {
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
	for _, pod := range terminating { // that of a boot before has no container, nor one that never ran
		if !slices.ContainsFunc(k.containers, func(c *container) bool { return c.pod == pod.UID }) {
			k.confirmDeletion(&container{pod: pod.UID, key: client.ObjectKeyFromObject(pod)})
		}
	}
}

// graceOf is how long the process of a Pod has to stop: one that is not there any more has
// the least.
func graceOf(terminating []*corev1.Pod, uid types.UID) time.Duration {
	for _, pod := range terminating {
		if pod.UID == uid && pod.DeletionGracePeriodSeconds != nil {
			return max(leastGrace, time.Duration(*pod.DeletionGracePeriodSeconds)*time.Second)
		}
	}
	return leastGrace
}

// stops is how long the processes of a Pod take to stop.
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
	c := &container{pod: pod.UID, key: client.ObjectKeyFromObject(pod), stops: stops(pod)}
	k.containers = append(k.containers, c)
	c.change = k.do(steps.ClassWorkload, steps.Deed{Verb: "start", On: steps.Object{Kind: "Pod", Name: c.key.Name}}, containerStart, func(trouble) {
		c.change, c.running = nil, true
		k.host.StartWorkload(model.Workload{Name: c.key.Name, Pod: string(c.pod)})
		k.reportPods()
	})
}

// reportPods tells that Pods run, where a budget counts those that do: nobody else reads
// it.
func (k *kubelet) reportPods() {
	if !k.alive || k.uid == "" || len(k.store.List(k.kinds.budget, "")) == 0 {
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

// stopContainer asks a container's process to stop, and kills it when its grace is over. It
// may be given less time than before, and not more.
func (k *kubelet) stopContainer(c *container, grace time.Duration) {
	left := min(c.stops, grace)
	switch {
	case c.running && (c.change == nil || k.w.now+left < c.ends):
		k.w.cancel(c.change)
		c.ends = k.w.now + left
		c.change = k.do(steps.ClassWorkload, steps.Deed{Verb: "stop", On: steps.Object{Kind: "Pod", Name: c.key.Name}}, left, func(trouble) {
			k.host.StopWorkload(model.Workload{Name: c.key.Name, Pod: string(c.pod)})
			k.forget(c)
			k.confirmDeletion(c)
		})
	case !c.running:
		k.w.cancel(c.change)
		k.forget(c)
	}
}

func (k *kubelet) forget(c *container) {
	if i := slices.Index(k.containers, c); i >= 0 {
		k.containers = slices.Delete(k.containers, i, i+1)
	}
}

// confirmDeletion removes a Pod whose graceful deletion waits for its container
// to be gone.
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

// tellBoot lets a Node tell of this boot, and whose it is: a kubelet writes both at once.
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
