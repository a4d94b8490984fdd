package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// The files that PID 1 writes for the node's programs, at each boot.
const (
	bootstrapPath     = "/etc/kubernetes/bootstrap.kubeconfig"
	kubeletConfigPath = "/etc/kubernetes/kubelet.json"
	servingCertPath   = "/etc/kubernetes/serving.crt"
	servingKeyPath    = "/etc/kubernetes/serving.key"
	// containerd reads this one for every registry that has no directory of its own.
	registryPath = "/etc/containerd/certs.d/_default/hosts.toml"
)

// configure writes what differs between nodes, and names the host.
func (n *realNode) configure() error {
	k := n.config.Kubelet
	server, err := url.Parse(k.Server)
	if err != nil {
		return fmt.Errorf("configure the node: %w", err)
	}
	if err := unix.Sethostname([]byte(k.Node)); err != nil {
		return fmt.Errorf("configure the node: name it: %w", err)
	}
	certificate, key, err := servingPair()
	if err != nil {
		return fmt.Errorf("configure the node: %w", err)
	}
	uuid, err := os.ReadFile("/sys/class/dmi/id/product_uuid")
	if err != nil {
		return fmt.Errorf("configure the node: %w", err)
	}
	// The kubelet doesn't keep the name that it is to expect of the API server, so that this has to
	// be its address.
	hosts := fmt.Sprintf("127.0.0.1 localhost\n%s %s\n%s %s\n", n.config.Network.Address.Addr(), k.Node, server.Hostname(), k.ServerName)
	join := bootstrapKubeconfig("https://"+net.JoinHostPort(k.ServerName, server.Port()), k)
	files := map[string][]byte{
		"/etc/hosts": []byte(hosts), "/etc/hostname": []byte(k.Node + "\n"), "/etc/machine-id": []byte(strings.ReplaceAll(string(uuid), "-", "")),
		bootstrapPath: marshal(join), kubeletConfigPath: marshal(kubeletConfig(k)),
		servingCertPath: certificate, servingKeyPath: key,
	}
	if k.Registry != "" {
		files[registryPath] = fmt.Appendf(nil, "server = %q\n", k.Registry)
	}
	for _, p := range n.config.Programs {
		if files[p.NodePath()], err = os.ReadFile(p.ConfigPath()); err != nil {
			return fmt.Errorf("configure the node: %w", err)
		}
	}
	for path, content := range files {
		path = nodeRoot + path
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("configure the node: %w", err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("configure the node: %w", err)
		}
	}
	if k.Services.IsValid() {
		route := n.command("busybox", "ip", "route", "add", k.Services.String(), "via", server.Hostname())
		if err := route.Run(); err != nil {
			return fmt.Errorf("configure the node: add a route to Services: %w", err)
		}
	}
	return nil
}

type object = map[string]any

func marshal(o object) []byte {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // plain maps and strings
	}
	return text
}

// bootstrapKubeconfig is by which a kubelet that has no certificate yet asks for one.
func bootstrapKubeconfig(server string, k *evidence.Kubelet) object {
	const name = "bootstrap"
	return object{
		"apiVersion": "v1", "kind": "Config", "current-context": name,
		"clusters": []object{{"name": name, "cluster": object{"server": server, "certificate-authority-data": []byte(k.CA)}}},
		"users":    []object{{"name": name, "user": object{"token": k.Token}}},
		"contexts": []object{{"name": name, "context": object{"cluster": name, "user": name}}},
	}
}

// leaseParts is how many renewals a kubelet makes in the duration of its Lease.
const leaseParts = 4

func kubeletConfig(k *evidence.Kubelet) object {
	lease := leaseParts * k.Lease
	return object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + containerdSocket,
		"cgroupDriver":             "cgroupfs",
		"providerID":               k.ProviderID,
		"rotateCertificates":       true,
		"nodeLeaseDurationSeconds": max(1, int(lease/time.Second)),
		// So long each request about the status may take as well.
		"nodeStatusUpdateFrequency": lease.String(),
		// The node accepts no connections from outside: its network leads out only. To draw an RSA
		// key of its own takes an emulated machine seconds.
		"enableServer": false, "healthzPort": 0,
		"tlsCertFile": servingCertPath, "tlsPrivateKeyFile": servingKeyPath,
		"authentication": object{"anonymous": object{"enabled": false}, "webhook": object{"enabled": false}},
		"authorization":  object{"mode": "AlwaysAllow"},
		// A small disk is no reason to evict anybody, and nothing of the image is to be collected.
		"evictionHard":                object{"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
		"volumeStatsAggPeriod":   "-1s",
		"makeIPTablesUtilChains": false,
		"failSwapOn":             false,
		"maxPods":                16,
		// A program that a story kills comes back when the story says so, and not when kubelets
		// lose patience with it.
		"crashLoopBackOff": object{"maxContainerRestartPeriod": "1s"},
	}
}

// servingPair is a certificate for a server that never serves.
func servingPair() (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), nil
}

// pairs are labels as a flag wants them.
func pairs(labels map[string]string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, key+"="+labels[key])
	}
	return strings.Join(all, ",")
}
