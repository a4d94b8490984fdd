package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/lab/container"
	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
)

// Controllers report through the history. controller-runtime's own logger complains unless one is
// set.
func init() { ctrl.SetLogger(logr.Discard()) }

// InProcess runs controllers in this process, each under a manager of its own. A killed
// one may still run some code.
type InProcess struct {
	Plane ControlPlane
	Set   *controllers.Set
	// Tracing receives the contents of their caches, and their decisions; may be nil.
	Tracing *Tracing
	// Failed is called with each error of a reconcile, a panic being a *controllers.PanicError, by
	// the process and of which object it was about; may be nil.
	Failed func(process, about string, err error)
}

// Start implements Runner.
func (r InProcess) Start(ctx context.Context, name string, c controllers.Selection, lease string, through gate.Way) (Incarnation, error) {
	klog.SetLogger(logr.Discard()) // the election of leaders has one of its own
	config := r.Plane.ConfigFor(UserOf(c.Name))
	config.Wrap(transport.WrapperFunc(through))
	cache := c.Cache
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: r.Set.SchemeOf(c.Name), Logger: logr.Discard(), Client: client.Options{Cache: &cache},
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		LeaderElection: lease != "", LeaderElectionID: lease, LeaderElectionNamespace: objects.Namespace,
	})
	if err != nil {
		return nil, err
	}
	if r.Tracing != nil {
		c.Decided = r.Tracing.decided(name)
	}
	if r.Failed != nil {
		c.Failed = func(about string, err error) { r.Failed(name, about, err) }
	}
	if err := controllers.SetupWithManager(mgr, c); err != nil {
		return nil, err
	}
	if r.Tracing != nil {
		if err := r.Tracing.follow(ctx, name, mgr.GetCache(), c.Registration); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	m := &managed{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		m.err = mgr.Start(ctx)
	}()
	return m, nil
}

// Logs implements Runner: who speaks through the history says nothing else.
func (InProcess) Logs() []play.Artifact { return nil }

// errStands is of what was refused before anything started: a thread of this process can't stand
// still alone.
var errStands = errors.New("the lab cannot let a controller within fencelab stand still, and should have refused the scenario")

// managed is a controller under a manager in this process.
type managed struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (m *managed) Kill() { m.cancel() }

func (m *managed) Ended() <-chan struct{} { return m.done }

func (m *managed) Failure() error {
	if m.err == nil {
		return errors.New("its manager has stopped")
	}
	return fmt.Errorf("its manager has stopped: %w", m.err)
}

func (*managed) Pause() error { return errStands }

func (*managed) Resume() error { return errStands }

func (*managed) Ready() (string, *container.Network) { return "", nil }
