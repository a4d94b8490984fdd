package sim

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim/kube"
	"github.com/fencelab/fencelab/sim/steps"
)

// The timings of controller-runtime's leader election.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// election is the part of one process in the election of a leader among several
// of the same controller. A leader that learns that it no longer is one ends, and
// comes back as a candidate; until it learns it, it goes on.
type election struct {
	p *process
	// lease is the Lease's name, identity what the Lease calls a life of the process: one
	// that starts again waits for the Lease of the life before it like everybody else.
	lease, identity string
	// kind is that of Leases.
	kind *kube.Kind
	// standby says that the process is up as a candidate, and vote is its next step.
	standby bool
	vote    *step
	// leads since renewed.
	leads   bool
	renewed time.Duration
	// observed is what the Lease said last, since seen. Its times are of another's
	// clock: only the own one shows whether it is renewed.
	observed coordinationv1.LeaseSpec
	seen     time.Duration
}

// candidate makes a process one of several that may lead.
func (b *Backend) candidate(p *process, lease string) {
	p.election = &election{p: p, lease: lease, kind: b.sim.kinds.lease}
}

// stands reports whether the process is up as a candidate; one without an election never is.
func (e *election) stands() bool { return e != nil && e.standby }

func (e *election) end() {
	e.p.w.cancel(e.vote)
	e.standby = false
}

// stand begins an incarnation as a candidate.
func (e *election) stand() {
	p := e.p
	p.begin()
	*e = election{p: p, lease: e.lease, identity: fmt.Sprintf("%s_%d", p.actor.name, p.life), kind: e.kind, standby: true, seen: p.w.now}
	e.campaign(apiLatency)
}

func (e *election) campaign(after time.Duration) {
	p := e.p
	e.vote = p.schedule(&p.actor, steps.ClassLease, steps.Deed{Verb: "elect", On: steps.Object{Kind: "Lease", Name: e.lease}}, after, e.elect)
}

// elect takes the Lease, renews it, or sees whose it is.
func (e *election) elect(t trouble) {
	p := e.p
	reached := t.fault == "" && p.uplink.writes()
	mine := reached && e.takeLease()
	switch {
	case mine:
		e.renewed = p.w.now
	case e.leads && (reached || p.w.now-e.renewed >= renewDeadline):
		// Nobody calls back what it has sent already.
		p.kill(death{note: "it no longer has its Lease", late: apiLatency})
		return
	}
	if mine && !e.leads {
		e.leads, e.standby = true, false
		p.start(p.stale)
	}
	e.campaign(retryPeriod)
}

// takeLease reports whether the Lease is the process's.
func (e *election) takeLease() bool {
	p, store, now := e.p, e.p.uplink.store, metav1.NewMicroTime(epoch.Add(e.p.w.now))
	key := client.ObjectKey{Namespace: objects.Namespace, Name: e.lease}
	seconds, identity := int32(leaseDuration/time.Second), e.identity
	spec := coordinationv1.LeaseSpec{HolderIdentity: &identity, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now}
	obj, err := store.Get(e.kind, key)
	if apierrors.IsNotFound(err) {
		_, err = store.Create(p.actor.name, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: spec})
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
		_, err = store.Put(p.actor.name, &lease)
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
