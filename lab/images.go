package lab

import (
	"context"
	"errors"

	"github.com/fencelab/fencelab/lab/container"
	"github.com/fencelab/fencelab/scenarios"
)

// images are the container images that a plan's programs come from. They are there before the lab
// takes its place among others: a pull takes as long as it takes.
type images struct {
	store container.Store
	open  map[scenarios.Image]*container.Image
}

// openImages returns those of these names, and pulls and unpacks what isn't here yet. Programs that
// are executables of the host have the empty name.
func openImages(ctx context.Context, names []scenarios.Image, say func(format string, args ...any)) (images, error) {
	i := images{container.Store{Dir: container.DefaultDir(), Say: say}, make(map[scenarios.Image]*container.Image)}
	for _, name := range names {
		if name == "" || i.open[name] != nil {
			continue
		}
		image, err := i.store.Open(ctx, string(name))
		if err != nil {
			return i, err
		}
		i.open[name] = image
	}
	return i, nil
}

// of returns the image that a program comes from, nil for an executable of the host.
func (i images) of(p *scenarios.Program) *container.Image { return i.open[p.Image.In(p.Dir)] }

// close lets the images go.
func (i images) close() error {
	var errs []error
	for _, image := range i.open { // in any order
		errs = append(errs, image.Close())
	}
	return errors.Join(errs...)
}
