// Command inguest is what runs in a guest of the lab beside its kubelet: one of fencelab's
// agents. vms/assets.sh builds it as a static program, which goes into the initramfs of
// guests that need it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/fencelab/fencelab/ci/lab/inguest/program"
	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/onhost"
	"github.com/fencelab/fencelab/vms/guest/evidence"
)

const (
	// dir is in the memory of the guest, like all its files.
	dir = "/run/fencelab"
	// peerPort is where agents of other guests ask.
	peerPort = "7443"
)

func main() {
	if err := run(os.Args[1], zap.New(zap.WriteTo(os.Stdout))); err != nil {
		fmt.Fprintf(os.Stderr, "fencelab agent: %v\n", err)
		os.Exit(1)
	}
}

// run runs the agent that a file says.
func run(path string, logger logr.Logger) error {
	ctrl.SetLogger(logger)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var c program.Config
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(c.Kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig in %s: %w", path, err)
	}
	agent, err := controllers.Select(c.Agent, c.Settings, c.Overlay)
	if err != nil {
		return err
	}
	o := onhost.Options{
		Agent: agent, Host: c.Host, Config: config, Watchdog: c.Watchdog, State: dir, Logger: logger,
		Ready: func() {
			if _, err := os.NewFile(evidence.ReadyFD, "ready").Write([]byte{0}); err != nil {
				logger.Error(err, "tell that the agent is ready")
			}
		},
	}
	if c.Identity != nil {
		o.Listen, o.PeerPort = ":"+peerPort, peerPort
		o.Certificate, o.Key, o.Authority = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt")
		for path, data := range map[string][]byte{o.Certificate: c.Identity.Certificate, o.Key: c.Identity.Key, o.Authority: c.Identity.Authority} {
			if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(path, data, 0o600)); err != nil {
				return fmt.Errorf("write the certificates: %w", err)
			}
		}
	}
	return onhost.Run(context.Background(), o)
}
