//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"
	"errors"
	"os"

	"github.com/fencelab/fencelab/fakebmc/fleet"
	"github.com/fencelab/fencelab/vms/keeper"
)

// Serve has a fleet serve the domains of a libvirt. Disconnect leaves the domains as
// they are, and nothing of ours in them or elsewhere.
func Serve(ctx context.Context, fleets *fleet.Options, o Options) (disconnect func() error, err error) {
	k, err := keeper.Start()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx) // nobody takes the changes when the fleet has ended
	host := func(d *Domain) fleet.Host { return fleet.Host{Name: d.Name(), UUID: d.UUID(), System: d} }
	if fleets.Shared {
		changes := make(chan fleet.Change)
		fleets.Changes = changes
		o.Change = func(d *Domain, gone bool) {
			select {
			case changes <- fleet.Change{Host: host(d), Gone: gone}:
			case <-ctx.Done():
			}
		}
	}
	if len(fleets.Media) > 0 {
		if o.Images, err = k.TempDir("fencelab-images"); err == nil {
			err = os.Chmod(o.Images, 0o711) // the hypervisor opens what is in it as another user
		}
	}
	var domains *Domains
	var now []*Domain
	if err == nil {
		domains, now, err = Open(ctx, o)
	}
	if err != nil {
		cancel()
		return nil, errors.Join(err, k.Close())
	}
	for _, d := range now {
		fleets.Hosts = append(fleets.Hosts, host(d))
	}
	return func() error {
		cancel()
		return errors.Join(domains.Close(), k.Close())
	}, nil
}
