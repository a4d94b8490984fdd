package controllers

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/reboot"
)

// still is an API server in which nothing changes: every read is a deep copy, as
// from a cache, and every write panics.
type still struct {
	client.Client
	host    *api.BareMetalHost
	machine *clusterv1.Machine
	node    *corev1.Node
}

func (s *still) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	switch obj := obj.(type) {
	case *api.BareMetalHost:
		s.host.DeepCopyInto(obj)
	case *clusterv1.Machine:
		s.machine.DeepCopyInto(obj)
	case *corev1.Node:
		s.node.DeepCopyInto(obj)
	default:
		return errors.New("no such kind")
	}
	return nil
}

// BenchmarkSteady measures a reconcile that has nothing to do, like most of them in a simulation.
func BenchmarkSteady(b *testing.B) {

	bed := newBed(b, situation{node: true, on: true})
	var node corev1.Node
	bed.get(&node, client.ObjectKey{Name: worker.Name})
	s := &still{host: bed.host(), machine: bed.machine(), node: &node}
	for _, name := range []string{"reboot", "remediation"} {
		r, err := Lookup(name)
		if err != nil {
			b.Fatal(err)
		}
		c, err := r.New(Deps{Client: s, Live: s, Clock: clocktesting.NewFakePassiveClock(bed.clock.Now()), Steady: bed.clock, Power: func(time.Duration) reboot.Power { return bed }})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Reconcile(ctx, reconcile.Request{NamespacedName: worker}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
