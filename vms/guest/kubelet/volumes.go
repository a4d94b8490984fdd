package kubelet

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

// Volumes are the mounts of the machine, by the volumes' names. Only the kubelet's main goroutine
// uses them. An error is tried again.
type Volumes interface {
	Mount(volume string) error
	Unmount(volume string) error
	// Mounted lists what the boot has mounted, also by an earlier kubelet.
	Mounted() []string
	// Reported returns those of the volumes in use that the kubelet reports.
	Reported(inUse []string) []string
}

// What package api of the controllers says of volumes; the guest stays small by importing nothing
// of Kubernetes.
const (
	volumeAnnotation = "fencelab.dev/volume"
	driver           = "csi.fencelab.dev"
	// managedAnnotation lets kube-controller-manager attach volumes to a Node.
	managedAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"
)

func uniqueVolume(volume string) string { return "kubernetes.io/csi/" + driver + "^" + volume }

func attachmentPath(volume, node string) string {
	return fmt.Sprintf("/apis/storage.k8s.io/v1/volumeattachments/csi-%x", sha256.Sum256([]byte(volume+driver+node)))
}

// reconstruction is how long a kubelet that starts takes to find its mounts. Until then it says
// nothing of volumes.
const reconstruction = time.Second

// attachment is a VolumeAttachment.
type attachment struct {
	Metadata metadata `json:"metadata"`
	Status   struct {
		Attached bool `json:"attached"`
	} `json:"status"`
}

// csiNode is a CSINode.
type csiNode struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Metadata   metadata    `json:"metadata"`
	Spec       csiNodeSpec `json:"spec"`
}

type csiNodeSpec struct {
	Drivers []csiDriver `json:"drivers"`
}

type csiDriver struct {
	Name   string `json:"name"`
	NodeID string `json:"nodeID"`
}

// WithVolumes lets the kubelet mount the volumes of Pods. It is called before Run.
func (k *Kubelet) WithVolumes(v Volumes) { k.volumes, k.wanted = v, map[string]bool{} }

// registerDriver says which name the storage knows the Node by, for an external-attacher.
func (k *Kubelet) registerDriver(ctx context.Context) error {
	err := k.api.create(ctx, "/apis/storage.k8s.io/v1/csinodes", csiNode{
		APIVersion: "storage.k8s.io/v1", Kind: "CSINode",
		Metadata: metadata{Name: k.node, OwnerReferences: []ownerReference{{APIVersion: "v1", Kind: "Node", Name: k.node, UID: k.nodeUID}}},
		Spec:     csiNodeSpec{Drivers: []csiDriver{{Name: driver, NodeID: k.node}}},
	}, nil)
	if isStatus(err, http.StatusConflict) { // an earlier boot's says the same
		return nil
	}
	return err
}

// inUse has the volumes that the status lists; nil while it says nothing of them.
func (k *Kubelet) inUse() *[]string {
	if k.volumes == nil || time.Since(k.began) < reconstruction {
		return nil
	}
	all := maps.Clone(k.wanted)
	for _, v := range k.volumes.Mounted() {
		all[v] = true
	}
	names := []string{}
	for _, v := range k.volumes.Reported(slices.Sorted(maps.Keys(all))) {
		names = append(names, uniqueVolume(v))
	}
	return &names
}

// reportVolumes reports what is in use, if the Node says something else, as far as that is known.
func (k *Kubelet) reportVolumes(ctx context.Context) error {
	if is := k.inUse(); is == nil || k.shown != nil && slices.Equal(*is, *k.shown) {
		return nil
	}
	return k.patchStatus(ctx)
}

// bring mounts the volume of a Pod, and reports whether it is mounted. Before that it says on the
// Node that the volume is in use, and Node and VolumeAttachment have to say that it is attached.
func (k *Kubelet) bring(ctx context.Context, volume string) (bool, error) {
	if slices.Contains(k.volumes.Mounted(), volume) {
		k.wanted[volume] = true
		return true, nil
	}
	if time.Since(k.began) < reconstruction {
		return false, nil
	}
	k.wanted[volume] = true
	if err := k.reportVolumes(ctx); err != nil {
		return false, err
	}
	var n node
	if err := k.api.get(ctx, k.nodePath(), &n); err != nil {
		return false, err
	}
	if !slices.ContainsFunc(n.Status.VolumesAttached, func(v attachedVolume) bool { return v.Name == uniqueVolume(volume) }) {
		return false, nil
	}
	var a attachment
	switch err := k.api.get(ctx, attachmentPath(volume, k.node), &a); {
	case isStatus(err, http.StatusNotFound), isStatus(err, http.StatusForbidden): // it hears of its own alone
		return false, nil
	case err != nil:
		return false, err
	case !a.Status.Attached || a.Metadata.DeletionTimestamp != nil:
		return false, nil
	}
	return k.volumes.Mount(volume) == nil, nil
}

// release unmounts the volume of a Pod that has just stopped, or doesn't run, and reports whether
// that is done.
func (k *Kubelet) release(ctx context.Context, p pod, stopped bool) (bool, error) {
	if stopped {
		if err := k.stopped(ctx, p); err != nil && !isStatus(err, http.StatusNotFound) {
			return false, err
		}
	}
	delete(k.wanted, p.volume())
	if slices.Contains(k.volumes.Mounted(), p.volume()) && k.volumes.Unmount(p.volume()) != nil {
		return false, nil
	}
	return true, k.reportVolumes(ctx)
}

// unmountAll is the end of a kubelet that is asked to end.
func (k *Kubelet) unmountAll() {
	if k.volumes == nil {
		return
	}
	for _, volume := range k.volumes.Mounted() {
		_ = k.volumes.Unmount(volume) // what is stuck ends with the boot
	}
}

// tidy unmounts what no Pod wants any more, and reports that.
func (k *Kubelet) tidy(ctx context.Context, wanted map[string]bool) error {
	if k.volumes == nil {
		return nil
	}
	k.wanted = wanted
	for _, volume := range k.volumes.Mounted() {
		if !wanted[volume] && time.Since(k.began) >= reconstruction {
			_ = k.volumes.Unmount(volume) // again next time
		}
	}
	return k.reportVolumes(ctx)
}

// stopped reports that the process of a Pod has stopped, before its volume is unmounted: from then
// on the Pod no longer wants the volume.
func (k *Kubelet) stopped(ctx context.Context, p pod) error {
	at := now()
	var containers []map[string]any
	for _, c := range p.Spec.Containers {
		containers = append(containers, map[string]any{
			"name": c.Name, "image": c.Image, "imageID": c.Image, "ready": false, "started": false, "restartCount": 0,
			"state": map[string]any{"terminated": map[string]any{"exitCode": 0, "finishedAt": at}},
		})
	}
	return k.api.patch(ctx, p.path()+"/status", map[string]any{
		"metadata": map[string]any{"uid": p.Metadata.UID},
		"status": map[string]any{
			"phase": "Succeeded", "containerStatuses": containers,
			"conditions": []condition{{Type: "Ready", Status: "False", LastTransitionTime: at}, {Type: "ContainersReady", Status: "False", LastTransitionTime: at}},
		},
	})
}
