package kubetest

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/manifests"
	"github.com/fencelab/fencelab/sim/kube"
)

var server = func() *kube.Server {
	server, err := kube.NewServer(api.NewScheme(), []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Node"), corev1.SchemeGroupVersion.WithKind("Pod"),
		corev1.SchemeGroupVersion.WithKind("Secret"), corev1.SchemeGroupVersion.WithKind("Event"),
		coordinationv1.SchemeGroupVersion.WithKind("Lease"), policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
		storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"),
	}, []kube.CustomResource{{
		GroupVersionKind: api.GroupVersion.WithKind("BareMetalHost"), Plural: "baremetalhosts", Status: true, Schema: schemaOf("metal3.io_baremetalhosts"),
	}})
	if err != nil {
		panic(err)
	}
	return server
}()

// schemaOf reads the schema of a definition.
func schemaOf(name string) *apiextensionsv1.JSONSchemaProps {
	data, err := manifests.FS.ReadFile("crds/" + name + ".yaml")
	if err != nil {
		panic(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &crd); err != nil {
		panic(err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// A storeClient is a client without a cache on a Store, as a real client without
// a cache is on a real server.
type storeClient struct {
	*kube.Client
	live    kube.Reader
	store   *kube.Store
	watches []*storeWatch
	// fault, if set, changes Calls before they are executed: it makes a wrong
	// server.
	fault func(*kube.Store, *kube.Call)
}

func newStoreClient() *storeClient {
	c := &storeClient{}
	start := time.Date(2024, 1, 2, 3, 4, 5, 678900000, time.UTC)
	c.store = kube.NewStore(server, func() time.Time { return start }, c.commit)
	c.Client = kube.NewClient(kube.NewView(c.store), c, "conformance")
	c.live = kube.NewReader(c.store, c, "conformance")
	return c
}

func (c *storeClient) Call(_ context.Context, call *kube.Call) error {
	if c.fault != nil {
		c.fault(c.store, call)
	}
	return call.Execute()
}

func (c *storeClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.live.Get(ctx, key, obj, opts...)
}

func (c *storeClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.live.List(ctx, list, opts...)
}

// ManagedFields implements manager: the Store's objects show the field managers only after an
// apply.
func (c *storeClient) ManagedFields(_ context.Context, obj client.Object) ([]metav1.ManagedFieldsEntry, error) {
	kind, err := server.KindOf(obj)
	if err != nil {
		return nil, err
	}
	return c.store.ManagedFields(kind, client.ObjectKeyFromObject(obj))
}

func (c *storeClient) commit(change kube.Change) {
	for _, w := range c.watches {
		if w.kind != change.Kind {
			continue
		}
		e := watch.Event{Type: watch.Modified, Object: change.New}
		switch {
		case change.Old == nil:
			e.Type = watch.Added
		case change.New == nil:
			e.Type, e.Object = watch.Deleted, change.Old
		}
		e.Object = e.Object.DeepCopyObject()
		e.Object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		w.events <- e
	}
}

func (c *storeClient) Watch(_ context.Context, list client.ObjectList, _ ...client.ListOption) (watch.Interface, error) {
	kind, err := server.KindOf(list)
	if err != nil {
		return nil, err
	}
	w := &storeWatch{kind: kind, events: make(chan watch.Event, 1000)}
	c.watches = append(c.watches, w)
	return w, nil
}

type storeWatch struct {
	kind   *kube.Kind
	events chan watch.Event
}

func (w *storeWatch) Stop()                          {}
func (w *storeWatch) ResultChan() <-chan watch.Event { return w.events }
