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

// kindPlane is a cluster that kind made for this lab alone. The lab still uses it like somebody
// else's cluster, because the cluster's own node and Pods are not part of the story.
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
