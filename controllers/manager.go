package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
)

// SetupWithManager makes the selected controllers and adds them to a manager,
// whose scheme must be that of their Set, and whose client must cache what they say.
func SetupWithManager(mgr ctrl.Manager, selected ...Selection) error {
	for _, s := range selected {
		if s.Place != Cluster {
			return fmt.Errorf("add the controller %s to the manager: it runs on every host, and a manager in the cluster", s.Name)
		}
		for _, index := range s.Indexes {
			if err := mgr.GetFieldIndexer().IndexField(context.Background(), index.Kind, index.Field, index.Extract); err != nil {
				return fmt.Errorf("index %T by %s for the controller %s: %w", index.Kind, index.Field, s.Name, err)
			}
		}
		reconciler, err := s.New(Deps{
			Client:   mgr.GetClient(),
			Live:     mgr.GetAPIReader(),
			Clock:    clock.RealClock{},
			Warn:     warner(mgr.GetEventRecorder(s.Name)),
			Settings: s.Settings,
			Overlay:  s.Overlay,
		})
		if err != nil {
			return err
		}
		builder := ctrl.NewControllerManagedBy(mgr).
			Named(s.Name).
			For(s.For).
			WithOptions(controller.Options{
				MaxConcurrentReconciles: s.Workers,
				// Names need only be unique in a manager, and a test runs one
				// manager after another.
				SkipNameValidation: ptr.To(true),
			})
		for _, w := range s.Watches {
			requests := func(ctx context.Context, obj client.Object) []reconcile.Request {
				return w.Map(ctx, mgr.GetCache(), obj)
			}
			builder = builder.Watches(w.Kind, handler.EnqueueRequestsFromMapFunc(requests))
		}
		if err := builder.Complete(reconciler); err != nil {
			return fmt.Errorf("add the controller %s to the manager: %w", s.Name, err)
		}
	}
	return nil
}

// warner makes Warning Events.
func warner(recorder events.EventRecorder) func(client.Object, string, string) {
	return func(about client.Object, reason, message string) {
		// The API server takes 1024 bytes; the message may quote more.
		if len(message) > 1000 {
			message = strings.ToValidUTF8(message[:1000], "") + "..."
		}
		recorder.Eventf(about, nil, corev1.EventTypeWarning, reason, "Reconcile", "%s", message)
	}
}

// Options say which controllers to run against a cluster, and how.
type Options struct {
	// Config reaches the API server.
	Config *rest.Config
	// Controllers are the names of those to run; none are all but the stand-ins.
	Controllers []string
	// Settings are those of controllers, by name.
	Settings map[string]json.RawMessage
	// LeaderElectionNamespace is where the Lease is that only one process
	// holds; empty for the namespace that the process runs in as a Pod.
	// LeaderElectionID is its name; empty for DefaultLeaderElectionID.
	LeaderElectionNamespace, LeaderElectionID string
	// HealthAddress serves /healthz and /readyz, MetricsAddress /metrics. Empty
	// for the defaults, which are on loopback; "0" for none.
	HealthAddress, MetricsAddress string
	// Logger gets everything that there is to log.
	Logger logr.Logger
}

// The defaults of Options.
const (
	DefaultLeaderElectionID = "fencelab-controllers"
	DefaultHealthAddress    = "127.0.0.1:8081"
	DefaultMetricsAddress   = "127.0.0.1:8080"
)

// Run runs controllers until ctx is done. Of several processes with the same
// leader election only one does at a time. It sets the process's loggers.
func Run(ctx context.Context, o Options) error {
	selected, err := o.selection()
	if err != nil {
		return err
	}
	ctrl.SetLogger(o.Logger)
	klog.SetLogger(o.Logger)
	mgr, err := ctrl.NewManager(o.Config, ctrl.Options{
		Scheme:                  api.NewScheme(),
		Logger:                  o.Logger,
		LeaderElection:          true,
		LeaderElectionID:        orDefault(o.LeaderElectionID, DefaultLeaderElectionID),
		LeaderElectionNamespace: o.LeaderElectionNamespace,
		// The next process need not wait: the manager lets go of the Lease
		// after the last reconcile has ended.
		LeaderElectionReleaseOnCancel: true,
		HealthProbeBindAddress:        orDefault(o.HealthAddress, DefaultHealthAddress),
		Metrics:                       metricsserver.Options{BindAddress: orDefault(o.MetricsAddress, DefaultMetricsAddress)},
	})
	if err != nil {
		return fmt.Errorf("make the manager of the controllers: %w", err)
	}
	if err := SetupWithManager(mgr, selected...); err != nil {
		return err
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("caches", synced(mgr))); err != nil {
		return fmt.Errorf("add the health checks: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the controllers: %w", err)
	}
	return nil
}

// synced is ready when the caches have what the API server had.
func synced(mgr ctrl.Manager) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), 500*time.Millisecond)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the caches are not filled yet")
		}
		return nil
	}
}

func (o Options) selection() ([]Selection, error) {
	names := o.Controllers
	if len(names) == 0 {
		for _, r := range registrations {
			if !r.StandIn && r.Place == Cluster {
				names = append(names, r.Name)
			}
		}
	}
	var selected []Selection
	var problems []error
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			problems = append(problems, fmt.Errorf("the controller %s is chosen twice", name))
			continue
		}
		s, err := Select(name, o.Settings[name], nil)
		if err != nil {
			problems = append(problems, err)
		}
		selected = append(selected, s)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Settings)) {
		if !slices.Contains(names, name) {
			problems = append(problems, fmt.Errorf("there are settings for the controller %s, which isn't chosen", name))
		}
	}
	return selected, errors.Join(problems...)
}

func orDefault(s, standard string) string {
	if s == "" {
		return standard
	}
	return s
}

// Complete fills in what a user left open: the cluster, from the kubeconfig file or else
// from KUBECONFIG, the user's own or that of the cluster that this runs in; and where the
// log goes. It refuses controllers that there are not.
func (o *Options) Complete(kubeconfig string, log io.Writer) (err error) {
	for _, name := range o.Controllers {
		if _, err := Lookup(name); err != nil {
			return err
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	o.Config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w; name one with --kubeconfig", err)
	}
	o.Logger = zap.New(zap.WriteTo(log))
	return nil
}
