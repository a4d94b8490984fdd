package kube

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A record is one stored version of one object. It is immutable.
type record struct {
	key client.ObjectKey
	obj client.Object
	// sparse lists how the stored JSON of a custom resource differs from what
	// Go would encode: "-path" for a field that Go always writes and that isn't
	// there, "+path" for one that is there and that Go would leave out. Without
	// it, a write that adds or removes such a field would look like a no-op.
	sparse []string
	// invalid is a fault left by a patch, for validation to report. It is nil in a stored record.
	invalid *field.Error
	// manager and status record the writer and whether the write was to the status. The manager is
	// empty where the server itself wrote. sent is the object before admission, if that added
	// something. The managers of fields are derived from these on request.
	manager string
	status  bool
	sent    client.Object
	// tracked says that they were requested, and that the object shows them.
	tracked bool
}

// A table holds the records of one kind in the order of etcd's keys. It is
// small (tens of objects), and cloned whenever a View lists.
type table []*record

func compareKeys(a, b client.ObjectKey) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

func (t table) find(key client.ObjectKey) (int, bool) {
	return slices.BinarySearchFunc(t, key, func(r *record, key client.ObjectKey) int { return compareKeys(r.key, key) })
}

func (t table) get(key client.ObjectKey) *record {
	if i, ok := t.find(key); ok {
		return t[i]
	}
	return nil
}

func (t *table) put(r *record) {
	if i, ok := t.find(r.key); ok {
		(*t)[i] = r
	} else {
		*t = slices.Insert(*t, i, r)
	}
}

func (t *table) drop(key client.ObjectKey) {
	if i, ok := t.find(key); ok {
		*t = slices.Delete(*t, i, i+1)
	}
}
