package lab

import (
	"errors"

	"github.com/fencelab/fencelab/ci/container"
	"github.com/fencelab/fencelab/scenarios"
)

// images are the container images that a plan's programs come from. They are there before the lab takes its place among others: a
// pull takes as long as it takes.
type images struct {
	store container.Store
	open  map[scenarios.Image]*container.Image
}

// openImages pulls and unpacks what isn't here yet.
func (b *Backend) openImages() error {
	b.images = images{container.Store{Dir: container.DefaultDir(), Say: b.logf}, make(map[scenarios.Image]*container.Image)}
	topology := &b.plan.Spec.Topology
	for i := range b.plan.Spec.Controllers {
		if p := b.plan.Spec.Controllers[i].Program; p != nil {
			if err := b.openImage(p.Image.In(p.Dir)); err != nil {
				return err
			}
		}
	}
	if topology.BMC != nil {
		if err := b.openImage(topology.BMC.Image.In(topology.BMC.Dir)); err != nil {
			return err
		}
	}
	if b.options.ownIronic() {
		return b.openImage(b.options.ironic.Image)
	}
	return nil
}

func (b *Backend) openImage(name scenarios.Image) error {
	if name == "" || b.images.open[name] != nil {
		return nil
	}
	image, err := b.images.store.Open(b.ctx, string(name))
	if err == nil {
		b.images.open[name] = image
	}
	return err
}

// imageOf is what a program comes from, nil for an executable of the host.
func (b *Backend) imageOf(p *scenarios.Program) *container.Image {
	return b.images.open[p.Image.In(p.Dir)]
}

// close lets the images go.
func (i images) close() error {
	var errs []error
	for _, image := range i.open { // in any order
		errs = append(errs, image.Close())
	}
	return errors.Join(errs...)
}
