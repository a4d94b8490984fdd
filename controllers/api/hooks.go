package api

import (
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// DeletionPoint is a point in the deletion of a Machine at which hooks make it wait
// (seed 003).
type DeletionPoint string

// The points, as the annotations of their hooks begin. Seed 003 spells the domain in
// three ways; this is the one that Cluster API acts on (design, decision 8).
const (
	PreDrain     DeletionPoint = clusterv1.PreDrainDeleteHookAnnotationPrefix
	PreTerminate DeletionPoint = clusterv1.PreTerminateDeleteHookAnnotationPrefix
)

// DeletionHook is one hook on a Machine.
type DeletionHook struct {
	// Annotation is the whole key.
	Annotation string
	// Owner is the annotation's value, which names the hook's owner. It may be empty.
	Owner string
}

// DeletionHooks finds the hooks of a point among annotations, sorted by their keys. A hook without
// a name counts as well: whoever set it wants the Machine to wait.
func DeletionHooks(annotations map[string]string, point DeletionPoint) []DeletionHook {
	var hooks []DeletionHook
	for key, owner := range annotations { // order does not matter: sorted below
		if name, ok := strings.CutPrefix(key, string(point)); ok && (name == "" || name[0] == '/') {
			hooks = append(hooks, DeletionHook{key, owner})
		}
	}
	slices.SortFunc(hooks, func(a, b DeletionHook) int { return strings.Compare(a.Annotation, b.Annotation) })
	return hooks
}

// IsDeletionHook reports whether an annotation's key is that of a hook.
func IsDeletionHook(key string) bool {
	for _, point := range []DeletionPoint{PreDrain, PreTerminate} {
		if name, ok := strings.CutPrefix(key, string(point)); ok && (name == "" || name[0] == '/') {
			return true
		}
	}
	return false
}

// MisspelledHook reports whether an annotation's key looks like a deletion hook but is not
// one: the other spellings in seed 003, and similar ones.
func MisspelledHook(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return strings.Contains(domain, "hook.machine.cluster") && domain != string(PreDrain) && domain != string(PreTerminate)
}
