package lab

import (
	"context"
	"errors"

	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/lab/cluster/kind"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
)

var _ controlPlane = (*kindPlane)(nil)

// kindPlane is a cluster of kind's, which is the lab's alone. The lab is a guest there all the
// same: the cluster's node and what runs on it are none of the story's.
type kindPlane struct {
	*cluster.Attached
	kind *kind.Cluster
}

func (b *Backend) startKind(nodes []string) (*kindPlane, error) {
	k, err := kind.Create(b.ctx, kind.Options{GracePeriod: objects.GracePeriod(&b.plan.Spec), Log: b.options.Log})
	if b.ctx.Err() != nil {
		return nil, errors.Join(context.Cause(b.ctx), err)
	}
	if err != nil {
		return nil, &play.Missing{World: "lab", Reasons: []string{err.Error()}, Remedy: b.options.remedy()}
	}
	a, err := b.attach(nodes, cluster.AttachOptions{Kubeconfig: k.Kubeconfig(), Dial: k.Dial, Join: b.options.realNodes()})
	if err != nil {
		return nil, errors.Join(err, k.Stop())
	}
	return &kindPlane{a, k}, nil
}

// Stop removes the cluster, with all that is in it.
func (k *kindPlane) Stop() error { return errors.Join(k.Leave(), k.kind.Stop()) }
