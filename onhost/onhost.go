// Package onhost runs an agent on a real host, and in a guest of the lab: it grants what
// the simulator grants a simulated one. The watchdog is a device, peers are reached over
// HTTPS with mutual TLS, the boot is the kernel's, and what has to last as long as it lies
// in a tmpfs.
package onhost

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/front"
)

// Options say which agent to run, and with what.
type Options struct {
	// Agent is the one to run, with its settings.
	Agent controllers.Selection
	// Host is the one that it runs on.
	Host controllers.Host
	// Config reaches the API server.
	Config *rest.Config
	// Listen is where peers ask, such as :7443, and PeerPort the port at which they listen.
	// Neither these nor the files below are needed by an agent that asks no peers.
	Listen, PeerPort string
	// Certificate, Key and Authority are PEM files: the certificate is for the name of
	// the Node, for clients and servers, and the authority has made those of all peers.
	// They are read anew for each connection.
	Certificate, Key, Authority string
	// Watchdog is the device; empty is none. WatchdogTimeout is set there; 0 leaves it.
	Watchdog        string
	WatchdogTimeout time.Duration
	// State is a directory that the next boot finds empty.
	State string
	// Logger gets what there is to log.
	Logger logr.Logger
	// Ready is called when the agent is about to begin; may be nil.
	Ready func()

	agent, settings, kubeconfig string // what the flags name

	// for tests
	reboot func(context.Context) error
	dog    device
}

// Run runs the agent until ctx is done. Then it disarms the watchdog, provided that no other host
// relies on it any more; otherwise it leaves the watchdog armed for the next agent.
func Run(ctx context.Context, o Options) (err error) {
	boot, err := openBoot(o.State, o.Agent.Name)
	if err != nil {
		return err
	}
	dog := &watchdog{device: o.dog}
	if o.dog == nil && o.Watchdog != "" {
		if dog.device, err = openWatchdog(o.Watchdog, o.WatchdogTimeout); err != nil {
			return err
		}
	}
	identity := identity{o.Certificate, o.Key, o.Authority}
	var others controllers.Peers
	if o.Agent.AsksPeers {
		if _, _, err := identity.load(); err != nil {
			return err
		}
		others = &peers{identity, o.PeerPort}
	}
	reboot := o.reboot
	if reboot == nil {
		reboot = rebootKernel
	}
	within, err := clients(o.Config)
	if err != nil {
		return err
	}
	agent, err := o.Agent.NewAgent(controllers.Deps{
		LiveWithin: within, Client: within(0), Live: within(0), Clock: clock.RealClock{},
		Host: o.Host, Boot: boot, Watchdog: dog, Peers: others, Reboot: reboot,
		Warn: func(about client.Object, reason, message string) {
			o.Logger.Info(message, "reason", reason, "object", about.GetName())
		},
		Settings: o.Agent.Settings, Overlay: o.Agent.Overlay,
	})
	if err != nil {
		return err
	}
	if answerer, ok := agent.(controllers.Answerer); ok && o.Agent.AsksPeers {
		_, stop, err := serve(o.Listen, identity, answerer, o.Logger)
		if err != nil {
			return err
		}
		defer stop()
	}
	if o.Ready != nil {
		o.Ready()
	}
	for {
		next, err := agent.Step(ctx)
		if err != nil && ctx.Err() == nil {
			o.Logger.Error(err, "a step failed")
		}
		select {
		case <-ctx.Done():
			return retire(agent, dog)
		case <-time.After(controllers.Pause(next)):
		}
	}
}

// retireWithin limits how long an agent that is stopped may take to inform the others.
const retireWithin = 10 * time.Second

// retire ends an agent in order.
func retire(agent controllers.Agent, dog *watchdog) error {
	if r, ok := agent.(controllers.Retirer); ok {
		ctx, cancel := context.WithTimeout(context.Background(), retireWithin)
		defer cancel()
		if err := r.Retire(ctx); err != nil {
			return errors.Join(fmt.Errorf("leave the watchdog armed: %w", err), dog.leave())
		}
	}
	return dog.disarm()
}

// clients make clients that give each request up after a time.
func clients(config *rest.Config) (func(time.Duration) client.Client, error) {
	make := func(within time.Duration) (client.Client, error) {
		c := rest.CopyConfig(config)
		c.Timeout = within
		// HTTP/2 goes on using a dead connection until its pings fail.
		c.NextProtos = []string{"http/1.1"}
		return client.New(c, client.Options{Scheme: api.NewScheme(), Mapper: mapper()})
	}
	if _, err := make(0); err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	return func(within time.Duration) client.Client {
		c, err := make(within)
		if err != nil {
			panic(fmt.Sprintf("make a client of the API server: %v", err)) // it could be made just now
		}
		return c
	}, nil
}

// serve answers peers until it is stopped.
func serve(address string, id identity, answerer controllers.Answerer, log logr.Logger) (at net.Addr, stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("listen for peers: %w", err)
	}
	server := front.Serve(&service{answerer: answerer, log: log, busy: make(chan struct{}, mostAnswers)})
	secure := tls.NewListener(front.NewGate().Listener(listener), id.server())
	go func() {
		if err := server.Serve(secure); !errors.Is(err, http.ErrServerClosed) {
			log.Error(err, "peers are no longer answered")
		}
	}()
	return listener.Addr(), func() { _ = server.Close() }, nil
}

// stateFile returns the file in which an agent keeps state for the length of a boot.
func stateFile(dir, program string) string { return filepath.Join(dir, program+".json") }

// write replaces a file at once.
func write(path string, data []byte) error {
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
