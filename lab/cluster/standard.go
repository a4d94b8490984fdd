package cluster

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/lab/child"
)

// Standard has the cluster run kube-controller-manager, with all that it runs by default, and
// kube-scheduler, and lets kubelets join that have nothing but a bootstrap token.
type Standard struct {
	// GracePeriod is how old a Node's Lease may grow; 0 is kube-controller-manager's own 50 s.
	GracePeriod time.Duration
	// Through returns the address by which the two reach the API server, given that server's own;
	// nil: that.
	Through func(api string) (string, error)
	// Accounts gives Pods the tokens of their ServiceAccounts: a Pod is refused until its account
	// is there, which kube-controller-manager makes for each namespace.
	Accounts bool
	// Throttled leaves the two the limits of their requests, which hold up their start.
	Throttled bool
	// DisableForceDetachOnTimeout is kube-controller-manager's flag of that name.
	DisableForceDetachOnTimeout bool
	// Without are standard controllers that kube-controller-manager doesn't run.
	Without []string
	// Driver serves a CSI driver at a Unix socket, and an external-attacher runs for it; nil: none.
	Driver func(socket string) error
}

// controllerManager, attacher and Scheduler are the programs that it takes.
const controllerManager, attacher = "kube-controller-manager", "csi-attacher"

// The names of standard controllers for which there are stand-ins, as kube-controller-manager has
// them in --controllers.
const (
	NodeLifecycle = "node-lifecycle-controller"
	PodGC         = "pod-garbage-collector-controller"
	StatefulSet   = "statefulset-controller"
	AttachDetach  = "persistentvolume-attach-detach-controller"
	TaintEviction = "taint-eviction-controller"
	DaemonSet     = "daemonset-controller"
	Scheduler     = "kube-scheduler"
	Attacher      = "external-attacher"
	// CSIAddons fences at a storage. No cluster here runs it.
	CSIAddons = "csi-addons"
)

// managed lists the controllers that kube-controller-manager runs.
var managed = []string{NodeLifecycle, PodGC, StatefulSet, AttachDetach, TaintEviction, DaemonSet}

// Runs are the standard controllers that the cluster runs, of those for which there are stand-ins.
func (c *Cluster) Runs() []string {
	if c.options.Standard == nil {
		return nil
	}
	all := append(slices.Clone(managed), Scheduler)
	if c.options.Standard.Driver != nil {
		all = append(all, Attacher)
	}
	return slices.DeleteFunc(all, func(name string) bool { return slices.Contains(c.options.Standard.Without, name) })
}

// The files of these.
const (
	caKeyFile             = "ca.key"
	controllersKubeconfig = "kube-controller-manager.kubeconfig"
	schedulerKubeconfig   = "kube-scheduler.kubeconfig"
	attacherKubeconfig    = "csi-attacher.kubeconfig"
)

func controllerManagerArgs(s *Standard) []string {
	args := []string{
		"--kubeconfig=" + controllersKubeconfig,
		"--leader-elect=false",
		"--secure-port=0", // it serves no requests
		// Each of its controllers has the rights of its own role and no more.
		"--use-service-account-credentials",
		"--service-account-private-key-file=" + serviceAccountFile,
		"--root-ca-file=" + caFile,
		"--cluster-signing-cert-file=" + caFile,
		"--cluster-signing-key-file=" + caKeyFile,
	}
	if !s.Throttled {
		args = append(args, "--kube-api-qps=200", "--kube-api-burst=400")
	}
	args = append(args, "--profiling=false")
	if s.DisableForceDetachOnTimeout {
		args = append(args, "--disable-force-detach-on-timeout")
	}
	if len(s.Without) > 0 {
		args = append(args, "--controllers=*,-"+strings.Join(s.Without, ",-"))
	}
	if s.GracePeriod > 0 {
		// By default it looks ten times in a grace period.
		args = append(args, "--node-monitor-grace-period="+s.GracePeriod.String(), "--node-monitor-period="+(s.GracePeriod/10).String())
	}
	return args
}

func schedulerArgs() []string {
	return []string{"--kubeconfig=" + schedulerKubeconfig, "--leader-elect=false", "--secure-port=0", "--profiling=false"}
}

func attacherArgs(s *Standard, socket string) []string {
	args := []string{"--kubeconfig=" + attacherKubeconfig, "--csi-address=" + socket}
	if !s.Throttled {
		args = append(args, "--kube-api-qps=200", "--kube-api-burst=400")
	}
	return args
}

// attacherUser is its name as a user of the API server.
const attacherUser = "csi-attacher"

// attaching returns the objects that let it do its work, as its own manifests have it.
func attaching() []client.Object {
	rule := func(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
	}
	meta := metav1.ObjectMeta{Name: "fencelab:" + attacherUser}
	return []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			rule("", []string{"persistentvolumes"}, "get", "list", "watch", "patch"),
			rule("storage.k8s.io", []string{"csinodes"}, "get", "list", "watch"),
			rule("storage.k8s.io", []string{"volumeattachments"}, "get", "list", "watch", "patch"),
			rule("storage.k8s.io", []string{"volumeattachments/status"}, "patch"),
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: attacherUser}},
		},
	}
}

// token is a bootstrap token: it lets a kubelet ask for a certificate.
type token struct{ id, secret string }

func newToken() token {
	text := strings.ToLower(rand.Text())
	return token{text[:6], text[6:22]}
}

func (t token) String() string { return t.id + "." + t.secret }

// BootstrapToken is by which a kubelet asks for its certificate, which kube-controller-manager
// approves of and signs. It is empty in a cluster without [Options.Standard].
func (c *Cluster) BootstrapToken() string {
	if c.options.Standard == nil {
		return ""
	}
	return c.bootstrap.String()
}

// bootstrapping returns the objects that let kubelets join by the token, as kubeadm has it.
func bootstrapping(t token) []client.Object {
	const group = "system:bootstrappers"
	allow := func(name, role string) client.Object {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "fencelab:" + name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
		}
	}
	return []client.Object{
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + t.id},
			Type:       corev1.SecretTypeBootstrapToken,
			StringData: map[string]string{"token-id": t.id, "token-secret": t.secret, "usage-bootstrap-authentication": "true"},
		},
		allow("bootstrap", "system:node-bootstrapper"),
		allow("approve", "system:certificates.k8s.io:certificatesigningrequests:nodeclient"),
	}
}

// startStandard starts these, and lets kubelets join.
func (c *Cluster) startStandard(create func(client.Object) error) error {
	s := c.options.Standard
	objects := bootstrapping(c.bootstrap)
	if s.Driver != nil {
		socket := filepath.Join(c.dir, "csi.sock")
		if err := s.Driver(socket); err != nil {
			return err
		}
		objects = append(objects, attaching()...)
		c.Attaching = &Component{cluster: c, name: attacher, args: attacherArgs(s, socket)}
	}
	for _, obj := range objects {
		if err := create(obj); err != nil {
			return fmt.Errorf("prepare the standard controllers: create %T %s: %w", obj, obj.GetName(), err)
		}
	}
	c.Managing = &Component{cluster: c, name: controllerManager, args: controllerManagerArgs(s)}
	for _, component := range []*Component{c.Managing, c.Attaching} {
		if err := component.Start(); err != nil {
			return err
		}
	}
	p, err := c.start(c.options.Bin, Scheduler, schedulerArgs())
	c.scheduler = p
	return err
}

// Component is one of the control plane's programs that can be missing for a while. A nil one is
// none.
type Component struct {
	cluster *Cluster
	name    string
	args    []string
	process *child.Process // nil while it doesn't run
}

// Name is the program's.
func (p *Component) Name() string { return p.name }

// Start starts it, unless it runs.
func (p *Component) Start() (err error) {
	if p != nil && p.process == nil {
		p.process, err = p.cluster.start(p.cluster.options.Bin, p.name, p.args)
	}
	return err
}

// Kill ends it as SIGKILL does, until it is started again.
func (p *Component) Kill() error {
	if p == nil || p.process == nil {
		return nil
	}
	if err := p.process.Kill(); err != nil {
		return err
	}
	<-p.process.Exited()
	p.process = nil
	return nil
}

// Pause has it stand still, if it runs, and Resume go on.
func (p *Component) Pause() error {
	if p == nil || p.process == nil {
		return nil
	}
	return p.process.Pause()
}

// Resume undoes Pause.
func (p *Component) Resume() error {
	if p == nil || p.process == nil {
		return nil
	}
	return p.process.Resume()
}

// stop ends it for good.
func (p *Component) stop() error {
	if p == nil {
		return nil
	}
	return p.process.Stop()
}

// PauseStore has etcd stand still: what needs it waits for its answer, or gives up.
func (c *Cluster) PauseStore() error {
	c.disturbed = true
	return c.etcd.Pause()
}

// ResumeStore undoes PauseStore.
func (c *Cluster) ResumeStore() error { return c.etcd.Resume() }

// needed are the programs that options need.
func (o *Options) needed() []string {
	if o.Standard == nil {
		return commands
	}
	all := slices.Concat(commands, []string{controllerManager, Scheduler})
	if o.Standard.Driver != nil {
		all = append(all, attacher)
	}
	return all
}
