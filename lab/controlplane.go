package lab

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/lab/gate"
	"github.com/fencelab/fencelab/lab/hosts"
	thismachine "github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/play"
	"github.com/fencelab/fencelab/vms/guest/evidence"
)

func (b *Backend) startControlPlane() (err error) {
	var nodes []string
	for i := range b.plan.Spec.Topology.Hosts {
		nodes = append(nodes, b.plan.Spec.Topology.Hosts[i].Node())
	}
	switch b.options.Cluster {
	case Kubeconfig:
		a, err := b.attach(nodes, cluster.AttachOptions{Kubeconfig: b.options.Kubeconfig})
		if err != nil {
			return err
		}
		b.plane.controlPlane = a
		if err := b.installManifests(a); err != nil {
			return err
		}
	case Kind:
		k, err := b.startKind(nodes)
		if err != nil {
			return err
		}
		b.plane.controlPlane = k
		if err := b.installManifests(k); err != nil {
			return err
		}
	default:
		o := b.options.cluster()
		o.Nodes = nodes
		if o.Standard != nil {
			o.Standard.GracePeriod, o.Standard.Accounts = objects.GracePeriod(&b.plan.Spec), b.plan.Spec.HasPods()
			o.Standard.DisableForceDetachOnTimeout = b.keepsAttached()
			o.Standard.Through = func(api string) (_ string, err error) {
				if b.plane.wire, err = b.plane.door.Connect(api); err != nil {
					return "", err
				}
				return b.plane.wire.Address(), nil
			}
		}
		o.Manifests, o.Log = b.set.Manifests(), b.logf
		if b.options.Shelf != nil {
			o.Nodes = usualNodes(nodes)
		}
		c, err := b.options.Shelf.Launch(b.ctx, o)
		if err != nil {
			return err
		}
		b.plane.controlPlane = c
		if o.Standard != nil {
			b.manage(c)
		}
	}
	if runs := b.plane.Runs(); len(runs) > 0 {
		b.logf("the control plane runs %s", strings.Join(runs, ", "))
	}
	scheme, err := b.scheme()
	if err == nil {
		b.plane.admin, err = client.NewWithWatch(b.as("scenario"), client.Options{Scheme: scheme})
	}
	return err
}

// installManifests installs what the lab's own controllers need.
func (b *Backend) installManifests(plane controlPlane) error {
	for _, files := range b.set.Manifests() {
		if err := plane.Install(b.ctx, files); err != nil {
			return err
		}
	}
	return nil
}

// usualNodes adds those that most topologies have, of which a control plane that is handed on has
// to know when it starts.
func usualNodes(nodes []string) []string {
	all := slices.Clone(nodes)
	for i := range 5 {
		if usual := fmt.Sprintf("worker-%d", i+1); !slices.Contains(all, usual) {
			all = append(all, usual)
		}
	}
	return all
}

// scheme knows all objects that the lab makes.
func (b *Backend) scheme() (*runtime.Scheme, error) {
	scheme := b.set.Scheme()
	return scheme, errors.Join(rbacv1.AddToScheme(scheme), appsv1.AddToScheme(scheme))
}

// as is the administrator's configuration for clients whose writes are to bear a
// name.
func (b *Backend) as(name string) *rest.Config {
	config := b.plane.Config()
	config.UserAgent = name
	return config
}

// kubelet returns the configuration of a guest's kubelet.
func (b *Backend) kubelet(host *scenarios.Host, api netip.AddrPort) *evidence.Kubelet {
	topology := &b.plan.Spec.Topology
	lease := time.Duration(topology.Lease)
	k := &evidence.Kubelet{
		Server: "https://" + api.String(), ServerName: cluster.ServerName,
		CA: string(b.plane.CA()), Token: b.plane.NodeToken(host.Node()), Labels: host.Labels,
		Node: host.Node(), Adopt: topology.PodGC > 0 || topology.Workload.Volume != nil || b.runs(cluster.PodGC), ProviderID: objects.ProviderID(host.Name),
		Lease: lease, Status: lease, Pods: podInterval, Grace: podGrace,
	}
	if b.options.realNodes() {
		k.Real, k.Token = true, b.plane.BootstrapToken()
		if b.storage != nil {
			k.Storage = driverName
		}
	}
	return k
}

func (b *Backend) createTopology() error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: objects.Namespace, Name: hosts.BMCSecret},
		StringData: map[string]string{"username": hosts.BMCUser, "password": b.hosts.BMCs.Password}}
	if err := b.plane.admin.Create(b.ctx, secret); err != nil {
		return err
	}
	b.plane.topology = objects.Topology(&b.plan.Spec, func(host string) api.BMCDetails {
		return api.BMCDetails{Address: "redfish+" + b.hosts.BMCs.SystemAt(host), CredentialsName: hosts.BMCSecret}
	}, func(host string) string { return b.hosts.ByName[host].SystemUUID() })
	for _, obj := range b.plane.topology {
		kind, err := b.kinds.Of(obj)
		if err != nil {
			return err
		}
		if err := b.create(b.ctx, kind, obj, "scenario"); err != nil {
			return err
		}
	}
	return nil
}

// create makes an object, with its status. The status is a patch, since a controller of the cluster
// may have written to the object in between.
func (b *Backend) create(ctx context.Context, kind *objects.Kind, obj client.Object, owner string) error {
	created := obj.DeepCopyObject().(client.Object)
	if err := b.plane.admin.Create(ctx, created, client.FieldOwner(owner)); err != nil {
		return fmt.Errorf("create %T %s: %w", obj, obj.GetName(), err)
	}
	if !kind.Status {
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err == nil && content["status"] != nil {
		var status []byte
		if status, err = json.Marshal(map[string]any{"status": content["status"]}); err == nil {
			err = b.plane.admin.Status().Patch(ctx, created, client.RawPatch(types.MergePatchType, status), client.FieldOwner(owner))
		}
	}
	if err != nil {
		return fmt.Errorf("set the status of %T %s: %w", obj, obj.GetName(), err)
	}
	return nil
}

// dump is the state of the API for the report's directory, as far as the API answers.
func (b *Backend) dump() []play.Artifact {
	if b.plane.admin == nil {
		return nil
	}
	ctx, cancel := thismachine.WithBudget(context.WithoutCancel(b.ctx), hosts.CommandTimeout)
	defer cancel()
	api, err := b.kinds.Dump(func(kind *objects.Kind) ([]client.Object, error) {
		list := kind.NewList()
		if err := b.plane.admin.List(ctx, list); err != nil {
			b.logf("dump %T: %v", list, err)
			return nil, nil
		}
		return objects.Items(list), nil
	})
	if err != nil {
		b.logf("%v", err)
		return nil
	}
	return []play.Artifact{api}
}

// serveKubelets begins to serve a proxy, through which kubelets go to the API server. They show it
// their tokens.
func (b *Backend) serveKubelets() error {
	serving, err := b.plane.ProxyConfig()
	if err != nil {
		return err
	}
	serving.ClientAuth = tls.NoClientCert
	if b.plane.kubelets, err = b.plane.door.Serve(b.anyone(), b.plane.door.Through, serving, gate.Client{}); err != nil {
		return fmt.Errorf("serve the kubelets: %w", err)
	}
	return nil
}
