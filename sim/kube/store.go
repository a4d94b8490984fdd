package kube

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Change is one committed write, as the watch of its kind reports it.
type Change struct {
	Kind *Kind
	Key  client.ObjectKey
	// Old is nil when the object was created, New when it was deleted. On a
	// deletion Old is the last state with the resourceVersion of the deletion,
	// as the real watch sends it. Both are shared: don't modify them.
	Old, New client.Object
	// Revision orders all changes of a Store.
	Revision int64
	// At is the time of the commit, by the server's clock.
	At time.Time
	// Actor is the writer. It is empty for a change found by a View's Relist.
	Actor string
	// Tombstone says that a View learnt of the deletion only by listing, so that Old may be older
	// than the last state.
	Tombstone bool

	record *record
}

// An author is the writer of a change, and the manner of the write.
type author struct {
	actor string
	// manager is the field manager. It is empty where the server itself writes.
	manager string
	// status says that the status subresource is written.
	status bool
	// applied says that a configuration is applied.
	applied bool
	// dry says that nothing is to be stored.
	dry bool
}

// direct returns the author of a write that doesn't come through a Client.
func direct(actor string) author { return author{actor: actor, manager: actor} }

// A Store is one simulated API server and its storage. It is not safe for
// concurrent use: the simulator runs one step at a time.
type Store struct {
	server   *Server
	now      func() time.Time
	commit   func(Change)
	revision int64
	uids     uint64
	suffixes uint64
	tables   []table
	logs     [][]Change
	refusal  *Unmodelled
}

// NewStore returns an empty Store. now is the server's clock. commit, if not
// nil, sees every change right after it is committed and before the writer gets
// its answer; it must not write to the Store.
func NewStore(server *Server, now func() time.Time, commit func(Change)) *Store {
	n := len(server.kinds)
	return &Store{
		server: server, now: now, commit: commit,
		revision: 1, // as an empty etcd
		tables:   make([]table, n), logs: make([][]Change, n),
	}
}

// Fork returns an independent Store with the same content and log. The objects are shared, since
// they never change. It costs a fraction of storing them again.
func (s *Store) Fork(now func() time.Time, commit func(Change)) *Store {
	f := *s
	f.now, f.commit = now, commit
	f.tables, f.logs = make([]table, len(s.tables)), make([][]Change, len(s.logs))
	for i := range s.tables {
		f.tables[i], f.logs[i] = slices.Clone(s.tables[i]), slices.Clone(s.logs[i])
	}
	return &f
}

// Server returns the kinds that the Store holds.
func (s *Store) Server() *Server { return s.server }

// Revision returns the revision of the last change.
func (s *Store) Revision() int64 { return s.revision }

// CountFrom numbers the revisions, UIDs and generated names to come from n on. No revision of the
// same kind may have reached n.
func (s *Store) CountFrom(n int64) { s.revision, s.uids, s.suffixes = n, uint64(n), uint64(n) }

// Log returns the changes of a kind since the Store was made, in order. They
// are shared: don't modify them.
func (s *Store) Log(k *Kind) []Change { return s.logs[k.index] }

// Refusal returns the first request that was refused as not modelled, or nil.
func (s *Store) Refusal() *Unmodelled { return s.refusal }

func (s *Store) refuse(verb string, k *Kind, key client.ObjectKey, format string, args ...any) error {
	e := &Unmodelled{Verb: verb, Kind: k.Kind, Key: key, What: fmt.Sprintf(format, args...)}
	if s.refusal == nil {
		s.refusal = e
	}
	return e
}

// kindOf is Server.KindOf for a request: untyped objects are refused.
func (s *Store) kindOf(verb string, obj runtime.Object, key client.ObjectKey) (*Kind, error) {
	k, err := s.server.KindOf(obj)
	if err != nil {
		return nil, s.refuse(verb, &Kind{GroupVersionKind: schema.GroupVersionKind{Kind: fmt.Sprintf("%T", obj)}}, key, "an object of this Go type")
	}
	return k, nil
}

// Get returns the stored object, shared: don't modify it. The error is a
// NotFound API error.
func (s *Store) Get(k *Kind, key client.ObjectKey) (client.Object, error) {
	return objectOf(s.get(k, key))
}

func (s *Store) get(k *Kind, key client.ObjectKey) (*record, error) {
	if r := s.tables[k.index].get(key); r != nil {
		return r, nil
	}
	return nil, apierrors.NewNotFound(k.groupResource(), key.Name)
}

// List returns the stored objects of a kind in the order of namespace and name,
// shared: don't modify them. An empty namespace means all.
func (s *Store) List(k *Kind, namespace string) []client.Object {
	t := s.tables[k.index]
	objs := make([]client.Object, 0, len(t))
	for _, r := range t {
		if namespace == "" || r.key.Namespace == namespace {
			objs = append(objs, r.obj)
		}
	}
	return objs
}

// Create stores a copy of obj on behalf of actor and returns the stored object,
// shared. Errors are API errors or Unmodelled.
func (s *Store) Create(actor string, obj client.Object) (client.Object, error) {
	k, err := s.kindOf("create", obj, client.ObjectKeyFromObject(obj))
	if err != nil {
		return nil, err
	}
	return objectOf(s.create(direct(actor), k, &record{obj: k.own(obj)}))
}

// objectOf returns the object of a record.
func objectOf(r *record, err error) (client.Object, error) {
	if err != nil {
		return nil, err
	}
	return r.obj, nil
}

// Update replaces the object by a copy of obj, as a PUT does. The UID and the resourceVersion of
// obj must be current if they are set.
func (s *Store) Update(actor string, obj client.Object) (client.Object, error) {
	k, err := s.kindOf("update", obj, client.ObjectKeyFromObject(obj))
	if err != nil {
		return nil, err
	}
	return objectOf(s.replace(direct(actor), k, &record{obj: k.own(obj)}))
}

// Put is Update without a copy: the caller gives the object away, with all that it refers to.
func (s *Store) Put(actor string, obj client.Object) (client.Object, error) {
	k, err := s.kindOf("update", obj, client.ObjectKeyFromObject(obj))
	if err != nil {
		return nil, err
	}
	k.normalise(obj)
	return objectOf(s.replace(direct(actor), k, &record{obj: obj}))
}

// UpdateStatus is Update through the status subresource.
func (s *Store) UpdateStatus(actor string, obj client.Object) (client.Object, error) {
	k, err := s.kindOf("update", obj, client.ObjectKeyFromObject(obj))
	if err != nil {
		return nil, err
	}
	by := direct(actor)
	by.status = true
	return objectOf(s.replace(by, k, &record{obj: k.own(obj)}))
}

// Patch applies a patch. status selects the status subresource.
func (s *Store) Patch(actor string, k *Kind, key client.ObjectKey, status bool, t types.PatchType, data []byte) (client.Object, error) {
	by := direct(actor)
	by.status = status
	return objectOf(s.patch(by, k, key, t, data))
}

func (s *Store) patch(by author, k *Kind, key client.ObjectKey, t types.PatchType, data []byte) (*record, error) {
	strategic := t == types.StrategicMergePatchType
	switch {
	case strategic && k.Custom:
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
		}}
	case t != types.MergePatchType && t != types.JSONPatchType && !strategic:
		return nil, s.refuse("patch", k, key, "a patch of type %s", t)
	}
	return s.update(by, k, key, "patch", nil, func(current *record) (*record, error) {
		if t == types.JSONPatchType {
			return s.applyJSON(k, current, t, data, by.status)
		}
		return s.applyMerge(k, current, data, by.status, strategic)
	})
}

// own copies an object that came from outside and converts it to its stored form.
func (k *Kind) own(obj client.Object) client.Object {
	c := obj.DeepCopyObject().(client.Object)
	c.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	k.normalise(c)
	return c
}

func (s *Store) keyOf(k *Kind, obj client.Object) client.ObjectKey {
	m := metaOf(obj)
	if !k.Namespaced {
		m.Namespace = ""
	}
	return client.ObjectKey{Namespace: m.Namespace, Name: m.Name}
}

// maxNameAttempts is how often the server tries to generate a free name.
const maxNameAttempts = 8

// create performs a POST of rec, which the Store takes over.
func (s *Store) create(by author, k *Kind, rec *record) (*record, error) {
	m := metaOf(rec.obj)
	m.DeletionTimestamp, m.DeletionGracePeriodSeconds = nil, nil
	return s.insert(by, k, rec)
}

// insert is the common part of a POST and of a PUT that creates. Only the POST ignores a
// deletionTimestamp in the request.
func (s *Store) insert(by author, k *Kind, rec *record) (*record, error) {
	m := metaOf(rec.obj)
	generated := m.Name == "" && m.GenerateName != ""
	key := s.keyOf(k, rec.obj)
	if generated {
		for range maxNameAttempts {
			key.Name = s.generateName(m.GenerateName)
			if s.tables[k.index].get(key) == nil {
				break
			}
		}
		m.Name = key.Name
	}
	rec.key, rec.tracked = key, by.applied
	m.UID, m.CreationTimestamp = s.newUID(), s.timestamp()
	m.SetSelfLink("")
	if len(m.ManagedFields) > 0 && !by.applied {
		return nil, s.refuse("create", k, key, "metadata.managedFields")
	}
	if err := s.checkMetadata("create", k, key, m); err != nil {
		return nil, err
	}
	if k.strategy.admits {
		rec.sent = k.shallow(rec.obj)
	}
	if err := k.strategy.create(s, k, rec); err != nil {
		return nil, err
	}
	if errs := k.validate(rec, nil); len(errs) > 0 {
		return nil, apierrors.NewInvalid(k.GroupKind(), m.Name, errs)
	}
	if m.ResourceVersion != "" && m.ResourceVersion != "0" && !by.dry {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: "resourceVersion should not be set on objects to be created",
		}}
	}
	if old := s.tables[k.index].get(key); old != nil {
		err := apierrors.NewAlreadyExists(k.groupResource(), key.Name)
		if m.GenerateName != "" {
			err = apierrors.NewGenerateNameConflict(k.groupResource(), key.Name, 1)
		}
		if metaOf(old.obj).DeletionTimestamp != nil {
			err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
		}
		return nil, err
	}
	s.write(by, k, nil, rec)
	return rec, nil
}

// replace performs a PUT of rec, which the Store takes over.
func (s *Store) replace(by author, k *Kind, rec *record) (*record, error) {
	key, uid := s.keyOf(k, rec.obj), metaOf(rec.obj).UID
	rec.key = key
	if k.strategy.createOnUpdate && !by.status && s.tables[k.index].get(key) == nil {
		if uid != "" {
			return nil, s.conflict(k, key, k.preconditionUID(key, uid, "", by.dry))
		}
		metaOf(rec.obj).ResourceVersion = ""
		return s.insert(by, k, rec)
	}
	return s.update(by, k, key, "update", &uid, func(*record) (*record, error) { return rec, nil })
}

// update commits the result of next for the current record. It is the common part of PUT and
// PATCH. Only a PUT has a UID precondition.
func (s *Store) update(by author, k *Kind, key client.ObjectKey, verb string, uid *types.UID, next func(*record) (*record, error)) (*record, error) {
	if by.status && !k.Status {
		return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, verb, k.groupResource(), key.Name, "the server could not find the requested resource", 0, true)
	}
	current := s.tables[k.index].get(key)
	if current == nil {
		return nil, apierrors.NewNotFound(k.groupResource(), key.Name)
	}
	old := metaOf(current.obj)
	if uid != nil && *uid != "" && *uid != old.UID {
		return nil, s.conflict(k, key, k.preconditionUID(key, *uid, old.UID, by.dry))
	}
	rec, err := next(current)
	if err != nil {
		return nil, err
	}
	m := metaOf(rec.obj)
	unconditional := false
	switch {
	case m.ResourceVersion == "" || m.ResourceVersion == "0":
		if !k.strategy.unconditionalUpdate {
			return nil, apierrors.NewInvalid(schema.GroupKind{Group: k.Group, Kind: k.Resource}, key.Name, field.ErrorList{
				field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"),
			})
		}
		m.ResourceVersion = old.ResourceVersion
		unconditional = true
	case m.ResourceVersion != old.ResourceVersion:
		if _, err := strconv.ParseUint(m.ResourceVersion, 10, 64); err != nil {
			return nil, s.refuse(verb, k, key, "a resourceVersion that isn't a number (%q)", m.ResourceVersion)
		}
		return nil, s.conflict(k, key, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	m.Generation = old.Generation
	prepare := k.strategy.update
	if by.status {
		prepare = k.strategy.updateStatus
	}
	managed := m.ManagedFields
	if err := prepare(s, k, rec, current); err != nil {
		return nil, err
	}
	m = metaOf(rec.obj)
	if by.applied {
		m.ManagedFields = managed // also where a status is all that is taken
	}
	if m.UID == "" {
		m.UID = old.UID
	}
	m.CreationTimestamp = old.CreationTimestamp
	if old.DeletionTimestamp != nil {
		if m.DeletionTimestamp != nil && !m.DeletionTimestamp.Equal(old.DeletionTimestamp) {
			// it is ignored, but changes the managed fields
			return nil, s.refuse(verb, k, key, "an attempt to change deletionTimestamp")
		}
		m.DeletionTimestamp = old.DeletionTimestamp
	}
	if old.DeletionGracePeriodSeconds != nil && m.DeletionGracePeriodSeconds == nil {
		m.DeletionGracePeriodSeconds = old.DeletionGracePeriodSeconds
	}
	if err := s.checkMetadata(verb, k, key, m); err != nil {
		return nil, err
	}
	if err := s.manage(by, k, verb, rec, current); err != nil {
		return nil, err
	}
	if errs := k.validate(rec, current.obj); len(errs) > 0 {
		return nil, apierrors.NewInvalid(k.GroupKind(), key.Name, errs)
	}
	if len(m.Finalizers) == 0 && old.DeletionTimestamp != nil && (old.DeletionGracePeriodSeconds == nil || *old.DeletionGracePeriodSeconds == 0) {
		s.write(by, k, current, nil)
		return rec, nil
	}
	if k.same(rec.obj, current.obj) && slices.Equal(rec.sparse, current.sparse) {
		if unconditional && uid != nil {
			// a client that sends back managed fields of an older version does write
			return nil, s.refuse(verb, k, key, "an unconditional update that changes nothing")
		}
		return current, nil
	}
	s.write(by, k, current, rec)
	return rec, nil
}

// Delete deletes an object, or marks it as being deleted while it has
// finalizers or a grace period. opts may be nil.
func (s *Store) Delete(actor string, k *Kind, key client.ObjectKey, opts *metav1.DeleteOptions) error {
	if opts == nil {
		opts = &metav1.DeleteOptions{}
	}
	by := author{actor: actor, dry: len(opts.DryRun) > 0}
	current := s.tables[k.index].get(key)
	if current == nil {
		return apierrors.NewNotFound(k.groupResource(), key.Name)
	}
	old := metaOf(current.obj)
	// the real server names the kind here, not the resource
	if err := checkPreconditions(schema.GroupResource{Group: k.Group, Resource: k.Kind}, old, opts.Preconditions); err != nil {
		return err
	}
	switch p := opts.PropagationPolicy; {
	case p != nil && *p != metav1.DeletePropagationBackground:
		return s.refuse("delete", k, key, "propagation policy %s", *p)
	case opts.GracePeriodSeconds != nil && *opts.GracePeriodSeconds < 0:
		return s.refuse("delete", k, key, "a negative grace period")
	}
	if k.strategy.grace != nil {
		marked, pending := s.markGraceful(k, current, opts.GracePeriodSeconds)
		if pending {
			return nil
		}
		if marked != nil {
			if !k.same(marked.obj, current.obj) {
				s.write(by, k, current, marked)
				current = marked
			}
			if m := metaOf(current.obj); len(m.Finalizers) > 0 || *m.DeletionGracePeriodSeconds > 0 {
				return nil
			}
			s.write(by, k, current, nil)
			return nil
		}
	}
	if len(old.Finalizers) == 0 {
		s.write(by, k, current, nil)
		return nil
	}
	marked := &record{key: key, obj: k.shallow(current.obj), sparse: current.sparse, tracked: current.tracked}
	m := metaOf(marked.obj)
	if m.DeletionTimestamp == nil && m.Generation > 0 {
		m.Generation++
	}
	now, zero := s.timestamp(), int64(0)
	if m.DeletionTimestamp == nil || m.DeletionTimestamp.After(s.now()) {
		m.DeletionTimestamp = &now
	}
	m.DeletionGracePeriodSeconds = &zero
	if !k.same(marked.obj, current.obj) {
		s.write(by, k, current, marked)
	}
	return nil
}

// markGraceful starts or shortens a graceful deletion. It returns nil when the
// object is past its grace, and pending when nothing changes.
func (s *Store) markGraceful(k *Kind, current *record, requested *int64) (marked *record, pending bool) {
	old := metaOf(current.obj)
	var period int64
	var at metav1.Time
	if old.DeletionTimestamp == nil {
		period = k.strategy.grace(current.obj, requested)
		at = metav1.NewTime(s.now().Add(time.Duration(period) * time.Second).UTC().Truncate(time.Second))
	} else {
		if old.DeletionGracePeriodSeconds == nil || *old.DeletionGracePeriodSeconds == 0 {
			return nil, false
		}
		if requested == nil || *requested >= *old.DeletionGracePeriodSeconds {
			return nil, true
		}
		period = *requested
		at = metav1.NewTime(old.DeletionTimestamp.Add(time.Duration(period-*old.DeletionGracePeriodSeconds) * time.Second))
		if now := s.now(); at.Time.Before(now) {
			at = metav1.NewTime(now.UTC().Truncate(time.Second))
			if period != 0 {
				period = 1
			}
		}
	}
	marked = &record{key: current.key, obj: k.shallow(current.obj), sparse: current.sparse, tracked: current.tracked}
	m := metaOf(marked.obj)
	if m.DeletionTimestamp == nil && m.Generation > 0 {
		m.Generation++
	}
	m.DeletionTimestamp, m.DeletionGracePeriodSeconds = &at, &period
	return marked, false
}

// write commits a change: old is nil for a creation, rec for a deletion.
func (s *Store) write(by author, k *Kind, old, rec *record) {
	if by.dry {
		return
	}
	s.revision++
	version := formatRevision(s.revision)
	c := Change{Kind: k.base, Revision: s.revision, At: s.now(), Actor: by.actor, record: rec}
	if rec != nil {
		rec.manager, rec.status = by.manager, by.status
		metaOf(rec.obj).ResourceVersion = version
		c.Key, c.New = rec.key, rec.obj
		if old != nil {
			c.Old = old.obj
		}
		s.tables[k.index].put(rec)
	} else {
		c.Key, c.Old = old.key, k.shallow(old.obj)
		metaOf(c.Old).ResourceVersion = version
		s.tables[k.index].drop(old.key)
	}
	s.logs[k.index] = append(s.logs[k.index], c)
	if s.commit != nil {
		s.commit(c)
	}
}

func (s *Store) conflict(k *Kind, key client.ObjectKey, err error) error {
	return apierrors.NewConflict(k.groupResource(), key.Name, err)
}

// preconditionUID returns the error of etcd's storage layer, which names the key.
func (k *Kind) preconditionUID(key client.ObjectKey, want, have types.UID, dry bool) error {
	root, at := "/registry", k.Resource
	if dry {
		root = "" // a layer above etcd's says it
	}
	switch {
	case k.Custom:
		at = k.Group + "/" + k.Resource
	case k.Kind == "Node":
		at = "minions"
	}
	if k.Namespaced {
		at += "/" + key.Namespace
	}
	return fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s/%s/%s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %v, UID in object meta: %v", root, at, key.Name, want, have) // the server's words
}

func (s *Store) timestamp() metav1.Time {
	return metav1.NewTime(s.now().UTC().Truncate(time.Second))
}

func formatRevision(n int64) string { return strconv.FormatInt(n, 10) }

// newUID returns the next UID. It counts, so that equal runs have equal UIDs.
func (s *Store) newUID() types.UID {
	s.uids++
	const prefix = "00000000-0000-4000-8000-"
	n := strconv.FormatUint(s.uids, 16)
	return types.UID(prefix + "000000000000"[len(n):] + n)
}

// The real server's alphabet (no vowels, no digits that look like letters) and
// lengths of generated names.
const (
	nameAlphabet  = "bcdfghjklmnpqrstvwxz2456789"
	suffixLength  = 5
	maxNameLength = 63
)

func (s *Store) generateName(base string) string {
	s.suffixes++
	// splitmix64: consecutive numbers give unrelated suffixes
	z := s.suffixes * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	var b strings.Builder
	b.WriteString(base[:min(len(base), maxNameLength-suffixLength)])
	for range suffixLength {
		b.WriteByte(nameAlphabet[z%uint64(len(nameAlphabet))])
		z /= uint64(len(nameAlphabet))
	}
	return b.String()
}
