package record

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// writers knows who wrote which version of an object, and who is deleting one. The API server's
// managed fields record who set a field, but neither who removed one nor who deleted an object.
type writers struct {
	mu sync.Mutex
	// unanswered names the writers whose requests to change Kind/name have no answer yet.
	unanswered map[string]map[string]bool
	// versions has the writers by the resourceVersion that their requests led to.
	versions map[string]string
	// deleting is who has asked for the deletion of Kind/name.
	deleting map[string]string
	// unversioned is who has asked for an effect that is answered with no version: an eviction, or
	// a binding. And releasing is who has taken its last finalizer from Kind/name that is being
	// deleted.
	unversioned, releasing map[string]string
	// clearing is who has last asked for the deletion of many objects of a Kind at once, which a
	// selector may choose.
	clearing map[string]cleared
}

// cleared is such a request.
type cleared struct {
	writer string
	until  time.Time
}

// clearedWithin is how long after a request for the deletion of many the deletion of one is put
// down to it: longer than the server takes, and too short for anybody else's to be taken for it
// often.
const clearedWithin = 5 * time.Second

// Sends notes that a request to change Kind/name is on its way, until done is called.
func (w *writers) Sends(object, writer string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unanswered == nil {
		w.unanswered = make(map[string]map[string]bool)
	}
	if w.unanswered[object] == nil {
		w.unanswered[object] = make(map[string]bool)
	}
	w.unanswered[object][writer] = true
}

// Done notes that a request was answered, after the changes in the answer.
func (w *writers) Done(object, writer string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.unanswered[object], writer)
}

func (w *writers) awaited(object string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.unanswered[object]) > 0
}

// deleted is the object that an effect deletes.
func deleted(effect string) (object string, deletes bool) {
	return strings.CutPrefix(effect, "delete ")
}

// Wrote notes whose request led to a version. The first counts: a request that
// changes nothing is answered with the version that there is.
func (w *writers) Wrote(version, writer string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.versions == nil {
		w.versions = make(map[string]string)
	}
	if _, known := w.versions[version]; !known {
		w.versions[version] = writer
	}
}

// Deletes notes who is about to delete an object, Kind/name, or many of a kind, Kind/. The last one
// to say so has done it.
func (w *writers) Deletes(object, writer string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if kind, many := strings.CutSuffix(object, "/"); many {
		if w.clearing == nil {
			w.clearing = make(map[string]cleared)
		}
		w.clearing[kind] = cleared{writer, time.Now().Add(clearedWithin)}
		maps.DeleteFunc(w.deleting, func(one, _ string) bool { return strings.HasPrefix(one, object) })
		return
	}
	if w.deleting == nil {
		w.deleting = make(map[string]string)
	}
	w.deleting[object] = writer
}

// Asks notes who sent a deletion, an eviction or a binding, before the server gets it. The answer
// is no help: it may come after the watch's event, and doesn't have the object's version.
func (w *writers) Asks(effect, writer string) {
	if object, deletes := deleted(effect); deletes {
		w.Deletes(object, writer)
	}
	if strings.HasPrefix(effect, evicts) || strings.HasPrefix(effect, binds) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.unversioned == nil {
			w.unversioned = make(map[string]string)
		}
		w.unversioned[effect] = writer
	}
}

// Refused notes that a request was answered with an error: an eviction that a budget forbids is
// none.
func (w *writers) Refused(effect, writer string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unversioned[effect] == writer {
		delete(w.unversioned, effect)
	}
}

// Released notes who has taken the last finalizer from Kind/name.
func (w *writers) Released(object, writer string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.releasing == nil {
		w.releasing = make(map[string]string)
	}
	w.releasing[object] = writer
}

// evicts begins the effects that are evictions, and binds those that are bindings.
const evicts, binds = "evict ", "bind "

// taken removes an object's entry from a map and returns it: the next object of its name is
// another one.
func taken(from map[string]string, object string) string {
	writer := from[object]
	delete(from, object)
	return writer
}

// node is the Node that an object is bound to, if it is a Pod that is.
func node(object metav1.Object) string {
	if pod, is := object.(*corev1.Pod); is && pod != nil {
		return pod.Spec.NodeName
	}
	return ""
}

// heldUp reports whether an object that is gone had finalizers when it was last seen. Not who asked
// for its deletion has made it go, but who took the last of them away.
func heldUp(before metav1.Object) bool {
	return before.GetDeletionTimestamp() != nil && len(before.GetFinalizers()) > 0
}

// of returns who made a change of an object, or "" if that is not known, or not yet.
func (w *writers) of(before, after metav1.Object) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if after == nil {
		kind := kindOf(before)
		if writer := taken(w.releasing, kind+"/"+before.GetName()); writer != "" || heldUp(before) {
			return writer
		}
		if before.GetDeletionTimestamp() == nil {
			if writer := taken(w.unversioned, evicts+kind+"/"+before.GetName()); writer != "" {
				return writer
			}
		}
		if writer, asked := w.deleting[kind+"/"+before.GetName()]; asked {
			return writer
		}
		if c := w.clearing[kind]; time.Now().Before(c.until) {
			return c.writer
		}
		return ""
	}
	if after.GetDeletionTimestamp() != nil && (before == nil || before.GetDeletionTimestamp() == nil) {
		if writer := taken(w.unversioned, evicts+kindOf(after)+"/"+after.GetName()); writer != "" {
			return writer
		}
	}
	if node(before) == "" && node(after) != "" {
		if writer := taken(w.unversioned, binds+kindOf(after)+"/"+after.GetName()); writer != "" {
			return writer
		}
	}
	return w.versions[after.GetResourceVersion()]
}

// An answer may be read later than its event. It is waited for up to answered, or up to answeredBy
// while a request to change the object has no answer yet, as on a busy machine.
const (
	answered   = lag / 2
	answeredBy = 5 * time.Second
	glance     = 2 * time.Millisecond
)

// await is of, for an answer that may not have been read yet.
func (w *writers) await(before, after metav1.Object) string {
	object := after
	if object == nil {
		object = before
	}
	name := kindOf(object) + "/" + object.GetName()
	for began := time.Now(); ; time.Sleep(glance) {
		waited, awaited := time.Since(began), w.awaited(name)
		if writer := w.of(before, after); writer != "" || waited >= answered && !awaited || waited >= answeredBy {
			return writer
		}
	}
}

// manager returns who made a version, as far as the API server's record of managed fields shows:
// the one manager whose entry is new, newer, or has more fields. If an entry has only lost fields,
// its manager or another one may have removed them: the record doesn't say.
func manager(before, after metav1.Object) string {
	if after == nil {
		return ""
	}
	var known []metav1.ManagedFieldsEntry
	if before != nil {
		known = before.GetManagedFields()
	}
	found := ""
	for _, entry := range after.GetManagedFields() {
		if !wrote(known, entry) || found == entry.Manager {
			continue
		}
		if found != "" {
			return "" // taking a field over changes two entries
		}
		found = entry.Manager
	}
	return found
}

// collector returns who deleted a Pod that had failed before. Pod garbage collection makes a Pod
// fail and then deletes it by force, which kube-controller-manager does past all gates.
func collector(gone metav1.Object) string {
	pod, is := gone.(*corev1.Pod)
	if !is || pod.Status.Phase != corev1.PodFailed {
		return ""
	}
	for _, entry := range pod.ManagedFields {
		status, _ := fields(entry)["f:status"].(map[string]any)
		if _, failed := status["f:phase"]; failed && strings.HasPrefix(entry.Manager, "kube-controller-manager") {
			return entry.Manager
		}
	}
	return ""
}

func wrote(known []metav1.ManagedFieldsEntry, entry metav1.ManagedFieldsEntry) bool {
	for _, k := range known {
		if k.Manager != entry.Manager || k.Operation != entry.Operation || k.APIVersion != entry.APIVersion || k.Subresource != entry.Subresource {
			continue
		}
		return !k.Time.Equal(entry.Time) || !within(fields(entry), fields(k))
	}
	return true
}

func fields(entry metav1.ManagedFieldsEntry) map[string]any {
	set := map[string]any{}
	if entry.FieldsV1 != nil {
		_ = json.Unmarshal(entry.FieldsV1.GetRawBytes(), &set) // the API server's own JSON
	}
	return set
}

// within reports whether every field of part is in whole.
func within(part, whole map[string]any) bool {
	for name, field := range part {
		other, ok := whole[name]
		if !ok {
			return false
		}
		inner, nested := field.(map[string]any)
		if outer, _ := other.(map[string]any); nested && !within(inner, outer) {
			return false
		}
	}
	return true
}

// kindOf is the kind of an object: the name of its Go type, if it has one of its own.
func kindOf(obj metav1.Object) string {
	if u, is := obj.(*unstructured.Unstructured); is {
		return u.GetKind()
	}
	return reflect.TypeOf(obj).Elem().Name()
}
