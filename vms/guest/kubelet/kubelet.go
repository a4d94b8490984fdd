// Package kubelet is a small kubelet against a real kube-apiserver. The guest runs it as a process
// of its own, and a host that is a model as part of it: both do to the API what the other does.
// Like all of the guest it links nothing but the standard library.
package kubelet

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// nodeUIDAnnotation is api.NodeUIDAnnotation; the guest stays small by importing nothing of
// Kubernetes.
const nodeUIDAnnotation = "fencelab.dev/node-uid"

// stopsAnnotation is api.StopsAnnotation.
const stopsAnnotation = "fencelab.dev/stops"

const (
	retryInterval = 500 * time.Millisecond
	// reportInterval is how often the Node's status is written although it says what it should, as
	// the real one does at times.
	reportInterval = time.Minute
	// notice is how long it takes to notice that a container has ended. A real one looks every
	// second.
	notice = 100 * time.Millisecond
)

// Kubelet does what the real one does as far as fencing can see:
//
//   - it registers its Node once, at its start, and never again: a Node deleted under a running
//     kubelet stays deleted until the next boot (kubelet's registerWithAPIServer returns for good
//     after its first success);
//   - it recreates a deleted Lease, as the real one's lease controller does;
//   - unless it adopts them, it runs no Pod that was bound to another incarnation of its Node: such
//     a Pod is an orphan, whose workload may run elsewhere already (the annotation shows it; the
//     real one adopts it);
//   - it stops a workload when its Pod is deleted or gone, which it learns from the API server
//     alone: workloads run on while it is unreachable.
type Kubelet struct {
	config    *evidence.Kubelet
	machine   Machine
	node      string // the Node's name
	api       *api
	workloads Workloads
	complain  func(trouble string)
	nodeUID   string
	lease     *lease    // as it was written last, if that is known; of the Lease's goroutine alone
	readyAt   string    // the Ready condition's last transition
	reported  time.Time // when the status was written
	failing   bool      // so that trouble is reported when it begins, not at each attempt
	// asked is when the workloads that take their time, by their UIDs, were asked to stop.
	asked map[string]time.Time
	// volumes is nil where the machine has no storage. wanted has those that Pods want, shown has
	// those in use by the Node's status, and began is when this kubelet did.
	volumes Volumes
	wanted  map[string]bool
	shown   *[]string
	began   time.Time
}

// Machine holds the facts that a kubelet reports of its machine.
type Machine struct {
	Name, Boot, Address string
	// UUID is the machine's own, by which a Node is matched to it.
	UUID, Kernel, OS string
}

// Workloads are the processes of Pods, by their UIDs. Only the kubelet's main goroutine uses them.
type Workloads interface {
	Running() []string
	// Start starts the workload unless it has been started already, and reports whether it did.
	Start(uid, name string) (bool, error)
	// Stop returns once the process is gone.
	Stop(uid string)
}

// New makes a kubelet that has sent nothing yet. Its requests to the API go through the transport
// that wrap makes, if wrap isn't nil; complain is called with trouble.
func New(config *evidence.Kubelet, m Machine, workloads Workloads, wrap func(http.RoundTripper) http.RoundTripper, complain func(string)) (*Kubelet, error) {
	api, err := newAPI(m.Name+".kubelet", config, wrap)
	if err != nil {
		return nil, err
	}
	return &Kubelet{config: config, machine: m, node: cmp.Or(config.Node, m.Name), api: api, workloads: workloads, complain: complain}, nil
}

// Run returns when ctx ends, after it has stopped its workloads.
func (k *Kubelet) Run(ctx context.Context) {
	var tasks sync.WaitGroup
	k.began = time.Now()
	defer func() {
		for _, uid := range k.workloads.Running() {
			k.workloads.Stop(uid)
		}
		k.unmountAll()
		tasks.Wait()
		k.api.client.CloseIdleConnections()
	}()
	for err := k.register(ctx); err != nil; err = k.register(ctx) {
		k.report(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryInterval):
		}
	}
	// The Lease has a goroutine of its own, so that a slow answer to another request doesn't make
	// the Node look dead.
	tasks.Go(func() {
		for ticks := time.Tick(k.config.Lease); ; {
			k.renewLease(ctx)
			select {
			case <-ctx.Done():
				return
			case <-ticks:
			}
		}
	})
	pods, status := time.Tick(k.config.Pods), time.Tick(k.config.Status)
	for {
		select {
		case <-ctx.Done():
			return
		case <-status:
			k.report(k.syncStatus(ctx))
		case <-pods:
			k.report(k.syncPods(ctx))
		}
	}
}

// report complains once per spell of trouble. A missing Node is no trouble: fencing deletes it.
func (k *Kubelet) report(err error) {
	failing := err != nil && !isStatus(err, http.StatusNotFound)
	if failing && !k.failing {
		k.complain("kubelet: " + err.Error())
	}
	k.failing = failing
}

func (k *Kubelet) address() string { return k.machine.Address }

func (k *Kubelet) nodePath() string { return "/api/v1/nodes/" + k.node }

func (k *Kubelet) register(ctx context.Context) error {
	labels := map[string]string{"kubernetes.io/hostname": k.node, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
	for key, value := range k.config.Labels {
		labels[key] = value
	}
	var annotations map[string]string
	if k.volumes != nil {
		annotations = map[string]string{managedAnnotation: "true"}
	}
	n := node{APIVersion: "v1", Kind: "Node", Metadata: metadata{Name: k.node, Labels: labels, Annotations: annotations}, Spec: nodeSpec{ProviderID: k.config.ProviderID}}
	err := k.api.create(ctx, "/api/v1/nodes", n, &n)
	if isStatus(err, http.StatusConflict) {
		// The Node of an earlier boot is taken over, as the real kubelet does.
		if err = k.api.get(ctx, k.nodePath(), &n); err == nil {
			err = k.api.patch(ctx, k.nodePath(), map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}})
		}
	}
	if err != nil {
		return err
	}
	k.nodeUID, k.readyAt, k.shown = n.Metadata.UID, now(), nil
	if k.volumes != nil {
		if err := k.registerDriver(ctx); err != nil {
			return err
		}
	}
	return k.patchStatus(ctx)
}

// syncStatus brings the Node's status up to date. An unchanged status is written again only now
// and then: every watcher of Nodes would have to read it, and the Lease already shows that the
// kubelet lives.
func (k *Kubelet) syncStatus(ctx context.Context) error {
	var n node
	if err := k.api.get(ctx, k.nodePath()+"?resourceVersion=0", &n); err != nil {
		return err
	}
	ready := slices.ContainsFunc(n.Status.Conditions, func(c condition) bool { return c.Type == "Ready" && c.Status == "True" })
	if k.shown = n.Status.VolumesInUse; k.shown == nil {
		k.shown = &[]string{}
	}
	if is := k.inUse(); is != nil && !slices.Equal(*is, *k.shown) {
		return k.patchStatus(ctx)
	}
	if ready && n.Status.NodeInfo != nil && n.Status.NodeInfo.BootID == k.machine.Boot && time.Since(k.reported) < reportInterval {
		return nil
	}
	return k.patchStatus(ctx)
}

func (k *Kubelet) patchStatus(ctx context.Context) error {
	status := nodeStatus{
		Conditions: []condition{{
			Type: "Ready", Status: "True", Reason: "KubeletReady", Message: k.machine.OS + " is ready",
			LastHeartbeatTime: now(), LastTransitionTime: k.readyAt,
		}},
		Addresses:   []address{{"InternalIP", k.address()}, {"Hostname", k.node}},
		Capacity:    map[string]string{"cpu": "1", "memory": "64Mi", "pods": "10"},
		Allocatable: map[string]string{"cpu": "1", "memory": "64Mi", "pods": "10"},
		NodeInfo: &nodeInfo{
			BootID: k.machine.Boot, MachineID: k.machine.Name, SystemUUID: k.machine.UUID,
			KernelVersion: k.machine.Kernel, OSImage: k.machine.OS,
			ContainerRuntimeVersion: "process://1", KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64",
		},
	}
	status.VolumesInUse = k.inUse()
	if err := k.api.patch(ctx, k.nodePath()+"/status", map[string]any{"status": status}); err != nil {
		return err
	}
	k.reported = time.Now()
	if status.VolumesInUse != nil {
		k.shown = status.VolumesInUse
	}
	return nil
}

const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

// renewLease doesn't report failures: a Lease reports them by its silence. The Lease is read only
// if it is not known, or if the API server says that it has changed since this kubelet's last
// write.
func (k *Kubelet) renewLease(ctx context.Context) {
	if k.lease != nil {
		if err := k.writeLease(ctx, k.lease); !isStatus(err, http.StatusConflict) && !isStatus(err, http.StatusNotFound) {
			return
		}
	}
	l := &lease{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Metadata: metadata{
		Name: k.node, Namespace: "kube-node-lease",
		OwnerReferences: []ownerReference{{APIVersion: "v1", Kind: "Node", Name: k.node, UID: k.nodeUID}},
	}}
	if err := k.api.get(ctx, leases+"/"+k.node, l); err == nil || isStatus(err, http.StatusNotFound) {
		_ = k.writeLease(ctx, l)
	}
}

// writeLease creates a Lease that has no version yet, or updates it, and remembers how it is stored
// then.
func (k *Kubelet) writeLease(ctx context.Context, l *lease) (err error) {
	k.lease = nil
	// Four renewals may fail before the Lease expires, the ratio of the real kubelet's defaults.
	l.Spec = leaseSpec{HolderIdentity: k.node, LeaseDurationSeconds: max(1, int(4*k.config.Lease/time.Second)), RenewTime: now()}
	if l.Metadata.ResourceVersion == "" {
		err = k.api.create(ctx, leases, l, l)
	} else {
		err = k.api.update(ctx, leases+"/"+k.node, l, l)
	}
	if err == nil {
		k.lease = l
	}
	return err
}

// syncPods makes the running workloads match the Pods bound to this Node.
func (k *Kubelet) syncPods(ctx context.Context) error {
	var list podList
	if err := k.api.get(ctx, "/api/v1/pods?fieldSelector="+url.QueryEscape("spec.nodeName="+k.node), &list); err != nil {
		return err
	}
	wanted, volumes := map[string]bool{}, map[string]bool{}
	for _, p := range list.Items {
		if uid, bound := p.Metadata.Annotations[nodeUIDAnnotation]; bound && uid != k.nodeUID && !k.config.Adopt {
			continue
		}
		wanted[p.Metadata.UID] = true
		if v := p.volume(); v != "" && (slices.Contains(k.workloads.Running(), p.Metadata.UID) || p.wants()) {
			volumes[v] = true
		}
		if err := k.syncPod(ctx, p); err != nil && !isStatus(err, http.StatusNotFound) && !isStatus(err, http.StatusConflict) {
			return err
		}
	}
	for _, uid := range k.workloads.Running() {
		if !wanted[uid] {
			k.workloads.Stop(uid) // force deleted
		}
	}
	return k.tidy(ctx, volumes)
}

func (k *Kubelet) syncPod(ctx context.Context, p pod) error {
	path, uid := p.path(), p.Metadata.UID
	running := slices.Contains(k.workloads.Running(), uid)
	volume := ""
	if k.volumes != nil {
		volume = p.volume()
	}
	if p.Metadata.DeletionTimestamp != nil {
		if running && k.stopping(p) {
			return nil
		}
		delete(k.asked, uid)
		k.workloads.Stop(uid)
		select {
		case <-time.After(notice):
		case <-ctx.Done():
			return ctx.Err()
		}
		if volume != "" {
			if done, err := k.release(ctx, p, running); !done || err != nil {
				return err
			}
		}
		return k.api.remove(ctx, path, map[string]any{"gracePeriodSeconds": 0, "preconditions": map[string]string{"uid": uid}})
	}
	if p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" {
		k.workloads.Stop(uid)
		return nil
	}
	if volume != "" && !running {
		if mounted, err := k.bring(ctx, volume); !mounted || err != nil {
			return err
		}
	}
	started, err := k.workloads.Start(uid, p.Metadata.Name)
	if err != nil {
		return err
	}
	// A Pod that says Running though we have just started it was run by an earlier boot: say it
	// again.
	if !started && p.Status.Phase == "Running" {
		return nil
	}
	at := now()
	var containers []map[string]any
	for _, c := range p.Spec.Containers {
		containers = append(containers, map[string]any{
			"name": c.Name, "image": c.Image, "imageID": c.Image, "ready": true, "started": true, "restartCount": 0,
			"state": map[string]any{"running": map[string]any{"startedAt": at}},
		})
	}
	return k.api.patch(ctx, path+"/status", map[string]any{
		"metadata": map[string]any{"uid": uid},
		"status": map[string]any{
			"phase": "Running", "startTime": at, "hostIP": k.address(), "podIP": k.address(),
			"conditions": []condition{
				{Type: "Initialized", Status: "True", LastTransitionTime: at},
				{Type: "Ready", Status: "True", LastTransitionTime: at},
				{Type: "ContainersReady", Status: "True", LastTransitionTime: at},
			},
			"containerStatuses": containers,
		},
	})
}

// stopping reports whether the workload of a Pod that is deleted goes on for a while: as long
// as it takes to stop, or until it is killed.
func (k *Kubelet) stopping(p pod) bool {
	value := p.Metadata.Annotations[stopsAnnotation]
	if value == "" {
		return false
	}
	since, ok := k.asked[p.Metadata.UID]
	if !ok {
		since = time.Now()
		if k.asked == nil {
			k.asked = map[string]time.Time{}
		}
		k.asked[p.Metadata.UID] = since
	}
	left := time.Second // the least that a kubelet gives
	if p.Metadata.Grace != nil {
		left = max(left, time.Duration(*p.Metadata.Grace)*time.Second)
	}
	if takes, err := time.ParseDuration(value); err == nil { // else it never stops
		left = min(left, takes)
	}
	return time.Since(since) < left
}

// now is in the form of Kubernetes' MicroTime, which its Time reads too.
func now() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000000Z") }
