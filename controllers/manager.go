package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
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
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/yaml"
)

// SetupWithManager makes the selected controllers and adds them to a manager. Its scheme must be
// that of their Set, and its client must follow their cache options.
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
		work := &keys{}
		deps := Deps{
			Client:   mgr.GetClient(),
			Live:     mgr.GetAPIReader(),
			Clock:    clock.RealClock{},
			Steady:   clock.RealClock{}, // whose differences are differences of uptimes
			Warn:     teller(mgr.GetEventRecorder(s.Name), corev1.EventTypeWarning),
			Inform:   teller(mgr.GetEventRecorder(s.Name), corev1.EventTypeNormal),
			Settings: s.Settings,
			Overlay:  s.Overlay,
			Decided:  work.decided(s.Decided),
			Storage:  s.Storage,
		}
		if s.Setup != nil {
			if err := s.Setup(context.Background(), mgr, deps); err != nil {
				return fmt.Errorf("set up the controller %s: %w", s.Name, err)
			}
			continue
		}
		for _, loop := range s.AllLoops() {
			if err := s.add(mgr, loop, deps, work); err != nil {
				return fmt.Errorf("add the controller %s to the manager: %w", s.Name, err)
			}
		}
	}
	return nil
}

// add makes the reconciler of a loop and adds it to the manager.
func (s Selection) add(mgr ctrl.Manager, loop Loop, deps Deps, work *keys) error {
	reconciler, err := loop.New(deps)
	if err != nil {
		return err
	}
	builder := ctrl.NewControllerManagedBy(mgr).
		Named(strings.TrimSuffix(s.Name+"-"+loop.Name, "-")).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: loop.Workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](RetryBase, RetryMost),
			// Names need only be unique in a manager, and a test runs one
			// manager after another.
			SkipNameValidation: ptr.To(true),
		})
	if loop.For != nil {
		builder = builder.For(loop.For)
	}
	for _, w := range loop.Watches {
		requests := func(ctx context.Context, obj client.Object) []reconcile.Request {
			return w.Map(ctx, mgr.GetCache(), obj)
		}
		builder = builder.Watches(w.Kind, handler.EnqueueRequestsFromMapFunc(requests))
	}
	if loop.Starts {
		builder = builder.WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(reconcile.Request{})
			return nil
		}))
	}
	if s.Decided != nil {
		reconciler = work.known(reconciler)
	}
	if s.Failed != nil {
		reconciler = telling(reconciler, s.Failed)
	}
	return builder.Complete(reconciler)
}

// telling reports errors and panics, and leaves them to the manager. Errors caused by the end of
// the process are not reported.
func telling(to reconcile.Reconciler, failed func(string, error)) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		defer func() {
			if v := recover(); v != nil {
				failed(request.Name, Recovered(v))
				panic(v)
			}
		}()
		result, err := to.Reconcile(ctx, request)
		if err != nil && ctx.Err() == nil {
			failed(request.Name, err)
		}
		return result, err
	})
}

// keys holds the keys that a controller is reconciling.
type keys struct {
	mu  sync.Mutex
	now []string
}

// known records the key of each reconcile while it runs.
func (k *keys) known(to reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		k.mu.Lock()
		k.now = append(k.now, request.String())
		k.mu.Unlock()
		defer func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			i := slices.Index(k.now, request.String())
			k.now = slices.Delete(k.now, i, i+1)
		}()
		return to.Reconcile(ctx, request)
	})
}

// decided reports decisions, with the keys being reconciled.
func (k *keys) decided(tell func([]string, any, string)) func(any, string) {
	if tell == nil {
		return nil
	}
	return func(facts any, action string) {
		k.mu.Lock()
		about := slices.Clone(k.now)
		k.mu.Unlock()
		slices.Sort(about)
		tell(about, facts, action)
	}
}

// teller returns a function that makes Events of a type.
func teller(recorder events.EventRecorder, eventType string) func(client.Object, string, string) {
	return func(about client.Object, reason, message string) {
		// The API server takes 1024 bytes; the message may quote more.
		if len(message) > 1000 {
			message = strings.ToValidUTF8(message[:1000], "") + "..."
		}
		recorder.Eventf(about, nil, eventType, reason, "Reconcile", "%s", message)
	}
}

// Options say which controllers to run against a cluster, and how.
type Options struct {
	// Config reaches the API server.
	Config *rest.Config
	// Controllers names the controllers to run; if empty, all except the stand-ins.
	Controllers []string
	// Settings has the controllers' settings, by name.
	Settings map[string]json.RawMessage
	// Overlays make controllers wrong on purpose, by name.
	Overlays map[string][]Rule
	// NoLeaderElection is for users who themselves ensure that only one process acts.
	NoLeaderElection bool
	// LeaderElectionNamespace is the namespace of the Lease that only one process holds; empty for
	// the namespace that the process runs in as a Pod. LeaderElectionID is its name; empty for
	// DefaultLeaderElectionID.
	LeaderElectionNamespace, LeaderElectionID string
	// HealthAddress serves /healthz and /readyz, MetricsAddress /metrics. Empty means the
	// defaults, which are on loopback; "0" means none.
	HealthAddress, MetricsAddress string
	// Logger gets all log messages.
	Logger logr.Logger

	kubeconfig, settings, overlays string // files that the flags name
}

// The defaults of Options.
const (
	DefaultLeaderElectionID = "fencelab-controllers"
	DefaultHealthAddress    = "127.0.0.1:8081"
	DefaultMetricsAddress   = "127.0.0.1:8080"
)

// Run runs controllers until ctx is done. Only one of the processes with the same leader election
// does so at a time. It sets the process's loggers.
func Run(ctx context.Context, o Options) error {
	selected, err := o.selection()
	if err != nil {
		return err
	}
	ctrl.SetLogger(o.Logger)
	klog.SetLogger(o.Logger)
	mgr, err := ctrl.NewManager(o.Config, ctrl.Options{
		Scheme:                  Default().Scheme(),
		Logger:                  o.Logger,
		LeaderElection:          !o.NoLeaderElection,
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

// synced is ready once the caches have synced with the API server.
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
			if !r.StandIn() && !r.OnRequest && r.Place == Cluster {
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
		s, err := Select(name, o.Settings[name], o.Overlays[name])
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

// Flags returns the flags of a command that runs controllers. Call Complete after parsing them.
func (o *Options) Flags() *flag.FlagSet {
	flags := flag.NewFlagSet("controllers", flag.ContinueOnError)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "the cluster (default: KUBECONFIG, ~/.kube/config, or the cluster that this runs in)")
	flags.Func("controllers", "which controllers to run, separated by commas (default: all except the stand-ins and deletion, which replaces Cluster API's)", func(names string) error {
		o.Controllers = append(o.Controllers, strings.Split(names, ",")...)
		return nil
	})
	flags.StringVar(&o.settings, "settings", "", "YAML `file` with the settings of controllers, by name")
	flags.StringVar(&o.overlays, "overlay", "", "YAML `file` with the overlays of controllers, by name")
	flags.BoolFunc("no-leader-election", "act without holding the Lease", func(string) error {
		o.NoLeaderElection = true
		return nil
	})
	flags.StringVar(&o.LeaderElectionNamespace, "leader-election-namespace", "fencelab-system", "namespace of the Lease; the manifests let the controllers write it there")
	flags.StringVar(&o.LeaderElectionID, "leader-election-id", DefaultLeaderElectionID, "name of the Lease")
	flags.StringVar(&o.HealthAddress, "health-probe-bind-address", DefaultHealthAddress, "address of /healthz and /readyz, 0 for none")
	flags.StringVar(&o.MetricsAddress, "metrics-bind-address", DefaultMetricsAddress, "address of /metrics, 0 for none")
	return flags
}

// Complete reads the files that the flags name, and sets up logging to a writer.
func (o *Options) Complete(log io.Writer) (err error) {
	for _, name := range o.Controllers {
		if _, err := Lookup(name); err != nil {
			return err
		}
	}
	if err := errors.Join(readYAML(o.settings, &o.Settings), readYAML(o.overlays, &o.Overlays)); err != nil {
		return err
	}
	if o.Config, err = Kubeconfig(o.kubeconfig); err != nil {
		return err
	}
	o.Logger = zap.New(zap.WriteTo(log))
	return nil
}

// Kubeconfig reads the file that --kubeconfig names. Without one it reads the file that kubectl
// would, or a Pod's configuration.
func Kubeconfig(path string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w; name one with --kubeconfig", err)
	}
	config.QPS = -1 // the API server says whose turn it is (priority and fairness): a drain must not hold up a fencing here
	return config, nil
}

func readYAML(path string, into any) error {
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
