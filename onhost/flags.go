package onhost

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/yaml"

	"github.com/fencelab/fencelab/controllers"
)

// Flags returns the flags of a command that runs an agent. Complete the options after parsing
// them.
func (o *Options) Flags() *flag.FlagSet {
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	flags.StringVar(&o.agent, "agent", "poisonpill", "which agent to run")
	flags.StringVar(&o.settings, "settings", "", "YAML `file` with its settings")
	flags.StringVar(&o.Host.Node, "node", os.Getenv("NODE_NAME"), "name of this host's Node (default: NODE_NAME)")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "the cluster (default: KUBECONFIG, ~/.kube/config, or the cluster that this runs in)")
	flags.StringVar(&o.Listen, "listen", ":7443", "address at which peers send their questions")
	flags.StringVar(&o.PeerPort, "peer-port", "7443", "port at which peers listen")
	flags.StringVar(&o.Certificate, "certificate", "/etc/fencelab/tls.crt", "PEM `file` with the certificate of this host, for the name of its Node")
	flags.StringVar(&o.Key, "key", "/etc/fencelab/tls.key", "PEM `file` with its key")
	flags.StringVar(&o.Authority, "authority", "/etc/fencelab/ca.crt", "PEM `file` with the authority that issued the certificates of all peers")
	flags.StringVar(&o.Watchdog, "watchdog", "/dev/watchdog", "watchdog device; empty to reboot by software")
	flags.DurationVar(&o.WatchdogTimeout, "watchdog-timeout", 30*time.Second, "how long the watchdog waits; 0 leaves that unchanged")
	flags.StringVar(&o.State, "state", "/run/fencelab", "`directory` that the next boot finds empty")
	return flags
}

// Complete reads what the flags name, and logs to a writer.
func (o *Options) Complete(log io.Writer) (err error) {
	if o.Host.Node == "" {
		return errors.New("whose agent? name the Node of this host with --node")
	}
	o.Host.Name = o.Host.Node
	var settings json.RawMessage
	if o.settings != "" {
		data, err := os.ReadFile(o.settings)
		if err == nil {
			settings, err = yaml.YAMLToJSONStrict(data)
		}
		if err != nil {
			return fmt.Errorf("read the settings %s: %w", o.settings, err)
		}
	}
	if o.Agent, err = controllers.Select(o.agent, settings, nil); err != nil {
		return err
	}
	if o.Agent.Place != controllers.EveryHost {
		return fmt.Errorf("the controller %s runs in the cluster: fencelab controllers runs it", o.agent)
	}
	if o.Config, err = controllers.Kubeconfig(o.kubeconfig); err != nil {
		return err
	}
	o.Logger = zap.New(zap.WriteTo(log))
	return nil
}
