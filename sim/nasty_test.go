package sim

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/reboot"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
)

// fenceAnnotation asks a fencer to delete the Node of a host. It looks like a
// request to reboot, so that it is in the history.
const fenceAnnotation = "reboot.metal3.io/fencer"

// fencer is a controller that is right as long as nothing is late or old: it
// deletes the Node of a host that asks for it, and then takes the request away. A
// careful one says which Node it means.
type fencer struct {
	client.Client
	careful bool
}

func (f *fencer) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var host api.BareMetalHost
	if err := f.Get(ctx, request.NamespacedName, &host); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if _, asked := host.Annotations[fenceAnnotation]; !asked {
		return reconcile.Result{}, nil
	}
	var node corev1.Node
	err := f.Get(ctx, client.ObjectKey{Name: host.Name}, &node)
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, f.Patch(ctx, &host, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+fenceAnnotation+`":null}}}`)))
	case err != nil:
		return reconcile.Result{}, err
	case f.careful:
		return reconcile.Result{}, f.Delete(ctx, &node, client.Preconditions{UID: &node.UID})
	}
	return reconcile.Result{}, f.Delete(ctx, &node)
}

// controller is a registration of the tests' own.
func controller(name string, workers int, reconciler func(controllers.Deps) reconcile.Reconciler) controllers.Selection {
	return controllers.Selection{Registration: controllers.Registration{
		Name: name, For: &api.BareMetalHost{}, Workers: workers,
		Watches: []controllers.Watch{{Kind: &corev1.Node{}, Map: func(_ context.Context, _ client.Reader, node client.Object) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: objects.Namespace, Name: node.GetName()}}}
		}}},
		New: func(d controllers.Deps) (reconcile.Reconciler, error) { return reconciler(d), nil },
	}}
}

// stage is a world of one host in which a test plays its story by hand.
type stage struct {
	t   *testing.T
	b   *Backend
	now time.Duration
	// seen is what has happened.
	seen []history.Event
}

// open brings a host up, with the controllers of the test.
func open(t *testing.T, deviations []scenarios.Deviation, watch func(Step) (scenarios.Deviation, bool), chosen ...controllers.Selection) *stage {
	t.Helper()
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := scenarios.Compile(&scenarios.Scenario{
		Metadata: scenarios.Metadata{Name: "stage"},
		Spec: scenarios.Spec{Topology: scenarios.Topology{
			Hosts: []scenarios.Host{{Name: "worker-1", Watchdog: scenarios.Duration(10 * time.Second)}}, Timings: scenarios.HostTimings{Boot: scenarios.Duration(time.Second)},
		}},
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	st := &stage{t: t, b: s.Backend()}
	st.b.Watch = watch
	if _, err := st.b.Start(context.Background(), plan.With(deviations)); err != nil {
		t.Fatal(err)
	}
	if err := st.b.addControllers(chosen); err != nil {
		t.Fatal(err)
	}
	for _, c := range chosen {
		st.b.process(c.Name).restart(startLatency)
	}
	st.until(history.RunStarted)
	st.pass(time.Second)
	return st
}

func (st *stage) advance(until time.Duration, stop func(history.Event) bool) bool {
	st.t.Helper()
	stopped := false
	now, err := st.b.Advance(until, func(e history.Event) bool {
		st.seen = append(st.seen, e)
		stopped = stop(e)
		return stopped
	})
	if err != nil {
		st.t.Fatal(err)
	}
	st.now = now
	return stopped
}

func (st *stage) until(kind history.Kind) {
	st.t.Helper()
	if !st.advance(st.now+time.Minute, func(e history.Event) bool { return e.Kind == kind }) {
		st.t.Fatalf("no %s by %s", kind, st.now)
	}
}

func (st *stage) pass(d time.Duration) {
	st.t.Helper()
	st.advance(st.now+d, func(history.Event) bool { return false })
}

func (st *stage) do(op scenarios.Op) {
	st.t.Helper()
	if err := st.b.Apply(op); err != nil {
		st.t.Fatal(err)
	}
}

// count counts the events of a kind by an actor.
func (st *stage) count(kind history.Kind, actor string) (n int) {
	for _, e := range st.seen {
		if e.Kind == kind && e.Actor == actor {
			n++
		}
	}
	return n
}

// host names the one host of the stage.
var hostOp = &scenarios.HostOp{Host: "worker-1"}

// TestNodesOfTheNextBoot plays one fencing, after which the host boots again, with
// each of the faults by which a request or a belief outlives its time. A fencer
// that doesn't say which Node it means deletes the one of the next boot as well; a
// careful one doesn't, and without a fault neither does.
func TestNodesOfTheNextBoot(t *testing.T) {
	const late = scenarios.Duration(15 * time.Second)
	// The Node is deleted 3 s after it was asked for, and the fencer starts again
	// 10 s after it.
	const slow, old = scenarios.Duration(3 * time.Second), scenarios.Duration(9 * time.Second)
	for _, c := range []struct {
		name string
		// fault is that of the deletion.
		fault scenarios.StepFault
		// crash is what happens when the host is back.
		crash *scenarios.CrashOp
		// start is the fault of the start after that.
		start     scenarios.StepFault
		deletions int
	}{
		{name: "nothing", deletions: 1},
		{name: "the request is late", fault: scenarios.FaultLate, deletions: 2},
		{name: "the request is late and its client dead", fault: scenarios.FaultCrashLate, deletions: 2},
		{name: "a restart from an old list", crash: &scenarios.CrashOp{Controller: "fencer", StaleBy: old}, deletions: 2},
		{name: "a restart from a new list", crash: &scenarios.CrashOp{Controller: "fencer"}, deletions: 1},
		{name: "a start step from an old list", crash: &scenarios.CrashOp{Controller: "fencer"}, start: scenarios.FaultStaleList, deletions: 2},
	} {
		for _, careful := range []bool{false, true} {
			name, want := c.name, c.deletions
			if careful {
				name, want = c.name+", but the fencer is careful", 1
			}
			t.Run(name, func(t *testing.T) {
				deleted, started := false, false
				st := open(t, nil, func(s Step) (scenarios.Deviation, bool) {
					switch {
					case s.Actor != "fencer":
					case s.Class == ClassAPI && s.Effect && !deleted:
						deleted = true
						if c.fault == "" {
							return scenarios.Deviation{Step: s.Name(), Delay: slow}, true
						}
						return scenarios.Deviation{Step: s.Name(), Fault: c.fault, Delay: late}, true
					case s.Class == ClassStart && c.start != "" && !started:
						started = true
						return scenarios.Deviation{Step: s.Name(), Fault: c.start, Delay: old}, true
					}
					return scenarios.Deviation{}, false
				}, controller("fencer", 1, func(d controllers.Deps) reconcile.Reconciler { return &fencer{d.Client, careful} }))
				st.do(scenarios.Op{Annotate: &scenarios.AnnotateOp{Object: "BareMetalHost/worker-1", Key: fenceAnnotation}})
				st.until(history.NodeDeleted)
				st.do(scenarios.Op{PowerLoss: hostOp})
				st.do(scenarios.Op{PowerUp: hostOp})
				st.until(history.NodeReady)
				if c.crash != nil {
					st.pass(5 * time.Second)
					st.do(scenarios.Op{Crash: c.crash})
				}
				st.pass(30 * time.Second)
				if n := st.count(history.NodeDeleted, "fencer"); n != want {
					t.Errorf("%d Nodes were deleted, want %d", n, want)
				}
			})
		}
	}
}

// kicker forces a host off that asks for it, and takes the request away.
type kicker struct {
	client.Client
	power reboot.Power
}

func (k *kicker) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var host api.BareMetalHost
	if err := k.Get(ctx, request.NamespacedName, &host); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if _, asked := host.Annotations[fenceAnnotation]; !asked {
		return reconcile.Result{}, nil
	}
	if err := k.power.Off(ctx, &host); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, k.Patch(ctx, &host, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+fenceAnnotation+`":null}}}`)))
}

// TestLateCommands plays one power-off, after which the host boots again: a
// command that is late hits the next boot.
func TestLateCommands(t *testing.T) {
	const late = scenarios.Duration(15 * time.Second)
	for _, c := range []struct {
		name  string
		fault scenarios.StepFault
		crash *scenarios.CrashOp
		offs  int
	}{
		{name: "nothing", offs: 1},
		{name: "the client gave up", fault: scenarios.FaultLate, offs: 2},
		{name: "the client died", fault: scenarios.FaultCrashLate, offs: 2},
		{name: "it died before its command", crash: &scenarios.CrashOp{Controller: "kicker", Effect: 1, Point: scenarios.CrashBefore}, offs: 1},
		{name: "it died with its command on the way", crash: &scenarios.CrashOp{Controller: "kicker", Effect: 1, Point: scenarios.CrashBefore, LateBy: late}, offs: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			commanded := false
			st := open(t, nil, func(s Step) (scenarios.Deviation, bool) {
				if s.Actor != "kicker" || s.Class != ClassBMC || commanded || c.fault == "" {
					return scenarios.Deviation{}, false
				}
				commanded = true
				return scenarios.Deviation{Step: s.Name(), Fault: c.fault, Delay: late}, true
			}, controller("kicker", 1, func(d controllers.Deps) reconcile.Reconciler { return &kicker{d.Client, d.Power} }))
			if c.crash != nil {
				st.do(scenarios.Op{Crash: c.crash})
			}
			st.do(scenarios.Op{Annotate: &scenarios.AnnotateOp{Object: "BareMetalHost/worker-1", Key: fenceAnnotation}})
			st.until(history.PowerOff)
			st.pass(5 * time.Second)
			st.do(scenarios.Op{PowerUp: hostOp})
			st.pass(30 * time.Second)
			if n := st.count(history.PowerOff, "kicker"); n != c.offs {
				t.Errorf("the host went off %d times, want %d", n, c.offs)
			}
		})
	}
}

// TestInFlight kills a process while its request is on the way: it is executed
// only if the scenario says so.
func TestInFlight(t *testing.T) {
	for _, late := range []time.Duration{0, 10 * time.Second} {
		st := open(t, nil, nil, controller("fencer", 1, func(d controllers.Deps) reconcile.Reconciler { return &fencer{d.Client, false} }))
		st.do(scenarios.Op{Annotate: &scenarios.AnnotateOp{Object: "BareMetalHost/worker-1", Key: fenceAnnotation}})
		st.pass(watchLatency + workLatency + apiLatency/2) // the deletion has been sent
		st.do(scenarios.Op{RemoveAnnotation: &scenarios.AnnotateOp{Object: "BareMetalHost/worker-1", Key: fenceAnnotation}})
		st.do(scenarios.Op{Crash: &scenarios.CrashOp{Controller: "fencer", LateBy: scenarios.Duration(late)}})
		at := st.now
		st.pass(time.Minute)
		want := 0
		if late > 0 {
			want = 1
		}
		if n := st.count(history.NodeDeleted, "fencer"); n != want {
			t.Errorf("executed %s late: %d Nodes were deleted, want %d", late, n, want)
		}
		for _, e := range st.seen {
			if e.Kind == history.NodeDeleted && e.At-at != late {
				t.Errorf("the Node was deleted %s after the crash, want %s", e.At-at, late)
			}
		}
	}
}
