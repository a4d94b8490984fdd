package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"
)

// Untyped objects, and patches that only a library can merge, go through JSON. It costs a hundred
// times as much as the typed way.

// encode returns the stored JSON of an object, in its own memory.
func (k *Kind) encode(r *record) map[string]any {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r.obj)
	if err != nil {
		panic(fmt.Sprintf("kube: encode %s %s: %v", k.Kind, r.key, err)) // it is a type that encodes itself
	}
	for _, mark := range r.sparse {
		at, plan := content, k.plan
		names := strings.Split(mark[1:], ".")
		for _, name := range names[:len(names)-1] {
			plan = plan.Below(name)
			inner, ok := at[name].(map[string]any)
			if !ok {
				inner = map[string]any{}
				at[name] = inner
			}
			at = inner
		}
		last := names[len(names)-1]
		if mark[0] == '-' {
			delete(at, last)
		} else if _, there := at[last]; !there {
			at[last] = plan.Below(last).Zero()
		}
	}
	return content
}

// decode makes a record from JSON that came from outside. status says that the request addresses
// the status. The error is a mismatch, a notEquivalent, or says that the data is no JSON object.
func (s *Store) decode(k *Kind, key client.ObjectKey, data []byte, status bool) (*record, error) {
	content, err := decodePatch(data)
	if err != nil {
		return nil, err
	}
	for _, fixed := range [][2]string{{"kind", k.Kind}, {"apiVersion", k.GroupVersion().String()}} {
		if raw := content[fixed[0]]; string(raw) != `"`+fixed[1]+`"` {
			return nil, &notEquivalent{fmt.Sprintf("an object whose %s is %s", fixed[0], raw)}
		}
		delete(content, fixed[0])
	}
	rec := &record{key: key, obj: k.base.New()}
	if err := s.dropIgnored(k, key, rec.obj, content, status, true); err != nil {
		return nil, err
	}
	m := merge{custom: k.Custom, whole: true, sparse: map[string]bool{}}
	if err := m.structure(k.plan, reflect.ValueOf(rec.obj).UnsafePointer(), content, "", true); err != nil {
		return nil, err
	}
	m.into(rec)
	rec.obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	k.normalise(rec.obj)
	return rec, nil
}

// content is decode for a request that sends a whole object which isn't typed.
func (s *Store) content(verb string, k *Kind, key client.ObjectKey, obj client.Object, status bool) (*record, error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", k.Kind, key, err)
	}
	rec, err := s.decode(k, key, data, status)
	switch err := err.(type) {
	case *notEquivalent:
		return nil, s.refuse(verb, k, key, "%s", err.what)
	case *mismatch:
		if k.Custom {
			return nil, s.refuse(verb, k, key, "a value of the wrong type at %s", err.path)
		}
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", k.Kind, k.Version, k.Kind, err))
	}
	return rec, err
}

// applyJSON applies a patch that is not merged typed: a JSON patch, or a strategic
// merge patch with lists or directives.
func (s *Store) applyJSON(k *Kind, current *record, t types.PatchType, data []byte, status bool) (*record, error) {
	var patched []byte
	var err error
	if t == types.JSONPatchType {
		patched, err = jsonPatched(k.encode(current), data)
	} else {
		patched, err = strategicPatched(k.encode(current), data, k.base.New())
	}
	if err != nil {
		return nil, err
	}
	rec, err := s.decode(k, current.key, patched, status)
	if err != nil {
		return nil, s.patchError(k, current, err)
	}
	if unpatchable := k.strategy.unpatchable; unpatchable != nil {
		for _, obj := range [...]client.Object{current.obj, rec.obj} {
			if what := unpatchable(obj, map[string]json.RawMessage{"data": nil}); what != "" {
				return nil, s.refuse("patch", k, current.key, "%s", what)
			}
		}
	}
	return rec, s.named(k, rec, current.key)
}

// maxOperations is how long a JSON patch may be.
const maxOperations = 10000

func jsonPatched(content map[string]any, data []byte) ([]byte, error) {
	patch, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if len(patch) > maxOperations {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxOperations, len(patch)))
	}
	current, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	patched, err := patch.Apply(current)
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	return patched, nil
}

func strategicPatched(content map[string]any, data []byte, of client.Object) ([]byte, error) {
	patch := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &patch); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	patched, err := strategicpatch.StrategicMergeMapPatch(content, patch, of)
	if err != nil {
		return nil, strategicError(err)
	}
	return json.Marshal(patched)
}

// strategicError turns an error of strategicpatch into the server's answer.
func strategicError(err error) error {
	switch {
	case errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys), errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList),
		errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return apierrors.NewBadRequest(err.Error())
	case errors.Is(err, mergepatch.ErrNoListOfLists), errors.Is(err, mergepatch.ErrPatchContentNotMatchRetainKeys):
		return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	return internalError(err)
}

// internalError returns the server's answer for an error that is not an API error.
func internalError(err error) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return err
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}}
}

// named checks that a patch kept an object's name, and sets its namespace.
func (s *Store) named(k *Kind, rec *record, key client.ObjectKey) error {
	meta := metaOf(rec.obj)
	if meta.Name != key.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", meta.Name, key.Name))
	}
	switch {
	case meta.Namespace == key.Namespace:
	case meta.Namespace == "":
		meta.Namespace = key.Namespace
	case !k.Namespaced:
		meta.Namespace = ""
	default:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// into gives a record the findings of a merge about its content.
func (m *merge) into(rec *record) {
	if e := m.invalid; e != nil {
		rec.invalid = field.Invalid(field.NewPath(e.path), "", e.why)
	}
	rec.sparse = sortedMarks(m.sparse)
}
