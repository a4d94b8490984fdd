package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/reboot"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/sim/steps"
)

// fenceAnnotation asks a fencer to delete the Node of a host. It looks like a
// request to reboot, so that it is in the history.
const fenceAnnotation = "reboot.metal3.io/fencer"

// fencer is a controller that is right as long as nothing is late or old: it deletes the Node of a
// host that asks for it, and then takes the request away. A careful one names the UID of the Node.
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

// controller is a registration for the tests.
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
	// seen holds the events so far.
	seen []history.Event
}

// open brings a host up, with the controllers of the test.
func open(t *testing.T, deviations []scenarios.Deviation, watch func(steps.Step) (scenarios.Deviation, bool), chosen ...controllers.Selection) *stage {
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
		// fault is the fault of the deletion.
		fault scenarios.StepFault
		// crash is a crash when the host is back.
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
				st := open(t, nil, func(s steps.Step) (scenarios.Deviation, bool) {
					switch {
					case s.Actor != "fencer":
					case s.Class == steps.ClassAPI && s.Effect && !deleted:
						deleted = true
						if c.fault == "" {
							return scenarios.Deviation{Step: s.Name(), Delay: slow}, true
						}
						return scenarios.Deviation{Step: s.Name(), Fault: c.fault, Delay: late}, true
					case s.Class == steps.ClassStart && c.start != "" && !started:
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

// kicker forces off a host that asks for it, and takes the request away.
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
		slow  scenarios.Duration
		crash *scenarios.CrashOp
		offs  int
	}{
		{name: "nothing", offs: 1},
		{name: "the client gave up", fault: scenarios.FaultLate, offs: 2},
		{name: "the client died", fault: scenarios.FaultCrashLate, offs: 2},
		{name: "the client did not wait so long", slow: 2 * late, offs: 2},
		{name: "it died before its command", crash: &scenarios.CrashOp{Controller: "kicker", Occurrence: 1, Point: scenarios.CrashBefore}, offs: 1},
		{name: "it died with its command on the way", crash: &scenarios.CrashOp{Controller: "kicker", Occurrence: 1, Point: scenarios.CrashBefore, LateBy: late}, offs: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			commanded := false
			st := open(t, nil, func(s steps.Step) (scenarios.Deviation, bool) {
				if s.Actor != "kicker" || s.Class != steps.ClassBMC || commanded || c.fault == "" && c.slow == 0 {
					return scenarios.Deviation{}, false
				}
				commanded = true
				return scenarios.Deviation{Step: s.Name(), Fault: c.fault, Delay: cmp.Or(c.slow, late)}, true
			}, controller("kicker", 1, func(d controllers.Deps) reconcile.Reconciler { return &kicker{d.Client, d.Power(0)} }))
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

// TestCrashWhileDown kills a process that has crashed a moment ago: it is down for as
// long as the later crash says.
func TestCrashWhileDown(t *testing.T) {
	st := open(t, nil, nil, controller("fencer", 1, func(d controllers.Deps) reconcile.Reconciler { return &fencer{d.Client, false} }))
	for _, downtime := range []time.Duration{5 * time.Second, 30 * time.Second, time.Second} {
		st.do(scenarios.Op{Crash: &scenarios.CrashOp{Controller: "fencer", RestartAfter: scenarios.Duration(downtime)}})
	}
	at := st.now
	st.until(history.ControllerStarted)
	if down := st.now - at; down != 30*time.Second {
		t.Errorf("it was down for %s, want 30s", down)
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

// hasty is a fencer that takes every error of a deletion for a deletion.
type hasty struct{ client.Client }

func (h *hasty) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var host api.BareMetalHost
	if err := h.Get(ctx, request.NamespacedName, &host); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if _, asked := host.Annotations[fenceAnnotation]; !asked {
		return reconcile.Result{}, nil
	}
	_ = h.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host.Name}})
	return reconcile.Result{}, h.Patch(ctx, &host, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+fenceAnnotation+`":null}}}`)))
}

// TestAPIErrors has the API server refuse a deletion, as a step's fault and as the
// story's: a fencer tries again, and a hasty one forgets it.
func TestAPIErrors(t *testing.T) {
	fencers := map[string]func(controllers.Deps) reconcile.Reconciler{
		"fencer": func(d controllers.Deps) reconcile.Reconciler { return &fencer{d.Client, true} },
		"hasty":  func(d controllers.Deps) reconcile.Reconciler { return &hasty{d.Client} },
	}
	type refusal struct {
		fault scenarios.StepFault
		op    *scenarios.FailAPIOp
		bites bool
	}
	refusals := []refusal{
		{bites: false},
		{op: &scenarios.FailAPIOp{Verb: "delete", Kind: "Node", Code: 403, Times: 2}, bites: true},
		{op: &scenarios.FailAPIOp{Verb: "delete", Kind: "Pod", Code: 403}},
		{op: &scenarios.FailAPIOp{Verb: "create", Kind: "Node", Code: 403}},
		{op: &scenarios.FailAPIOp{Controller: "reboot", Code: 403}},
	}
	for _, fault := range []scenarios.StepFault{
		scenarios.FaultForbidden, scenarios.FaultNotFound, scenarios.FaultConflict, scenarios.FaultTooMany, scenarios.FaultInternal, scenarios.FaultErrorBefore,
	} {
		refusals = append(refusals, refusal{fault: fault, bites: true})
	}
	for name, construct := range fencers { // order does not matter: each on its own
		for _, r := range refusals {
			t.Run(fmt.Sprintf("%s %s%v", name, r.fault, r.op), func(t *testing.T) {
				bent := false
				st := open(t, nil, func(s steps.Step) (scenarios.Deviation, bool) {
					if r.fault == "" || s.Actor != name || s.Class != steps.ClassAPI || bent {
						return scenarios.Deviation{}, false
					}
					bent = true
					return scenarios.Deviation{Step: s.Name(), Fault: r.fault}, true
				}, controller(name, 1, construct))
				if r.op != nil {
					st.do(scenarios.Op{FailAPI: r.op})
				}
				st.do(scenarios.Op{Annotate: &scenarios.AnnotateOp{Object: "BareMetalHost/worker-1", Key: fenceAnnotation}})
				st.pass(20 * time.Second)
				want, faults := 1, 0
				if r.bites && name == "hasty" {
					want = 0
				}
				if r.op != nil && r.bites {
					if faults = r.op.Times; name == "hasty" {
						faults = 1
					}
				}
				if n := st.count(history.NodeDeleted, name); n != want {
					t.Errorf("%d Nodes were deleted, want %d", n, want)
				}
				if n := st.count(history.APIFault, name); n != faults {
					t.Errorf("the history has %d failed requests, want %d", n, faults)
				}
			})
		}
	}
}

// TestOutage takes the API server away: no request reaches it, a controller that crashes meanwhile
// stays away as well, and afterwards everybody catches up.
func TestOutage(t *testing.T) {
	for _, hang := range []bool{false, true} {
		st := open(t, nil, nil, controller("fencer", 1, func(d controllers.Deps) reconcile.Reconciler { return &fencer{d.Client, true} }))
		st.do(scenarios.Op{Annotate: &scenarios.AnnotateOp{Object: "BareMetalHost/worker-1", Key: fenceAnnotation}})
		st.pass(watchLatency + workLatency + apiLatency/2) // the deletion is on its way
		st.do(scenarios.Op{APIOutage: &scenarios.OutageOp{Hang: hang}})
		begin := st.now
		st.pass(time.Second)
		if n := st.count(history.APIFault, "fencer"); n == 0 || hang && n != 1 {
			t.Errorf("hang %t: %d requests failed", hang, n)
		}
		var ineffective *play.Ineffective
		if err := st.b.Apply(scenarios.Op{Delete: &scenarios.ObjectOp{Object: "Node/worker-1"}}); !errors.As(err, &ineffective) {
			t.Errorf("hang %t: a user's request to an API server that is away: %v", hang, err)
		}
		st.do(scenarios.Op{Crash: &scenarios.CrashOp{Controller: "fencer"}})
		st.pass(time.Minute)
		for _, e := range st.seen {
			if e.At > begin && (e.Kind.Layer() == history.API || e.Kind == history.ControllerStarted) {
				t.Errorf("hang %t: while the API server was away came %s", hang, e)
			}
		}
		st.do(scenarios.Op{APIRestore: &struct{}{}})
		st.until(history.ControllerStarted)
		st.until(history.NodeDeleted)
		// The kubelet has been renewing its Lease since, or the Node would not be
		// Ready when it is back.
		st.do(scenarios.Op{PowerLoss: hostOp})
		st.do(scenarios.Op{PowerUp: hostOp})
		st.until(history.NodeReady)
	}
}

// sure is a kicker that asks the API server before it acts.
type sure struct {
	kicker
	live client.Reader
}

func (k *sure) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var host api.BareMetalHost
	if err := k.live.Get(ctx, request.NamespacedName, &host); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if _, asked := host.Annotations[fenceAnnotation]; !asked {
		return reconcile.Result{}, nil
	}
	return k.kicker.Reconcile(ctx, request)
}

func newSure(d controllers.Deps) reconcile.Reconciler {
	return &sure{kicker{d.Client, d.Power(0)}, d.Live}
}

// TestSecond starts another process of a controller: both act, and the second can
// be named, stopped and started again.
func TestSecond(t *testing.T) {
	st := open(t, nil, nil, controller("kicker", 1, newSure))
	st.b.sim.prepared.controllers = append(st.b.sim.prepared.controllers, controller("kicker", 1, newSure))
	op := &scenarios.ControllerOp{Controller: "kicker"}
	ask := func() {
		st.do(scenarios.Op{Annotate: &scenarios.AnnotateOp{Object: "BareMetalHost/worker-1", Key: fenceAnnotation}})
		st.pass(5 * time.Second)
		st.do(scenarios.Op{PowerUp: hostOp})
		st.pass(5 * time.Second)
	}
	commands := func(first, second int) {
		t.Helper()
		ask()
		if n := st.count(history.BMCCommand, "kicker"); n != first {
			t.Errorf("the first process gave %d commands, want %d", n, first)
		}
		if n := st.count(history.BMCCommand, "kicker-2"); n != second {
			t.Errorf("the second process gave %d commands, want %d", n, second)
		}
	}
	commands(1, 0)
	st.do(scenarios.Op{StartSecond: op})
	st.until(history.ControllerStarted)
	commands(2, 1)
	st.do(scenarios.Op{StopSecond: op})
	commands(3, 1)
	st.do(scenarios.Op{StartSecond: op})
	st.until(history.ControllerStarted)
	commands(4, 2)
	st.do(scenarios.Op{Crash: &scenarios.CrashOp{Controller: "kicker-2"}})
	st.do(scenarios.Op{Heal: new(scenarios.HealOp)})
	commands(5, 2)
}

// TestSwitches: an operation on a host whose row says that it switches changes the host's power
// within a minute, or ends its boot, whether the host is on or off. No other one does.
func TestSwitches(t *testing.T) {
	fields := reflect.TypeFor[scenarios.Op]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		if fields.Field(i).Type != reflect.TypeFor[*scenarios.HostOp]() || strings.Contains(name, "Storage") || strings.Contains(name, "Volume") {
			continue // there is no volume here
		}
		var op scenarios.Op
		reflect.ValueOf(&op).Elem().Field(i).Set(reflect.ValueOf(hostOp))
		switched := false
		for _, off := range []bool{false, true} {
			st := open(t, nil, nil)
			if off {
				st.do(scenarios.Op{PowerLoss: hostOp})
				st.pass(time.Second)
			}
			st.seen = nil
			switch err := st.b.Apply(op); {
			case errors.Is(err, errLacking):
				continue
			case err != nil:
				t.Fatal(err)
			}
			st.pass(time.Minute)
			for _, kind := range []history.Kind{history.PowerOn, history.PowerOff, history.BootEnded} {
				switched = switched || slices.ContainsFunc(st.seen, func(e history.Event) bool { return e.Kind == kind })
			}
		}
		if switched != op.Switches() {
			t.Errorf("%s switches the host: %t, and its row says %t", op.Name(), switched, op.Switches())
		}
	}
}

// TestPausedLeader pauses the leader of two processes between its question and its
// command. The other one takes over, and does what is to be done; when the first
// goes on, its command hits the host's next boot, and only then it learns that it
// no longer leads.
func TestPausedLeader(t *testing.T) {
	c := controller("kicker", 1, newSure)
	st := open(t, nil, nil, c)
	second, err := st.b.addProcess(c, 2)
	if err != nil {
		t.Fatal(err)
	}
	first := st.b.process("kicker")
	first.kill(death{})
	for _, p := range []*process{first, second} {
		st.b.candidate(p, "kickers")
	}
	st.until(history.ControllerStarted)
	second.restart(startLatency)
	st.pass(time.Minute)
	if !first.up || second.up || !second.election.standby {
		t.Fatalf("the first process leads: %t, the second: %t", first.up, second.up)
	}
	st.do(scenarios.Op{Annotate: &scenarios.AnnotateOp{Object: "BareMetalHost/worker-1", Key: fenceAnnotation}})
	st.pass(watchLatency + workLatency + apiLatency/2) // it has asked, and not been answered
	st.do(scenarios.Op{PauseController: &scenarios.ControllerOp{Controller: "kicker"}})
	st.until(history.PowerOff)
	if n := st.count(history.PowerOff, "kicker-2"); n != 1 {
		t.Errorf("the host went off %d times by the process that took over, want once", n)
	}
	st.pass(5 * time.Second)
	st.do(scenarios.Op{PowerUp: hostOp})
	st.pass(5 * time.Second)
	st.do(scenarios.Op{ResumeController: &scenarios.ControllerOp{Controller: "kicker"}})
	st.pass(time.Minute)
	if n := st.count(history.PowerOff, "kicker"); n != 1 {
		t.Errorf("the host went off %d times by the process that no longer leads, want once", n)
	}
	if first.up || !second.up || !first.election.standby {
		t.Errorf("afterwards the first process leads: %t, the second: %t", first.up, second.up)
	}
}

// TestLeaderWithoutAPI: a leader that cannot renew its Lease ends in time, and one
// of the processes leads when it can.
func TestLeaderWithoutAPI(t *testing.T) {
	c := controller("kicker", 1, newSure)
	st := open(t, nil, nil, c)
	second, err := st.b.addProcess(c, 2)
	if err != nil {
		t.Fatal(err)
	}
	processes := []*process{st.b.process("kicker"), second}
	processes[0].kill(death{})
	second.restart(startLatency)
	for _, p := range processes {
		st.b.candidate(p, "kickers")
	}
	st.until(history.ControllerStarted)
	st.do(scenarios.Op{APIOutage: &scenarios.OutageOp{}})
	st.until(history.ControllerCrashed)
	st.pass(30 * time.Second)
	for _, p := range processes {
		if p.up {
			t.Errorf("%s leads without a Lease", p.actor.name)
		}
	}
	st.do(scenarios.Op{APIRestore: &struct{}{}})
	st.pass(time.Minute)
	if processes[0].up == processes[1].up {
		t.Errorf("afterwards the first process leads: %t, the second: %t", processes[0].up, processes[1].up)
	}
}

// patient is a fencer of Nodes that have been Ready for half a minute: it compares
// its own clock with the kubelet's.
type patient struct {
	client.Client
	since func(time.Time) time.Duration
}

func (p *patient) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var node corev1.Node
	if err := p.Get(ctx, client.ObjectKey{Name: request.Name}, &node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if left := 30*time.Second - p.since(node.Status.Conditions[0].LastTransitionTime.Time); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	return reconcile.Result{}, p.Delete(ctx, &node)
}

// TestClocks puts clocks wrong before a host boots: a controller that compares two of them acts
// too early or too late.
func TestClocks(t *testing.T) {
	for _, c := range []struct {
		name string
		op   *scenarios.ClockOp
		want time.Duration // after the Node was made; about
	}{
		{"right", &scenarios.ClockOp{Controller: "patient"}, 30 * time.Second},
		{"the controller's ahead", &scenarios.ClockOp{Controller: "patient", Ahead: scenarios.Duration(20 * time.Second)}, 10 * time.Second},
		{"the controller's behind", &scenarios.ClockOp{Controller: "patient", Behind: scenarios.Duration(20 * time.Second)}, 50 * time.Second},
		{"the host's ahead", &scenarios.ClockOp{Host: "worker-1", Ahead: scenarios.Duration(20 * time.Second)}, 50 * time.Second},
		{"the host's behind", &scenarios.ClockOp{Host: "worker-1", Behind: scenarios.Duration(20 * time.Second)}, 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := open(t, nil, nil, controller("patient", 1, func(d controllers.Deps) reconcile.Reconciler { return &patient{d.Client, d.Clock.Since} }))
			st.until(history.NodeDeleted)
			st.do(scenarios.Op{PowerLoss: hostOp})
			st.do(scenarios.Op{SetClock: c.op})
			st.do(scenarios.Op{PowerUp: hostOp})
			st.until(history.NodeCreated)
			made := st.now
			st.until(history.NodeDeleted)
			if after := st.now - made; (after - c.want).Abs() > time.Second {
				t.Errorf("the Node was deleted %s after it was made, want %s", after, c.want)
			}
		})
	}
}
