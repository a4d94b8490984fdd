package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fencelab/fencelab/controllers/api"
)

// AgentOptions say which agent to run, and what there is on the host that it runs on.
type AgentOptions struct {
	// Config reaches the API server.
	Config *rest.Config
	// Agent is the agent's name. Settings are JSON over its defaults; Overlay makes it
	// wrong on purpose.
	Agent    string
	Settings json.RawMessage
	Overlay  []Rule
	Host     Host
	// Watchdog is the device of the host's watchdog; empty for none.
	Watchdog string
	// Ready, if it is set, is called when the agent is about to begin.
	Ready func()
	// Logger gets everything that there is to log.
	Logger logr.Logger
}

// discoveryTimeout bounds the requests by which a client learns where a kind is. They are made
// when it is first asked for, by an agent that has a watchdog to feed.
const discoveryTimeout = 2 * time.Second

// RunAgent runs an agent on this host until ctx is done.
func RunAgent(ctx context.Context, o AgentOptions) error {
	s, err := Select(o.Agent, o.Settings, o.Overlay)
	if err != nil {
		return err
	}
	if s.Place != EveryHost {
		return fmt.Errorf("run the agent %s: it is a controller, which runs in the cluster; see fencelab controllers", o.Agent)
	}
	deps := Deps{Clock: clock.RealClock{}, Host: o.Host, Settings: s.Settings, Overlay: s.Overlay}
	if deps.LiveWithin, err = agentClients(o.Config); err != nil {
		return err
	}
	deps.Client = deps.LiveWithin(0)
	deps.Live = deps.Client
	if o.Watchdog != "" {
		device, err := os.OpenFile(o.Watchdog, os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("open the watchdog: %w", err)
		}
		// Whoever closes it has its time run out, which is what is to come of a dead agent.
		defer device.Close()
		seconds, err := unix.IoctlGetInt(int(device.Fd()), unix.WDIOC_GETTIMEOUT)
		if err != nil {
			return fmt.Errorf("ask the watchdog for its time: %w", err)
		}
		deps.Watchdog = watchdogDevice{device, time.Duration(seconds) * time.Second}
	}
	agent, err := s.NewAgent(deps)
	if err != nil {
		return err
	}
	if o.Ready != nil {
		o.Ready()
	}
	for {
		next, err := agent.Step(ctx)
		if err != nil {
			o.Logger.Error(err, "step")
		}
		select {
		case <-time.After(Pause(next)):
		case <-ctx.Done():
			return nil
		}
	}
}

// agentClients make clients without a cache, which give each request up after a time, or
// wait for ever. They learn of the API server's kinds when they need them.
func agentClients(config *rest.Config) (func(time.Duration) client.Client, error) {
	config = rest.CopyConfig(config)
	// A dead connection of HTTP/2 would be used again until its pings fail.
	config.NextProtos = []string{"http/1.1"}
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make the agent's client: %w", err)
	}
	impatient := *transport
	impatient.Timeout = discoveryTimeout
	mapper, err := apiutil.NewDynamicRESTMapper(config, &impatient)
	if err != nil {
		return nil, fmt.Errorf("make the agent's client: %w", err)
	}
	within := func(patience time.Duration) (client.Client, error) {
		bounded := *transport
		bounded.Timeout = patience
		return client.New(config, client.Options{Scheme: api.NewScheme(), HTTPClient: &bounded, Mapper: mapper})
	}
	if _, err := within(0); err != nil {
		return nil, fmt.Errorf("make the agent's client: %w", err)
	}
	return func(patience time.Duration) client.Client {
		c, err := within(patience)
		if err != nil {
			panic(fmt.Sprintf("make the agent's client: %v", err)) // one could be made just now
		}
		return c
	}, nil
}

// watchdogDevice is the device of Linux.
type watchdogDevice struct {
	*os.File
	waits time.Duration
}

// Timeout is how long it waits.
func (d watchdogDevice) Timeout() time.Duration { return d.waits }

// Feed lets it wait for its whole time again.
func (d watchdogDevice) Feed(context.Context) error {
	_, err := d.Write([]byte{0}) // anything but the V that would stop it
	return err
}
