package lab

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/lab/runner"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
)

// replicate has a controller elect a leader among as many processes as the plan says. The others
// start when the first leads, as in the simulator.
func (b *Backend) replicate(first *proc) error {
	replicas := 0
	for _, c := range b.plan.Spec.Controllers {
		if c.Name == first.name {
			replicas = c.Replicas
		}
	}
	if replicas < 2 {
		return nil
	}
	first.lease = "fencelab-" + first.name
	if err := b.grantLease(runner.UserOf(first.name), first.lease); err != nil {
		return err
	}
	var others []*proc
	for n := 2; n <= replicas; n++ {
		others = append(others, &proc{b: b, name: history.Process(first.name, n), controller: first.controller, lease: first.lease})
	}
	b.procs.processes = append(b.procs.processes, others...)
	b.tasks.Go(func() {
		if !b.held(first.lease) {
			return
		}
		for _, p := range others {
			if err := p.start(); err != nil && b.ctx.Err() == nil {
				b.record.Fail(fmt.Errorf("start controller %s: %w", p.name, err))
			}
		}
	})
	return nil
}

// grantLease lets a user hold a Lease, and no other.
func (b *Backend) grantLease(user, lease string) error {
	at := metav1.ObjectMeta{Namespace: objects.Namespace, Name: "lab-lease-" + lease}
	err := b.plane.admin.Create(b.ctx, &rbacv1.Role{ObjectMeta: at, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, ResourceNames: []string{lease}, Verbs: []string{"get", "update"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}}, // of the election
	}})
	if err != nil {
		return err
	}
	return b.plane.admin.Create(b.ctx, &rbacv1.RoleBinding{
		ObjectMeta: at, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: at.Name},
	})
}

// held waits until a Lease has a holder. It reports false if the run ends before.
func (b *Backend) held(lease string) bool {
	for ticks := time.Tick(100 * time.Millisecond); ; {
		var found coordinationv1.Lease
		err := b.plane.admin.Get(b.ctx, client.ObjectKey{Namespace: objects.Namespace, Name: lease}, &found)
		if err == nil && found.Spec.HolderIdentity != nil && *found.Spec.HolderIdentity != "" {
			return true
		}
		select {
		case <-ticks:
		case <-b.ctx.Done():
			return false
		}
	}
}
