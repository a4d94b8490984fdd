package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type subresource struct {
	*Client
	name string
}

func (s subresource) refuse(verb string, obj client.Object) error {
	k, err := s.kindOf(verb, obj, client.ObjectKeyFromObject(obj))
	if err != nil {
		return err
	}
	return s.store.refuse(verb, k, client.ObjectKeyFromObject(obj), "the subresource %s", s.name)
}

func (s subresource) Get(_ context.Context, obj, _ client.Object, _ ...client.SubResourceGetOption) error {
	return s.refuse("get", obj)
}

// Create evicts a pod, or binds it to a node. No other subresource can be created.
func (s subresource) Create(ctx context.Context, obj, body client.Object, opts ...client.SubResourceCreateOption) error {
	eviction, evicts := body.(*policyv1.Eviction)
	binding, binds := body.(*corev1.Binding)
	if _, pod := obj.(*corev1.Pod); !pod || (!evicts || s.name != evictions) && (!binds || s.name != bindings) {
		return s.refuse("create", obj)
	}
	var o client.SubResourceCreateOptions
	o.ApplyOptions(opts)
	call, err := s.write(Create, obj)
	if err != nil {
		return err
	}
	if err := checkKey(call.Kind, call.Key, true); err != nil {
		return err
	}
	call.Subresource, call.eviction, call.binding = s.name, eviction.DeepCopy(), binding.DeepCopy()
	if err := s.plain(call, o.FieldManager, o.DryRun, o.FieldValidation, o.Raw != nil); err != nil {
		return err
	}
	return s.call(ctx, call)
}

func (s subresource) Apply(ctx context.Context, config runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	var o client.SubResourceApplyOptions
	o.ApplyOpts(opts)
	if s.name != "status" || o.SubResourceBody != nil {
		return s.store.refuse("apply", &Kind{}, client.ObjectKey{}, "the subresource %s", s.name)
	}
	return s.apply(ctx, config, s.name, &o.ApplyOptions)
}

func (s subresource) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	var o client.SubResourceUpdateOptions
	o.ApplyOptions(opts)
	if s.name != "status" || o.SubResourceBody != nil {
		return s.refuse("update", obj)
	}
	return s.update(ctx, obj, s.name, &o.UpdateOptions)
}

func (s subresource) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	var o client.SubResourcePatchOptions
	o.ApplyOptions(opts)
	if s.name != "status" || o.SubResourceBody != nil {
		return s.refuse("patch", obj)
	}
	return s.patch(ctx, obj, patch, s.name, &o.PatchOptions)
}
