// Package cluster starts a Kubernetes control plane for tests and labs: etcd and kube-apiserver as
// child processes in a temporary directory, on the loopback interface only.
//
// By itself it is the API and nothing more. Without a controller manager no garbage is collected, a
// deleted namespace stays Terminating and no Pod is created from a StatefulSet; without a scheduler
// a Pod needs spec.nodeName. Everything that authenticates, authorizes or admits a request is the
// real thing: RBAC, the Node authorizer, NodeRestriction, ValidatingAdmissionPolicy. Only the
// ServiceAccount admission plugin is off, unless it is asked for: somebody has to make the
// accounts.
//
// With [Options.Standard] it runs kube-controller-manager and kube-scheduler too, and
// [Cluster.Runs] says what they do.
//
// Nothing outlives the program, however it ends: a [keeper.Keeper] removes the directory and kills
// the processes. A program that calls [Launch] therefore calls [keeper.Main] first thing in main or
// TestMain.
package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/lab/child"
	"github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/vms/keeper"
)

// readyTimeout bounds the start on a machine that isn't slow: 2 to 3 s on two idle cores.
const readyTimeout = 90 * time.Second

// Options say what the control plane is started from. The zero value is a good start.
type Options struct {
	// Bin is the directory with etcd and kube-apiserver; empty means [DefaultBin].
	Bin string
	// Nodes names the hosts whose kubelets authenticate with a bearer token, see
	// [Cluster.NodeToken]. They are listed here because an API server reads its tokens once, when
	// it starts.
	Nodes []string
	// Standard has the standard controllers run as well; nil: the API server alone.
	Standard *Standard
	// Manifests are installed once it is up, see [Cluster.Install].
	Manifests []fs.FS
	// Log is called with what becomes of control planes that could be handed on; may be nil.
	Log func(format string, args ...any)

	lasting bool // it can be handed on
}

func (o *Options) logf(format string, args ...any) {
	if o.Log != nil {
		o.Log(format, args...)
	}
}

// Cluster is a running control plane.
type Cluster struct {
	identities
	options   Options
	keeper    *keeper.Keeper
	port      *child.Port
	dir       string
	admin     *rest.Config
	bootstrap token
	through   string // the address by which the standard controllers reach the API server

	etcd, apiServer *child.Process
	scheduler       *child.Process // nil without one
	// Managing is kube-controller-manager, and Attaching the external-attacher; nil without one.
	Managing, Attaching *Component

	// A cluster that can be handed on has these; shelf is nil for any other.
	shelf     *Shelf
	kind      [sha256.Size]byte
	original  versions // when it was new
	disturbed bool     // it was made to stand still

	stop    sync.Once
	stopErr error
}

// Launch starts a control plane and returns once it answers and has made its system namespaces. The
// context bounds the start only. If a process ends instead, the error holds the last lines that it
// wrote.
func Launch(ctx context.Context, o Options) (*Cluster, error) {
	if o.Bin == "" {
		o.Bin = DefaultBin()
	}
	for _, name := range o.needed() {
		if _, err := os.Stat(filepath.Join(o.Bin, name)); err != nil {
			return nil, fmt.Errorf("launch control plane: %w: %s", err, o.remedy())
		}
	}
	c := &Cluster{options: o}
	if err := c.launch(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("launch control plane: %w", err), c.release())
	}
	return c, nil
}

func (c *Cluster) launch(ctx context.Context, o Options) (err error) {
	if c.keeper, err = keeper.Start(); err != nil {
		return err
	}
	if c.dir, err = c.keeper.TempDir("fencelab-cluster"); err != nil {
		return err
	}
	if c.port, err = child.HoldPort(); err != nil {
		return err
	}
	if c.authority, err = newAuthority(); err != nil {
		return err
	}
	c.address = c.port.Address()
	c.admin = c.ConfigFor(administrator, "system:masters")
	c.nodeTokens, c.bootstrap = newNodeTokens(o.Nodes), newToken()
	if c.through = c.address; o.Standard != nil && o.Standard.Through != nil {
		if c.through, err = o.Standard.Through(c.address); err != nil {
			return err
		}
	}
	if err := c.writeFiles(c.dir); err != nil {
		return err
	}
	if c.etcd, err = c.start(o.Bin, "etcd", etcdArgs()); err != nil {
		return err
	}
	if c.apiServer, err = c.start(o.Bin, "kube-apiserver", apiServerArgs(c.port.Number(), &o)); err != nil {
		return err
	}
	if err := c.awaitReady(ctx); err != nil {
		return err
	}
	for _, files := range o.Manifests {
		if err := c.Install(ctx, files); err != nil {
			return err
		}
	}
	if o.Standard == nil {
		return nil
	}
	admin, err := client.New(c.admin, client.Options{})
	if err != nil {
		return err
	}
	return c.startStandard(func(obj client.Object) error { return admin.Create(ctx, obj) })
}

// awaitReady asks for readiness and then for the namespaces that kubelets need, which a ready
// server makes a little later.
func (c *Cluster) awaitReady(ctx context.Context) error {
	ctx, cancel := machine.WithBudget(ctx, readyTimeout)
	defer cancel()
	asking, err := rest.HTTPClientFor(c.admin)
	if err != nil {
		return err
	}
	defer asking.CloseIdleConnections()
	for _, path := range []string{"/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-node-lease"} {
		if err := child.AwaitAnswer(ctx, asking, c.admin.Host+path, c.etcd, c.apiServer); err != nil {
			return err
		}
	}
	return nil
}

// start starts one of the commands in the cluster's directory.
func (c *Cluster) start(bin, name string, args []string) (*child.Process, error) {
	path, err := filepath.Abs(filepath.Join(bin, name))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = c.dir
	// Nothing of our environment: etcd takes every ETCD_* variable for a flag.
	cmd.Env = []string{"TMPDIR=" + c.dir, c.keeper.Mark(), collector}
	return child.Start(name, cmd, filepath.Join(c.dir, name+".log"))
}

// collector has Go's collector come less often: by its default a fifth of what kube-apiserver takes
// to come up is its. The price is 130 MB, which an embedded control plane's slots have.
const collector = "GOGC=400"

// ServerName is a name for which the API server's certificate is valid, wherever it is reached.
const ServerName = "kubernetes"

// Pause stops the API server where it stands, as a hung machine would; clients see open connections
// without answers.
func (c *Cluster) Pause() error {
	c.disturbed = true
	return c.apiServer.Pause()
}

// Resume undoes [Cluster.Pause].
func (c *Cluster) Resume() error { return c.apiServer.Resume() }

// Stop ends the processes and removes the directory, or leaves both to the [Shelf] that the
// cluster is from. It also returns an error if a process ended before it was asked to: then what
// was observed says nothing about controllers. Later calls return the same.
func (c *Cluster) Stop() error {
	c.stop.Do(func() {
		if c.shelf == nil || !c.shelf.keep(c) {
			c.stopErr = c.end()
		}
	})
	return c.stopErr
}

// end ends the processes and removes the directory.
func (c *Cluster) end() error {
	// Nothing is to be seen failing without what it depends on.
	errs := []error{c.scheduler.Stop(), c.Managing.stop(), c.Attaching.stop()}
	return errors.Join(append(errs, c.apiServer.Stop(), c.etcd.Stop(), c.release())...)
}

// release gives back what was taken, killing what still runs.
func (c *Cluster) release() error {
	var errs []error
	if c.keeper != nil {
		errs = append(errs, c.keeper.Close())
	}
	return errors.Join(append(errs, c.port.Release())...)
}
