// Package kind makes a Kubernetes cluster of nodes in containers, with kind's own packages: by the
// machine's Docker or Podman, or by a Docker daemon of our own. The node's image is the one
// that kind publishes where the machine has it, or else the one that build.sh makes.
//
// Whatever it makes bears the name of this process, and goes with it however that ends (package
// keeper).
package kind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	kindcluster "sigs.k8s.io/kind/pkg/cluster"
	kindnodes "sigs.k8s.io/kind/pkg/cluster/nodes"
	"sigs.k8s.io/kind/pkg/cluster/nodeutils"
	kindexec "sigs.k8s.io/kind/pkg/exec"

	"github.com/fencelab/fencelab/vms/keeper"
)

// Options say what cluster to make.
type Options struct {
	// GracePeriod is how old a Node's Lease may grow; 0 is kube-controller-manager's own 50 s.
	GracePeriod time.Duration
	// Workers is how many nodes there are that take Pods, beside the one of the control plane.
	Workers int
	// Shared is a directory of this machine that each node has at [SharedAt]; "" for none.
	Shared string
	// Log receives a line for each step; may be nil.
	Log io.Writer
}

func (o *Options) logf(format string, args ...any) {
	if o.Log != nil {
		fmt.Fprintf(o.Log, "lab: "+format+"\n", args...)
	}
}

// SharedAt is where a node has the directory that it shares with this machine.
const SharedAt = "/shared"

// Cluster is one that runs.
type Cluster struct {
	keeper *keeper.Keeper
	engine *engine
	dir    string

	stop    sync.Once
	stopErr error
}

// name is that of this process's cluster, node its node's and its container's, network that of its
// network.
func name() string { return "fencelab-" + keeper.Name() }

func nodeOf(name string) string { return name + "-control-plane" }

// workerOf names the i-th node that takes Pods, as kind does.
func workerOf(name string, i int) string {
	if i == 0 {
		return name + "-worker"
	}
	return fmt.Sprintf("%s-worker%d", name, i+1)
}

const (
	// kubeconfig is the file of an administrator.
	kubeconfig = "kubeconfig"
	// comeUp limits how long the cluster may take, once kind has made it, for the objects that it
	// makes by itself; askInterval is the time between two looks.
	comeUp, askInterval = 90 * time.Second, 300 * time.Millisecond
)

// Create makes a cluster, and returns when its standard controllers run. If that fails nothing is
// left, and the error has the output of the command that failed.
func Create(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{}
	if err := c.create(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("create a cluster with kind: %w", err), c.release())
	}
	return c, nil
}

func (c *Cluster) create(ctx context.Context, o Options) (err error) {
	if c.keeper, err = keeper.Start(); err != nil {
		return err
	}
	if c.dir, err = c.keeper.TempDir("fencelab-kind"); err != nil {
		return err
	}
	if c.engine, err = findEngine(ctx); err != nil {
		return err
	}
	if c.engine == nil {
		o.logf("starting a private Docker daemon, in its own namespaces")
		if c.engine, err = startDaemon(ctx, c.keeper, c.dir); err != nil {
			return err
		}
	} else if err := c.keeper.Do(c.engine.environment(), "/bin/sh", "-euc", removal, c.engine.command, name()); err != nil {
		return err
	}
	image, err := c.engine.image(ctx, o)
	if err != nil {
		return err
	}
	if err := c.provision(ctx, o, image); err != nil {
		return err
	}
	return c.settle(ctx, o.Workers)
}

// provision has kind make the cluster, which knows no context: when that ends, the container is
// taken from under it.
func (c *Cluster) provision(ctx context.Context, o Options, image image) error {
	made := make(chan error, 1)
	go func() {
		made <- c.engine.withEnvironment(func() error {
			provider := kindcluster.NewProvider(c.engine.provider(), kindcluster.ProviderWithLogger(logger{o}))
			return provider.Create(name(), kindcluster.CreateWithNodeImage(image.name), kindcluster.CreateWithRetain(true),
				kindcluster.CreateWithKubeconfigPath(filepath.Join(c.dir, kubeconfig)),
				kindcluster.CreateWithV1Alpha4Config(configuration(o, image.ours, cgroupV1())))
		})
	}()
	select {
	case err := <-made:
		return c.explain(err)
	case <-ctx.Done():
		err := c.release()
		<-made
		return errors.Join(context.Cause(ctx), err)
	}
}

// explain adds to an error of kind's what the failed command said, and what the node did.
func (c *Cluster) explain(err error) error {
	if err == nil {
		return nil
	}
	if failed := kindexec.RunErrorForError(err); failed != nil {
		err = fmt.Errorf("%w\n%s\n%s", err, failed.PrettyCommand(), tail(string(failed.Output)))
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	if said, logErr := c.engine.run(ctx, "logs", "--tail", "15", nodeOf(name())); logErr == nil {
		err = fmt.Errorf("%w\nthe last lines of the node %s:\n%s", err, nodeOf(name()), said)
	}
	return err
}

// settle returns when the standard controllers lead, and Pods can be made. The cluster's own node
// takes no other Pods than it has: it is no host of anybody's.
func (c *Cluster) settle(ctx context.Context, workers int) error {
	ctx, cancel := context.WithTimeout(ctx, comeUp)
	defer cancel()
	kubectl := func(args ...string) error {
		_, err := c.engine.run(ctx, append([]string{"exec", nodeOf(name()), "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf"}, args...)...)
		return err
	}
	// Not kubectl wait: of several objects that are to be created it awaits only the first.
	await := func(args ...string) error {
		for {
			err := kubectl(append([]string{"get"}, args...)...)
			if err == nil || ctx.Err() != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("not within %v: %w", comeUp, err)
			case <-time.After(askInterval):
			}
		}
	}
	errs := []error{
		kubectl("cordon", nodeOf(name())),
		await("--namespace=kube-system", "lease/kube-controller-manager", "lease/kube-scheduler"),
		await("--namespace=default", "serviceaccount/default"),
	}
	for i := range workers {
		errs = append(errs, kubectl("wait", "--for=condition=Ready", "--timeout="+comeUp.String(), "node/"+workerOf(name(), i)))
	}
	return errors.Join(errs...)
}

// Load loads the images of an archive into the nodes that take Pods.
func (c *Cluster) Load(archive string) error {
	return c.engine.withEnvironment(func() error {
		nodes, err := kindcluster.NewProvider(c.engine.provider()).ListInternalNodes(name())
		for _, node := range nodes {
			if err == nil && node.String() != nodeOf(name()) {
				err = load(node, archive)
			}
		}
		return err
	})
}

func load(node kindnodes.Node, archive string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := nodeutils.LoadImageArchive(node, file); err != nil {
		return fmt.Errorf("load %s into %s: %w", archive, node, err)
	}
	return nil
}

// Execute runs a command on a node, of which the control plane's is "".
func (c *Cluster) Execute(ctx context.Context, node string, command ...string) (string, error) {
	return c.engine.run(ctx, append([]string{"exec", cmp.Or(node, nodeOf(name()))}, command...)...)
}

// Kubeconfig is the file of an administrator.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, kubeconfig) }

// Dial connects to the address that the kubeconfig names.
func (c *Cluster) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if c.engine.own == nil {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	return c.engine.own.dial(address)
}

// Stop removes the cluster. It also returns an error if the node, or our daemon, had ended before:
// then what was observed says nothing about controllers. Later calls return the same.
func (c *Cluster) Stop() error {
	c.stop.Do(func() { c.stopErr = errors.Join(c.ended(), c.release()) })
	return c.stopErr
}

// ended returns an error if a part that should run has ended.
func (c *Cluster) ended() error {
	if c.engine.own != nil {
		select {
		case <-c.engine.own.process.Exited():
			return c.engine.own.process.Failure()
		default:
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	switch state, err := c.engine.run(ctx, "inspect", "--format", "{{.State.Status}}", nodeOf(name())); {
	case err != nil:
		return err
	case strings.TrimSpace(state) != "running":
		said, _ := c.engine.run(ctx, "logs", "--tail", "15", nodeOf(name()))
		return fmt.Errorf("the node %s is %s; its last lines:\n%s", nodeOf(name()), strings.TrimSpace(state), said)
	}
	return nil
}

// release has everything removed that there is.
func (c *Cluster) release() error {
	if c.keeper == nil {
		return nil
	}
	return c.keeper.Close()
}

// removal makes a machine's Docker or Podman remove a cluster, of which there may be nothing.
const removal = `
$0 ps --all --quiet --filter "name=^$1-(control-plane|worker[0-9]*)\$" | xargs -r $0 rm --force --volumes
$0 network ls --quiet --filter "name=^$1\$" | xargs -r $0 network rm`

// Sweep removes what is left of the cluster of a process of that name which has ended, and whose
// keepers may have been killed, from the machine's Docker and Podman. What a daemon of our own has
// left is the keepers' ([keeper.Sweep]).
func Sweep(ctx context.Context, process string) error {
	if !keeper.IsName(process) {
		return fmt.Errorf("sweep the cluster of %q: that is no name of a process", process)
	}
	var errs []error
	for _, e := range engines {
		if e.answers(ctx) == nil {
			_, err := execute(ctx, e.environment(), "/bin/sh", "-euc", removal, e.command, "fencelab-"+process)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// configuration is kind's. Our image has no network beyond its node, no kube-proxy and no CoreDNS:
// hosts of a lab have kubelets of their own, and nothing asks a Service of this cluster.
func configuration(o Options, ours, cgroupV1 bool) *v1alpha4.Cluster {
	config := &v1alpha4.Cluster{
		TypeMeta: v1alpha4.TypeMeta{Kind: "Cluster", APIVersion: "kind.x-k8s.io/v1alpha4"},
		Nodes:    []v1alpha4.Node{{Role: v1alpha4.ControlPlaneRole}},
	}
	for range o.Workers {
		config.Nodes = append(config.Nodes, v1alpha4.Node{Role: v1alpha4.WorkerRole})
	}
	for i := range config.Nodes {
		if o.Shared != "" {
			config.Nodes[i].ExtraMounts = []v1alpha4.Mount{{HostPath: o.Shared, ContainerPath: SharedAt}}
		}
	}
	kubeadm := func(kind string, lines ...string) {
		config.KubeadmConfigPatchesJSON6902 = append(config.KubeadmConfigPatchesJSON6902, v1alpha4.PatchJSON6902{
			Group: "kubeadm.k8s.io", Version: "v1beta4", Kind: kind, Patch: strings.Join(lines, "\n") + "\n",
		})
	}
	if o.GracePeriod > 0 {
		argument := "- {op: add, path: /controllerManager/extraArgs/-, value: {name: %s, value: %s}}"
		// By default it looks ten times in a grace period.
		kubeadm("ClusterConfiguration", fmt.Sprintf(argument, "node-monitor-grace-period", o.GracePeriod), fmt.Sprintf(argument, "node-monitor-period", o.GracePeriod/10))
	}
	kubelet := ""
	if cgroupV1 {
		kubelet += "failCgroupV1: false\n" // it is on its way out, and does
	}
	if ours {
		config.Networking = v1alpha4.Networking{DisableDefaultCNI: true, KubeProxyMode: "none"}
		kubeadm("InitConfiguration", "- {op: add, path: /skipPhases/-, value: addon/coredns}")
		kubelet += "oomScoreAdj: 0\n" // a lower one takes a capability that may be missing
	}
	if kubelet != "" {
		config.KubeadmConfigPatches = []string{"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + kubelet}
	}
	return config
}

// cgroupV1 reports whether the machine has cgroups of the first version.
func cgroupV1() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err != nil
}
