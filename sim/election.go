package sim

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim/steps"
)

// The timings of controller-runtime's leader election.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// election is one process's part in the election of a leader among several processes of a
// controller. A leader ends when it learns that it has lost the Lease, and comes back as a
// candidate. Until it learns so, it goes on.
type election struct {
	// lease is the Lease's name. Identity is the holder's name of one life of the process: a
	// process that starts again must wait for the Lease of its earlier life to expire.
	lease, identity string
	// leads says that the process is the leader; it last renewed the Lease at renewed.
	leads   bool
	renewed time.Duration
	// observed is the Lease as last read, unchanged since seen. The times in it are by another
	// process's clock, so only seen shows whether it is still renewed.
	observed coordinationv1.LeaseSpec
	seen     time.Duration
}

// stand makes the process a candidate.
func (p *process) stand() {
	p.life++
	p.standby = true
	*p.election = election{lease: p.election.lease, identity: fmt.Sprintf("%s_%d", p.actor.name, p.life), seen: p.w.now}
	p.campaign(apiLatency)
}

func (p *process) campaign(after time.Duration) {
	p.vote = p.schedule(&p.actor, steps.ClassLease, steps.Deed{Verb: "elect", On: steps.Object{Kind: "Lease", Name: p.election.lease}}, after, p.elect)
}

// elect takes or renews the Lease, or notes its holder.
func (p *process) elect(t trouble) {
	e := p.election
	reached := t.fault == "" && p.writes()
	mine := reached && p.takeLease()
	switch {
	case mine:
		e.renewed = p.w.now
	case e.leads && (reached || p.w.now-e.renewed >= renewDeadline):
		// Requests that it has already sent still arrive.
		p.kill(death{note: "it no longer has its Lease", late: apiLatency})
		return
	}
	if mine && !e.leads {
		e.leads, p.standby = true, false
		p.start(p.stale)
	}
	p.campaign(retryPeriod)
}

// takeLease takes or renews the Lease if it can, and reports whether the process holds it.
func (p *process) takeLease() bool {
	e, now := p.election, metav1.NewMicroTime(epoch.Add(p.w.now))
	key := client.ObjectKey{Namespace: objects.Namespace, Name: e.lease}
	seconds, identity := int32(leaseDuration/time.Second), e.identity
	spec := coordinationv1.LeaseSpec{HolderIdentity: &identity, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now}
	obj, err := p.store.Get(p.leases, key)
	if apierrors.IsNotFound(err) {
		_, err = p.store.Create(p.actor.name, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: spec})
	} else if err == nil {
		lease := *obj.(*coordinationv1.Lease)
		if !sameLease(&lease.Spec, &e.observed) {
			e.observed, e.seen = lease.Spec, p.w.now
		}
		holder := *lease.Spec.HolderIdentity
		if holder != e.identity && p.w.now-e.seen < leaseDuration {
			return false
		}
		if holder == e.identity {
			spec.AcquireTime = lease.Spec.AcquireTime
		}
		lease.Spec = spec
		_, err = p.store.Put(p.actor.name, &lease)
	}
	if err != nil {
		p.w.fail(err)
		return false
	}
	e.observed, e.seen = spec, p.w.now
	return true
}

func sameLease(a, b *coordinationv1.LeaseSpec) bool {
	return b.HolderIdentity != nil && *a.HolderIdentity == *b.HolderIdentity && a.RenewTime.Equal(b.RenewTime)
}
