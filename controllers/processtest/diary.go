package processtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
)

// diary records what the lives of a controller do, and holds their instructions. Each call to a
// server takes a while, in which others may go on.
type diary struct {
	// name begins the names of all objects that the diary is about.
	name string
	// look makes a visit count the objects in the cache. Effects are the labels that a visit sets
	// one after the other.
	look    bool
	effects []string

	mu      sync.Mutex
	begun   int // lives
	visited []visit
	working map[string]int
	crowd   int // the greatest number at once
	held    map[string]bool
	// heldFrom is the life from which on everything is held; 0 for none.
	heldFrom  int
	answers   map[string][]answer
	responses map[int]int // to effects, by life
	late      int
}

type answer struct {
	result reconcile.Result
	err    error
}

// visit is one reconcile of a key.
type visit struct {
	key          string
	life         int
	began, ended time.Time
	sees         int
}

func (v visit) String() string {
	return fmt.Sprintf("%s in life %d from %s for %s", v.key, v.life, v.began.Format("15:04:05.000"), v.ended.Sub(v.began))
}

func newDiary(name string) *diary {
	return &diary{name: name, working: make(map[string]int), held: make(map[string]bool), answers: make(map[string][]answer), responses: make(map[int]int)}
}

// errPanic stands for a panic.
var errPanic = errors.New("panic")

// life is one incarnation of the diary's controller.
type life struct {
	*diary
	number int
	deps   controllers.Deps
}

func (d *diary) life(deps controllers.Deps) (reconcile.Reconciler, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begun++
	return &life{d, d.begun, deps}, nil
}

// Reconcile implements reconcile.Reconciler.
func (l *life) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key, ours := strings.CutPrefix(request.Name, l.name+"-")
	if !ours {
		return reconcile.Result{}, nil
	}
	v := visit{key: key, life: l.number, began: l.deps.Clock.Now()}
	l.enter(key)
	ended := false
	defer func() { l.leave(v, ended) }()
	// So that it takes a while, and for as long as it is held.
	var secret corev1.Secret
	for first := true; first || l.waits(key); first = false {
		if err := l.deps.Live.Get(ctx, request.NamespacedName, &secret); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, err
		}
		l.answeredLate()
	}
	if l.look {
		var secrets corev1.SecretList
		var leases coordinationv1.LeaseList
		if err := errors.Join(l.deps.Client.List(ctx, &secrets), l.deps.Client.List(ctx, &leases)); err != nil {
			return reconcile.Result{}, err
		}
		for _, s := range secrets.Items {
			v.sees += l.own(s.Name)
		}
		for _, o := range leases.Items {
			v.sees += l.own(o.Name)
		}
	}
	for _, effect := range l.effects {
		if secret.Labels[label] == l.effects[len(l.effects)-1] {
			break // all is done, and this is the event of that
		}
		obj := &corev1.Secret{}
		obj.Namespace, obj.Name = request.Namespace, request.Name
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, label, effect))
		if err := l.deps.Client.Patch(ctx, obj, patch); err != nil {
			return reconcile.Result{}, err
		}
		l.count()
	}
	v.ended, ended = l.deps.Clock.Now(), true
	a := l.next(key)
	if errors.Is(a.err, errPanic) {
		panic(a.err)
	}
	return a.result, a.err
}

func (d *diary) own(name string) int {
	if strings.HasPrefix(name, d.name+"-") {
		return 1
	}
	return 0
}

func (d *diary) enter(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.working[key]++
	all := 0
	for _, n := range d.working { // order does not matter: a sum
		all += n
	}
	d.crowd = max(d.crowd, all)
}

// leave notes a visit, unless it was ended by a crash.
func (l *life) leave(v visit, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.working[v.key]--
	if ended {
		l.visited = append(l.visited, v)
	}
}

func (l *life) waits(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[key] || l.heldFrom > 0 && l.number >= l.heldFrom
}

// answeredLate counts answers that reach a life after another one has begun.
func (l *life) answeredLate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.number < l.begun {
		l.late++
	}
}

func (l *life) count() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.responses[l.number]++
}

func (l *life) next(key string) (a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if planned := l.answers[key]; len(planned) > 0 {
		a, l.answers[key] = planned[0], planned[1:]
	}
	return a
}

// answer plans the result of a key's next visit, after those planned before.
func (d *diary) answer(key string, result reconcile.Result, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers[key] = append(d.answers[key], answer{result, err})
}

// hold makes visits of keys last until they are released.
func (d *diary) hold(keys ...string) { d.set(true, keys) }

func (d *diary) release(keys ...string) { d.set(false, keys) }

func (d *diary) set(held bool, keys []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range keys {
		d.held[key] = held
	}
	d.heldFrom = 0
}

// holdFrom makes all visits of a life and of later ones last.
func (d *diary) holdFrom(life int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heldFrom = life
}

// ended returns the visits of a key that have ended.
func (d *diary) ended(key string) []visit {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.visited), func(v visit) bool { return v.key != key })
}

// order returns the keys visited, in the order in which the visits ended.
func (d *diary) order() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var keys []string
	for _, v := range d.visited {
		keys = append(keys, v.key)
	}
	return keys
}

func (d *diary) busy(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.working[key] > 0
}

// someone returns a key that is being worked on, if there is one.
func (d *diary) someone() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, n := range d.working { // order does not matter: there is one at most
		if n > 0 {
			return key
		}
	}
	return ""
}

func (d *diary) most() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.crowd
}

func (d *diary) lives() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.begun
}

func (d *diary) answered(life int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.responses[life]
}

// saw reports whether a life has ended a visit of a key.
func (d *diary) saw(life int, key string) bool {
	return slices.ContainsFunc(d.ended(key), func(v visit) bool { return v.life == life })
}

func (d *diary) undead() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.late
}
