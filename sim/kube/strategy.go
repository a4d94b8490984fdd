package kube

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A strategy holds the rules in which one kind differs from the generic ones; the real server has
// the same term. The functions work on a record that isn't stored yet.
type strategy struct {
	// createOnUpdate lets a PUT create the object.
	createOnUpdate bool
	// unconditionalUpdate allows an update without resourceVersion.
	unconditionalUpdate bool
	// admits says that create adds fields that no client has sent.
	admits bool
	// create applies defaults and admission.
	create func(s *Store, k *Kind, rec *record) error
	// update and updateStatus reset what the request may not change.
	update       func(s *Store, k *Kind, rec, old *record) error
	updateStatus func(s *Store, k *Kind, rec, old *record) error
	// validate checks the content; old is nil on creation.
	validate func(obj, old client.Object) field.ErrorList
	// unpatchable names what is not modelled of a patch, or returns "".
	unpatchable func(current client.Object, patch map[string]json.RawMessage) string
	// grace returns the grace period of a first deletion in seconds. Nil for a
	// kind that is deleted at once.
	grace func(obj client.Object, requested *int64) int64
}

// customStrategy holds the generic rules of custom resources.
var customStrategy = strategy{
	create: func(_ *Store, k *Kind, rec *record) error {
		metaOf(rec.obj).Generation = 1
		if k.Status {
			k.dropStatus(rec.obj)
			var dropped []string
			if k.sentStatus(rec.obj) {
				dropped = []string{"-status"}
			}
			rec.sparse = joinSparse(sparseOf(rec.sparse, false), dropped)
		}
		return nil
	},
	update: func(_ *Store, k *Kind, rec, old *record) error {
		if k.Status {
			k.setStatus(rec.obj, old.obj)
			rec.sparse = joinSparse(sparseOf(rec.sparse, false), sparseOf(old.sparse, true))
		}
		if !k.sameContent(rec.obj, old.obj) || !slices.Equal(rec.sparse, old.sparse) {
			metaOf(rec.obj).Generation++
		}
		return nil
	},
	updateStatus: func(_ *Store, k *Kind, rec, old *record) error {
		obj := k.shallow(old.obj)
		k.setStatus(obj, rec.obj)
		rec.obj = obj
		rec.sparse = joinSparse(sparseOf(old.sparse, false), sparseOf(rec.sparse, true))
		return nil
	},
}

// sparseOf selects the marks inside or outside of status.
func sparseOf(sparse []string, status bool) []string {
	if len(sparse) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(sparse), func(mark string) bool {
		inside := mark[1:] == "status" || strings.HasPrefix(mark[1:], "status.")
		return inside != status
	})
}

func joinSparse(a, b []string) []string {
	switch {
	case len(a) == 0 && len(b) == 0:
		return nil
	case len(a) == 0:
		return b
	}
	joined := append(a, b...)
	slices.Sort(joined)
	return joined
}

// checkMetadata refuses metadata that would need missing machinery.
func (s *Store) checkMetadata(verb string, k *Kind, key client.ObjectKey, m *metav1.ObjectMeta) error {
	for _, f := range m.Finalizers {
		if f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents {
			return s.refuse(verb, k, key, "the garbage collector's finalizer %q", f)
		}
	}
	return nil
}

// validate checks an object that is about to be stored. It skips metadata that hasn't changed,
// whose check would be most of the cost.
func (k *Kind) validate(rec *record, old client.Object) field.ErrorList {
	var errs field.ErrorList
	obj := rec.obj
	m, path := metaOf(obj), metadataPath
	if rec.invalid != nil {
		errs = append(errs, rec.invalid)
	}
	if old == nil {
		errs = append(errs, apivalidation.ValidateObjectMetaAccessor(m, k.Namespaced, apivalidation.NameIsDNSSubdomain, path)...)
	} else {
		o := metaOf(old)
		if !slices.Equal(m.Finalizers, o.Finalizers) {
			errs = append(errs, apivalidation.ValidateFinalizers(m.Finalizers, path.Child("finalizers"))...)
			if o.DeletionTimestamp != nil {
				errs = append(errs, apivalidation.ValidateNoNewFinalizers(m.Finalizers, o.Finalizers, path.Child("finalizers"))...)
			}
		}
		if !maps.Equal(m.Labels, o.Labels) {
			errs = append(errs, metavalidation.ValidateLabels(m.Labels, path.Child("labels"))...)
		}
		if !maps.Equal(m.Annotations, o.Annotations) {
			errs = append(errs, apivalidation.ValidateAnnotations(m.Annotations, path.Child("annotations"))...)
		}
		if len(m.OwnerReferences) > 0 {
			errs = append(errs, apivalidation.ValidateOwnerReferences(m.OwnerReferences, path.Child("ownerReferences"))...)
		}
		if m.UID != o.UID {
			errs = append(errs, immutable(path.Child("uid"), m.UID))
		}
		if !m.DeletionTimestamp.Equal(o.DeletionTimestamp) {
			errs = append(errs, immutable(path.Child("deletionTimestamp"), m.DeletionTimestamp))
		}
		if !equalPointers(m.DeletionGracePeriodSeconds, o.DeletionGracePeriodSeconds) {
			errs = append(errs, immutable(path.Child("deletionGracePeriodSeconds"), m.DeletionGracePeriodSeconds))
		}
	}
	if name := k.missing(obj); name != "" {
		errs = append(errs, field.Required(field.NewPath(name), ""))
	}
	if k.strategy.validate != nil {
		errs = append(errs, k.strategy.validate(obj, old)...)
	}
	return errs
}

// Paths of errors, made once: most objects have none.
var metadataPath, specPath = field.NewPath("metadata"), field.NewPath("spec")

func immutable(path *field.Path, value any) *field.Error {
	return field.Invalid(path, value, apivalidation.FieldImmutableErrorMsg)
}

func equalPointers[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
