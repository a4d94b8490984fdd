package kube

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bindings is the subresource through which a scheduler assigns a pod to a node.
const bindings = "binding"

// bind assigns a pod to a node, whether or not that exists, and adds the annotations of the binding
// to the pod.
func (s *Store) bind(by author, k *Kind, key client.ObjectKey, binding *corev1.Binding) error {
	switch {
	case binding.Name != key.Name:
		return apierrors.NewBadRequest("name in URL does not match name in Binding object")
	case by.dry:
		return s.refuse("bind", k, key, "a dry run")
	case binding.ResourceVersion != "":
		return s.refuse("bind", k, key, "a resourceVersion as a precondition")
	case len(binding.Labels) > 0:
		return s.refuse("bind", k, key, "labels for the pod")
	case binding.Target.Kind != "" && binding.Target.Kind != "Node" || binding.Target.Name == "":
		return s.refuse("bind", k, key, "a target that is no node")
	}
	current, err := s.get(k, key)
	if err != nil {
		return err
	}
	old := current.obj.(*corev1.Pod)
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, key.Name, fmt.Errorf(format, args...))
	}
	switch { // in the server's words
	case binding.UID != "" && binding.UID != old.UID:
		return s.conflict(k, key, k.preconditionUID(key, binding.UID, old.UID, false))
	case old.DeletionTimestamp != nil:
		return conflict("pod %s is being deleted, cannot be assigned to a host", key.Name)
	case old.Spec.NodeName != "":
		return conflict("pod %v is already assigned to node %q", key.Name, old.Spec.NodeName)
	}
	bound := &record{key: key, obj: k.own(old), sparse: current.sparse, tracked: current.tracked}
	pod := bound.obj.(*corev1.Pod)
	pod.Spec.NodeName = binding.Target.Name
	if pod.Annotations == nil && len(binding.Annotations) > 0 {
		pod.Annotations = make(map[string]string)
	}
	for name, value := range binding.Annotations { // order does not matter: into a map
		pod.Annotations[name] = value
	}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: s.timestamp(),
	})
	s.write(author{actor: by.actor}, k, current, bound)
	return nil
}
