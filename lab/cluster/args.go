package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
)

// commands are the programs of the control plane, which build.sh puts into one directory.
var commands = []string{"etcd", "kube-apiserver"}

// The files of a cluster's directory, in which both processes run.
const (
	caFile             = "ca.crt"
	servingCertFile    = "serving.crt"
	servingKeyFile     = "serving.key"
	serviceAccountFile = "service-accounts.key"
	tokenFile          = "tokens.csv"
)

// loopback is the only address at which the API server listens.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// etcd listens on Unix sockets in its private directory: it checks no credentials, and it needs no
// port. Its flags want "host:port", which for a Unix socket is the whole file name.
const (
	etcdClients = "unix://clients:0"
	etcdPeers   = "unix://peers:0"
)

func etcdArgs() []string {
	return []string{
		"--name=fencelab",
		"--data-dir=data",
		"--listen-client-urls=" + etcdClients,
		"--advertise-client-urls=" + etcdClients,
		"--listen-peer-urls=" + etcdPeers,
		"--initial-advertise-peer-urls=" + etcdPeers,
		"--initial-cluster=fencelab=" + etcdPeers,
		"--unsafe-no-fsync", // its data never outlives it
	}
}

// Service is where Pods look for the API server: the address of the Service kubernetes, which is
// the first of its range.
var Service = netip.MustParseAddrPort("10.96.0.1:443")

// Services is the range of the addresses of Services.
var Services = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 96, 0, 0}), 16)

// apiServerArgs returns the arguments of the server at a port. With accounts it gives Pods the
// tokens of their ServiceAccounts.
func apiServerArgs(port uint16, o *Options) []string {
	args := []string{
		"--etcd-servers=" + etcdClients,
		"--bind-address=" + loopback.String(),
		fmt.Sprintf("--secure-port=%d", port),
		"--permit-port-sharing", // we hold the port
		// Without an address to advertise it looks for a default route, which a machine without
		// network lacks; and it can't publish a loopback address as an endpoint.
		"--advertise-address=" + loopback.String(),
		"--endpoint-reconciler-type=none",
		"--tls-cert-file=" + servingCertFile,
		"--tls-private-key-file=" + servingKeyFile,
		"--client-ca-file=" + caFile,
		"--token-auth-file=" + tokenFile,
		"--enable-bootstrap-token-auth",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + serviceAccountFile,
		"--service-account-signing-key-file=" + serviceAccountFile,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-cluster-ip-range=" + Services.String(),
		"--allow-privileged",
		// Observers follow one watch each, for as long as a lab is there.
		"--min-request-timeout=31536000",
		"--profiling=false",
	}
	if o.lasting {
		args = append(args, "--etcd-compaction-interval=0")
	}
	if o.Standard == nil || !o.Standard.Accounts {
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	return args
}

// writeFiles writes what the arguments name.
func (c *Cluster) writeFiles(dir string) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	serviceAccountKey, err := keyPEM(key)
	if err != nil {
		return err
	}
	files := map[string][]byte{
		serviceAccountFile: serviceAccountKey,
		tokenFile:          tokenLines(c.nodeTokens),
	}
	if c.options.Standard != nil {
		if files[caKeyFile], err = keyPEM(c.authority.key); err != nil {
			return err
		}
		for file, user := range map[string]string{
			controllersKubeconfig: "system:kube-controller-manager", schedulerKubeconfig: "system:kube-scheduler", attacherKubeconfig: attacherUser,
		} {
			config := c.ConfigFor(user)
			config.Host = "https://" + c.through
			if files[file], err = Kubeconfig(config); err != nil {
				return err
			}
		}
	}
	return errors.Join(c.writeCredentials(dir), write(dir, files))
}

// writeCredentials writes the API server's certificate and the authorities that it trusts. The
// server reads them again when they change.
func (c *Cluster) writeCredentials(dir string) error {
	certificate, key, err := c.authority.issueServing()
	if err != nil {
		return err
	}
	return write(dir, map[string][]byte{caFile: c.authority.certificate, servingCertFile: certificate, servingKeyFile: key})
}

func write(dir string, files map[string][]byte) error {
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}
