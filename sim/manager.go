package sim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/sim/kube"
)

// manager is the controller-runtime manager of a managed process. Its controllers are
// real ones; their queues, and the caches and clients that they get, are the simulator's.
// Everything here runs in the bubble.
type manager[R any] struct {
	m         *managed
	deps      controllers.Deps
	elected   chan struct{}
	runnables []ctrlmanager.Runnable
}

// newManager makes the manager of an incarnation, with what starts the runnables that are
// added to it.
func newManager(m *managed, deps controllers.Deps) (mgr ctrlmanager.Manager, start func(context.Context)) {
	return managerOf(m, deps, ctrlmanager.Manager.GetEventRecorder)
}

// managerOf finds out which recorders this version of controller-runtime has: 0.25 wants
// more of one than 0.24.
func managerOf[R any](m *managed, deps controllers.Deps, _ func(ctrlmanager.Manager, string) R) (ctrlmanager.Manager, func(context.Context)) {
	g := &manager[R]{m: m, deps: deps}
	return any(g).(ctrlmanager.Manager), g.run // a test sees that it is one
}

// run starts what was added, one after the other.
func (g *manager[R]) run(ctx context.Context) {
	for _, r := range g.runnables {
		g.m.turn(func() {
			if err := r.Start(ctx); err != nil {
				g.m.say(func() { g.m.p.w.fail(fmt.Errorf("run the controller %s: %w", g.m.p.actor.name, err)) })
			}
		})
	}
}

// The types of the two fields of a controller that are the simulator's. A test notices
// when controller-runtime has them no more.
type (
	newQueue = func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request]
	doer     = reconcile.TypedReconciler[reconcile.Request]
)

// Add takes a controller, or whatever else wants to run.
func (g *manager[R]) Add(r ctrlmanager.Runnable) error {
	g.runnables = append(g.runnables, r)
	v := reflect.ValueOf(r)
	if _, ok := r.(interface{ GetLogger() logr.Logger }); !ok || v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil // no controller
	}
	name, ok1 := field[string](v, "Name")
	queue, ok2 := field[newQueue](v, "NewQueue")
	do, ok3 := field[doer](v, "Do")
	workers, ok4 := field[int](v, "MaxConcurrentReconciles")
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return fmt.Errorf("add a %T to the simulated manager: it is not a controller of controller-runtime 0.24, whose queue can be replaced", r)
	}
	c := &loop{name: *name, workers: *workers, actor: &g.m.p.actor}
	*do = observed{*do, g.m, c}
	*queue = func(_ string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		c.queue = &workQueue{m: g.m, c: c, limiter: limiter, handed: make(chan handed), down: make(chan struct{})}
		return c.queue
	}
	g.m.p.loops = append(g.m.p.loops, c)
	return nil
}

// field finds a field of a struct.
func field[T any](v reflect.Value, name string) (*T, bool) {
	f := v.Elem().FieldByName(name)
	if !f.IsValid() || !f.CanAddr() {
		return nil, false
	}
	found, ok := f.Addr().Interface().(*T)
	return found, ok
}

// What a controller may ask of its manager.

func (g *manager[R]) GetClient() client.Client          { return g.deps.Client }
func (g *manager[R]) GetAPIReader() client.Reader       { return g.deps.Live }
func (g *manager[R]) GetScheme() *runtime.Scheme        { return g.deps.Client.Scheme() }
func (g *manager[R]) GetRESTMapper() apimeta.RESTMapper { return g.deps.Client.RESTMapper() }
func (g *manager[R]) GetCache() ctrlcache.Cache         { return informers{g.deps.Client, g.m} }
func (g *manager[R]) GetFieldIndexer() client.FieldIndexer {
	return informers{g.deps.Client, g.m}
}
func (g *manager[R]) GetLogger() logr.Logger { return logr.Discard() }

// Elected is closed: the simulator starts no process that doesn't lead.
func (g *manager[R]) Elected() <-chan struct{} {
	if g.elected == nil {
		g.elected = make(chan struct{})
		close(g.elected)
	}
	return g.elected
}

// GetControllerOptions says what controllers have in common.
func (g *manager[R]) GetControllerOptions() config.Controller {
	anyName := true // one process after another has controllers of the same names
	return config.Controller{SkipNameValidation: &anyName, MaxConcurrentReconciles: g.m.p.registration.Workers, Logger: logr.Discard()}
}

// GetEventRecorderFor and GetEventRecorder make Events, of which the simulator records
// the Warnings.
func (g *manager[R]) GetEventRecorderFor(string) record.EventRecorder {
	return oldRecorder{g.deps.Warn}
}

func (g *manager[R]) GetEventRecorder(string) R { return any(recorder{g.deps.Warn}).(R) }

// What there is not: servers, and connections.

func (g *manager[R]) AddMetricsServerExtraHandler(string, http.Handler) error { return nil }
func (g *manager[R]) AddHealthzCheck(string, healthz.Checker) error           { return nil }
func (g *manager[R]) AddReadyzCheck(string, healthz.Checker) error            { return nil }
func (g *manager[R]) GetWebhookServer() webhook.Server {
	return webhook.NewServer(webhook.Options{}) // nobody starts it
}
func (g *manager[R]) GetConverterRegistry() conversion.Registry { return conversion.NewRegistry() }
func (g *manager[R]) GetConfig() *rest.Config                   { return &rest.Config{Transport: nowhere{}} }
func (g *manager[R]) GetHTTPClient() *http.Client               { return &http.Client{Transport: nowhere{}} }
func (g *manager[R]) Start(context.Context) error {
	return errors.New("start the simulated manager: the simulator does that")
}

// nowhere is where connections lead.
type nowhere struct{}

func (nowhere) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("connect to %s: a simulated process has only the clients of its manager", r.URL.Host)
}

type oldRecorder struct {
	warn func(client.Object, string, string)
}

func (r oldRecorder) Event(about runtime.Object, eventType, reason, message string) {
	if obj, ok := about.(client.Object); ok && eventType == corev1.EventTypeWarning {
		r.warn(obj, reason, message)
	}
}

func (r oldRecorder) Eventf(about runtime.Object, eventType, reason, format string, args ...any) {
	r.Event(about, eventType, reason, fmt.Sprintf(format, args...))
}

func (r oldRecorder) AnnotatedEventf(about runtime.Object, _ map[string]string, eventType, reason, format string, args ...any) {
	r.Event(about, eventType, reason, fmt.Sprintf(format, args...))
}

type recorder struct {
	warn func(client.Object, string, string)
}

func (r recorder) Eventf(about, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	oldRecorder(r).Event(about, eventType, reason, fmt.Sprintf(note, args...))
}

// AnnotatedEventf is that of controller-runtime 0.25.
func (r recorder) AnnotatedEventf(about, related runtime.Object, _ map[string]string, eventType, reason, action, note string, args ...any) {
	r.Eventf(about, related, eventType, reason, action, note, args...)
}

// informers is the cache of a managed process: it reads what its view shows.
type informers struct {
	client.Reader
	m *managed
}

// GetInformer returns the informer of a kind that the registration names.
func (i informers) GetInformer(_ context.Context, obj client.Object, _ ...ctrlcache.InformerGetOption) (ctrlcache.Informer, error) {
	kind, err := i.m.p.uplink.store.Server().KindOf(obj)
	if err != nil {
		return nil, err
	}
	if found := i.m.informers[kind]; found != nil {
		return found, nil
	}
	err = fmt.Errorf("controller %s watches %s, which its registration does not name: add it to Reads, in this form", i.m.p.actor.name, kind)
	i.m.bubble.Say(func() { i.m.p.w.fail(err) })
	return nil, err
}

// GetInformerForKind is GetInformer for the typed object of a kind.
func (i informers) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...ctrlcache.InformerGetOption) (ctrlcache.Informer, error) {
	obj, err := i.m.p.cache.client.Scheme().New(gvk)
	if err != nil {
		return nil, err
	}
	return i.GetInformer(ctx, obj.(client.Object), opts...)
}

// IndexField adds an index to the cache.
func (i informers) IndexField(_ context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	kind, err := i.m.p.uplink.store.Server().KindOf(obj)
	if err == nil {
		i.m.p.cache.view.Index(kind, field, extract)
	}
	return err
}

// RemoveInformer is refused: nobody does.
func (i informers) RemoveInformer(context.Context, client.Object) error {
	return errors.New("remove an informer: the simulator doesn't model it")
}

// Start has nothing to do, and WaitForCacheSync nothing to wait for.
func (i informers) Start(context.Context) error           { return nil }
func (i informers) WaitForCacheSync(context.Context) bool { return true }

// informer passes on to handlers what becomes of the objects of a kind.
type informer struct {
	m        *managed
	kind     *kube.Kind
	mu       sync.Mutex
	handlers []*handler
}

// handler is one of an informer.
type handler struct {
	toolscache.ResourceEventHandler
}

func (h *handler) tell(change kube.Change, initial bool) {
	switch {
	case change.New == nil && change.Tombstone:
		h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: toolscache.MetaObjectToName(change.Old).String(), Obj: change.Old})
	case change.New == nil:
		h.OnDelete(change.Old)
	case change.Old == nil:
		h.OnAdd(change.New, initial)
	default:
		h.OnUpdate(change.Old, change.New)
	}
}

// HasSynced and HasSyncedChecker: the simulator passes on what the first list brings before
// anything else happens.
func (h *handler) HasSynced() bool                          { return true }
func (h *handler) HasSyncedChecker() toolscache.DoneChecker { return synced{} }

type synced struct{}

func (synced) Name() string { return "simulated" }

// Done is closed.
func (synced) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// AddEventHandlerWithOptions adds a handler, which learns of what is in the cache already.
func (i *informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, _ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	added := &handler{h}
	i.mu.Lock()
	i.handlers = append(i.handlers, added)
	i.mu.Unlock()
	for _, obj := range i.m.p.cache.view.Objects(i.kind) {
		added.tell(kube.Change{New: obj}, true)
	}
	return added, nil
}

// AddEventHandler and AddEventHandlerWithResyncPeriod are the same: nothing resyncs.
func (i *informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

func (i *informer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, _ time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

// RemoveEventHandler and AddIndexers are refused: nobody does.
func (i *informer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	return errors.New("remove a handler: the simulator doesn't model it")
}

func (i *informer) AddIndexers(toolscache.Indexers) error {
	return errors.New("add an indexer: the simulator doesn't model it")
}

func (i *informer) HasSynced() bool                          { return true }
func (i *informer) HasSyncedChecker() toolscache.DoneChecker { return synced{} }
func (i *informer) IsStopped() bool                          { return i.m.dead.Load() }

// workQueue is the queue of a controller as the controller sees it: what it adds goes to
// the queue of the process, and what a step takes from there a worker gets.
type workQueue struct {
	m       *managed
	c       *loop
	limiter workqueue.TypedRateLimiter[reconcile.Request]
	handed  chan handed
	down    chan struct{}
	once    sync.Once
}

var _ priorityqueue.PriorityQueue[reconcile.Request] = (*workQueue)(nil)

type handed struct {
	request  reconcile.Request
	priority int
}

// hand gives a request to a worker.
func (q *workQueue) hand(r reconcile.Request, priority int) { q.handed <- handed{r, priority} }

// GetWithPriority waits for a request.
func (q *workQueue) GetWithPriority() (r reconcile.Request, priority int, shutdown bool) {
	select {
	case h := <-q.handed:
		return h.request, h.priority, false
	case <-q.down:
		return r, 0, true
	}
}

// Get waits for a request.
func (q *workQueue) Get() (reconcile.Request, bool) {
	r, _, shutdown := q.GetWithPriority()
	return r, shutdown
}

// AddWithOpts adds requests, with the delays of the controller's own rate limiter.
func (q *workQueue) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	priority := usual
	if o.Priority != nil {
		priority = *o.Priority
	}
	for _, r := range requests {
		after := o.After
		if o.RateLimited {
			if limited := q.limiter.When(r); after == 0 || limited < after {
				after = limited
			}
		}
		q.m.say(func() { q.m.p.queue.add(q.m.p.queue.entry(q.c, r), after, priority) })
	}
}

func (q *workQueue) Add(r reconcile.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, r) }
func (q *workQueue) AddAfter(r reconcile.Request, after time.Duration) {
	q.AddWithOpts(priorityqueue.AddOpts{After: after}, r)
}
func (q *workQueue) AddRateLimited(r reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, r)
}

// Done says that a request is no longer worked on.
func (q *workQueue) Done(r reconcile.Request)            { q.m.say(func() { q.m.landed(ticket{q.c, r}) }) }
func (q *workQueue) Forget(r reconcile.Request)          { q.limiter.Forget(r) }
func (q *workQueue) NumRequeues(r reconcile.Request) int { return q.limiter.NumRequeues(r) }

// Len is what only metrics want to know.
func (q *workQueue) Len() int           { return 0 }
func (q *workQueue) ShutDown()          { q.once.Do(func() { close(q.down) }) }
func (q *workQueue) ShutDownWithDrain() { q.ShutDown() }

// ShuttingDown reports whether the process is about to end.
func (q *workQueue) ShuttingDown() bool {
	select {
	case <-q.down:
		return true
	default:
		return false
	}
}
