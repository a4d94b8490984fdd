package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SetAnnotation returns the patch that sets the annotation key on obj and removes the annotations
// in gone. The patch fails with a conflict if obj has changed since it was read.
func SetAnnotation(obj client.Object, key, value string, gone ...string) client.Patch {
	fields := Quote(key) + ":" + Quote(value)
	for _, key := range gone {
		fields += "," + Quote(key) + ":null"
	}
	return patch(obj, `"annotations":{`+fields+"}", "")
}

// RemoveAnnotations returns the patch that removes the annotations keys from obj, all
// at once. The patch fails with a conflict if obj has changed since it was read.
func RemoveAnnotations(obj client.Object, keys ...string) client.Patch {
	fields := []byte(`"annotations":{`)
	for i, key := range slices.Sorted(slices.Values(keys)) {
		if i > 0 {
			fields = append(fields, ',')
		}
		fields = append(fields, Quote(key)+":null"...)
	}
	return patch(obj, string(append(fields, '}')), "")
}

// SetStatus returns the patch that merges fields, the inside of a JSON object,
// into the status of obj: {"poweredOn":true} without the braces. It is meant for
// the status subresource, and fails with a conflict if obj has changed since it was
// read.
func SetStatus(obj client.Object, fields string) client.Patch {
	return patch(obj, "", `,"status":{`+fields+"}")
}

// SetSpec returns the patch that merges fields, the inside of a JSON object, into
// the spec of obj. The patch fails with a conflict if obj has changed since it was
// read.
func SetSpec(obj client.Object, fields string) client.Patch {
	return patch(obj, "", `,"spec":{`+fields+"}")
}

// AddFinalizer returns the patch that gives obj a finalizer, behind those that it has. The patch
// fails with a conflict if obj has changed since it was read.
func AddFinalizer(obj client.Object, name string) client.Patch {
	return SetFinalizers(obj, append(otherFinalizers(obj, name), name))
}

// RemoveFinalizer returns the patch that leaves obj its other finalizers. The patch fails with a
// conflict if obj has changed since it was read.
func RemoveFinalizer(obj client.Object, name string) client.Patch {
	return SetFinalizers(obj, otherFinalizers(obj, name))
}

func otherFinalizers(obj client.Object, name string) []string {
	return slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == name })
}

// SetFinalizers returns the patch that gives obj these finalizers and no others. The
// patch fails with a conflict if obj has changed since it was read.
func SetFinalizers(obj client.Object, finalizers []string) client.Patch {
	quoted := make([]string, len(finalizers))
	for i, f := range finalizers {
		quoted[i] = Quote(f)
	}
	return patch(obj, `"finalizers":[`+strings.Join(quoted, ",")+"]", "")
}

// RemoveAnnotationAndSetSpec returns the patch that removes the annotation key from obj and
// merges fields, the inside of a JSON object, into its spec, all at once. The patch fails
// with a conflict if obj has changed since it was read.
func RemoveAnnotationAndSetSpec(obj client.Object, key, fields string) client.Patch {
	return patch(obj, `"annotations":{`+Quote(key)+":null}", `,"spec":{`+fields+"}")
}

// patch builds a merge patch with nothing but the changes. Every patch names the resourceVersion
// that its decision was based on, so that a decision never outlives its facts.
func patch(obj client.Object, metadata, more string) client.Patch {
	body := `{"metadata":{"resourceVersion":` + Quote(obj.GetResourceVersion())
	if metadata != "" {
		body += "," + metadata
	}
	return client.RawPatch(types.MergePatchType, []byte(body+"}"+more+"}"))
}

// Quote encodes a string as JSON, for SetStatus.
func Quote(s string) string {
	quoted, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("encode the string %q: %v", s, err)) // strings always encode
	}
	return string(quoted)
}

// longest bounds quotations of texts that anybody may have written.
const longest = 100

// Shorten limits the length of text that is quoted in a condition, an Event or an error.
func Shorten(text string) string {
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "") + "..."
}
