package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Label is on every object of ours in a foreign cluster. Its value names the owner.
const Label = "fencelab.dev/lab"

// releaseTimeout bounds the removal of our objects.
const releaseTimeout = 60 * time.Second

// AttachOptions choose the existing cluster, and what will be made there.
type AttachOptions struct {
	// Kubeconfig is its file, of a user who may do everything.
	Kubeconfig string
	// Dial connects to the address in it; nil: as to any other.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Name is our own, the value of Label.
	Name string
	// Nodes names the hosts whose kubelets authenticate with a bearer token, see
	// [Attached.NodeToken].
	Nodes []string
	// Join lets real kubelets join as these Nodes, see [Attached.BootstrapToken]. It is for
	// clusters that let kubelets join as kubeadm's do, and whose controllers sign with the
	// authority that the kubeconfig names.
	Join bool
	// Manifests will be installed, and Objects be made by whoever uses the cluster.
	Manifests []fs.FS
	Objects   []client.Object
}

// Attached is an existing cluster of the user's, in which we are guests: all of our users see and
// touch only what we made. All requests go through a server in front of the API ([front]), which
// knows our users as the API server of a [Cluster] does.
type Attached struct {
	identities
	name      string
	config    *rest.Config // of somebody
	front     *front
	runs      []string
	bootstrap string // empty: no real kubelet can join
}

// Attach inspects an existing cluster, and refuses it with all reasons if anything is in the way
// of the objects that will be made. It changes nothing.
func Attach(ctx context.Context, o AttachOptions) (*Attached, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("attach to the cluster of %s: %w", o.Kubeconfig, err)
	}
	config.QPS, config.WarningHandler, config.Dial = -1, rest.NoWarnings{}, o.Dial // who looks at all kinds meets old ones
	a := &Attached{name: o.Name, config: config}
	if err := a.attach(ctx, o); err != nil {
		return nil, fmt.Errorf("attach to the cluster of %s: %w", o.Kubeconfig, err)
	}
	return a, nil
}

func (a *Attached) attach(ctx context.Context, o AttachOptions) (err error) {
	if a.runs, err = standardOf(ctx, a.config); err != nil {
		return err
	}
	if err := a.mayCome(ctx, o); err != nil {
		return err
	}
	if a.authority, err = newAuthority(); err != nil {
		return err
	}
	a.nodeTokens = newNodeTokens(o.Nodes)
	if o.Join {
		a.bootstrap = newToken().String()
	}
	a.front, err = a.openFront()
	return err
}

// mayCome is the reasons why we can't make what we want: all at once.
func (a *Attached) mayCome(ctx context.Context, o AttachOptions) error {
	direct, err := client.New(a.config, client.Options{})
	if err != nil {
		return err
	}
	var problems []error
	look := func(m *unstructured.Unstructured, from string) error {
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(m.GroupVersionKind())
		err := direct.Get(ctx, client.ObjectKeyFromObject(m), found)
		switch {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		case err != nil:
			return err
		case isDefinition(m):
			problems = append(problems, lacksVersion(found, m))
		case found.GetLabels()[Label] != "":
			problems = append(problems, fmt.Errorf("%s %s belongs to the lab %s: if that lab is gone, run fencelab lab down --kubeconfig %s %[3]s",
				m.GetKind(), client.ObjectKeyFromObject(m), found.GetLabels()[Label], o.Kubeconfig))
		default:
			problems = append(problems, fmt.Errorf("%s %s exists already, and %s would create it", m.GetKind(), client.ObjectKeyFromObject(m), from))
		}
		return nil
	}
	for _, files := range o.Manifests {
		manifests, err := readManifests(files)
		if err != nil {
			return err
		}
		for _, m := range manifests {
			if err := look(m.Unstructured, m.source); err != nil {
				return err
			}
		}
	}
	for _, obj := range o.Objects {
		m := &unstructured.Unstructured{}
		m.SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
		m.SetNamespace(obj.GetNamespace())
		m.SetName(obj.GetName())
		if err := look(m, "the topology"); err != nil {
			return err
		}
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	return nil
}

func isDefinition(m *unstructured.Unstructured) bool {
	return m.GetKind() == "CustomResourceDefinition"
}

// lacksVersion says what a definition that is there, and stays as it is, lacks of ours.
func lacksVersion(there, ours *unstructured.Unstructured) error {
	served := func(m *unstructured.Unstructured) (names []string) {
		versions, _, _ := unstructured.NestedSlice(m.Object, "spec", "versions") // the API server has checked its form
		for _, v := range versions {
			if v, ok := v.(map[string]any); ok && v["served"] == true {
				names = append(names, fmt.Sprint(v["name"]))
			}
		}
		return names
	}
	for _, version := range served(ours) {
		if !slices.Contains(served(there), version) {
			return fmt.Errorf("CustomResourceDefinition %s exists already, and serves %s but not %s", ours.GetName(), strings.Join(served(there), ", "), version)
		}
	}
	return nil
}

// standardOf finds out which standard controllers a cluster runs: they hold Leases.
func standardOf(ctx context.Context, config *rest.Config) (runs []string, err error) {
	reader, err := client.New(config, client.Options{})
	if err != nil {
		return nil, err
	}
	for lease, controllers := range map[string][]string{
		controllerManager: managed, Scheduler: {Scheduler},
	} {
		l := &unstructured.Unstructured{}
		l.SetGroupVersionKind(schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"})
		err := reader.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: lease}, l)
		if err == nil {
			runs = append(runs, controllers...)
		} else if !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	slices.Sort(runs)
	return runs, nil
}

// Install applies the manifests as [Cluster.Install] does. Definitions that are there stay as they
// are, and policies bind only what is ours.
func (a *Attached) Install(ctx context.Context, files fs.FS) error {
	manifests, err := readManifests(files)
	if err != nil {
		return fmt.Errorf("install manifests: %w", err)
	}
	direct, err := client.New(a.config, client.Options{})
	if err != nil {
		return fmt.Errorf("install manifests: %w", err)
	}
	var ours []manifest
	for _, m := range manifests {
		if isDefinition(m.Unstructured) {
			there := m.DeepCopy()
			if err := direct.Get(ctx, client.ObjectKeyFromObject(m), there); err == nil && there.GetLabels()[Label] == "" {
				continue
			} else if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("install %v: %w", m, err)
			}
		}
		if m.GetKind() == "ValidatingAdmissionPolicyBinding" {
			if err := unstructured.SetNestedField(m.Object, a.name, "spec", "matchResources", "objectSelector", "matchLabels", Label); err != nil {
				return fmt.Errorf("install %v: %w", m, err)
			}
		}
		ours = append(ours, m)
	}
	return install(ctx, a.Config(), ours)
}

// Config is an administrator's, who sees and touches only what is ours.
func (a *Attached) Config() *rest.Config { return a.ConfigFor(administrator) }

// Runs are the standard controllers that the cluster runs, of those for which there are stand-ins.
func (a *Attached) Runs() []string { return a.runs }

// BootstrapToken is by which a kubelet asks for its certificate, which the cluster's controllers
// approve of and sign. No object of the cluster has it: whoever shows it asks in the name of those
// that kubeadm lets join. It is empty without [AttachOptions.Join].
func (a *Attached) BootstrapToken() string { return a.bootstrap }

// Leave lets the cluster go as it is.
func (a *Attached) Leave() error { return a.front.close() }

// Stop removes what is ours, and lets the cluster go.
func (a *Attached) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	return errors.Join(a.Leave(), release(ctx, a.config, a.name))
}

// Release removes the objects of a name from a foreign cluster, after its lab was killed.
func Release(ctx context.Context, kubeconfig, name string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("remove the objects of %s from the cluster of %s: %w", name, kubeconfig, err)
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{} // who looks at all kinds meets old ones
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	return release(ctx, config, name)
}

// release removes all objects with our label, definitions last, until none is left.
func release(ctx context.Context, config *rest.Config, name string) error {
	fail := func(err error) error {
		return fmt.Errorf("remove what has the label %s=%s from the cluster %s: %w", Label, name, config.Host, err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fail(err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return fail(err)
	}
	runs, err := standardOf(ctx, config)
	if err != nil {
		return fail(err)
	}
	for {
		left, err := removeAll(ctx, disco, objects, name, len(runs) == 0)
		if err == nil && len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fail(errors.Join(err, fmt.Errorf("still there: %s", strings.Join(left, ", "))))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// removeAll asks for the removal of all objects there, and returns what they were. Where no
// kube-controller-manager runs, namespaces keep their finalizer, so we remove that ourselves.
func removeAll(ctx context.Context, disco *discovery.DiscoveryClient, objects metadata.Interface, name string, alone bool) (there []string, err error) {
	lists, err := disco.ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	kinds := discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete", "patch"}}, lists)
	// What is of a kind goes before the kind.
	slices.SortStableFunc(kinds, func(x, y *metav1.APIResourceList) int {
		last := func(l *metav1.APIResourceList) int { return strings.Count(l.GroupVersion, "apiextensions.k8s.io/") }
		return last(x) - last(y)
	})
	ours := metav1.ListOptions{LabelSelector: Label + "=" + name}
	// A Pod's kubelet may have gone before it.
	background, atOnce := metav1.DeletePropagationBackground, int64(0)
	for _, list := range kinds {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		if len(there) > 0 && group.Group == "apiextensions.k8s.io" {
			break
		}
		for _, r := range list.APIResources {
			found, err := objects.Resource(group.WithResource(r.Name)).List(ctx, ours)
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			for _, obj := range found.Items {
				there = append(there, r.Name+"/"+obj.Name)
				of := objects.Resource(group.WithResource(r.Name)).Namespace(obj.Namespace)
				if len(obj.Finalizers) > 0 {
					_, err = of.Patch(ctx, obj.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				}
				if err == nil {
					err = of.Delete(ctx, obj.Name, metav1.DeleteOptions{
						PropagationPolicy: &background, GracePeriodSeconds: &atOnce, Preconditions: &metav1.Preconditions{UID: &obj.UID},
					})
				}
				if err == nil && alone && group.Group == "" && r.Name == "namespaces" && obj.DeletionTimestamp != nil {
					err = disco.RESTClient().Put().AbsPath("/api/v1/namespaces", obj.Name, "finalize").
						Body(fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": %q}, "spec": {}}`, obj.Name)).Do(ctx).Error()
				}
				if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
					return there, err
				}
			}
		}
	}
	return there, nil
}

var _ http.Handler = (*front)(nil)
