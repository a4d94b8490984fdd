package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// createPod applies the defaults and the admission plugins Priority and
// DefaultTolerationSeconds, in a cluster without PriorityClasses. The
// ServiceAccount plugin is not modelled: it needs controllers that make
// service accounts.
func createPod(s *Store, k *Kind, rec *record) error {
	pod := rec.obj.(*corev1.Pod)
	if what := unmodelledPod(pod); what != "" {
		return s.refuse("create", k, rec.key, "%s of a pod", what)
	}
	pod.Generation = 1
	defaultPod(pod)
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort}
	return nil
}

// defaultPod fills in what a request may leave out, on creation and on update.
func defaultPod(pod *corev1.Pod) {
	spec := &pod.Spec
	for i := range spec.Containers {
		c := &spec.Containers[i]
		if c.ImagePullPolicy == "" {
			c.ImagePullPolicy = corev1.PullIfNotPresent
			if imageTag(c.Image) == "latest" {
				c.ImagePullPolicy = corev1.PullAlways
			}
		}
		if c.TerminationMessagePath == "" {
			c.TerminationMessagePath = corev1.TerminationMessagePathDefault
		}
		if c.TerminationMessagePolicy == "" {
			c.TerminationMessagePolicy = corev1.TerminationMessageReadFile
		}
	}
	if spec.DNSPolicy == "" {
		spec.DNSPolicy = corev1.DNSClusterFirst
	}
	if spec.RestartPolicy == "" {
		spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	setDefault(&spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	setDefault(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	setDefault(&spec.Priority, 0)
	setDefault(&spec.PreemptionPolicy, corev1.PreemptLowerPriority)
	if spec.SchedulerName == "" {
		spec.SchedulerName = corev1.DefaultSchedulerName
	}
	tolerateBriefly(pod)
}

// unmodelledPod names the first part of a pod that has defaults, validation or
// admission rules of its own.
func unmodelledPod(pod *corev1.Pod) string {
	spec := &pod.Spec
	switch {
	case len(spec.Volumes) > 0:
		return "volumes"
	case len(spec.InitContainers) > 0 || len(spec.EphemeralContainers) > 0:
		return "init or ephemeral containers"
	case spec.HostNetwork || spec.HostPID || spec.HostIPC:
		return "the host's namespaces"
	case spec.ServiceAccountName != "" || spec.DeprecatedServiceAccount != "":
		return "a service account"
	case spec.PriorityClassName != "" || spec.Priority != nil && *spec.Priority != 0:
		return "a priority class"
	case spec.RuntimeClassName != nil || spec.Overhead != nil:
		return "a runtime class"
	case spec.Affinity != nil || len(spec.TopologySpreadConstraints) > 0 || len(spec.SchedulingGates) > 0:
		return "scheduling constraints"
	case spec.Resources != nil || len(spec.ResourceClaims) > 0:
		return "resources"
	case len(spec.Containers) == 0:
		return "a missing container"
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		switch {
		case c.Name == "" || c.Image == "":
			return "an unnamed container or image"
		case len(c.Resources.Limits) > 0 || len(c.Resources.Requests) > 0 || len(c.Resources.Claims) > 0:
			return "resources"
		case len(c.Ports) > 0 || len(c.VolumeMounts) > 0 || len(c.VolumeDevices) > 0:
			return "ports or volumes"
		case c.LivenessProbe != nil || c.ReadinessProbe != nil || c.StartupProbe != nil || c.Lifecycle != nil:
			return "probes or hooks"
		case len(c.Env) > 0 || len(c.EnvFrom) > 0:
			return "an environment"
		case c.SecurityContext != nil:
			return "a security context"
		case strings.Contains(c.Image, "@"):
			return "an image digest"
		}
	}
	return ""
}

func setDefault[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

// imageTag returns the tag of an image name, latest when it has none.
func imageTag(image string) string {
	name := image[strings.LastIndexByte(image, '/')+1:]
	if _, tag, ok := strings.Cut(name, ":"); ok {
		return tag
	}
	return "latest"
}

// tolerateBriefly adds the default tolerations: a pod stays for five minutes on
// a node that is not ready or unreachable.
func tolerateBriefly(pod *corev1.Pod) {
	const seconds = 300
	had := pod.Spec.Tolerations
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		tolerated := false
		for _, t := range had {
			if (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
				tolerated = true
			}
		}
		if !tolerated {
			period := int64(seconds)
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &period,
			})
		}
	}
}

// updatePod refuses a change of the few fields of a spec that may change: such a change is not
// modelled. validatePod checks the fields that never may.
func updatePod(s *Store, k *Kind, rec, old *record) error {
	pod, was := rec.obj.(*corev1.Pod), old.obj.(*corev1.Pod)
	pod.Status = was.Status
	if equality.Semantic.DeepEqual(&pod.Spec, &was.Spec) {
		return nil
	}
	if what := unmodelledPod(pod); what != "" {
		return s.refuse("update", k, rec.key, "%s of a pod", what)
	}
	// a patched pod shares its containers with the stored one
	pod.Spec = *pod.Spec.DeepCopy()
	defaultPod(pod)
	if equality.Semantic.DeepEqual(&pod.Spec, &was.Spec) {
		return nil
	}
	if forbiddenSpec(pod, was) {
		return nil
	}
	return s.refuse("update", k, rec.key, "a change of the mutable part of a pod's spec")
}

// forbiddenSpec reports whether fields changed that never may: a pod is not
// moved to another node and does not change its grace period.
func forbiddenSpec(pod, was *corev1.Pod) bool {
	return pod.Spec.NodeName != was.Spec.NodeName ||
		!equalPointers(pod.Spec.TerminationGracePeriodSeconds, was.Spec.TerminationGracePeriodSeconds) ||
		pod.Spec.RestartPolicy != was.Spec.RestartPolicy
}

func validatePod(obj, old client.Object) field.ErrorList {
	if old != nil && forbiddenSpec(obj.(*corev1.Pod), old.(*corev1.Pod)) {
		return field.ErrorList{field.Forbidden(field.NewPath("spec"), "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)")}
	}
	return nil
}

func updatePodStatus(s *Store, k *Kind, rec, old *record) error {
	pod, was := rec.obj.(*corev1.Pod), old.obj.(*corev1.Pod)
	pod.Spec = was.Spec
	pod.DeletionTimestamp = nil
	pod.OwnerReferences = was.OwnerReferences
	status := &pod.Status
	if status.QOSClass == "" {
		status.QOSClass = was.Status.QOSClass
	}
	if status.ObservedGeneration == 0 {
		status.ObservedGeneration = was.Status.ObservedGeneration
	}
	switch {
	case status.QOSClass != was.Status.QOSClass:
		return s.refuse("update", k, rec.key, "a change of the QoS class")
	case len(status.ContainerStatuses) > 0 || len(status.InitContainerStatuses) > 0 || len(status.PodIPs) > 0 || len(status.HostIPs) > 0 || status.PodIP != "" || status.HostIP != "":
		return s.refuse("update", k, rec.key, "container statuses or addresses of a pod")
	case status.NominatedNodeName != "" || len(status.ResourceClaimStatuses) > 0:
		return s.refuse("update", k, rec.key, "scheduling results in a pod's status")
	}
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if c.ObservedGeneration != 0 {
			return s.refuse("update", k, rec.key, "observedGeneration in a pod's condition")
		}
	}
	return nil
}

// podGrace returns a pod's grace period: that of the request or its spec, but zero when no kubelet
// would run it.
func podGrace(obj client.Object, requested *int64) int64 {
	pod := obj.(*corev1.Pod)
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return 0
	}
	switch {
	case requested != nil:
		return *requested
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return *pod.Spec.TerminationGracePeriodSeconds
	}
	return 0
}
