package lab

import (
	"context"
	"crypto/tls"
	"io/fs"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/lab/door"
	"github.com/fencelab/fencelab/lab/gate"
)

// controlPlane serves the API of a lab, and issues credentials for users.
type controlPlane interface {
	// Install makes what manifests say.
	Install(ctx context.Context, manifests fs.FS) error
	// Config is an administrator's, ConfigFor that of a user with just the rights of its roles.
	Config() *rest.Config
	ConfigFor(user string, groups ...string) *rest.Config
	// Runs are the standard controllers of Kubernetes that it runs, of those for which there are
	// stand-ins.
	Runs() []string
	// NodeToken is by which the kubelet of a Node authenticates, BootstrapToken by which a real one
	// asks for a certificate.
	NodeToken(node string) string
	BootstrapToken() string
	// Address is where the API is on loopback, and CA vouches for it, under the name ServerName of
	// package cluster.
	Address() string
	CA() []byte
	// ProxyConfig is for a server in front of the API: clients that ConfigFor was made for believe
	// it, and it believes them.
	ProxyConfig() (*tls.Config, error)
	// Stop ends it. The error also says that something of it had ended before.
	Stop() error
}

var (
	_ controlPlane = (*cluster.Cluster)(nil)
	_ controlPlane = (*cluster.Attached)(nil)
)

// plane is the control plane of a lab, with the paths to it.
type plane struct {
	controlPlane
	// standard is the control plane, if it is ours and has the standard controllers.
	standard *cluster.Cluster
	// admin is past the door, and topology what it made.
	admin    client.WithWatch
	topology []client.Object
	door     *door.Door
	// kubelets is their path, nil where they go another way; wire is that of the standard
	// controllers and of their kubelets, nil where the lab starts none.
	kubelets *gate.Proxy
	wire     *gate.Wire
	// peers vouches for agents that ask each other, nil until one does.
	peers *cluster.Peers
}
