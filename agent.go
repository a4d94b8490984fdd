package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/yaml"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/manifests"
	"github.com/fencelab/fencelab/controllers/onhost"
	"github.com/fencelab/fencelab/scenarios/report"
)

func agentCommand() *cobra.Command {
	var o onhost.Options
	var name, settings, kubeconfig string
	var printManifests bool
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run an agent on this host",
		Long: `Agent runs a program that belongs on every host, by default the poison pill of
seed 004, until it is told to stop. It feeds the host's watchdog, answers its
peers over HTTPS with mutual TLS, and reads and writes the API server. Install the
CRDs and roles first, and then a DaemonSet of agents:

  fencelab controllers --print-manifests | kubectl create -f -
  fencelab agent --print-manifests | kubectl create -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if printManifests {
				_, err := cmd.OutOrStdout().Write(manifests.Agent)
				return err
			}
			if o.Node == "" {
				return invalid(fmt.Errorf("whose agent? name the Node of this host with --node"))
			}
			own, err := readSettings(settings)
			if err != nil {
				return invalid(err)
			}
			if o.Agent, err = controllers.Select(name, own, nil); err != nil {
				return invalid(err)
			}
			if o.Agent.Place != controllers.EveryHost {
				return invalid(fmt.Errorf("the controller %s runs in the cluster: fencelab controllers runs it", name))
			}
			rules := clientcmd.NewDefaultClientConfigLoadingRules()
			rules.ExplicitPath = kubeconfig
			if o.Config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig(); err != nil {
				return invalid(fmt.Errorf("read the kubeconfig: %w; name one with --kubeconfig", err))
			}
			o.Logger = zap.New(zap.WriteTo(cmd.ErrOrStderr()))
			return exit(report.ExitInternal, onhost.Run(cmd.Context(), o))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "agent", "poisonpill", "which agent to run")
	flags.StringVar(&settings, "settings", "", "YAML `file` with its settings")
	flags.StringVar(&o.Node, "node", os.Getenv("NODE_NAME"), "name of this host's Node (default: NODE_NAME)")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "the cluster (default: KUBECONFIG, ~/.kube/config, or the cluster that this runs in)")
	flags.StringVar(&o.Listen, "listen", ":7443", "address at which peers ask")
	flags.StringVar(&o.PeerPort, "peer-port", "7443", "port at which peers listen")
	flags.StringVar(&o.Certificate, "certificate", "/etc/fencelab/tls.crt", "PEM `file` with the certificate of this host, for the name of its Node")
	flags.StringVar(&o.Key, "key", "/etc/fencelab/tls.key", "PEM `file` with its key")
	flags.StringVar(&o.Authority, "authority", "/etc/fencelab/ca.crt", "PEM `file` with the authority that has made the certificates of all peers")
	flags.StringVar(&o.Watchdog, "watchdog", "/dev/watchdog", "watchdog device, or nothing to reboot by software")
	flags.DurationVar(&o.WatchdogTimeout, "watchdog-timeout", 30*time.Second, "how long the watchdog waits, 0 to leave that as it is")
	flags.StringVar(&o.State, "state", "/run/fencelab", "`directory` that the next boot finds empty")
	flags.BoolVar(&printManifests, "print-manifests", false, "print a DaemonSet of agents, and exit")
	return cmd
}

// readSettings reads an agent's settings, nil if there is no file.
func readSettings(path string) (json.RawMessage, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err == nil {
		data, err = yaml.YAMLToJSONStrict(data)
	}
	if err != nil {
		return nil, fmt.Errorf("read the settings %s: %w", path, err)
	}
	return data, nil
}
