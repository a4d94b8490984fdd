// Package clusterapi has Cluster API's own Machine controller judged by fencelab's stories,
// beside fencelab's. It runs as it was released: its SetupWithManager, its predicates and
// handlers, its rate limiter and goroutines.
// Begin with README.md.
package clusterapi

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine"
	"sigs.k8s.io/cluster-api/util/index"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// Machines is, in scenarios, Cluster API's Machine controller with a provider of
// infrastructure.
const Machines = "capi-machine"

// gracePeriod is how long the workload cluster may be out of reach until a Machine's
// conditions say so; Cluster API's default.
const gracePeriod = 5 * time.Minute

// Module describes the example's controllers to fencelab.
func Module() controllers.Module {
	return controllers.Module{
		AddToScheme: AddToScheme,
		Manifests:   manifests,
		Controllers: []controllers.Registration{{
			Name:  Machines,
			For:   &clusterv1.Machine{},
			Plays: controllers.Deletion,
			Reads: []client.Object{
				&clusterv1.Cluster{}, &clusterv1.MachineSet{}, &clusterv1.MachineDeployment{}, &clusterv1.MachineDrainRule{},
				&corev1.Node{}, &api.BareMetalHost{}, &HostMachine{}, dynamic("HostMachine"), dynamic("HostedControlPlane"),
			},
			Cache:   cacheOptions,
			Workers: 10,
			Setup:   setUpMachines,
		}, {
			Name:  HealthChecks,
			For:   &clusterv1.MachineHealthCheck{},
			Plays: controllers.HealthCheck,
			Reads: []client.Object{
				&clusterv1.Cluster{}, &clusterv1.Machine{}, &corev1.Node{}, &HostRemediation{}, dynamic("HostRemediation"), dynamic("HostRemediationTemplate"),
			},
			Cache:   cacheOptions,
			Workers: 10,
			Setup:   setUpHealthChecks,
		}},
	}
}

// cacheOptions are the options of the caches of Cluster API's manager and of its clients of
// workload clusters: here both are one.
var cacheOptions = client.CacheOptions{
	Unstructured: true,
	DisableFor:   []client.Object{&corev1.Secret{}, &corev1.Pod{}, &storagev1.VolumeAttachment{}},
}

func setUpMachines(ctx context.Context, mgr manager.Manager, _ controllers.Deps) error {
	if err := addIndexes(ctx, mgr); err != nil {
		return err
	}
	c := constants{mgr.GetClient()}
	machines := &machine.Reconciler{Client: c, APIReader: mgr.GetAPIReader(), ClusterCache: &oneCluster{mgr: mgr}, RemoteConditionsGracePeriod: gracePeriod}
	if err := machines.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 10}); err != nil {
		return fmt.Errorf("set up the Machine controller: %w", err)
	}
	return (&provider{objects: objects{mgr.GetClient(), mgr.GetAPIReader()}}).setUp(mgr)
}

// addIndexes adds those of Cluster API's cache, and of its caches of workload clusters.
func addIndexes(ctx context.Context, mgr manager.Manager) error {
	return errors.Join(index.ByMachineNode(ctx, mgr), index.ByMachineProviderID(ctx, mgr),
		mgr.GetFieldIndexer().IndexField(ctx, &corev1.Node{}, index.NodeProviderIDField, index.NodeByProviderID))
}

// dynamic is an object of a kind of this module as Cluster API reads it.
func dynamic(kind string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(GroupVersion.WithKind(kind))
	return obj
}

// constants answers reads of what the simulated API server doesn't serve and these stories never
// change: the metadata of CustomResourceDefinitions, from which Cluster API takes the version of a
// kind of infrastructure; the only Namespace; DaemonSets, whose existence it checks; and
// PersistentVolumes, of which there are none.
type constants struct{ client.Client }

// Get reads everything else.
func (c constants) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	switch obj := obj.(type) {
	case *appsv1.DaemonSet:
		obj.Namespace, obj.Name = key.Namespace, key.Name
		return nil
	case *metav1.PartialObjectMetadata:
		if obj.GroupVersionKind().Kind != "CustomResourceDefinition" {
			break
		}
		obj.Name = key.Name
		if _, group, _ := strings.Cut(key.Name, "."); group != GroupVersion.Group {
			return apierrors.NewNotFound(schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, key.Name)
		}
		obj.Labels = map[string]string{clusterv1.GroupVersion.String(): GroupVersion.Version}
		return nil
	}
	return c.Client.Get(ctx, key, obj, opts...)
}

// List reads everything else.
func (c constants) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	switch list := list.(type) {
	case *corev1.NamespaceList:
		list.Items = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault}}}
		return nil
	case *corev1.PersistentVolumeList:
		list.Items = nil
		return nil
	}
	return c.Client.List(ctx, list, opts...)
}
