package lab

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
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
)

// Controllers speak through the history. controller-runtime's own logger complains
// when nobody has set it.
func init() { ctrl.SetLogger(logr.Discard()) }

// inProcess runs controllers in this process, each under a manager of its own. A killed
// one may still run some code.
type inProcess struct {
	plane controlPlane
	set   *controllers.Set
	// tracing is told what they have in their caches, and decide; nil for nobody.
	tracing *tracing
}

// start implements runner.
func (r inProcess) start(ctx context.Context, name string, c controllers.Selection, lease string, through way) (incarnation, error) {
	klog.SetLogger(logr.Discard()) // the election of leaders has one of its own
	config := r.plane.ConfigFor(userOf(c.Name))
	config.Wrap(transport.WrapperFunc(through))
	cache := c.Cache
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: r.set.Scheme(), Logger: logr.Discard(), Client: client.Options{Cache: &cache},
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		LeaderElection: lease != "", LeaderElectionID: lease, LeaderElectionNamespace: objects.Namespace,
	})
	if err != nil {
		return nil, err
	}
	if r.tracing != nil {
		c.Decided = r.tracing.decided(name)
	}
	if err := controllers.SetupWithManager(mgr, c); err != nil {
		return nil, err
	}
	if r.tracing != nil {
		if err := r.tracing.follow(ctx, name, mgr.GetCache(), c.Registration); err != nil {
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

// logs implements runner: who speaks through the history says nothing else.
func (inProcess) logs() []play.Artifact { return nil }

// managed is a controller under a manager in this process.
type managed struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (m *managed) kill() { m.cancel() }

func (m *managed) ended() <-chan struct{} { return m.done }

func (m *managed) failure() error {
	if m.err == nil {
		return errors.New("its manager has stopped")
	}
	return fmt.Errorf("its manager has stopped: %w", m.err)
}

func (*managed) pause() error { return errLacking }

func (*managed) resume() error { return errLacking }
