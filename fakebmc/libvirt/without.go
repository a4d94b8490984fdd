//go:build !cgo || !libvirt_dlopen

package libvirt

import (
	"context"
	"errors"

	"github.com/fencelab/fencelab/fakebmc/fleet"
)

// Domain is none that this program could have.
type Domain struct{}

// Serve says that this program can't drive libvirt.
func Serve(_ context.Context, _ *fleet.Options, o Options) (disconnect func() error, err error) {
	return nil, errors.New("connect to the libvirt " + o.URI + ": this fencelab was built without libvirt, and knows hosts in memory only; build it with make build")
}
