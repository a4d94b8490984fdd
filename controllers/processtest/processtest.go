// Package processtest is the contract of processes: what a reconciler can rely on in any world.
// The contract is the behaviour of a controller-runtime manager with its priority queue. The suite
// runs on a real manager and on a simulated one. Where they differ, the simulated one is wrong.
package processtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
)

// World runs processes. Its time may be virtual.
type World interface {
	// Start starts processes of a controller. One leads if there are several.
	Start(t *testing.T, r controllers.Registration, replicas int) []Process
	// Create, Update and Delete change objects like a user.
	Create(t *testing.T, obj client.Object)
	Update(t *testing.T, obj client.Object)
	Delete(t *testing.T, obj client.Object)
	// Get reads an object from the API server.
	Get(t *testing.T, obj client.Object)
	// Until lets time pass until something holds, or fails the test.
	Until(t *testing.T, what string, holds func() bool)
	// Pass lets at least some time pass.
	Pass(t *testing.T, d time.Duration)
}

// Process is a process that a World has started.
type Process interface {
	// Crash kills it: at once, or before or after its n-th effect from now, counted from 1. It
	// starts again by itself.
	Crash(effect int, after bool)
	// Deafen keeps it from hearing of changes. Relist ends that: the missed changes are not
	// delivered, and it lists everything.
	Deafen()
	Relist()
	// End ends it for good.
	End()
}

// Namespace is where the objects of the suite are.
const Namespace = "default"

// settled is longer than anything takes that needs no waiting.
const settled = time.Second

// Run runs the suite, each test in a World, which may make it run in parallel.
func Run(t *testing.T, world func(*testing.T) World) {
	for _, c := range []struct {
		name string
		test func(*table)
	}{
		{"an event while a key is worked on leads to one more run", dirty},
		{"what is queued already is queued once", once},
		{"RequeueAfter waits", later},
		{"an event uses a RequeueAfter up", usedUp},
		{"an event at work uses up what comes of it", usedUpAtWork},
		{"errors back off", backOff},
		{"Requeue backs off", requeue},
		{"panics back off", panics},
		{"success forgets errors", forgets},
		{"RequeueAfter forgets errors", requeueForgets},
		{"a terminal error is not retried, nor forgotten", terminal},
		{"what a list brings comes last", listsLast},
		{"as many keys at once as there are workers", workers},
		{"a mapping sees the state before and after", mapped},
		{"a deletion is an event", deleted},
		{"nothing is handled before all caches are full", filled},
		{"a list brings what was missed, and the rest", relisted},
		{"a crash before an effect loses it", crashBefore},
		{"a crash after an effect doesn't", crashAfter},
		{"a life begins with nothing and looks at all", anew},
		{"one leads", leads},
	} {
		t.Run(c.name, func(t *testing.T) {
			tb := &table{T: t, world: world(t), diary: newDiary(fmt.Sprintf("p%x", hash(c.name)))}
			defer tb.clear()
			c.test(tb)
		})
	}
}

// hash tells the tests apart in the names of objects.
func hash(name string) (h uint32) {
	for _, b := range []byte(name) {
		h = h*31 + uint32(b)
	}
	return h
}

// table is the environment of a test.
type table struct {
	*testing.T
	world     World
	diary     *diary
	processes []Process
	made      map[string]client.Object
}

func (tb *table) clear() {
	for _, p := range tb.processes {
		p.End()
	}
	for _, obj := range tb.made { // order does not matter: all go
		tb.world.Delete(tb.T, obj)
	}
}

// start starts a process of the diary's controller.
func (tb *table) start(workers int) Process { return tb.startAll(workers, 1)[0] }

func (tb *table) startAll(workers, replicas int) []Process {
	d := tb.diary
	tb.processes = tb.world.Start(tb.T, controllers.Registration{
		Name: d.name, Place: controllers.Cluster, For: &corev1.Secret{}, Workers: workers,
		Watches: []controllers.Watch{{Kind: &coordinationv1.Lease{}, Map: func(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
			if about := obj.GetLabels()[label]; about != "" {
				return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: Namespace, Name: about}}}
			}
			return nil
		}}},
		New: d.life,
	}, replicas)
	return tb.processes
}

// label is the label that the suite changes.
const label = "fencelab.dev/processtest"

func (tb *table) secret(key, value string) *corev1.Secret {
	s := &corev1.Secret{}
	s.Namespace, s.Name, s.Labels = Namespace, tb.diary.name+"-"+key, map[string]string{label: value}
	return s
}

func (tb *table) lease(key, about string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{}
	l.Namespace, l.Name, l.Labels = Namespace, tb.diary.name+"-"+key, map[string]string{label: about}
	return l
}

func (tb *table) create(objs ...client.Object) {
	tb.Helper()
	for _, obj := range objs {
		if tb.made == nil {
			tb.made = make(map[string]client.Object)
		}
		tb.made[fmt.Sprintf("%T %s", obj, obj.GetName())] = obj
		tb.world.Create(tb.T, obj)
	}
}

// keys makes Secrets of these names.
func (tb *table) keys(keys ...string) {
	tb.Helper()
	for _, key := range keys {
		tb.create(tb.secret(key, ""))
	}
}

// change updates a Secret. Unless the process is deaf, it has learned of the change when change
// returns.
func (tb *table) change(key string) {
	tb.Helper()
	obj := tb.secret(key, "")
	tb.world.Get(tb.T, obj)
	n := len(obj.Labels[label]) + 1
	obj.Labels = map[string]string{label: strings.Repeat("x", n)}
	tb.world.Update(tb.T, obj)
}

// visits waits until a key was visited n times, and checks that no further visit comes.
func (tb *table) visits(key string, n int) []visit {
	tb.Helper()
	tb.world.Until(tb.T, fmt.Sprintf("%s is visited %d times", key, n), func() bool { return len(tb.diary.ended(key)) >= n })
	tb.world.Pass(tb.T, settled)
	all := tb.diary.ended(key)
	if len(all) != n {
		tb.Fatalf("%s was visited %d times, want %d: %v", key, len(all), n, all)
	}
	return all
}

func (tb *table) busy(keys ...string) {
	tb.Helper()
	tb.world.Until(tb.T, fmt.Sprintf("%v are worked on", keys), func() bool {
		return !slices.ContainsFunc(keys, func(key string) bool { return !tb.diary.busy(key) })
	})
}

func dirty(tb *table) {
	tb.diary.hold("a")
	tb.start(3)
	tb.keys("a")
	tb.busy("a")
	for range 3 {
		tb.change("a")
		tb.world.Pass(tb.T, settled) // with workers that have nothing else to do
	}
	tb.keys("b") // whose worker must not take what is worked on
	tb.visits("b", 1)
	tb.diary.release("a")
	two := tb.visits("a", 2)
	if two[1].began.Before(two[0].ended) {
		tb.Error("one key was worked on twice at once")
	}
}

func once(tb *table) {
	tb.diary.hold("a")
	tb.start(1)
	tb.keys("a")
	tb.busy("a")
	tb.keys("b")
	for range 3 {
		tb.change("b")
	}
	tb.world.Pass(tb.T, settled)
	tb.diary.release("a")
	tb.visits("b", 1)
}

// wait is a RequeueAfter much longer than anything that needs no waiting.
const wait = 6 * settled

func later(tb *table) {
	tb.diary.answer("a", reconcile.Result{RequeueAfter: wait}, nil)
	tb.start(1)
	tb.keys("a")
	two := tb.visits("a", 2)
	if gap := two[1].began.Sub(two[0].ended); gap < wait {
		tb.Errorf("the next run began after %s, want %s", gap, wait)
	}
}

func usedUp(tb *table) {
	tb.diary.answer("a", reconcile.Result{RequeueAfter: wait}, nil)
	tb.start(1)
	tb.keys("a")
	tb.visits("a", 1)
	tb.change("a")
	two := tb.visits("a", 2)
	if gap := two[1].began.Sub(two[0].ended); gap >= wait {
		tb.Errorf("the event waited for the timer: the next run began after %s", gap)
	}
	tb.world.Pass(tb.T, wait)
	tb.visits("a", 2)
}

func usedUpAtWork(tb *table) {
	tb.diary.answer("a", reconcile.Result{RequeueAfter: wait}, nil)
	tb.diary.hold("a")
	tb.start(1)
	tb.keys("a")
	tb.busy("a")
	tb.change("a")
	tb.world.Pass(tb.T, settled)
	tb.diary.release("a")
	two := tb.visits("a", 2)
	if gap := two[1].began.Sub(two[0].ended); gap >= wait {
		tb.Errorf("the event while the key was worked on waited for %s", gap)
	}
	tb.world.Pass(tb.T, wait)
	tb.visits("a", 2)
}

// delay is how long the limiter of a controller-runtime queue delays a key after that many
// failures.
func delay(failures int) time.Duration { return 5 * time.Millisecond << failures }

var errNotYet = errors.New("not yet")

// slowly makes a key fail, and expects the next runs to come ever more slowly.
func (tb *table) slowly(failures int, result reconcile.Result, err error) {
	tb.Helper()
	for range failures {
		tb.diary.answer("a", result, err)
	}
	tb.diary.answer("a", reconcile.Result{}, nil)
	tb.start(1)
	tb.keys("a")
	all := tb.visits("a", failures+1)
	for i := range failures {
		if gap := all[i+1].began.Sub(all[i].ended); gap < delay(i) || gap > delay(i)+settled {
			tb.Errorf("run %d came %s after the one before it, want %s", i+2, gap, delay(i))
		}
	}
}

func backOff(tb *table) { tb.slowly(9, reconcile.Result{}, errNotYet) }

//lint:ignore SA1019 others' controllers use it
func requeue(tb *table) { tb.slowly(6, reconcile.Result{Requeue: true}, nil) }

func panics(tb *table) { tb.slowly(6, reconcile.Result{}, errPanic) }

func forgets(tb *table)        { tb.forgotten(reconcile.Result{}) }
func requeueForgets(tb *table) { tb.forgotten(reconcile.Result{RequeueAfter: wait}) }

// many failures delay a key for longer than settled.
const many = 9

// forgotten makes a key fail often and then succeed: the next failure counts as a first one.
func (tb *table) forgotten(result reconcile.Result) {
	tb.Helper()
	for range many {
		tb.diary.answer("a", reconcile.Result{}, errNotYet)
	}
	tb.diary.answer("a", result, nil)
	tb.diary.answer("a", reconcile.Result{}, errNotYet)
	tb.start(1)
	tb.keys("a")
	tb.visits("a", many+1)
	tb.change("a")
	all := tb.visits("a", many+3)
	if gap := all[many+2].began.Sub(all[many+1].ended); gap >= delay(many) {
		tb.Errorf("after a success, a failure was retried after %s, want %s", gap, delay(0))
	}
}

func terminal(tb *table) {
	for range many {
		tb.diary.answer("a", reconcile.Result{}, errNotYet)
	}
	tb.diary.answer("a", reconcile.Result{}, reconcile.TerminalError(errNotYet))
	tb.diary.answer("a", reconcile.Result{}, errNotYet)
	tb.start(1)
	tb.keys("a")
	tb.visits("a", many+1)
	tb.world.Pass(tb.T, 2*delay(many))
	tb.visits("a", many+1)
	tb.change("a")
	all := tb.visits("a", many+3)
	if gap := all[many+2].began.Sub(all[many+1].ended); gap < delay(many) {
		tb.Errorf("a terminal error let %d errors before it be forgotten: the next was retried after %s", many, gap)
	}
}

func listsLast(tb *table) {
	tb.keys("a", "b", "c", "d")
	tb.diary.hold("a", "b", "c", "d")
	tb.start(1)
	var first string
	tb.world.Until(tb.T, "something is worked on", func() bool {
		first = tb.diary.someone()
		return first != ""
	})
	// An event makes what the list brought as important as anything else.
	again := "d"
	if first == again {
		again = "c"
	}
	tb.change(again)
	tb.world.Pass(tb.T, settled)
	tb.keys("e")
	tb.world.Pass(tb.T, settled)
	tb.diary.release("a", "b", "c", "d")
	tb.visits("a", 1)
	tb.visits("b", 1)
	tb.visits("e", 1)
	if order := tb.diary.order(); len(order) != 5 || order[0] != first || order[1] != again || order[2] != "e" {
		tb.Errorf("the order was %v, want %s, then what events brought: %s, e, and then the rest", order, first, again)
	}
}

func workers(tb *table) {
	all := []string{"a", "b", "c", "d", "e"}
	tb.diary.hold(all...)
	tb.start(3)
	tb.keys(all...)
	tb.world.Until(tb.T, "three keys are worked on", func() bool { return tb.diary.most() >= 3 })
	tb.world.Pass(tb.T, settled)
	tb.diary.release(all...)
	for _, key := range all {
		tb.visits(key, 1)
	}
	if most := tb.diary.most(); most != 3 {
		tb.Errorf("%d keys were worked on at once, and there are 3 workers", most)
	}
}

func mapped(tb *table) {
	tb.start(1)
	tb.create(tb.lease("l", tb.diary.name+"-a"))
	tb.visits("a", 1)
	l := tb.lease("l", "")
	tb.world.Get(tb.T, l)
	l.Labels = map[string]string{label: tb.diary.name + "-b"}
	tb.world.Update(tb.T, l)
	tb.visits("b", 1)
	tb.visits("a", 2)
}

func deleted(tb *table) {
	tb.start(1)
	tb.keys("a")
	tb.visits("a", 1)
	tb.world.Delete(tb.T, tb.secret("a", ""))
	tb.visits("a", 2)
}

func filled(tb *table) {
	tb.keys("a", "b")
	tb.create(tb.lease("l", ""), tb.lease("m", ""))
	tb.diary.look = true
	tb.start(1)
	tb.visits("a", 1)
	tb.visits("b", 1)
	for _, v := range append(tb.diary.ended("a"), tb.diary.ended("b")...) {
		if v.sees != 4 {
			tb.Errorf("the cache had %d objects when %s was visited, want 4", v.sees, v.key)
		}
	}
}

func relisted(tb *table) {
	tb.keys("a", "b", "c")
	p := tb.start(1)
	for _, key := range []string{"a", "b", "c"} {
		tb.visits(key, 1)
	}
	p.Deafen()
	tb.change("b")
	tb.change("b")
	tb.world.Delete(tb.T, tb.secret("c", ""))
	tb.keys("d")
	tb.world.Pass(tb.T, settled)
	if n := len(tb.diary.order()); n != 3 {
		tb.Fatalf("a process that hears nothing made %d visits", n-3)
	}
	p.Relist()
	tb.visits("a", 2) // which hasn't changed
	tb.visits("b", 2)
	tb.visits("c", 2)
	tb.visits("d", 1)
}

func crashBefore(tb *table) { tb.crash(false, "1") }
func crashAfter(tb *table)  { tb.crash(true, "2") }

// crash makes a process crash around the second of its three effects, and expects the object to be
// left like this.
func (tb *table) crash(after bool, left string) {
	tb.Helper()
	d := tb.diary
	tb.keys("a")
	d.effects = []string{"1", "2", "3"}
	d.holdFrom(2)
	p := tb.start(1)
	p.Crash(2, after)
	tb.world.Until(tb.T, "another life begins", func() bool { return d.lives() == 2 && d.busy("a") })
	obj := tb.secret("a", "")
	tb.world.Get(tb.T, obj)
	if is := obj.Labels[label]; is != left {
		tb.Errorf("the object was left with %q, want %q", is, left)
	}
	if answered := d.answered(1); answered != 1 {
		tb.Errorf("the life that crashed had answers to %d effects, want 1", answered)
	}
	d.release("a")
	tb.world.Until(tb.T, "all effects are done", func() bool { return d.answered(2) >= 3 })
	tb.world.Pass(tb.T, settled)
	tb.world.Get(tb.T, obj)
	if is, n := obj.Labels[label], d.answered(2); is != "3" || n != 3 {
		tb.Errorf("the object is left with %q after %d effects, want 3 after 3", is, n)
	}
}

func anew(tb *table) {
	tb.keys("a", "b")
	tb.diary.hold("a")
	p := tb.start(1)
	tb.busy("a")
	p.Crash(0, false)
	tb.world.Until(tb.T, "another life begins", func() bool { return tb.diary.lives() == 2 })
	tb.world.Pass(tb.T, settled)
	tb.diary.release("a")
	tb.world.Until(tb.T, "the new life has looked at everything", func() bool {
		return tb.diary.saw(2, "a") && tb.diary.saw(2, "b")
	})
	if late := tb.diary.undead(); late > 0 {
		tb.Errorf("a life that was over had %d answers after the next one had begun", late)
	}
}

func leads(tb *table) {
	const lease, renewal = 15 * time.Second, 5 * time.Second // controller-runtime's
	all := tb.startAll(1, 2)
	tb.keys("a")
	first := tb.visits("a", 1)[0]
	tb.world.Pass(tb.T, lease)
	tb.change("a")
	second := tb.visits("a", 2)[1]
	if second.life != first.life {
		tb.Fatalf("one process leads after the other, without a reason: %v, %v", first, second)
	}
	for _, p := range all {
		p.Crash(0, false) // whoever leads; the Lease stays
	}
	tb.world.Pass(tb.T, settled)
	tb.change("a")
	third := tb.visits("a", 3)[2]
	// It was renewed a while before the crash.
	if gap := third.began.Sub(second.ended); gap < lease-renewal {
		tb.Errorf("the Lease of a dead leader was taken after %s, want %s", gap, lease-renewal)
	}
}
