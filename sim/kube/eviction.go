package kube

import (
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// evictions is the subresource through which a pod is evicted. The pod is deleted unless a
// PodDisruptionBudget protects it.
const evictions = "eviction"

// maxDisrupted is how many evictions of a budget may await its controller's confirmation.
const maxDisrupted = 2000

// evict evicts a pod. It trusts the numbers in the budget's status, whoever wrote them, because a
// controller computes them and not the API server.
func (s *Store) evict(by author, k *Kind, key client.ObjectKey, eviction *policyv1.Eviction) error {
	opts := eviction.DeleteOptions
	if opts == nil {
		opts = &metav1.DeleteOptions{}
	}
	switch {
	case eviction.Name != key.Name:
		return apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	case by.dry || len(opts.DryRun) > 0:
		return s.refuse("evict", k, key, "a dry run")
	case opts.Preconditions != nil && opts.Preconditions.ResourceVersion != nil:
		return s.refuse("evict", k, key, "a resourceVersion as a precondition")
	}
	current, err := s.get(k, key)
	if err != nil {
		return err
	}
	pod := current.obj.(*corev1.Pod)
	if !beyondBudgets(pod) {
		if err := s.spend(by, pod); err != nil {
			return err
		}
	}
	return s.markAndDelete(by, k, current, opts)
}

// beyondBudgets reports whether deleting a pod disrupts nothing: it has ended, has not begun, or
// is already being deleted.
func beyondBudgets(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return true
	}
	return pod.DeletionTimestamp != nil
}

// spend charges the eviction of a pod to its budget, if it has one.
func (s *Store) spend(by author, pod *corev1.Pod) error {
	kind, ok := s.kindOfBudgets()
	if !ok {
		return nil
	}
	var budgets []*policyv1.PodDisruptionBudget
	for _, r := range s.tables[kind.index] {
		budget := r.obj.(*policyv1.PodDisruptionBudget)
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if r.key.Namespace == pod.Namespace && err == nil && selector.Matches(labels.Set(pod.Labels)) {
			budgets = append(budgets, budget)
		}
	}
	if len(budgets) == 0 {
		return nil
	}
	if len(budgets) > 1 {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.", // the server's words
		}}
	}
	budget := budgets[0]
	status := &budget.Status
	if policy := budget.Spec.UnhealthyPodEvictionPolicy; !podReady(pod) {
		if policy != nil && *policy == policyv1.AlwaysAllow || status.CurrentHealthy >= status.DesiredHealthy && status.DesiredHealthy > 0 {
			return nil // it is none of those that the budget counts
		}
	}
	forbidden := func(why string) error {
		return apierrors.NewForbidden(schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudget"}, budget.Name, fmt.Errorf("%s", why))
	}
	switch {
	case status.ObservedGeneration < budget.Generation:
		return tooMany(10, fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget.Name))
	case status.DisruptionsAllowed < 0:
		return forbidden("pdb disruptions allowed is negative")
	case len(status.DisruptedPods) > maxDisrupted:
		return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller")
	case status.DisruptionsAllowed == 0:
		return tooMany(0, exhausted(budget))
	}
	budget = budget.DeepCopy()
	status = &budget.Status
	status.DisruptionsAllowed--
	if status.DisruptionsAllowed == 0 {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: policyv1.DisruptionAllowedCondition, Reason: policyv1.InsufficientPodsReason, Status: metav1.ConditionFalse,
			ObservedGeneration: status.ObservedGeneration, LastTransitionTime: s.timestamp(),
		})
	}
	if status.DisruptedPods == nil {
		status.DisruptedPods = make(map[string]metav1.Time)
	}
	status.DisruptedPods[pod.Name] = s.timestamp()
	author := direct(by.actor)
	author.status = true
	_, err := s.replace(author, kind, &record{obj: kind.own(budget)})
	return err
}

func (s *Store) kindOfBudgets() (*Kind, bool) {
	kind := s.server.kindOfType(&policyv1.PodDisruptionBudget{})
	return kind, kind != nil
}

// tooMany refuses an eviction in the server's words.
func tooMany(retryAfter int, why string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfter)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: why})
	return err
}

// exhausted explains in the server's words why a budget allows no eviction.
func exhausted(budget *policyv1.PodDisruptionBudget) string {
	status := &budget.Status
	condition := meta.FindStatusCondition(status.Conditions, policyv1.DisruptionAllowedCondition)
	explained := condition != nil && condition.Status == metav1.ConditionFalse && condition.Message != ""
	switch {
	case explained && condition.Reason == policyv1.SyncFailedReason:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s", budget.Name, condition.Message)
	case status.CurrentHealthy <= status.DesiredHealthy:
		return fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", budget.Name, status.DesiredHealthy, status.CurrentHealthy)
	case explained:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently (%s): %s", budget.Name, condition.Reason, condition.Message)
	}
	return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", budget.Name)
}

func podReady(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodReady {
			return pod.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}

// markAndDelete notes the reason in a pod's status and deletes the pod.
func (s *Store) markAndDelete(by author, k *Kind, current *record, opts *metav1.DeleteOptions) error {
	pod := current.obj.(*corev1.Pod)
	if err := checkPreconditions(schema.GroupResource{Resource: "Pod"}, &pod.ObjectMeta, opts.Preconditions); err != nil {
		return err
	}
	marked := pod.DeepCopy()
	target := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting", // the server's words
		LastTransitionTime: s.timestamp(),
	}
	found := false
	for i := range marked.Status.Conditions {
		if c := &marked.Status.Conditions[i]; c.Type == target.Type {
			if c.Status == target.Status {
				target.LastTransitionTime = c.LastTransitionTime
			}
			target.LastProbeTime = c.LastProbeTime
			*c, found = target, true
		}
	}
	if !found {
		marked.Status.Conditions = append(marked.Status.Conditions, target)
	}
	author := direct(by.actor)
	author.status = true
	if _, err := s.replace(author, k, &record{obj: k.own(marked)}); err != nil {
		return err
	}
	return s.Delete(by.actor, k, current.key, opts)
}

// checkPreconditions checks that an object has the UID and the version that a deletion requires.
func checkPreconditions(gr schema.GroupResource, old *metav1.ObjectMeta, p *metav1.Preconditions) error {
	conflict := func(what string, want, have any) error {
		return apierrors.NewConflict(gr, old.Name, fmt.Errorf(what, want, have))
	}
	if p == nil {
		return nil
	}
	if p.UID != nil && *p.UID != old.UID {
		return conflict("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, old.UID)
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != old.ResourceVersion {
		return conflict("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, old.ResourceVersion)
	}
	return nil
}

// budgetStrategy is the strategy of a PodDisruptionBudget.
var budgetStrategy = strategy{
	create: func(_ *Store, k *Kind, rec *record) error {
		metaOf(rec.obj).Generation = 1
		k.dropStatus(rec.obj)
		return nil
	},
	update: func(_ *Store, k *Kind, rec, old *record) error {
		k.setStatus(rec.obj, old.obj)
		if !equality.Semantic.DeepEqual(rec.obj.(*policyv1.PodDisruptionBudget).Spec, old.obj.(*policyv1.PodDisruptionBudget).Spec) {
			metaOf(rec.obj).Generation++
		}
		return nil
	},
	updateStatus: func(_ *Store, _ *Kind, rec, old *record) error {
		rec.obj.(*policyv1.PodDisruptionBudget).Spec = old.obj.(*policyv1.PodDisruptionBudget).Spec
		return nil
	},
	validate: validateBudget,
}

func validateBudget(obj, old client.Object) field.ErrorList {
	budget := obj.(*policyv1.PodDisruptionBudget)
	spec, status := &budget.Spec, &budget.Status
	var errs field.ErrorList
	if spec.MinAvailable != nil && spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(specPath, spec, "minAvailable and maxUnavailable cannot be both set"))
	}
	for _, n := range []struct {
		name  string
		value *intstr.IntOrString
	}{{"minAvailable", spec.MinAvailable}, {"maxUnavailable", spec.MaxUnavailable}} {
		if n.value == nil {
			continue
		}
		if scaled, err := intstr.GetScaledValueFromIntOrPercent(n.value, 100, false); err != nil || scaled < 0 || n.value.Type == intstr.String && scaled > 100 {
			errs = append(errs, field.Invalid(specPath.Child(n.name), n.value, "must be a number or a percentage"))
		}
	}
	errs = append(errs, metavalidation.ValidateLabelSelector(spec.Selector, metavalidation.LabelSelectorValidationOptions{}, specPath.Child("selector"))...)
	if policy := spec.UnhealthyPodEvictionPolicy; policy != nil && *policy != policyv1.IfHealthyBudget && *policy != policyv1.AlwaysAllow {
		errs = append(errs, field.NotSupported(specPath.Child("unhealthyPodEvictionPolicy"), *policy, []policyv1.UnhealthyPodEvictionPolicyType{policyv1.IfHealthyBudget, policyv1.AlwaysAllow}))
	}
	if old == nil || equality.Semantic.DeepEqual(status, &old.(*policyv1.PodDisruptionBudget).Status) {
		return errs
	}
	path := field.NewPath("status")
	errs = append(errs, metavalidation.ValidateConditions(status.Conditions, path.Child("conditions"))...)
	for _, n := range []struct {
		name  string
		value int32
	}{
		{"disruptionsAllowed", status.DisruptionsAllowed}, {"currentHealthy", status.CurrentHealthy},
		{"desiredHealthy", status.DesiredHealthy}, {"expectedPods", status.ExpectedPods},
	} {
		if n.value < 0 {
			errs = append(errs, field.Invalid(path.Child(n.name), n.value, "must be greater than or equal to 0"))
		}
	}
	return errs
}
