//go:build !cgo || !libvirt_dlopen

package hosts

import (
	"context"
	"errors"
	"time"

	"github.com/fencelab/fencelab/lab/record"
	"github.com/fencelab/fencelab/vms"
)

// OpenVirtual says that this program can't drive libvirt.
func OpenVirtual(
	context.Context, string, string, string, *record.Stream, asker, func(vms.Event, time.Duration), func(string, ...any),
) (Machines, error) {
	return nil, errors.New("open libvirt: this fencelab was built without libvirt, and has no virtual machines; take --hosts model, or build it with make build")
}
