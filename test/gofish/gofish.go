// Package gofish is a module whose controller of power speaks Redfish itself, with a client library
// of somebody else.
package gofish

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/common"
	"github.com/stmcginnis/gofish/redfish"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/reboot"
)

// Module has the controller as one with New, which takes the path of a host's system from its
// address, and as one that sets itself up, which has gofish look for it, on goroutines of its own.
// Hasty makes it wrong: whatever isn't on is off.
func Module(hasty bool) controllers.Module {
	settings := func() any { s := reboot.DefaultSettings(); s.PollInterval.Duration = time.Second; return &s }
	made := func(d controllers.Deps, searches bool) reconcile.Reconciler {
		s := *settings().(*reboot.Settings)
		return &reboot.Reconciler{
			Client: d.Client, Live: d.Live, Clock: d.Clock, Steady: d.Steady, Settings: s, Decide: reboot.Decide,
			Power: &power{http: &http.Client{Transport: d.BMC(s.BMCTimeout.Duration)}, hasty: hasty, searches: searches},
		}
	}
	return controllers.Module{Controllers: []controllers.Registration{{
		Name: "direct", For: &api.BareMetalHost{}, Plays: controllers.Power, Workers: 16, Settings: settings,
		New: func(d controllers.Deps) (reconcile.Reconciler, error) { return made(d, false), nil },
	}, {
		Name: "searching", For: &api.BareMetalHost{}, Plays: controllers.Power, Workers: 16, Settings: settings,
		Setup: func(_ context.Context, mgr manager.Manager, d controllers.Deps) error {
			return ctrl.NewControllerManagedBy(mgr).For(&api.BareMetalHost{}).WithOptions(controller.Options{MaxConcurrentReconciles: 16}).Complete(made(d, true))
		},
	}, {
		// It makes requests where it must not: a reconcile of New has no goroutines.
		Name: "stray", For: &api.BareMetalHost{}, Plays: controllers.Power, Settings: settings,
		New: func(d controllers.Deps) (reconcile.Reconciler, error) { return made(d, true), nil },
	}}}
}

// power is the power of hosts by gofish. It implements reboot.Power.
type power struct {
	http            *http.Client
	hasty, searches bool
}

// system finds the ComputerSystem of a host.
func (p *power) system(ctx context.Context, host *api.BareMetalHost) (*redfish.ComputerSystem, func(), error) {
	at := strings.TrimPrefix(host.Spec.BMC.Address, "redfish+")
	i := strings.Index(at, "/redfish/")
	c, err := gofish.ConnectContext(ctx, gofish.ClientConfig{Endpoint: at[:i], Username: "admin", Password: "password", HTTPClient: p.http})
	if err != nil {
		return nil, nil, err
	}
	if !p.searches {
		s, err := redfish.GetComputerSystem(c, at[i:])
		return s, c.Logout, err
	}
	all, err := c.Service.Systems()
	if err == nil && len(all) != 1 {
		err = errors.New("the BMC has not one system")
	}
	if err != nil {
		return nil, nil, err
	}
	return all[0], c.Logout, nil
}

// State reads the power state.
func (p *power) State(ctx context.Context, host *api.BareMetalHost) (reboot.PowerState, error) {
	s, leave, err := p.system(ctx, host)
	if err != nil {
		return "", err
	}
	defer leave()
	if p.hasty && s.PowerState != redfish.OnPowerState {
		return reboot.ParsePowerState("Off"), nil
	}
	return reboot.ParsePowerState(string(s.PowerState)), nil
}

// On, ShutDown and Off send a reset.
func (p *power) On(ctx context.Context, host *api.BareMetalHost) error {
	return p.reset(ctx, host, redfish.OnResetType)
}

// ShutDown asks for a graceful shutdown.
func (p *power) ShutDown(ctx context.Context, host *api.BareMetalHost) error {
	return p.reset(ctx, host, redfish.GracefulShutdownResetType)
}

// Off takes the power away.
func (p *power) Off(ctx context.Context, host *api.BareMetalHost) error {
	return p.reset(ctx, host, redfish.ForceOffResetType)
}

func (p *power) reset(ctx context.Context, host *api.BareMetalHost, to redfish.ResetType) error {
	s, leave, err := p.system(ctx, host)
	if err != nil {
		return err
	}
	defer leave()
	err = s.Reset(to)
	if status := new(common.Error); errors.As(err, &status) {
		return reboot.StatusError(status.HTTPReturnedStatusCode, err)
	}
	return err
}
