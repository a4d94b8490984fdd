package remediation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/api/fence"
)

// BackUpNode keeps on the Machine what RecreateNode makes a new Node from.
const (
	BackUpNode   Action = "BackUpNode"
	RecreateNode Action = "RecreateNode"
)

// backup is the content of a Machine's NodeBackupAnnotation. UID is that of the Node.
type backup struct {
	UID types.UID `json:"uid"`
	fence.Backup
}

// backupOf reads the backup of a Machine, nil if there is none.
func backupOf(machine *clusterv1.Machine) *backup {
	if machine == nil || machine.Annotations[api.NodeBackupAnnotation] == "" {
		return nil
	}
	b := &backup{}
	if json.Unmarshal([]byte(machine.Annotations[api.NodeBackupAnnotation]), b) != nil || b.UID == "" {
		return nil // somebody else's: it is written anew
	}
	return b
}

// Recreate decides like KeepMark, but has the Node made anew while the host is held off: once no
// Pod is bound to its name, for the new Node would keep it, and with an empty status, which says
// that no volume is in use there. The host stays off until the volumes are detached. Until then a
// boot would find a Node that says nothing of what that boot has mounted.
func Recreate(s State) Action {
	heldOff := s.NeedsRemediation && !s.PoweredOn() && s.RebootAnnotation
	switch {
	case s.Backed && s.over():
		return Finish
	case heldOff && s.PoweredOffMark:
		return RemoveReboot
	case s.PoweredOffMark && s.NodeExists && !s.NodeReady && s.row() == (row{x, x, x, o}):
		if s.Overdue {
			return ForgetPoweredOff
		}
		return Nothing // it boots
	case !heldOff || !s.NodeExists && !s.Backed:
		return KeepMark(s)
	case s.NodeExists && !s.Remade && s.Outdated, !s.NodeExists && s.Emptied && s.Outdated:
		return AskAgain
	case s.NodeExists && !s.Remade && !s.Backed:
		return BackUpNode
	case s.NodeExists && !s.Remade:
		return DeleteNode
	case !s.Emptied:
		return Nothing
	case !s.NodeExists:
		return RecreateNode
	}
	return AddPoweredOffMark
}

// over reports whether no remediation is wanted, and none holds the host.
func (s State) over() bool { return !s.NeedsRemediation && !s.RebootAnnotation }

// recreated completes a State with the facts that Recreate goes by. A Node that reports no boot,
// and isn't the one that was backed up, is this controller's. If a Pod is bound to it that is
// older, another has made it too early, and it is deleted like the one before.
func (s *State) recreated(ctx context.Context, live client.Reader, f facts) (err error) {
	b := backupOf(f.machine)
	s.NodeReady = f.node != nil && api.Ready(f.node)
	s.Backed = b != nil && (f.node == nil || b.UID == f.node.UID || s.over())
	s.Remade = b != nil && f.node != nil && b.UID != f.node.UID && f.node.Status.NodeInfo.BootID == ""
	if !s.Backed && !s.Remade {
		return nil
	}
	var pods corev1.PodList
	if err := live.List(ctx, &pods); err != nil {
		return fmt.Errorf("list the Pods of Node %s: %w", f.machine.Status.NodeRef.Name, err)
	}
	s.Emptied = !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
		return p.Spec.NodeName == f.machine.Status.NodeRef.Name && (!s.Remade || p.CreationTimestamp.Before(&f.node.CreationTimestamp))
	})
	switch {
	case !s.Remade:
	case s.Emptied: // a DaemonSet's Pods come with a Node
		s.Emptied, err = detached(ctx, live, f.node)
	default:
		s.Backed, s.Remade = true, false
	}
	return err
}

// detached reports whether no volume is attached to a Node from before it was made.
func detached(ctx context.Context, live client.Reader, node *corev1.Node) (bool, error) {
	var attachments storagev1.VolumeAttachmentList
	if err := live.List(ctx, &attachments); err != nil {
		return false, fmt.Errorf("list the volumes of Node %s: %w", node.Name, err)
	}
	return !slices.ContainsFunc(attachments.Items, func(a storagev1.VolumeAttachment) bool {
		return a.Spec.NodeName == node.Name && a.CreationTimestamp.Before(&node.CreationTimestamp)
	}), nil
}

// backUp writes the backup to the Machine.
func (r *Reconciler) backUp(ctx context.Context, f facts) error {
	b := backup{UID: f.node.UID, Backup: fence.BackupOf(f.node)}
	data, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("back up Node %s: %w", f.node.Name, err)
	}
	return r.Client.Patch(ctx, f.machine, api.SetAnnotation(f.machine, api.NodeBackupAnnotation, string(data)))
}

// recreate makes the Node anew, if the host has not changed since it was found held off.
func (r *Reconciler) recreate(ctx context.Context, m *memory, f facts) error {
	b := backupOf(f.machine)
	if b == nil || f.node != nil {
		return errors.New("make the Node anew: there is no backup of it, or a Node of its name") // the table never asks for it
	}
	if err := r.unchanged(ctx, m, f); err != nil {
		return err
	}
	return r.Client.Create(ctx, b.Node(f.machine.Status.NodeRef.Name))
}
