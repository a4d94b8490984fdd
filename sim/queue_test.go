package sim

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
)

// diary is a controller that records what is reconciled when, and gives planned answers.
type diary struct {
	live    client.Reader
	now     func() time.Time
	answers []func() (reconcile.Result, error)
	names   []string
	at      []time.Duration
	// busy is how many reconciles there are at once, most the greatest number.
	busy, most int
}

func (d *diary) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if request.Namespace != "" {
		return reconcile.Result{}, nil // an object of the topology
	}
	d.names, d.at = append(d.names, request.Name), append(d.at, d.now().Sub(epoch))
	d.busy++
	d.most = max(d.most, d.busy)
	var host api.BareMetalHost
	err := d.live.Get(ctx, client.ObjectKey{Namespace: "default", Name: "worker-1"}, &host)
	d.busy--
	if err != nil || len(d.answers) == 0 {
		return reconcile.Result{}, err
	}
	answer := d.answers[0]
	d.answers = d.answers[1:]
	return answer()
}

// keep opens a stage with a diary.
func keep(t *testing.T, workers int, answers ...func() (reconcile.Result, error)) (*stage, *process, *diary) {
	d := &diary{answers: answers}
	st := open(t, nil, nil, controller("diary", workers, func(deps controllers.Deps) reconcile.Reconciler {
		d.live, d.now = deps.Live, deps.Clock.Now
		return d
	}))
	return st, st.b.process("diary"), d
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// TestQueue checks the queue against the behaviour of controller-runtime 0.24.
func TestQueue(t *testing.T) {
	const second = time.Second
	again := func() (reconcile.Result, error) { return reconcile.Result{RequeueAfter: 10 * second}, nil }
	done := func() (reconcile.Result, error) { return reconcile.Result{}, nil }
	//lint:ignore SA1019 others' controllers use it
	requeue := func() (reconcile.Result, error) { return reconcile.Result{Requeue: true}, nil }
	fail := func() (reconcile.Result, error) { return reconcile.Result{}, errors.New("not yet") }
	final := func() (reconcile.Result, error) {
		return reconcile.Result{}, reconcile.TerminalError(errors.New("never"))
	}
	panics := func() (reconcile.Result, error) { panic("oh") }

	for _, c := range []struct {
		name    string
		answers []func() (reconcile.Result, error)
		// events are when an event enqueues the request.
		events []time.Duration
		// want is when it is reconciled, in whole seconds.
		want []time.Duration
	}{
		{"once", nil, []time.Duration{0}, []time.Duration{0}},
		{"later", []func() (reconcile.Result, error){again}, []time.Duration{0}, []time.Duration{0, 10 * second}},
		{"an earlier event uses the timer up", []func() (reconcile.Result, error){again, done}, []time.Duration{0, 5 * second}, []time.Duration{0, 5 * second}},
		{"an event at work uses up the timer that comes of it", []func() (reconcile.Result, error){again}, []time.Duration{0, 0, 2 * time.Millisecond}, []time.Duration{0, 0}},
		{"at once, and ever more slowly", []func() (reconcile.Result, error){requeue, requeue, done}, []time.Duration{0}, []time.Duration{0, 0, 0}},
		{"an error", []func() (reconcile.Result, error){fail, done}, []time.Duration{0}, []time.Duration{0, 0}},
		{"a panic", []func() (reconcile.Result, error){panics, done}, []time.Duration{0}, []time.Duration{0, 0}},
		{"an error for good", []func() (reconcile.Result, error){final, done}, []time.Duration{0, 20 * second}, []time.Duration{0, 20 * second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			st, p, d := keep(t, 1, c.answers...)
			begin := st.now
			for _, at := range c.events {
				st.pass(begin + at - st.now)
				p.queue.enqueue(p.loops[0], request("a"), usual)
			}
			st.pass(time.Minute)
			var got []time.Duration
			for _, at := range d.at {
				got = append(got, (at - begin).Truncate(second))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("reconciled at %v, want %v", got, c.want)
			}
		})
	}
}

// TestQueueOrder: requests of an event are handed out before those of a list, and a request of
// both only once.
func TestQueueOrder(t *testing.T) {
	st, p, d := keep(t, 1)
	for _, r := range []struct {
		name     string
		priority int
	}{{"a", low}, {"b", low}, {"c", usual}, {"d", low}, {"b", usual}, {"c", low}} {
		p.queue.enqueue(p.loops[0], request(r.name), r.priority)
	}
	st.pass(time.Second)
	if want := []string{"c", "b", "a", "d"}; !slices.Equal(d.names, want) {
		t.Errorf("reconciled in the order %v, want %v", d.names, want)
	}
}

// TestWorkers: as many requests are worked on at once as there are workers, and
// never one of them twice.
func TestWorkers(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 16} {
		st, p, d := keep(t, workers)
		for range 2 {
			for _, name := range []string{"a", "b", "c"} {
				p.queue.enqueue(p.loops[0], request(name), usual)
			}
			st.pass(workLatency + apiLatency/2)
		}
		st.pass(time.Second)
		if want := min(workers, 3); d.most != want || d.busy != 0 {
			t.Errorf("%d workers: %d requests were worked on at once, want %d", workers, d.most, want)
		}
		slices.Sort(d.names)
		if want := []string{"a", "a", "b", "b", "c", "c"}; workers >= 3 && !slices.Equal(d.names, want) {
			t.Errorf("%d workers: reconciled %v, want %v", workers, d.names, want)
		}
	}
}
