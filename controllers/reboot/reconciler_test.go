package reboot

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
)

var (
	key   = types.NamespacedName{Namespace: "metal3", Name: "worker-1"}
	epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

const hard = `{"mode":"hard"}`

// world is one host with its BMC, an API server and a controller that may crash.
type world struct {
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	api   client.WithWatch
	// effects are the writes and commands so far, in order.
	effects []string
	// failWrite is the error of every write, if any.
	failWrite error
	warnings  []string

	on      bool
	changes time.Time // when a command in flight shows
	target  bool
	// cycles counts the boots.
	boots int
	// stuck hosts ignore a shutdown; a BMC ignores the next deaf commands.
	stuck bool
	deaf  int
	// unsupported says that the BMC refuses a shutdown for good.
	unsupported bool
	unreachable bool
	slowOn      time.Duration // how long the host takes to be on, if longer than usual
	refusesOff  error         // what is said to a PowerOff of a host that is off
	failOff     error         // what comes of every PowerOff

	reconciler *Reconciler
}

func newWorld(t *testing.T, change func(*api.BareMetalHost)) *world {
	host := &api.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "uid-1"},
		Spec:       api.BareMetalHostSpec{Online: true},
		Status:     api.BareMetalHostStatus{PoweredOn: true, Provisioning: api.ProvisionStatus{State: api.StateProvisioned}},
	}
	if change != nil {
		change(host)
	}
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(epoch), on: host.Status.PoweredOn}
	w.api = interceptor.NewClient(
		fake.NewClientBuilder().WithScheme(api.NewScheme()).WithObjects(host).WithStatusSubresource(host).Build(),
		interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				return w.write(obj, patch, func() error { return c.Patch(ctx, obj, patch, opts...) })
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				return w.write(obj, patch, func() error { return c.SubResource(sub).Patch(ctx, obj, patch, opts...) })
			},
		})
	w.restart()
	return w
}

func (w *world) write(obj client.Object, patch client.Patch, do func() error) error {
	if w.failWrite != nil {
		return w.failWrite
	}
	body, err := patch.Data(obj)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	w.effects = append(w.effects, string(body))
	return nil
}

// restart crashes the controller: it loses what it remembers.
func (w *world) restart() {
	w.reconciler = &Reconciler{
		Client: w.api, Live: w.api, Clock: w.clock, Steady: w.clock, Power: w, Settings: DefaultSettings(), Decide: Decide,
		Warn: func(_ client.Object, reason, message string) { w.warnings = append(w.warnings, reason+": "+message) },
	}
}

// settle lets a command take effect whose time has come.
func (w *world) settle() {
	if !w.changes.IsZero() && !w.clock.Now().Before(w.changes) {
		if w.target && !w.on {
			w.boots++
		}
		w.on, w.changes = w.target, time.Time{}
	}
}

func (w *world) State(context.Context, *api.BareMetalHost) (PowerState, error) {
	if w.unreachable {
		return "", errors.New("connection refused")
	}
	w.settle()
	if w.on {
		return On, nil
	}
	return Off, nil
}

func (w *world) command(name string, on bool, obeyed bool, takes time.Duration) error {
	if w.unreachable {
		return errors.New("connection refused")
	}
	w.effects = append(w.effects, name)
	if w.deaf > 0 {
		w.deaf--
		obeyed = false
	}
	w.settle()
	if obeyed && w.on == on && w.target != on {
		w.changes = time.Time{} // it overtakes the one under way
	}
	if obeyed && w.on != on {
		if at := w.clock.Now().Add(takes); w.changes.IsZero() || w.target != on || at.Before(w.changes) {
			w.target, w.changes = on, at
		}
	}
	return nil
}

func (w *world) On(context.Context, *api.BareMetalHost) error {
	return w.command("PowerOn", true, true, max(w.slowOn, 3*time.Second))
}

func (w *world) ShutDown(context.Context, *api.BareMetalHost) error {
	if w.unsupported {
		return fmt.Errorf("no GracefulShutdown: %w", errors.ErrUnsupported)
	}
	return w.command("ShutDown", false, !w.stuck, 20*time.Second)
}

func (w *world) Off(context.Context, *api.BareMetalHost) error {
	if w.refusesOff != nil && !w.on {
		return w.refusesOff
	}
	if w.failOff != nil {
		w.effects = append(w.effects, "PowerOff")
		return w.failOff
	}
	return w.command("PowerOff", false, true, 3*time.Second)
}

// step reconciles once and lets the time pass that the controller asked for.
func (w *world) step() time.Duration {
	w.t.Helper()
	result, err := w.reconciler.Reconcile(context.Background(), reconcile.Request{NamespacedName: key})
	if err != nil {
		w.t.Fatalf("reconcile: %v", err)
	}
	w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
	return result.RequeueAfter
}

// run reconciles until the controller has nothing to do, or until done.
func (w *world) run(done func() bool) {
	w.t.Helper()
	for range 1000 {
		if done != nil && done() {
			return
		}
		if after := w.step(); after == 0 || done == nil && after == w.reconciler.Settings.SteadyInterval.Duration {
			return
		}
	}
	w.t.Fatalf("no end; effects so far:\n%s", strings.Join(w.effects, "\n"))
}

func (w *world) host() *api.BareMetalHost {
	w.t.Helper()
	var host api.BareMetalHost
	if err := w.api.Get(context.Background(), key, &host); err != nil {
		w.t.Fatal(err)
	}
	return &host
}

func (w *world) annotate(annotation, value string) {
	w.t.Helper()
	host := w.host()
	if err := w.api.Patch(context.Background(), host, api.SetAnnotation(host, annotation, value)); err != nil {
		w.t.Fatal(err)
	}
	w.effects = w.effects[:len(w.effects)-1] // not the controller's
}

func (w *world) removeAnnotation(annotation string) {
	w.t.Helper()
	host := w.host()
	if err := w.api.Patch(context.Background(), host, api.RemoveAnnotations(host, annotation)); err != nil {
		w.t.Fatal(err)
	}
	w.effects = w.effects[:len(w.effects)-1]
}

func (w *world) setOnline(online bool) {
	w.t.Helper()
	host := w.host()
	host.Spec.Online = online
	if err := w.api.Update(context.Background(), host); err != nil {
		w.t.Fatal(err)
	}
}

// kinds abbreviates the effects to what they touch.
func (w *world) kinds() []string {
	var kinds []string
	for _, e := range w.effects {
		for _, k := range []string{"pendingRebootSince", "lastPoweredOn", "poweredOn", "annotations", "errorType", "heldOffFor"} {
			if strings.Contains(e, `"`+k+`"`) {
				e = k
			}
		}
		kinds = append(kinds, e)
	}
	return kinds
}

func (w *world) wantKinds(want ...string) {
	w.t.Helper()
	if got := w.kinds(); !slices.Equal(got, want) {
		w.t.Errorf("effects:\n got %v\nwant %v", got, want)
	}
}

// answered reports whether a client that holds the host has an answer that it is off.
func (w *world) answered() bool { return len(w.host().Status.Provisioning.HeldOffFor) > 0 }

func TestPlainSoftReboot(t *testing.T) {
	w := newWorld(t, nil)
	w.annotate(api.RebootAnnotation, "")
	w.run(nil)
	w.wantKinds("pendingRebootSince", "ShutDown", "poweredOn", "annotations", "lastPoweredOn", "PowerOn", "poweredOn")
	host := w.host()
	if w.boots != 1 || !w.on || !host.Status.PoweredOn || len(host.Annotations) != 0 {
		t.Errorf("boots %d, on %t, status %+v, annotations %v", w.boots, w.on, host.Status, host.Annotations)
	}
	if p := host.Status.Provisioning; p.RebootPending() || !p.LastPoweredOn.After(p.PendingRebootSince.Time) {
		t.Errorf("still pending: %+v", p)
	}
}

func TestStuckShutdownFallsBackToHard(t *testing.T) {
	for name, change := range map[string]func(*world){
		"stuck":       func(w *world) { w.stuck = true },
		"unsupported": func(w *world) { w.unsupported = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			change(w)
			w.annotate(api.RebootAnnotation, "")
			w.run(func() bool { return slices.Contains(w.effects, "PowerOff") })
			waited := w.clock.Now().Sub(epoch)
			if soft := w.reconciler.Settings.SoftTimeout.Duration; name == "stuck" && (waited < soft || waited > soft+10*time.Second) {
				t.Errorf("powered off hard after %s, want %s", waited, soft)
			} else if name == "unsupported" && waited > 10*time.Second {
				t.Errorf("waited %s for a shutdown that was refused", waited)
			}
			w.run(nil)
			if w.boots != 1 || !w.on {
				t.Errorf("boots %d, on %t", w.boots, w.on)
			}
		})
	}
}

func TestShutdownTimeSurvivesCrashes(t *testing.T) {
	w := newWorld(t, nil)
	w.stuck = true
	w.annotate(api.RebootAnnotation, "")
	w.run(func() bool { w.restart(); return slices.Contains(w.effects, "PowerOff") })
	if waited := w.clock.Now().Sub(epoch); waited > w.reconciler.Settings.SoftTimeout.Duration+10*time.Second {
		t.Errorf("powered off hard only after %s", waited)
	}
}

// TestShutdownTimeOutlastsAClock: a clock that is set while a host shuts down gives it neither less
// time nor more, unless the process dies.
func TestShutdownTimeOutlastsAClock(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		w := newWorld(t, nil)
		w.stuck = true
		shown := clocktesting.NewFakePassiveClock(epoch)
		w.reconciler.Clock = shown
		w.annotate(api.RebootAnnotation, "")
		w.run(func() bool { return slices.Contains(w.effects, "ShutDown") })
		shown.SetTime(epoch.Add(jump))
		w.run(func() bool { return slices.Contains(w.effects, "PowerOff") })
		if waited, soft := w.clock.Now().Sub(epoch), w.reconciler.Settings.SoftTimeout.Duration; waited < soft || waited > soft+10*time.Second {
			t.Errorf("a clock that jumped by %s: powered off hard after %s, want %s", jump, waited, soft)
		}
	}
}

func TestHardPreemptsSoft(t *testing.T) {
	w := newWorld(t, nil)
	w.stuck = true
	w.annotate(api.RebootAnnotation, "")
	w.run(func() bool { return slices.Contains(w.effects, "ShutDown") })
	w.annotate(api.RebootAnnotation+"/fencing", hard)
	w.step()
	w.wantKinds("pendingRebootSince", "ShutDown", "PowerOff")
}

func TestKeyedHoldsUntilAllAreRemoved(t *testing.T) {
	w := newWorld(t, nil)
	a, b := api.RebootAnnotation+"/a", api.RebootAnnotation+"/b"
	w.annotate(a, hard)
	w.annotate(b, "")
	w.annotate(api.RebootAnnotation, "")
	held := func() bool {
		return !w.on && !w.host().Status.PoweredOn && w.host().Annotations[api.RebootAnnotation] == ""
	}
	w.run(held)
	for _, last := range []string{a, b} {
		for range 20 {
			w.step()
		}
		if w.boots != 0 {
			t.Fatalf("booted although it is held by %s", last)
		}
		w.removeAnnotation(last)
	}
	w.run(nil)
	if w.boots != 1 {
		t.Errorf("boots %d, want 1", w.boots)
	}
}

func TestHoldIsEnforced(t *testing.T) {
	w := newWorld(t, nil)
	w.annotate(api.RebootAnnotation+"/a", hard)
	w.run(func() bool { return !w.host().Status.PoweredOn })
	w.on = true // somebody pressed the button
	pressed := w.clock.Now()
	w.run(func() bool { return !w.on })
	if took := w.clock.Now().Sub(pressed); took >= w.reconciler.Settings.CommandInterval.Duration {
		t.Errorf("off again only after %s: the PowerOff from before was waited for", took)
	}
	if w.boots != 0 {
		t.Errorf("the controller booted a host that is held")
	}
}

// TestPowerFailsAfterABootInTheFuture: a clock was ahead when a request was recorded, so that the
// boot that followed is dated after it. The next boot is another one, and not taken for that.
func TestPowerFailsAfterABootInTheFuture(t *testing.T) {
	pending := metav1.NewMicroTime(epoch.Add(time.Hour))
	booted := metav1.NewMicroTime(pending.Add(time.Microsecond))
	w := newWorld(t, func(host *api.BareMetalHost) {
		host.Status.Provisioning.PendingRebootSince, host.Status.Provisioning.LastPoweredOn = &pending, &booted
	})
	w.step() // that boot is seen on
	w.on = false
	failed := w.clock.Now()
	w.run(func() bool { return w.on })
	if took := w.clock.Now().Sub(failed); took > 2*time.Minute {
		t.Errorf("powered on again only after %s", took)
	}
	if now := w.host().Status.Provisioning.LastPoweredOn; !now.After(booted.Time) {
		t.Errorf("the boot is recorded at %s, and the one before at %s", now, booted)
	}
}

// TestHeldHostThatCameOnIsShutDownAgain: whoever turned it on, its operating system
// is asked first, as for every boot, and gets the whole soft timeout.
func TestHeldHostThatCameOnIsShutDownAgain(t *testing.T) {
	for name, hold := range map[string]func(*world){
		"held":    func(w *world) { w.annotate(api.RebootAnnotation+"/a", "") },
		"offline": func(w *world) { w.setOnline(false) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			hold(w)
			w.run(func() bool { return !w.host().Status.PoweredOn })
			w.clock.SetTime(w.clock.Now().Add(time.Hour))
			w.on, w.effects = true, nil // somebody pressed the button
			pressed := w.clock.Now()
			w.run(func() bool { return !w.on })
			if took := w.clock.Now().Sub(pressed); took > 2*time.Minute || slices.Contains(w.effects, "PowerOff") || !slices.Contains(w.effects, "ShutDown") {
				t.Errorf("off after %s by %v", took, w.kinds())
			}
		})
	}
}

// TestBootThatWasShownIsNotCalledOff: a host that booted, was seen on and lost its
// power is off, and whoever asks is answered at once.
func TestBootThatWasShownIsNotCalledOff(t *testing.T) {
	w := newWorld(t, nil)
	w.annotate(api.RebootAnnotation, hard)
	w.run(nil)
	first := w.host().Status.Provisioning.LastPoweredOn.Time
	w.on = false // its power is lost
	w.annotate(api.RebootAnnotation+"/a", hard)
	w.effects = nil
	began := w.clock.Now()
	w.run(w.answered)
	w.wantKinds("poweredOn")
	if took := w.clock.Now().Sub(began); took > time.Second*5 {
		t.Errorf("answered after %s", took)
	}
	w.removeAnnotation(api.RebootAnnotation + "/a")
	w.run(nil)
	if again := w.host().Status.Provisioning.LastPoweredOn.Time; !again.After(first) {
		t.Errorf("the second boot, within the boot timeout, was not recorded: %s", again)
	}
}

// TestBootAfterAnAnswerIsRecorded: an answer outlasts the process that gave it, and
// with it the knowledge that the boot before is over.
func TestBootAfterAnAnswerIsRecorded(t *testing.T) {
	w := newWorld(t, nil)
	w.annotate(api.RebootAnnotation, hard)
	w.run(nil)
	first := w.host().Status.Provisioning.LastPoweredOn.Time
	w.on = false // its power is lost
	w.annotate(api.RebootAnnotation+"/a", hard)
	w.run(w.answered)
	w.restart()
	w.removeAnnotation(api.RebootAnnotation + "/a")
	w.effects = nil
	w.run(nil)
	w.wantKinds("lastPoweredOn", "PowerOn", "poweredOn")
	if again := w.host().Status.Provisioning.LastPoweredOn.Time; !again.After(first) {
		t.Errorf("the boot after the crash was not recorded: %s", again)
	}
}

// TestAnswerNamesItsQuestion: content that changed, or came back, is a new question.
func TestAnswerNamesItsQuestion(t *testing.T) {
	w := newWorld(t, nil)
	w.annotate(api.RebootAnnotation+"/a", "first")
	w.run(w.answered)
	w.annotate(api.RebootAnnotation+"/b", "other")
	w.annotate(api.RebootAnnotation+"/a", "second")
	w.unreachable = true
	for range 5 {
		w.step()
	}
	if got := w.host().Status.Provisioning.HeldOffFor["a"]; got != api.RequestID("first") {
		t.Errorf("answered %s without a reading", got)
	}
	w.unreachable = false
	w.run(func() bool { return len(w.host().Status.Provisioning.HeldOffFor) == 2 })
	if got := w.host().Status.Provisioning.HeldOffFor["a"]; got != api.RequestID("second") {
		t.Errorf("the answer is %s", got)
	}
	w.removeAnnotation(api.RebootAnnotation + "/a")
	w.run(func() bool { return len(w.host().Status.Provisioning.HeldOffFor) == 1 })
	w.on = true
	w.run(func() bool { return w.host().Status.PoweredOn })
	if got := w.host().Status.Provisioning.HeldOffFor; len(got) > 0 {
		t.Errorf("a host that is on answers %v", got)
	}
	w.run(w.answered)
	w.removeAnnotation(api.RebootAnnotation + "/b")
	w.run(nil)
	if got := w.host().Status.Provisioning.HeldOffFor; len(got) > 0 || w.boots != 1 {
		t.Errorf("after %d boots it answers %v", w.boots, got)
	}
}

// TestCommandThatMayHaveBeenAcceptedIsGivenTime: a PowerOff whose answer was lost
// may be carried out late, and each one that is sent may hit the next boot.
func TestCommandThatMayHaveBeenAcceptedIsGivenTime(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"lost":    {errors.New("timeout awaiting response"), 2},
		"refused": {StatusError(http.StatusConflict, errors.New("busy")), 3},
		"not now": {fmt.Errorf("the node is locked: %w", ErrNotNow), 4}, // at every look that has nothing to record
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.failOff = c.err
			w.annotate(api.RebootAnnotation+"/a", hard)
			sent := 0
			for w.clock.Now().Sub(epoch) < 15*time.Second {
				w.step()
			}
			for _, e := range w.effects {
				if e == "PowerOff" {
					sent++
				}
			}
			if sent != c.want {
				t.Errorf("sent %d times in 15 s, want %d", sent, c.want)
			}
		})
	}
}

func TestRequestWhileOffIsAnswered(t *testing.T) {
	w := newWorld(t, func(h *api.BareMetalHost) {
		// The window between RecordBoot and PowerOn.
		h.Status.PoweredOn = false
		h.Status.Provisioning.PendingRebootSince = &metav1.MicroTime{Time: epoch.Add(-2 * time.Second)}
		h.Status.Provisioning.LastPoweredOn = &metav1.MicroTime{Time: epoch.Add(-time.Second)}
	})
	w.annotate(api.RebootAnnotation+"/a", "")
	w.run(w.answered)
	for range 10 {
		w.step()
	}
	w.wantKinds("PowerOff", "heldOffFor") // the PowerOn may have been sent before a crash
	w.removeAnnotation(api.RebootAnnotation + "/a")
	w.run(nil)
	if w.boots != 1 {
		t.Errorf("boots %d, want 1", w.boots)
	}
}

// TestNoOffCountsWhileTheHostBoots: a request that comes while a PowerOn is under
// way, or may be, has the boot called off first, or waits for it. An Off from before
// would let whoever asked delete the Node of a host that boots.
func TestNoOffCountsWhileTheHostBoots(t *testing.T) {
	settings := DefaultSettings()
	interval, bootTimeout := settings.CommandInterval.Duration, settings.BootTimeout.Duration
	const keyed, plain = api.RebootAnnotation + "/a", api.RebootAnnotation
	const calledOff, waitedFor = "PowerOff heldOffFor", "PowerOn poweredOn pendingRebootSince ShutDown poweredOn annotations"
	busy, isOff := errors.New("503 Service Unavailable"), StatusError(http.StatusConflict, errors.New("it is off"))
	for name, c := range map[string]struct {
		annotation, value string
		slowOn            time.Duration // how long the host takes to be on
		refuses           error         // what is said to an off of a host that is off
		crash             bool          // after the PowerOn
		booted            time.Duration // before now, by another process; 0 is that this one boots the host
		want              string        // the effects between the request and its answer
		atLeast, atMost   time.Duration // until then
	}{
		"held":                   {annotation: keyed, slowOn: time.Minute, want: calledOff, atLeast: interval, atMost: 2 * interval},
		"held, after a crash":    {annotation: keyed, slowOn: time.Minute, crash: true, want: calledOff, atLeast: interval, atMost: 2 * interval},
		"plain and hard":         {annotation: plain, value: hard, slowOn: time.Minute, want: "PowerOff annotations", atLeast: interval, atMost: 2 * interval},
		"another process's boot": {annotation: keyed, booted: time.Minute, want: calledOff, atLeast: interval, atMost: 2 * interval},
		"a boot from long ago":   {annotation: keyed, booted: time.Hour, want: "heldOffFor", atMost: interval},
		"a BMC that says it is off": {annotation: keyed, refuses: isOff, slowOn: time.Hour, want: "errorType heldOffFor",
			atLeast: interval, atMost: 3 * interval},
		"a BMC that is busy": {annotation: keyed, refuses: busy, slowOn: time.Hour, want: "errorType heldOffFor",
			atLeast: bootTimeout - time.Minute, atMost: bootTimeout + time.Minute},
		"an owner of the BMC that is busy": {annotation: keyed, refuses: fmt.Errorf("the node is locked: %w", ErrNotNow), slowOn: time.Hour, want: "errorType heldOffFor",
			atLeast: bootTimeout - time.Minute, atMost: bootTimeout + time.Minute},
		"a boot by a clock that is ahead": {annotation: keyed, booted: -time.Hour, refuses: busy, want: "errorType heldOffFor",
			atLeast: bootTimeout - time.Minute, atMost: bootTimeout + time.Minute},
		"plain and soft": {annotation: plain, slowOn: 46 * time.Second, want: waitedFor, atLeast: 40 * time.Second, atMost: 3 * time.Minute},
		"plain and soft, after a crash": {annotation: plain, slowOn: 46 * time.Second, crash: true, want: waitedFor,
			atLeast: 40 * time.Second, atMost: 3 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(h *api.BareMetalHost) {
				h.Status.PoweredOn = false
				if c.booted != 0 {
					h.Status.Provisioning.LastPoweredOn = &metav1.MicroTime{Time: epoch.Add(-c.booted)}
				}
			})
			w.slowOn, w.refusesOff = c.slowOn, c.refuses
			if c.booted == 0 {
				w.run(func() bool { return slices.Contains(w.effects, "PowerOn") })
			}
			if c.crash {
				w.restart()
			}
			began := w.clock.Now()
			w.annotate(c.annotation, c.value)
			w.effects = nil
			w.run(func() bool {
				_, there := w.host().Annotations[plain]
				return w.answered() || c.annotation == plain && !there
			})
			if took := w.clock.Now().Sub(began); took < c.atLeast || took > c.atMost {
				t.Errorf("answered after %v, want %v to %v", took, c.atLeast, c.atMost)
			}
			if w.settle(); w.on {
				t.Error("answered while the host was on")
			}
			if got := strings.Join(slices.Compact(w.kinds()), " "); got != c.want {
				t.Errorf("effects %s, want %s", got, c.want)
			}
		})
	}
}

// TestOneCyclePerRequest crashes the controller after its n-th effect, for every
// n, and after each reconcile.
func TestOneCyclePerRequest(t *testing.T) {
	requests := map[string]map[string]string{
		"plain soft": {api.RebootAnnotation: ""},
		"plain hard": {api.RebootAnnotation: hard},
		"keyed":      {api.RebootAnnotation + "/a": ""},
		"both":       {api.RebootAnnotation: "", api.RebootAnnotation + "/a": hard},
	}
	for name, annotations := range requests {
		for _, stuck := range []bool{false, true} {
			for crash := -1; crash < 10; crash++ {
				t.Run(fmt.Sprintf("%s, stuck %t, crash after effect %d", name, stuck, crash), func(t *testing.T) {
					w := newWorld(t, nil)
					w.stuck = stuck
					for annotation, value := range annotations {
						w.annotate(annotation, value)
					}
					crashed := false
					for range 400 {
						w.step()
						if crash < 0 || !crashed && len(w.effects) == crash {
							w.restart()
							crashed = true
						}
						h := w.host()
						if _, held := h.Annotations[api.RebootAnnotation+"/a"]; held && !h.Status.PoweredOn {
							w.removeAnnotation(api.RebootAnnotation + "/a")
						}
					}
					if w.boots != 1 || !w.on || len(w.host().Annotations) != 0 {
						kinds := w.kinds()
						t.Errorf("boots %d, on %t, annotations %v, first effects %v", w.boots, w.on, w.host().Annotations, kinds[:min(20, len(kinds))])
					}
				})
			}
		}
	}
}

func TestClocksThatStandStillOrGoBack(t *testing.T) {
	w := newWorld(t, nil)
	future := epoch.Add(time.Hour)
	host := w.host()
	host.Status.Provisioning.LastPoweredOn = &metav1.MicroTime{Time: future}
	if err := w.api.Status().Update(context.Background(), host); err != nil {
		t.Fatal(err)
	}
	w.stuck = true
	w.annotate(api.RebootAnnotation, "")
	w.run(nil)
	p := w.host().Status.Provisioning
	if w.boots != 1 || p.RebootPending() {
		t.Errorf("boots %d, %+v", w.boots, p)
	}
	if got := p.PendingRebootSince.Sub(future); got != time.Microsecond {
		t.Errorf("pendingRebootSince is %s later than lastPoweredOn was, want 1µs", got)
	}
	if got := p.LastPoweredOn.Sub(p.PendingRebootSince.Time); got != time.Microsecond {
		t.Errorf("lastPoweredOn is %s later than pendingRebootSince, want 1µs", got)
	}
	if took := w.clock.Now().Sub(epoch); took > 10*time.Minute {
		t.Errorf("the fallback waited %s for a time from another clock", took)
	}
}

func TestIgnoredCommandsAreRepeated(t *testing.T) {
	w := newWorld(t, nil)
	w.annotate(api.RebootAnnotation, hard)
	w.deaf = 2
	w.run(func() bool { return !w.on })
	w.deaf = 2
	w.run(nil)
	if w.boots != 1 || !w.on {
		t.Errorf("boots %d, on %t", w.boots, w.on)
	}
	if n := len(slices.DeleteFunc(slices.Clone(w.effects), func(e string) bool { return e != "PowerOff" })); n != 3 {
		t.Errorf("PowerOff was sent %d times, want 3: two were ignored", n)
	}
}

func TestUnreachableBMC(t *testing.T) {
	w := newWorld(t, nil)
	w.unreachable = true
	w.annotate(api.RebootAnnotation, hard)
	var waits []time.Duration
	for range 40 {
		waits = append(waits, w.step())
	}
	host := w.host()
	if host.Status.ErrorType != api.PowerManagementError || host.Status.ErrorCount < 32 ||
		!strings.Contains(host.Status.ErrorMessage, "connection refused") {
		t.Errorf("status %+v", host.Status)
	}
	if writes := len(w.effects); writes > 7 {
		t.Errorf("%d failures caused %d writes of the status", host.Status.ErrorCount, writes)
	}
	if slowest := slices.Max(waits); slowest != w.reconciler.Settings.MaxBackoff.Duration {
		t.Errorf("the longest wait was %s, want %s", slowest, w.reconciler.Settings.MaxBackoff)
	}
	if host.Status.Provisioning.PendingRebootSince != nil {
		t.Error("a request was recorded without a reading")
	}
	w.restart()
	if after := w.step(); after != w.reconciler.Settings.MaxBackoff.Duration {
		t.Errorf("after a restart it looks again after %s", after)
	}
	if got := w.host().Status.ErrorCount; got < host.Status.ErrorCount {
		t.Errorf("a restart took the count from %d to %d", host.Status.ErrorCount, got)
	}
	w.unreachable = false
	w.run(nil)
	host = w.host()
	if w.boots != 1 || host.Status.ErrorType != "" || host.Status.ErrorCount != 0 || host.Status.ErrorMessage != "" {
		t.Errorf("boots %d, status %+v", w.boots, host.Status)
	}
}

func TestOnlineIsFollowed(t *testing.T) {
	w := newWorld(t, nil)
	w.stuck = true
	w.setOnline(false)
	w.run(nil)
	w.wantKinds("ShutDown", "PowerOff", "poweredOn")
	w.setOnline(true)
	w.run(nil)
	if w.boots != 1 || !w.on {
		t.Errorf("boots %d, on %t", w.boots, w.on)
	}
}

func TestOfflineHostStaysOffAfterReboot(t *testing.T) {
	w := newWorld(t, nil)
	w.annotate(api.RebootAnnotation, hard)
	w.setOnline(false)
	w.run(nil)
	if w.on || w.boots != 0 {
		t.Errorf("boots %d, on %t", w.boots, w.on)
	}
	w.setOnline(true)
	w.run(nil)
	if w.boots != 1 || len(w.host().Annotations) != 0 {
		t.Errorf("boots %d, annotations %v", w.boots, w.host().Annotations)
	}
}

func TestDeprovisioningEndsRequests(t *testing.T) {
	for _, state := range []api.ProvisioningState{api.StateDeprovisioning, api.StateAvailable} {
		w := newWorld(t, func(h *api.BareMetalHost) {
			h.Annotations = map[string]string{
				api.RebootAnnotation: "", api.RebootAnnotation + "/a": hard, "reboot.metal3.iox": "kept", "other": "kept",
			}
			h.Status.Provisioning.State = state
			h.Status.Provisioning.PendingRebootSince = &metav1.MicroTime{Time: epoch}
		})
		for range 4 {
			w.step()
		}
		w.wantKinds("annotations", "pendingRebootSince")
		host := w.host()
		if len(host.Annotations) != 2 || host.Status.Provisioning.RebootPending() || !w.on {
			t.Errorf("%s: annotations %v, %+v", state, host.Annotations, host.Status)
		}
	}
}

func TestUnprovisionedHostsAreLeftAlone(t *testing.T) {
	w := newWorld(t, func(h *api.BareMetalHost) {
		h.Annotations = map[string]string{api.RebootAnnotation: hard}
		h.Status.Provisioning.State = "inspecting"
	})
	w.unreachable = true // not even read
	w.step()
	w.wantKinds()
}

func TestUnknownValueIsReportedOnceAndKept(t *testing.T) {
	w := newWorld(t, nil)
	const value = "uid-of-a-machine"
	w.annotate(api.RebootAnnotation+"/a", value)
	for range 10 {
		w.step()
	}
	if len(w.warnings) != 1 || !strings.Contains(w.warnings[0], value) || !strings.Contains(w.warnings[0], api.RebootAnnotation+"/a") {
		t.Errorf("warnings %q", w.warnings)
	}
	if got := w.host().Annotations[api.RebootAnnotation+"/a"]; got != value {
		t.Errorf("the content became %q", got)
	}
	if !slices.Contains(w.effects, "ShutDown") || slices.Contains(w.effects, "PowerOff") {
		t.Errorf("want a soft shutdown: %v", w.kinds())
	}
	w.annotate(api.RebootAnnotation+"/a", "another")
	w.step()
	if len(w.warnings) != 2 {
		t.Errorf("a new value was not reported: %q", w.warnings)
	}
}

// TestWritesAreConditional changes the host behind the controller's back, between
// its read and its write.
func TestWritesAreConditional(t *testing.T) {
	w := newWorld(t, func(h *api.BareMetalHost) {
		h.Status.PoweredOn = false
		h.Status.Provisioning.PendingRebootSince = &metav1.MicroTime{Time: epoch}
	})
	w.reconciler.Decide = func(s State) Action {
		action := Decide(s)
		if action == RecordBoot {
			w.annotate(api.RebootAnnotation+"/late", "")
		}
		return action
	}
	if _, err := w.reconciler.Reconcile(context.Background(), reconcile.Request{NamespacedName: key}); err == nil {
		t.Fatal("the boot was recorded although a hold had just been asked for")
	}
	for range 10 {
		w.step()
	}
	if w.boots != 0 {
		t.Error("a hold was overlooked")
	}
}

// TestCommandsAreAboutTheHostAsItIs: a BMC may take its time to answer, and somebody
// holds the host meanwhile.
func TestCommandsAreAboutTheHostAsItIs(t *testing.T) {
	w := newWorld(t, func(h *api.BareMetalHost) { h.Status.PoweredOn = false })
	w.reconciler.Decide = func(s State) Action {
		action := Decide(s)
		if action == PowerOn {
			w.annotate(api.RebootAnnotation+"/late", "")
			w.reconciler.Decide = Decide
		}
		return action
	}
	for range 3 {
		_, err := w.reconciler.Reconcile(context.Background(), reconcile.Request{NamespacedName: key})
		if err != nil && !strings.Contains(err.Error(), "the host changed") {
			t.Fatal(err)
		}
	}
	if slices.Contains(w.effects, "PowerOn") {
		t.Errorf("powered on although it was held by then: %v", w.kinds())
	}
}

func TestFailedWriteIsAnError(t *testing.T) {
	w := newWorld(t, nil)
	w.annotate(api.RebootAnnotation, "")
	w.failWrite = errors.New("the API server is away")
	if _, err := w.reconciler.Reconcile(context.Background(), reconcile.Request{NamespacedName: key}); err == nil || !strings.Contains(err.Error(), "RecordPending of BareMetalHost metal3/worker-1") {
		t.Errorf("error %v", err)
	}
}

func TestDeletedHostIsForgotten(t *testing.T) {
	w := newWorld(t, nil)
	w.step()
	if err := w.api.Delete(context.Background(), w.host()); err != nil {
		t.Fatal(err)
	}
	w.step()
	if len(w.reconciler.hosts) != 0 {
		t.Errorf("%d hosts are remembered", len(w.reconciler.hosts))
	}
}
