// Package controllers is the table of fencelab's controllers. A Registration says as data what a
// controller reconciles and watches and how to make one. SetupWithManager hands it to a
// controller-runtime manager, and the simulator makes a simulated process of the same value. There
// is no other wiring.
package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/api/fence"
	"github.com/fencelab/fencelab/controllers/deletion"
	"github.com/fencelab/fencelab/controllers/healthcheck"
	"github.com/fencelab/fencelab/controllers/nodelifecycle"
	"github.com/fencelab/fencelab/controllers/poisonpill"
	"github.com/fencelab/fencelab/controllers/reboot"
	"github.com/fencelab/fencelab/controllers/reboot/ironic"
	"github.com/fencelab/fencelab/controllers/release"
	"github.com/fencelab/fencelab/controllers/remediation"
	"github.com/fencelab/fencelab/controllers/watchdog"
	"github.com/fencelab/fencelab/controllers/workload"
)

// RetryBase and RetryMost are the shortest and the longest interval between attempts at what
// fails, of a controller with New; each interval is twice the previous one. With
// controller-runtime's longest, a quarter of an hour, an API server that was away would delay a
// fencing by as much again.
const (
	RetryBase = 5 * time.Millisecond
	RetryMost = 30 * time.Second
)

// Registration is one controller, as data.
type Registration struct {
	// Name is the controller's name, in lower case.
	Name string
	// Place is where its processes run. In the cluster it is a reconciler, made by New; on every
	// host it is an agent, made by NewAgent.
	Place Place
	// For is an empty object of the kind whose keys are reconciled; nil for an agent.
	For client.Object
	// Watches are the other kinds that lead to a reconcile.
	Watches []Watch
	// Reads are further kinds that the controller reads from its cache: typed, or as metadata or
	// unstructured objects with their kind. A real manager starts to watch them when they are
	// first read; the simulator has to know them beforehand.
	Reads []client.Object
	// Indexes are the fields by which the cache can be searched.
	Indexes []Index
	// Cache selects what is not read from the cache, as in controller-runtime.
	Cache client.CacheOptions
	// Plays is the part by which the guarantees judge the controller. A controller without a part
	// is not held responsible for its actions.
	Plays Part
	// Workers is how many keys may be reconciled at once, never one of them
	// twice. More than one where a call can block for long.
	Workers int
	// Apart says that reconciles of different requests share nothing in memory but the cache: what
	// one of them remembers is read by those of the same request only. Searches rely on it, and end
	// with an error if they find otherwise. It matters with several Workers or Loops.
	Apart bool
	// Loops are the controllers of a process that has several, as kube-controller-manager has: they
	// share its client and its cache, and live and die together. They stand in the place of
	// Watches, Workers and New; For is then the kind that the process is about.
	Loops []Loop
	// Settings returns a pointer to the controller's default settings, which
	// have JSON tags.
	Settings func() any
	// Facts and Actions are the names that an overlay's rules may use; empty
	// for a controller that can't be overlaid.
	Facts, Actions []string
	// StandsInFor names the standard controllers of Kubernetes, by kube-controller-manager's
	// names, whose work a stand-in does where none of them runs. Other controllers leave it empty.
	StandsInFor []string
	// OnRequest marks a controller that runs only where it is chosen: it replaces a controller
	// that clusters have, or keeps Pods that not every cluster has.
	OnRequest bool
	// StartsAfterNodes delays its start until every Node of a topology is Ready.
	StartsAfterNodes bool
	// NeedsBMCSecrets gives it the role that reads the Secrets of BMCs.
	NeedsBMCSecrets bool
	// ForVolumes says that it takes part only where the workload has a volume.
	ForVolumes bool
	// ReachesStorage says that it needs the Storage of Deps, which no process apart has.
	ReachesStorage bool
	// FeedsWatchdog makes it the controller that feeds the watchdog of its host.
	FeedsWatchdog bool
	// Announces is the annotation on the Node of its host through which an agent announces what
	// others may count on; empty for an agent that announces nothing.
	Announces string
	// AsksPeers says that it asks its processes on other hosts.
	AsksPeers bool
	// Setup replaces New for controllers that set themselves up with a manager, as
	// SetupWithManager does: one or several, with their own watches, predicates, indexes and
	// goroutines, that read Go's own clock. They run unchanged. The simulator has to know the
	// kinds that they watch or read from the cache: For and Reads. Power and Decided are not among
	// their Deps.
	Setup func(context.Context, manager.Manager, Deps) error
	// New makes the reconciler, NewAgent the agent. They start nothing. One of them, or
	// Setup, is called once for each incarnation of a process.
	New      func(Deps) (reconcile.Reconciler, error)
	NewAgent func(Deps) (Agent, error)

	check func([]Rule) error
}

// Part is a controller's part in fencing.
type Part string

// The parts. Power owns the power of the hosts and the plain reboot annotation. Remediation fences
// the hosts of unhealthy Machines; HealthCheck marks these Machines. A Fencer runs on every host,
// has it reset, and releases the Nodes of others. Deletion takes Machines that are deleted out of
// service. Tenancy gives hosts to tenants and takes them back; fencelab has no controller for it.
const (
	Power       Part = "power"
	Remediation Part = "remediation"
	HealthCheck Part = "healthcheck"
	Fencer      Part = "fencer"
	Deletion    Part = "deletion"
	Tenancy     Part = "tenancy"
)

// Index is a field by which a cache can be searched.
type Index struct {
	// Kind is an empty object of the kind.
	Kind    client.Object
	Field   string
	Extract client.IndexerFunc
}

// Watch is a kind whose events lead to reconciles of other keys.
type Watch struct {
	// Kind is an empty object of it.
	Kind client.Object
	// Map returns the keys that an event of the object touches. Its reader is
	// the controller's cache.
	Map func(context.Context, client.Reader, client.Object) []reconcile.Request
}

// Loop is one controller of a process, with requests and workers of its own.
type Loop struct {
	// Name is unique in its process, and empty for the only one.
	Name string
	// For is an empty object of the kind whose keys are reconciled; nil if only Watches are.
	For     client.Object
	Watches []Watch
	// Starts has it reconcile the empty request when the process starts: the desire of something
	// that no object stands for.
	Starts  bool
	Workers int
	New     func(Deps) (reconcile.Reconciler, error)
}

// AllLoops returns the controllers of a process in the cluster, unless Setup makes them.
func (r Registration) AllLoops() []Loop {
	switch {
	case r.Loops != nil:
		return r.Loops
	case r.New != nil:
		return []Loop{{For: r.For, Watches: r.Watches, Workers: r.Workers, New: r.New}}
	}
	return nil
}

// Cached returns an empty object of each kind in the cache of a process; a kind may be there twice.
func (r Registration) Cached() (kinds []client.Object) {
	if r.For != nil && r.New == nil {
		kinds = append(kinds, r.For)
	}
	for _, loop := range r.AllLoops() {
		if loop.For != nil {
			kinds = append(kinds, loop.For)
		}
		for _, w := range loop.Watches {
			kinds = append(kinds, w.Kind)
		}
	}
	return append(kinds, r.Reads...)
}

// Deps are what the world grants to a program.
type Deps struct {
	// Client writes, and reads from a cache; on a host, from the API server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// LiveWithin reads from the API server and writes to it, and gives each request up
	// after a time. Only a process on a host has it.
	LiveWithin func(time.Duration) client.Client
	// Clock shows the time, as objects have it. Steady measures how long something takes that the
	// process has seen itself: setting the clock doesn't move it.
	Clock, Steady clock.PassiveClock
	// Warn reports a problem to the users of an object; may be nil.
	Warn func(about client.Object, reason, message string)
	// Inform reports progress that takes time; may be nil.
	Inform func(about client.Object, reason, message string)
	// Power reaches the BMCs, and bounds each call by a time; nil for Redfish, or for Ironic
	// where the settings name one.
	Power func(timeout time.Duration) reboot.Power
	// BMC carries HTTP requests to the BMCs, by the addresses that BareMetalHosts have in spec.bmc,
	// and gives each up after a time. It is nil where that takes a network, and no Transport.
	BMC func(timeout time.Duration) http.RoundTripper
	// Storage reaches the storage, and bounds each call by a time; nil where there is none.
	Storage func(timeout time.Duration) release.Storage
	// Host, Boot, Watchdog and Peers belong to the host that the process runs on, and Reboot makes
	// its kernel reboot at once.
	Host     Host
	Boot     Boot
	Watchdog Watchdog
	Peers    Peers
	Reboot   func(context.Context) error
	// Settings is the result of Registration.Settings, perhaps changed; nil for the defaults.
	Settings any
	// Overlay makes the controller wrong on purpose.
	Overlay []Rule
	// Decided is called with the facts and the action of every decision; may be nil.
	Decided func(facts any, action string)
}

// storage is the way to the storage, nil where there is none.
func (d Deps) storage(s release.DriverSettings) release.Storage {
	if d.Storage == nil {
		return nil
	}
	return d.Storage(s.Timeout.Duration)
}

// Default returns this program's set: fencelab's own controllers, and those of added modules.
func Default() *Set {
	program.Lock()
	defer program.Unlock()
	if program.set == nil {
		s, err := NewSet()
		if err != nil {
			panic(err) // a test reads the manifests
		}
		program.set = s
	}
	return program.set
}

// Add makes modules a part of this program. Call it before anything else: see [Default].
func Add(modules ...Module) error {
	set, err := NewSet(modules...)
	if err != nil {
		return err
	}
	program.Lock()
	defer program.Unlock()
	if program.set != nil {
		return errors.New("add modules to the program: its controllers are in use already")
	}
	program.set = set
	return nil
}

var program struct {
	sync.Mutex
	set *Set
}

// List writes a table of every controller, with the facts and actions of its overlays.
func List(w io.Writer) error {
	orNone := func(names []string) string { return cmp.Or(strings.Join(names, " "), "none") }
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range Default().registrations {
		note := ""
		switch {
		case r.StandIn() && r.OnRequest:
			note = "(stand-in, where it is listed)"
		case r.StandIn():
			note = "(stand-in, runs by itself)"
		case r.OnRequest:
			note = "(in the place of Cluster API's)"
		}
		fmt.Fprintf(table, "%s\t%s\tfacts: %s\tactions: %s\n", r.Name, note, orNone(r.Facts), orNone(r.Actions))
	}
	return table.Flush()
}

// Lookup looks up a controller in the Default set.
func Lookup(name string) (Registration, error) { return Default().Lookup(name) }

// Selection is a controller chosen to run, with its settings.
type Selection struct {
	Registration
	// Settings and Overlay are passed on in Deps.
	Settings any
	Overlay  []Rule
	// Decided is called with every decision, like that of Deps, and with the key being reconciled.
	// If several are being reconciled it gets all of them, since a decision doesn't name its key.
	// It may be nil, and is called from any goroutine.
	Decided func(keys []string, facts any, action string)
	// Failed is called with each error that a reconcile returns, and the object concerned; a panic
	// is a *PanicError. It may be nil, and is called from any goroutine. It is not called for
	// controllers that set themselves up.
	Failed func(about string, err error)
	// Storage is that of Deps.
	Storage func(timeout time.Duration) release.Storage
}

// Select selects a controller of the Default set.
func Select(name string, settings json.RawMessage, overlay []Rule) (Selection, error) {
	return Default().Select(name, settings, overlay)
}

// StandIn reports whether the controller is a stand-in, which runs unasked.
func (r Registration) StandIn() bool { return len(r.StandsInFor) > 0 }

// CheckOverlay reports what is wrong with rules for this controller.
func (r Registration) CheckOverlay(rules []Rule) error {
	if len(rules) == 0 {
		return nil
	}
	if r.check == nil {
		return fmt.Errorf("the controller %s can't be overlaid", r.Name)
	}
	if err := r.check(rules); err != nil {
		return fmt.Errorf("overlay of the controller %s: %w", r.Name, err)
	}
	return nil
}

var registrations = []Registration{
	register(overlayable(Registration{
		Name:            "reboot",
		For:             &api.BareMetalHost{},
		NeedsBMCSecrets: true,
		// One unreachable BMC must not keep the others waiting.
		Workers: 16, Apart: true,
	}, reboot.Decide, reboot.Actions), reboot.DefaultSettings, func(d Deps, settings reboot.Settings) (reconcile.Reconciler, error) {
		var power reboot.Power
		switch {
		case d.Power != nil:
			power = d.Power(settings.BMCTimeout.Duration)
		case settings.Ironic.Endpoint != "":
			power = ironic.New(d.Live, ironic.Config{
				Endpoint: settings.Ironic.Endpoint, User: os.Getenv("IRONIC_USERNAME"), Password: os.Getenv("IRONIC_PASSWORD"),
				TrustRecord: settings.Ironic.TrustRecord, Timeout: settings.BMCTimeout.Duration, SoftTimeout: settings.SoftTimeout.Duration,
			})
		default:
			power = reboot.NewRedfish(d.Live, settings.BMCTimeout.Duration)
		}
		decide, err := Overlaid(reboot.Decide, reboot.Actions, d.Overlay)
		return &reboot.Reconciler{
			Client: d.Client, Live: d.Live, Clock: d.Clock, Steady: d.Steady, Power: power, Warn: d.Warn, Settings: settings, Decide: observed(decide, d.Decided),
		}, err
	}),
	register(overlayable(Registration{
		Name: "remediation",
		For:  &api.BareMetalHost{},
		Watches: []Watch{
			{Kind: &clusterv1.Machine{}, Map: remediation.HostOfMachine},
			{Kind: &corev1.Node{}, Map: remediation.HostOfNode},
		},
		Workers: 1,
	}, remediation.Decide, remediation.Actions), remediation.DefaultSettings, func(d Deps, settings remediation.Settings) (reconcile.Reconciler, error) {
		decide, err := Overlaid(settings.RightDecision(), remediation.Actions, d.Overlay)
		return &remediation.Reconciler{
			Client: d.Client, Live: d.Live, Clock: d.Clock, Steady: d.Steady, Warn: d.Warn, Settings: settings, Decide: observed(decide, d.Decided),
		}, err
	}),
	register(overlayable(Registration{
		Name: "healthcheck",
		For:  &clusterv1.MachineHealthCheck{},
		Watches: []Watch{
			{Kind: &clusterv1.Machine{}, Map: healthcheck.ChecksOf},
			{Kind: &corev1.Node{}, Map: healthcheck.ChecksOf},
			{Kind: &api.BareMetalHost{}, Map: healthcheck.ChecksOfHost},
		},
		Workers: 1,
	}, healthcheck.Decide, healthcheck.Actions), healthcheck.DefaultSettings, func(d Deps, settings healthcheck.Settings) (reconcile.Reconciler, error) {
		decide, err := Overlaid(healthcheck.Decide, healthcheck.Actions, d.Overlay)
		return &healthcheck.Reconciler{
			Client: d.Client, Live: d.Live, Clock: d.Clock, Steady: d.Steady, Warn: d.Warn, Settings: settings, Decide: observed(decide, d.Decided),
		}, err
	}),
	register(overlayable(Registration{
		Name: "deletion",
		For:  &clusterv1.Machine{},
		Watches: []Watch{
			{Kind: &api.BareMetalHost{}, Map: deletion.MachineOfHost},
			{Kind: &corev1.Node{}, Map: deletion.MachineOfNode},
		},
		OnRequest: true,
		// A drain that a budget blocks must not keep another Machine waiting.
		Workers: 4, Apart: true,
	}, deletion.Decide, deletion.Actions), deletion.DefaultSettings, func(d Deps, settings deletion.Settings) (reconcile.Reconciler, error) {
		decide, err := Overlaid(deletion.Decide, deletion.Actions, d.Overlay)
		return &deletion.Reconciler{
			Client: d.Client, Live: d.Live, Clock: d.Clock, Warn: d.Warn, Inform: d.Inform, Settings: settings, Decide: observed(decide, d.Decided),
		}, err
	}),
	register(Registration{
		Name:    "nodelifecycle",
		For:     &corev1.Node{},
		Workers: 1,

		StandsInFor: []string{"node-lifecycle-controller"},
	}, nodelifecycle.DefaultSettings, func(d Deps, settings nodelifecycle.Settings) (reconcile.Reconciler, error) {
		return &nodelifecycle.Reconciler{Client: d.Client, Live: d.Live, Clock: d.Clock, Settings: settings}, nil
	}),
	registerLoops(Registration{
		Name: "workload",
		For:  &corev1.Pod{},

		StandsInFor: []string{"statefulset-controller", "pod-garbage-collector-controller", "kube-scheduler"},
		// So that it finds the one that the workload is wanted on.
		StartsAfterNodes: true,
	}, workload.DefaultSettings, []loopOf[workload.Settings]{
		{Loop{Name: "keep", For: &corev1.Pod{}, Starts: true}, func(d Deps, settings workload.Settings) reconcile.Reconciler {
			return &workload.Keeper{Client: d.Client, Settings: settings}
		}},
		{Loop{Name: "bind", Watches: []Watch{
			{Kind: &corev1.Pod{}, Map: workload.Unbound}, {Kind: &corev1.Node{}, Map: workload.AllUnbound},
		}}, func(d Deps, settings workload.Settings) reconcile.Reconciler {
			return &workload.Binder{Client: d.Client, Settings: settings}
		}},
		{Loop{Name: "release", Watches: []Watch{
			{Kind: &corev1.Pod{}, Map: workload.Bound}, {Kind: &corev1.Node{}, Map: workload.BoundTo},
		}}, func(d Deps, settings workload.Settings) reconcile.Reconciler {
			return &workload.Releaser{Client: d.Client, Live: d.Live, Clock: d.Clock, Settings: settings}
		}},
	}),
	register(Registration{
		Name:    "attachdetach",
		For:     &storagev1.VolumeAttachment{},
		Watches: []Watch{{Kind: &corev1.Pod{}, Map: release.All}, {Kind: &corev1.Node{}, Map: release.All}},
		Workers: 1, ForVolumes: true,

		StandsInFor: []string{"persistentvolume-attach-detach-controller"},
	}, release.DefaultDetachSettings, func(d Deps, settings release.DetachSettings) (reconcile.Reconciler, error) {
		return &release.AttachDetach{Client: d.Client, Live: d.Live, Clock: d.Steady, Settings: settings}, nil
	}),
	register(Registration{
		Name: "attacher",
		For:  &storagev1.VolumeAttachment{},
		// A detach that hangs must not keep other volumes waiting.
		Workers: 10, Apart: true, ForVolumes: true,

		StandsInFor: []string{"external-attacher"}, ReachesStorage: true,
	}, release.DefaultDriverSettings, func(d Deps, settings release.DriverSettings) (reconcile.Reconciler, error) {
		return &release.Attacher{Client: d.Client, Storage: d.storage(settings)}, nil
	}),
	register(Registration{
		Name:    "storagefencer",
		For:     &fence.StorageFence{},
		Workers: 1, ForVolumes: true,

		StandsInFor: []string{"csi-addons"}, ReachesStorage: true,
	}, release.DefaultDriverSettings, func(d Deps, settings release.DriverSettings) (reconcile.Reconciler, error) {
		return &release.Fencer{Client: d.Client, Storage: d.storage(settings)}, nil
	}),
	register(Registration{
		Name:    "podgc",
		For:     &corev1.Pod{},
		Watches: []Watch{{Kind: &corev1.Node{}, Map: release.All}},
		Workers: 1, ForVolumes: true,

		StandsInFor: []string{"pod-garbage-collector-controller"},
	}, release.DefaultCollectSettings, func(d Deps, settings release.CollectSettings) (reconcile.Reconciler, error) {
		return &release.PodGC{Client: d.Client, Live: d.Live, Clock: d.Steady, Settings: settings}, nil
	}),
	register(Registration{
		Name:    "tainteviction",
		For:     &corev1.Pod{},
		Watches: []Watch{{Kind: &corev1.Node{}, Map: release.PodsOf}},
		Workers: 1, ForVolumes: true,

		StandsInFor: []string{"taint-eviction-controller"},
	}, release.DefaultEvictionSettings, func(d Deps, settings release.EvictionSettings) (reconcile.Reconciler, error) {
		return &release.Eviction{Client: d.Client, Clock: d.Steady, Settings: settings}, nil
	}),
	register(Registration{
		Name:    "daemons",
		For:     &corev1.Node{},
		Watches: []Watch{{Kind: &corev1.Pod{}, Map: workload.NodeOf}},
		Workers: 1, OnRequest: true,

		StandsInFor: []string{"daemonset-controller"},
	}, workload.DefaultDaemonSettings, func(d Deps, settings workload.DaemonSettings) (reconcile.Reconciler, error) {
		return &workload.Daemons{Client: d.Client, Settings: settings}, nil
	}),
	registerAgent(overlayable(Registration{
		Name: "watchdog", FeedsWatchdog: true,
	}, watchdog.Decide, watchdog.Actions), watchdog.DefaultSettings, func(d Deps, settings watchdog.Settings) (Agent, error) {
		decide, err := Overlaid(watchdog.Decide, watchdog.Actions, d.Overlay)
		agent := &watchdog.Agent{Boot: d.Boot, Watchdog: d.Watchdog, Node: d.Host.Node, Settings: settings, Decide: observed(decide, d.Decided)}
		if d.LiveWithin != nil {
			agent.API = d.LiveWithin(settings.RequestTimeout.Duration)
		}
		return agent, err
	}),
	registerAgent(overlayable(Registration{
		Name: "poisonpill", FeedsWatchdog: true, Announces: poisonpill.AgentAnnotation, AsksPeers: true, Plays: Fencer,
	}, poisonpill.Decide, poisonpill.Actions), poisonpill.DefaultSettings, func(d Deps, settings poisonpill.Settings) (Agent, error) {
		decide, err := Overlaid(poisonpill.Decide, poisonpill.Actions, d.Overlay)
		agent := &poisonpill.Agent{
			Clock: d.Clock, Boot: d.Boot, Watchdog: d.Watchdog, Peers: d.Peers, Reboot: d.Reboot, Warn: d.Warn,
			Node: d.Host.Node, Settings: settings, Decide: observed(decide, d.Decided),
		}
		if d.LiveWithin != nil {
			agent.API = d.LiveWithin(settings.Request())
		}
		if d.Watchdog != nil {
			err = errors.Join(err, settings.Fits(d.Watchdog.Timeout()))
		}
		return agent, err
	}),
}

// register completes the registration of a reconciler with its settings and constructor.
func register[S any](r Registration, defaults func() S, construct func(Deps, S) (reconcile.Reconciler, error)) Registration {
	r.Place, r.Settings = Cluster, func() any { s := defaults(); return &s }
	r.New = constructor(r, defaults, construct)
	return r
}

// loopOf is a loop with the constructor of its reconciler.
type loopOf[S any] struct {
	Loop
	construct func(Deps, S) reconcile.Reconciler
}

// registerLoops completes the registration of a process with several loops, which share its
// settings.
func registerLoops[S any](r Registration, defaults func() S, loops []loopOf[S]) Registration {
	r.Place, r.Workers, r.Settings = Cluster, 1, func() any { s := defaults(); return &s }
	for _, l := range loops {
		l.Loop.Workers = max(l.Loop.Workers, 1)
		l.Loop.New = constructor(r, defaults, func(d Deps, settings S) (reconcile.Reconciler, error) { return l.construct(d, settings), nil })
		r.Loops = append(r.Loops, l.Loop)
	}
	return r
}

// registerAgent completes the registration of an agent.
func registerAgent[S any](r Registration, defaults func() S, construct func(Deps, S) (Agent, error)) Registration {
	r.Place, r.Workers, r.Settings = EveryHost, 1, func() any { s := defaults(); return &s }
	r.NewAgent = constructor(r, defaults, construct)
	return r
}

// constructor makes a constructor that gives a program its Deps and its own settings.
func constructor[S, P any](r Registration, defaults func() S, construct func(Deps, S) (P, error)) func(Deps) (P, error) {
	return func(d Deps) (none P, err error) {
		settings := defaults()
		switch s := d.Settings.(type) {
		case nil:
		case *S:
			settings = *s
		default:
			return none, fmt.Errorf("make the controller %s: settings are a %T and must be a %T, as Registration.Settings returns", r.Name, s, &settings)
		}
		if err := r.CheckOverlay(d.Overlay); err != nil {
			return none, err
		}
		program, err := construct(d, settings)
		if err != nil {
			return none, fmt.Errorf("make the controller %s: %w", r.Name, err)
		}
		return program, nil
	}
}

// overlayable completes a registration with the facts and actions of its Decide.
func overlayable[S any, A ~string](r Registration, decide func(S) A, actions []A) Registration {
	r.Facts = factNames[S]()
	for _, a := range actions {
		r.Actions = append(r.Actions, string(a))
	}
	r.Actions = append(r.Actions, Panic)
	r.check = func(rules []Rule) error {
		_, err := Overlaid(decide, actions, rules)
		return err
	}
	return r
}

// observed returns decide unchanged, except that it reports each decision to tell.
func observed[S any, A ~string](decide func(S) A, tell func(facts any, action string)) func(S) A {
	if tell == nil {
		return decide
	}
	return func(s S) A {
		action := decide(s)
		tell(s, string(action))
		return action
	}
}
