package kube

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A View is the informer cache of one process. Every kind in it is a stream of
// its own with its own lag: it holds the state after some prefix of the kind's
// changes, and moves on only by Deliver and Relist. A restarted process has a
// new View.
type View struct {
	store   *Store
	streams []stream // by Kind.slot
	// shares says that a list without copies is handed out again.
	shares bool
}

type stream struct {
	watched bool
	synced  bool
	next    int // the first change of the log that isn't in the table
	table   table
	indexes []fieldIndex
	// listed is the last list that was handed out without copies; it is good
	// until the stream moves on.
	listed listed
}

type listed struct {
	valid     bool
	namespace string
	items     reflect.Value
}

type fieldIndex struct {
	field   string
	extract client.IndexerFunc
}

// NewView returns the empty cache of a process that watches these kinds. No
// kind can be read before its first Relist, because a real process waits for
// its caches to sync before it starts its controllers.
func NewView(store *Store, kinds ...*Kind) *View {
	size := len(store.server.kinds)
	for _, k := range kinds {
		size = max(size, k.slot+1) // few processes want forms that aren't typed
	}
	v := &View{store: store, streams: make([]stream, size)}
	for _, k := range kinds {
		v.streams[k.slot].watched = true
	}
	return v
}

// of returns the stream of a kind, or an empty one if it isn't watched in that form.
func (v *View) of(k *Kind) *stream {
	if k.slot >= len(v.streams) {
		return new(stream)
	}
	return &v.streams[k.slot]
}

// ShareLists lets a View hand out a list without copies again, until its kind changes. A real cache
// makes a new slice of each, so this is for controllers that never change what they list.
func (v *View) ShareLists() { v.shares = true }

// Index declares a field index, which List needs for a field selector.
func (v *View) Index(k *Kind, name string, extract client.IndexerFunc) {
	s := v.of(k)
	s.indexes = append(s.indexes, fieldIndex{name, extract})
}

// Watches reports whether the kind is in the View.
func (v *View) Watches(k *Kind) bool { return v.of(k).watched }

// Pending reports whether there are changes of the kind that the View doesn't
// show yet.
func (v *View) Pending(k *Kind) bool { return v.Lag(k) > 0 }

// Lag returns the number of changes of the kind that the View doesn't show yet.
// It is 0 for a kind that was never listed or isn't watched.
func (v *View) Lag(k *Kind) int {
	s := v.of(k)
	if !s.synced {
		return 0
	}
	return len(v.store.logs[k.index]) - s.next
}

// Next returns the change that Deliver would deliver. It panics if none is pending. Old is the
// watch's version of it, not the View's.
func (v *View) Next(k *Kind) Change {
	return v.store.logs[k.index][v.of(k).next]
}

// Behind returns the changes of the kind that the View doesn't show yet. The caller
// must not change them.
func (v *View) Behind(k *Kind) []Change {
	log := v.store.logs[k.index]
	return log[len(log)-v.Lag(k):]
}

// Deliver shows the next change of the kind and returns it as an informer hands
// it to its event handlers. It panics if none is pending.
func (v *View) Deliver(k *Kind) Change {
	s := v.of(k)
	c := v.store.logs[k.index][s.next]
	before := s.table.get(c.Key)
	s.next++
	s.listed.valid = false
	if c.New == nil {
		s.table.drop(c.Key)
	} else {
		s.table.put(c.record)
	}
	if k.form != typed {
		c = k.seeing(c, before)
	}
	return c
}

// seeing converts a change for a handler of another form.
func (k *Kind) seeing(c Change, before *record) Change {
	c.Kind = k
	if c.Old != nil {
		// of a deletion the watch sends the version
		version := c.Old.GetResourceVersion()
		c.Old = k.seenAs(before)
		c.Old.SetResourceVersion(version)
	}
	if c.New != nil {
		c.New = k.seenAs(c.record)
	}
	return c
}

// Relist jumps to the present, as an informer does when it starts or when its
// watch was lost for too long. It returns what the handlers see: objects that
// are new or differ, in list order, then those that are gone, as tombstones
// with the last state that the View had. What happened in between is lost.
func (v *View) Relist(k *Kind) []Change {
	return v.jump(k, slices.Clone(v.store.tables[k.index]), len(v.store.logs[k.index]))
}

// Objects returns the objects of a kind that the View shows, shared.
func (v *View) Objects(k *Kind) []client.Object {
	var objs []client.Object
	for _, r := range v.of(k).table {
		objs = append(objs, k.seenAs(r))
	}
	return objs
}

// RelistAsOf is Relist from a server that lags behind and shows the state of an earlier time. A
// View asks for at least the state that it has seen, as an informer does. So only the first list
// of a process can be older than what the process knew. The changes since then are still to be
// delivered.
func (v *View) RelistAsOf(k *Kind, at time.Time) []Change {
	s := v.of(k)
	log := v.store.logs[k.index]
	next := s.next
	for next < len(log) && !log[next].At.After(at) {
		next++
	}
	var then table
	for _, c := range log[:next] {
		if c.New == nil {
			then.drop(c.Key)
		} else {
			then.put(c.record)
		}
	}
	return v.jump(k, then, next)
}

// jump makes the stream show a table, which must be the state after some prefix of the log.
func (v *View) jump(k *Kind, head table, next int) []Change {
	s := v.of(k)
	var changes []Change
	found := func(key client.ObjectKey, before, after *record) {
		c := Change{Kind: k, Key: key, Revision: v.store.revision, record: after}
		if before != nil {
			c.Old = k.seenAs(before)
		}
		if after != nil {
			c.New = k.seenAs(after)
		}
		c.Tombstone = after == nil
		changes = append(changes, c)
	}
	for _, r := range head {
		if old := s.table.get(r.key); old != r {
			found(r.key, old, r)
		}
	}
	for _, r := range s.table {
		if head.get(r.key) == nil {
			found(r.key, r, nil)
		}
	}
	s.table = head
	s.listed.valid = false
	s.next = next
	s.synced = true
	return changes
}

// Get copies the cached object into obj, with the errors of controller-runtime's cache.
func (v *View) Get(key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	k, s, err := v.stream("get", obj, key)
	if err != nil {
		return err
	}
	if !k.Namespaced {
		key.Namespace = ""
	}
	r := s.table.get(key)
	if r == nil {
		// the cache has no resource names: it puts the kind there
		return apierrors.NewNotFound(schema.GroupResource{Group: k.Group, Resource: k.Kind}, key.Name)
	}
	k.show(obj, r, uncopied(opts)) // what is stored has its kind
	if k.form == partial {
		obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	}
	return nil
}

// List copies the cached objects into list, in the order of namespace and name;
// the real cache has the order of a Go map.
func (v *View) List(list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	k, s, err := v.stream("list", list, client.ObjectKey{Namespace: o.Namespace})
	if err != nil {
		return err
	}
	plain := v.shares && k.form == typed && shares(o.UnsafeDisableDeepCopy) && o.Limit == 0 && o.Continue == "" && o.FieldSelector == nil && o.LabelSelector == nil
	if plain && s.listed.valid && s.listed.namespace == o.Namespace {
		k.setItems(list, s.listed.items)
		list.SetContinue("continue-not-supported")
		return nil
	}
	if o.Continue != "" {
		return errors.New("continue list option is not supported by the cache")
	}
	matches, err := s.fieldMatcher(o.FieldSelector)
	if err != nil {
		return err
	}
	var found []*record
	for _, r := range s.table {
		if o.Limit > 0 && int64(len(found)) >= o.Limit {
			break
		}
		if selected(r, &o) && (matches == nil || matches(k.seenAs(r))) {
			found = append(found, r)
		}
	}
	if k.form != typed {
		err = k.showList(list, found, true)
		list.SetContinue("continue-not-supported")
		return err
	}
	items := k.copyList(list, found, true, shares(o.UnsafeDisableDeepCopy))
	if plain {
		s.listed = listed{true, o.Namespace, items}
	}
	list.SetContinue("continue-not-supported")
	return nil
}

// fieldMatcher returns a test of a field selector, or nil when everything matches.
func (s *stream) fieldMatcher(sel fields.Selector) (func(client.Object) bool, error) {
	if sel == nil {
		return nil, nil
	}
	requirements := sel.Requirements()
	extractors := make([]client.IndexerFunc, len(requirements))
	for i, r := range requirements {
		if r.Operator != selection.Equals && r.Operator != selection.DoubleEquals {
			requirements = nil
			break
		}
		at := slices.IndexFunc(s.indexes, func(x fieldIndex) bool { return x.field == r.Field })
		if at < 0 {
			return nil, fmt.Errorf("Index with name field:%s does not exist", r.Field) // client-go's words
		}
		extractors[i] = s.indexes[at].extract
	}
	if len(requirements) == 0 {
		return nil, errors.New("non-exact field matches are not supported by the cache")
	}
	return func(obj client.Object) bool {
		for i, r := range requirements {
			if !slices.Contains(extractors[i](obj), r.Value) {
				return false
			}
		}
		return true
	}, nil
}

// stream finds the stream of a typed object or list. For a kind that isn't watched yet a real
// client would start an informer and wait for it. Here that is refused, because the lag of every
// kind that is read must be explored.
func (v *View) stream(verb string, obj runtime.Object, key client.ObjectKey) (*Kind, *stream, error) {
	k, err := v.store.kindOf(verb, obj, key)
	if err != nil {
		return nil, nil, err
	}
	s := v.of(k)
	switch {
	case !s.watched:
		return nil, nil, v.store.refuse(verb, k, key, "a cached read of a kind that the process doesn't watch (add it to Reads, or read it from Live)")
	case !s.synced:
		return nil, nil, v.store.refuse(verb, k, key, "a cached read before the cache has synced")
	}
	return k, s, nil
}

func selected(r *record, o *client.ListOptions) bool {
	if o.Namespace != "" && r.key.Namespace != o.Namespace {
		return false
	}
	return o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(metaOf(r.obj).Labels))
}
