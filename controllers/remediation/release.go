package remediation

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
)

// Release is the way in which the workload of a host that is off is released.
type Release string

// The ways. NodeDeletion is seed 002's. OutOfServiceTaint keeps the Node: Kubernetes then deletes
// its Pods and detaches their volumes at once. NodeRecreation deletes the Node and makes it anew,
// as seed 004 does, so that volumes are detached before the host is let go. StorageFence keeps the
// host out of the storage first, and then is OutOfServiceTaint, also of a host that can't be
// switched off yet.
const (
	NodeDeletion      Release = "node-deletion"
	OutOfServiceTaint Release = "out-of-service-taint"
	NodeRecreation    Release = "node-recreation"
	StorageFence      Release = "storage-fence"
)

// Releases are all of them.
var Releases = []Release{NodeDeletion, OutOfServiceTaint, NodeRecreation, StorageFence}

// UnmarshalText reads one.
func (r *Release) UnmarshalText(text []byte) error {
	if *r = Release(text); !slices.Contains(Releases, *r) {
		return fmt.Errorf("read a way to release: there is no %q; choose one of %s", text, Releases)
	}
	return nil
}

// TaintNode and UntaintNode set and remove the out-of-service taint of the Node. ForgetPoweredOff
// removes the powered-off mark alone, so that the remediation begins anew.
const (
	TaintNode        Action = "TaintNode"
	UntaintNode      Action = "UntaintNode"
	ForgetPoweredOff Action = "ForgetPoweredOff"
)

// ownTaint is the value of a taint that this controller has set, and may remove.
const ownTaint = "machine-remediation"

// Taint decides like KeepMark, but has the Node called out of service where that deletes it. The
// taint is there only while the host is held off: it is set once the host is off, and removed
// before the host is let go, for a Node that is Ready and tainted loses the volumes that it uses.
// The host stays off until the Node is empty, so that Kubernetes has released everything by then.
func Taint(s State) Action {
	heldOff := s.NeedsRemediation && s.NodeExists && s.row() == (row{x, x, o, x})
	switch {
	case heldOff && !s.PoweredOffMark && !s.Tainted && s.Outdated:
		return AskAgain
	case heldOff && !s.PoweredOffMark && !s.Tainted:
		return TaintNode
	case heldOff && !s.PoweredOffMark && !s.Emptied:
		return Nothing
	case heldOff && !s.PoweredOffMark:
		return AddPoweredOffMark
	case s.NodeExists && s.OwnTaint:
		return UntaintNode
	case heldOff:
		return RemoveReboot
	case s.PoweredOffMark && s.NodeExists && !s.NodeReady && s.row() == (row{x, x, x, o}):
		if s.Overdue {
			return ForgetPoweredOff // what has come to the Node since is to be released as well
		}
		return Nothing // it boots
	}
	return KeepMark(s)
}

// tainted completes a State with the facts that Taint goes by.
func (s *State) tainted(f facts) {
	s.NodeReady, s.Emptied = f.node != nil && api.Ready(f.node) && f.returned(), f.emptied
	if f.node == nil {
		return
	}
	for i := range f.node.Spec.Taints {
		if t := &f.node.Spec.Taints[i]; t.Key == api.OutOfServiceTaint {
			s.Tainted = true
			s.OwnTaint = s.OwnTaint || t.Value == ownTaint
		}
	}
}

// returned reports whether the Node is of another boot than the one that the powered-off mark
// names. A Node stays Ready for a while after its host went off.
func (f *facts) returned() bool {
	ended := ""
	if f.machine != nil {
		ended = f.machine.Annotations[api.PoweredOffForRemediationAnnotation]
	}
	return ended == "" || f.node.Status.NodeInfo.BootID != ended
}

// RightDecision is the decision that goes with the settings. Neither of two hosts that may have one
// Node is fenced, for to release that releases the Pods of both.
func (s Settings) RightDecision() func(State) Action {
	decide := s.unshared()
	return func(facts State) Action {
		if facts.Shared {
			return Nothing
		}
		return decide(facts)
	}
}

// unshared is the decision about a Node that no other host can have.
func (s Settings) unshared() func(State) Action {
	switch {
	case s.Release == OutOfServiceTaint:
		return Taint
	case s.Release == NodeRecreation:
		return Recreate
	case s.Release == StorageFence:
		return Fence
	case s.KeepMarkUntilNodeReturns:
		return KeepMark
	}
	return Decide
}

// empty reports whether nothing is left on a Node that the taint releases: a Pod that doesn't
// tolerate it, or a volume that is attached.
func empty(ctx context.Context, live client.Reader, node string) (bool, error) {
	var pods corev1.PodList
	if err := live.List(ctx, &pods); err != nil {
		return false, fmt.Errorf("list the Pods of Node %s: %w", node, err)
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Spec.NodeName == node && !slices.ContainsFunc(pod.Spec.Tolerations, stays) {
			return false, nil
		}
	}
	var attachments storagev1.VolumeAttachmentList
	if err := live.List(ctx, &attachments); err != nil {
		return false, fmt.Errorf("list the volumes of Node %s: %w", node, err)
	}
	return !slices.ContainsFunc(attachments.Items, func(a storagev1.VolumeAttachment) bool { return a.Spec.NodeName == node }), nil
}

// stays reports whether a toleration keeps its Pod on a Node that is out of service.
func stays(t corev1.Toleration) bool {
	return t.TolerationSeconds == nil && (t.Effect == "" || t.Effect == corev1.TaintEffectNoExecute) &&
		(t.Key == api.OutOfServiceTaint || t.Key == "" && t.Operator == corev1.TolerationOpExists)
}

// setTaint adds this controller's taint to the Node that was read, or removes it.
func (r *Reconciler) setTaint(ctx context.Context, node *corev1.Node, set bool) error {
	taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool {
		return t.Key == api.OutOfServiceTaint && t.Value == ownTaint
	})
	if set {
		taints = append(taints, corev1.Taint{Key: api.OutOfServiceTaint, Value: ownTaint, Effect: corev1.TaintEffectNoExecute})
	}
	data, err := json.Marshal(taints)
	if err != nil {
		return fmt.Errorf("write the taints of Node %s: %w", node.Name, err)
	}
	return r.Client.Patch(ctx, node.DeepCopy(), api.SetSpec(node, `"taints":`+string(data)))
}
