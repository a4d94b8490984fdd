package api

import (
	"crypto/sha256"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Attacher is the CSI driver of the workload's volume.
const Attacher = "csi.fencelab.dev"

// VolumeAnnotation on a Pod names its volume. It stands for a claim and the PersistentVolume that
// is bound to it, which may be written by one host at a time (ReadWriteOnce).
const VolumeAnnotation = "fencelab.dev/volume"

// OutOfServiceTaint on a Node says that its host is off for sure, and stays off.
const OutOfServiceTaint = corev1.TaintNodeOutOfService

// VolumeOf is the volume of a Pod, "" without one.
func VolumeOf(pod *corev1.Pod) string { return pod.Annotations[VolumeAnnotation] }

// UniqueVolume returns the name of a volume in volumesInUse and volumesAttached of a Node.
func UniqueVolume(volume string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + Attacher + "^" + volume)
}

// AttachmentName is the name of a volume's VolumeAttachment to a Node. Everybody computes it.
func AttachmentName(volume, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(volume+Attacher+node)))
}

// OutOfService reports whether a Node has the taint, with whatever value and effect.
func OutOfService(node *corev1.Node) bool {
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].Key == OutOfServiceTaint {
			return true
		}
	}
	return false
}

// Ready reports whether a Node's Ready condition is true.
func Ready(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
