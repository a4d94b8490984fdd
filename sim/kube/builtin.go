package kube

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A builtin is a kind that kube-apiserver itself serves and whose behaviour is modelled here.
type builtin struct {
	resource   string
	namespaced bool
	status     bool
	// unappliable says that field managers are not modelled: too much of a pod is filled in before
	// the server records them.
	unappliable bool
	strategy    strategy
}

var builtins = map[schema.GroupVersionKind]builtin{
	corev1.SchemeGroupVersion.WithKind("Node"): {
		resource: "nodes", status: true,
		strategy: strategy{
			unconditionalUpdate: true, admits: true,
			create: createNode, update: keepStatus[*corev1.Node], updateStatus: updateNodeStatus, validate: validateNode,
		},
	},
	corev1.SchemeGroupVersion.WithKind("Pod"): {
		resource: "pods", namespaced: true, status: true, unappliable: true,
		strategy: strategy{
			unconditionalUpdate: true,
			create:              createPod, update: updatePod, updateStatus: updatePodStatus, validate: validatePod, grace: podGrace,
		},
	},
	corev1.SchemeGroupVersion.WithKind("Secret"): {
		resource: "secrets", namespaced: true,
		strategy: strategy{
			unconditionalUpdate: true,
			create:              createSecret, update: updateSecret, validate: validateSecret, unpatchable: unpatchableSecret,
		},
	},
	corev1.SchemeGroupVersion.WithKind("Event"): {
		resource: "events", namespaced: true,
		strategy: strategy{
			unconditionalUpdate: true, createOnUpdate: true,
			create: asSent, update: asSentUpdate, validate: validateEvent,
		},
	},
	policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"): {
		resource: "poddisruptionbudgets", namespaced: true, status: true, strategy: budgetStrategy,
	},
	storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"): {
		resource: "volumeattachments", status: true, unappliable: true, strategy: attachmentStrategy,
	},
	coordinationv1.SchemeGroupVersion.WithKind("Lease"): {
		resource: "leases", namespaced: true,
		strategy: strategy{
			createOnUpdate: true,
			create:         createLease, update: updateLease, validate: validateLease,
		},
	},
}

// Builtin returns the built-in kinds whose behaviour is modelled, sorted.
func Builtin() []schema.GroupVersionKind {
	return slices.SortedFunc(maps.Keys(builtins), func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
}

func asSent(*Store, *Kind, *record) error                { return nil }
func asSentUpdate(*Store, *Kind, *record, *record) error { return nil }

// keepStatus is the update function of kinds with a status subresource.
func keepStatus[T client.Object](_ *Store, k *Kind, rec, old *record) error {
	k.setStatus(rec.obj, old.obj)
	return nil
}

// createNode does what the TaintNodesByCondition admission plugin does: a new Node can't be
// scheduled to before somebody finds it ready.
func createNode(s *Store, k *Kind, rec *record) error {
	node := rec.obj.(*corev1.Node)
	//lint:ignore SA1019 it is refused because it is deprecated
	if node.Spec.ConfigSource != nil || node.Status.Config != nil {
		return s.refuse("create", k, rec.key, "dynamic kubelet configuration")
	}
	if node.Status.Allocatable == nil && node.Status.Capacity != nil {
		node.Status.Allocatable = node.Status.Capacity.DeepCopy()
	}
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&notReady) }) {
		node.Spec.Taints = append(node.Spec.Taints, notReady)
	}
	return nil
}

// updateNodeStatus resets the spec only: labels, annotations and finalizers in
// a status update do persist.
func updateNodeStatus(s *Store, k *Kind, rec, old *record) error {
	node := rec.obj.(*corev1.Node)
	node.Spec = old.obj.(*corev1.Node).Spec
	if node.Status.Config != nil {
		return s.refuse("update", k, rec.key, "dynamic kubelet configuration")
	}
	if node.Status.Allocatable == nil && node.Status.Capacity != nil {
		node.Status.Allocatable = node.Status.Capacity.DeepCopy()
	}
	return nil
}

func validateNode(obj, old client.Object) field.ErrorList {
	node := obj.(*corev1.Node)
	var errs field.ErrorList
	var was corev1.NodeSpec
	if old != nil {
		was = old.(*corev1.Node).Spec
	}
	for i, t := range node.Spec.Taints {
		if i < len(was.Taints) && t == was.Taints[i] {
			continue
		}
		at := field.NewPath("metadata", "taints").Index(i)
		errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		if msgs := validation.IsValidLabelValue(t.Value); len(msgs) > 0 {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, strings.Join(msgs, ";")))
		}
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect, []corev1.TaintEffect{
				corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}))
		}
		if slices.ContainsFunc(node.Spec.Taints[:i], func(u corev1.Taint) bool { return u.MatchTaint(&t) }) {
			errs = append(errs, field.Duplicate(at, t))
		}
	}
	if old == nil {
		return errs
	}
	for i, a := range node.Status.Addresses {
		if slices.Contains(node.Status.Addresses[:i], a) {
			errs = append(errs, field.Duplicate(field.NewPath("status", "addresses").Index(i), a))
		}
	}
	if len(was.PodCIDRs) > 0 && !slices.Equal(was.PodCIDRs, node.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "podCIDRs"), `node updates may not change podCIDR except from "" to valid`))
	}
	if was.ProviderID != "" && was.ProviderID != node.Spec.ProviderID {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "providerID"), `node updates may not change providerID except from "" to valid`))
	}
	return errs
}

func createSecret(s *Store, k *Kind, rec *record) error {
	secret := rec.obj.(*corev1.Secret)
	if secret.Type == "" {
		secret.Type = corev1.SecretTypeOpaque
	}
	return foldStringData(s, k, rec, "create")
}

func updateSecret(s *Store, k *Kind, rec, old *record) error {
	secret := rec.obj.(*corev1.Secret)
	if secret.Type == "" {
		secret.Type = corev1.SecretTypeOpaque
	}
	return foldStringData(s, k, rec, "update")
}

// foldStringData merges the write-only stringData into data.
func foldStringData(s *Store, k *Kind, rec *record, verb string) error {
	secret := rec.obj.(*corev1.Secret)
	switch secret.Type {
	case corev1.SecretTypeServiceAccountToken, corev1.SecretTypeDockercfg, corev1.SecretTypeDockerConfigJson,
		corev1.SecretTypeBasicAuth, corev1.SecretTypeSSHAuth, corev1.SecretTypeTLS:
		return s.refuse(verb, k, rec.key, "a secret of type %s", secret.Type)
	}
	if len(secret.StringData) > 0 {
		data := make(map[string][]byte, len(secret.Data)+len(secret.StringData))
		maps.Copy(data, secret.Data)
		for name, value := range secret.StringData { // order does not matter: it fills a map
			data[name] = []byte(value)
		}
		secret.Data, secret.StringData = data, nil
	}
	return nil
}

func validateSecret(obj, old client.Object) field.ErrorList {
	secret, path := obj.(*corev1.Secret), field.NewPath("data")
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(secret.Data)) {
		for _, msg := range validation.IsConfigMapKey(name) {
			errs = append(errs, field.Invalid(path.Key(name), name, msg))
		}
	}
	if old == nil {
		return errs
	}
	was := old.(*corev1.Secret)
	if secret.Type != was.Type {
		errs = append(errs, immutable(field.NewPath("type"), secret.Type))
	}
	if was.Immutable != nil && *was.Immutable {
		const why = "field is immutable when `immutable` is set"
		if secret.Immutable == nil || !*secret.Immutable {
			errs = append(errs, field.Forbidden(field.NewPath("immutable"), why))
		}
		if !maps.EqualFunc(secret.Data, was.Data, bytes.Equal) {
			errs = append(errs, field.Forbidden(path, why))
		}
	}
	return errs
}

// unpatchableSecret finds a patch whose outcome depends on whether data is absent or empty. An
// immutable secret's patch may be refused over it, and only an encoding shows the difference.
func unpatchableSecret(current client.Object, patch map[string]json.RawMessage) string {
	_, data := patch["data"]
	_, immutable := patch["immutable"]
	if is := current.(*corev1.Secret).Immutable; data && (immutable || is != nil && *is) {
		return "a patch of the data of an immutable secret"
	}
	return ""
}

// validateEvent makes the checks that core/v1 still makes of an Event.
func validateEvent(obj, old client.Object) field.ErrorList {
	event := obj.(*corev1.Event)
	var errs field.ErrorList
	involved := field.NewPath("involvedObject", "namespace")
	const mismatch = "does not match event.namespace"
	if event.EventTime.IsZero() {
		switch ns := event.InvolvedObject.Namespace; {
		case ns == "" && event.Namespace != "default", ns != "" && ns != event.Namespace:
			errs = append(errs, field.Invalid(involved, ns, mismatch))
		}
		return errs
	}
	if event.InvolvedObject.Namespace == "" && event.Namespace != "default" && event.Namespace != "kube-system" {
		errs = append(errs, field.Invalid(involved, "", mismatch))
	}
	for _, required := range []struct {
		path, value string
		limit       int
	}{
		{"reportingComponent", event.ReportingController, 0},
		{"reportingInstance", event.ReportingInstance, 128},
		{"action", event.Action, 128},
		{"reason", event.Reason, 128},
	} {
		path := field.NewPath(required.path)
		if required.value == "" {
			errs = append(errs, field.Required(path, ""))
		}
		if required.limit > 0 && len(required.value) > required.limit {
			errs = append(errs, field.Invalid(path, "", "too long"))
		}
	}
	for _, msg := range validation.IsQualifiedName(event.ReportingController) {
		errs = append(errs, field.Invalid(field.NewPath("reportingComponent"), event.ReportingController, msg))
	}
	if len(event.Message) > 1024 {
		errs = append(errs, field.Invalid(field.NewPath("message"), "", "can have at most 1024 characters"))
	}
	return errs
}

// createLease drops the fields of coordinated leader election, which is off by
// default.
func createLease(_ *Store, _ *Kind, rec *record) error {
	spec := &rec.obj.(*coordinationv1.Lease).Spec
	spec.Strategy, spec.PreferredHolder = nil, nil
	return nil
}

func updateLease(s *Store, k *Kind, rec, _ *record) error { return createLease(s, k, rec) }

func validateLease(obj, _ client.Object) field.ErrorList {
	lease, spec := &obj.(*coordinationv1.Lease).Spec, specPath
	var errs field.ErrorList
	if d := lease.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	if n := lease.LeaseTransitions; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
	}
	return errs
}
