package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/release"
	"github.com/fencelab/fencelab/lab/csi"
	"github.com/fencelab/fencelab/scenarios"
)

// attachDetach is the stand-in of which kube-controller-manager has a setting as a flag.
const attachDetach = "attachdetach"

// openStorage makes the storage of a topology whose workload has a volume.
func (b *Backend) openStorage() (err error) {
	if v := b.plan.Spec.Topology.Workload.Volume; v != nil {
		b.storage, err = b.hosts.Machines.Storage(*v)
	}
	return err
}

// reach is the way of a controller to the storage.
func (b *Backend) reach(controller string) func(time.Duration) release.Storage {
	return func(timeout time.Duration) release.Storage { return driver{b, controller, timeout} }
}

// driverName names the storage's CSI driver.
const driverName = api.Attacher

// serveDriver serves the driver's half on the side of the storage to an external-attacher. Events
// name it as the stand-in that it replaces.
func (b *Backend) serveDriver(socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("serve the CSI driver: %w", err)
	}
	b.driver = csi.NewServer(driverName, driver{b, "attacher", 0})
	b.tasks.Go(func() {
		if err := b.driver.Serve(listener); err != nil {
			b.record.Fail(fmt.Errorf("serve the CSI driver: %w", err))
		}
	})
	return nil
}

// driver implements release.Storage and csi.Storage, in the name of a controller. Without a timeout
// whoever calls has one.
type driver struct {
	b       *Backend
	by      string
	timeout time.Duration
}

// Attach implements release.Storage.
func (d driver) Attach(ctx context.Context, _, node string) error {
	return d.ask(ctx, node, d.b.storage.Attach)
}

// Detach implements release.Storage.
func (d driver) Detach(ctx context.Context, _, node string) error {
	return d.ask(ctx, node, d.b.storage.Detach)
}

// Fence implements release.Storage.
func (d driver) Fence(ctx context.Context, node string) error {
	return d.ask(ctx, node, d.b.storage.KeepOut)
}

// Unfence implements release.Storage.
func (d driver) Unfence(ctx context.Context, node string) error {
	return d.ask(ctx, node, d.b.storage.LetIn)
}

func (d driver) ask(ctx context.Context, node string, do func(ctx context.Context, host, by string) error) error {
	hosts := d.b.plan.Spec.Topology.Hosts
	for i := range hosts {
		if hosts[i].Node() == node {
			if d.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, d.timeout)
				defer cancel()
			}
			return do(ctx, hosts[i].Name, d.by)
		}
	}
	return fmt.Errorf("reach the storage for Node %s: it knows no such host", node)
}

// isFlag reports whether a story lists a stand-in for nothing but what a flag of
// kube-controller-manager does.
func isFlag(c *scenarios.Controller) bool {
	var settings map[string]json.RawMessage
	if c.Name != attachDetach || json.Unmarshal(c.Settings, &settings) != nil || len(settings) != 1 || len(c.Overlay) > 0 {
		return false
	}
	return settings["disableForceDetachOnTimeout"] != nil
}

// keepsAttached reports whether the story has the attach-detach controller never detach because so
// much time has passed.
func (b *Backend) keepsAttached() bool {
	for i := range b.plan.Spec.Controllers {
		var settings release.DetachSettings
		c := &b.plan.Spec.Controllers[i]
		if c.Name == attachDetach && json.Unmarshal(c.Settings, &settings) == nil {
			return settings.DisableForceDetachOnTimeout
		}
	}
	return false
}
