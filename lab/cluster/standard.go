package cluster

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	// Throttled leaves kube-controller-manager the limits of its requests, which hold up its start.
	Throttled bool
	// DisableForceDetachOnTimeout is kube-controller-manager's flag of that name.
	DisableForceDetachOnTimeout bool
}

// controllerManager and Scheduler are the programs that it takes.
const controllerManager = "kube-controller-manager"

// The names of standard controllers for which there are stand-ins, as kube-controller-manager has
// them in --controllers.
const (
	NodeLifecycle = "node-lifecycle-controller"
	PodGC         = "pod-garbage-collector-controller"
	StatefulSet   = "statefulset-controller"
	AttachDetach  = "persistentvolume-attach-detach-controller"
	TaintEviction = "taint-eviction-controller"
	Scheduler     = "kube-scheduler"
)

// Runs are the standard controllers that the cluster runs, of those for which there are stand-ins.
func (c *Cluster) Runs() []string {
	if c.options.Standard == nil {
		return nil
	}
	return []string{NodeLifecycle, PodGC, StatefulSet, AttachDetach, TaintEviction, Scheduler}
}

// The files of the two.
const (
	caKeyFile             = "ca.key"
	controllersKubeconfig = "kube-controller-manager.kubeconfig"
	schedulerKubeconfig   = "kube-scheduler.kubeconfig"
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
	if s.GracePeriod > 0 {
		// By default it looks ten times in a grace period.
		args = append(args, "--node-monitor-grace-period="+s.GracePeriod.String(), "--node-monitor-period="+(s.GracePeriod/10).String())
	}
	return args
}

func schedulerArgs() []string {
	return []string{"--kubeconfig=" + schedulerKubeconfig, "--leader-elect=false", "--secure-port=0", "--profiling=false"}
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

// startStandard starts the two, and lets kubelets join.
func (c *Cluster) startStandard(create func(client.Object) error) error {
	for _, obj := range bootstrapping(c.bootstrap) {
		if err := create(obj); err != nil {
			return fmt.Errorf("let kubelets join: create %T %s: %w", obj, obj.GetName(), err)
		}
	}
	if err := c.StartControllerManager(); err != nil {
		return err
	}
	p, err := c.start(c.options.Bin, Scheduler, schedulerArgs())
	c.scheduler = p
	return err
}

// StartControllerManager starts kube-controller-manager, unless it runs.
func (c *Cluster) StartControllerManager() (err error) {
	if c.controllerManager == nil {
		c.controllerManager, err = c.start(c.options.Bin, controllerManager, controllerManagerArgs(c.options.Standard))
	}
	return err
}

// KillControllerManager ends it as SIGKILL does, until it is started again.
func (c *Cluster) KillControllerManager() error {
	p := c.controllerManager
	if p == nil {
		return nil
	}
	if err := p.Kill(); err != nil {
		return err
	}
	<-p.Exited()
	c.controllerManager = nil
	return nil
}

// PauseControllerManager has it stand still, if it runs, and ResumeControllerManager go on.
func (c *Cluster) PauseControllerManager() error {
	if c.controllerManager == nil {
		return nil
	}
	return c.controllerManager.Pause()
}

// ResumeControllerManager undoes PauseControllerManager.
func (c *Cluster) ResumeControllerManager() error {
	if c.controllerManager == nil {
		return nil
	}
	return c.controllerManager.Resume()
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
	return slices.Concat(commands, []string{controllerManager, Scheduler})
}
