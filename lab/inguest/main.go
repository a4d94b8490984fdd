// Command inguest runs one of fencelab's agents in a guest of the lab, beside its kubelet.
// vms/assets.sh builds it as a static program, which goes into the initramfs of guests that need
// it, and vms/node/build.sh makes an image of it, which Pods of real nodes run.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/lab/inguest/program"
	"github.com/fencelab/fencelab/onhost"
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
	ready := tellParent
	if c.InPod {
		if ready, err = admitted(c.Agent); err != nil {
			return err
		}
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
			if err := ready(); err != nil {
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

// tellParent reports to PID 1 that its child is ready.
func tellParent() error {
	_, err := os.NewFile(evidence.ReadyFD, "ready").Write([]byte{0})
	return err
}

// admitted waits until PID 1 lets a program in a Pod run, which has not done anything before. It
// returns a function to report that the program is ready. The connection lasts as long as the
// process.
func admitted(agent string) (ready func() error, err error) {
	conn, err := net.Dial("unix", evidence.SocketPath)
	if err != nil {
		return nil, fmt.Errorf("reach PID 1: %w", err)
	}
	say := func(kind evidence.Kind) error {
		if err := json.NewEncoder(conn).Encode(evidence.Line{Kind: kind, Process: agent}); err != nil {
			return fmt.Errorf("tell PID 1 %s: %w", kind, err)
		}
		return nil
	}
	if err := say(evidence.ProgramWaits); err != nil {
		return nil, err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return nil, fmt.Errorf("wait for PID 1: %w", err)
	}
	return func() error { return say(evidence.ProgramStarted) }, nil
}
