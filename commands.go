package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/fencelab/fencelab/ci/cluster"
	"github.com/fencelab/fencelab/ci/lab"
	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/manifests"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/invariant"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/scenarios/report"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/vms"
)

// vocabulary is what the scenario files of this program may speak of.
func vocabulary() scenarios.Vocabulary {
	vocabulary := objects.Vocabulary()
	vocabulary.Worlds = worlds
	return vocabulary
}

// worlds are those that scenarios run in.
var worlds = []scenarios.Capabilities{sim.Capabilities, lab.Capabilities}

// catalog is where list looks when it is told nothing.
const catalog = "scenarios/catalog"

func listCommand() *cobra.Command {
	var invariants, registered bool
	cmd := &cobra.Command{
		Use:   "list [FILE|DIR...]",
		Short: "List scenarios, invariants or controllers",
		Long:  "List shows the scenarios in the given files and directories, or those in " + catalog + ".",
		RunE: func(cmd *cobra.Command, args []string) error {
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			switch {
			case invariants:
				for _, inv := range invariant.All() {
					kind := "safety"
					if inv.Liveness {
						kind = "liveness"
					}
					fmt.Fprintf(table, "%s\t%s\tseed %s\t%s\n", inv.ID, kind, inv.Seed, inv.Claim)
				}
			case registered:
				for _, r := range controllers.All() {
					note := ""
					if r.StandIn {
						note = "(stand-in, runs by itself)"
					}
					fmt.Fprintf(table, "%s\t%s\tfacts: %s\tactions: %s\n", r.Name, note, orNone(r.Facts), orNone(r.Actions))
				}
			default:
				if len(args) == 0 {
					args = []string{catalog}
				}
				loaded, err := scenarios.LoadFiles(args, vocabulary())
				if err != nil {
					return invalid(err)
				}
				for _, s := range loaded {
					fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", s.Metadata.Name, strings.Join(s.Metadata.Seeds, " "),
						cmp.Or(strings.Join(s.Spec.Worlds, " "), "sim lab"), expectation(s))
				}
			}
			return table.Flush()
		},
	}
	cmd.Flags().BoolVar(&invariants, "invariants", false, "list the guarantees that can be judged")
	cmd.Flags().BoolVar(&registered, "controllers", false, "list the controllers, and the facts and actions of their overlays")
	cmd.MarkFlagsMutuallyExclusive("invariants", "controllers")
	return cmd
}

// scenarioArgs wants at least one scenario file or directory.
func scenarioArgs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("name the scenario files or directories, such as %s", catalog)
	}
	return nil
}

func orNone(names []string) string { return cmp.Or(strings.Join(names, " "), "none") }

func expectation(s *scenarios.Scenario) string {
	if v := s.Spec.Expect.Violated; v != "" {
		return "violated: " + v
	}
	return "held"
}

func lintCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lint FILE|DIR...",
		Short: "Check scenario files without running them",
		Args:  scenarioArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			loaded, err := scenarios.LoadFiles(args, vocabulary())
			if err != nil {
				return invalid(err)
			}
			warnings := 0
			err = scenarios.EachFile(args, func(file string, data []byte) error {
				problems, err := scenarios.Lint(file, data, vocabulary())
				for _, p := range problems {
					fmt.Fprintf(cmd.OutOrStdout(), "warning: %s\n", p)
					warnings++
				}
				return err
			})
			if err != nil {
				return invalid(err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s valid, %s\n", report.Count(len(loaded), "scenario"), report.Count(warnings, "warning"))
			return nil
		},
	}
}

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of scenario files",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			schema, err := scenarios.Schema(vocabulary())
			if err != nil {
				return &exit{exitInternal, err}
			}
			_, err = cmd.OutOrStdout().Write(schema)
			return err
		},
	}
}

func doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say which worlds can run here, and why not",
		Long:  "Doctor exits with 0 when every world can run here, and with 4 when one cannot.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			line := func(good bool, subject, detail string) {
				mark := "ok     "
				if !good {
					mark = "MISSING"
				}
				fmt.Fprintf(out, "  %s  %-22s %s\n", mark, subject, strings.ReplaceAll(detail, "\n", "\n"+strings.Repeat(" ", 34)))
			}
			fmt.Fprintf(out, "sim\n")
			if _, err := sim.New(); err != nil {
				return &exit{exitInternal, err}
			}
			line(true, "simulator", fmt.Sprintf("%d cores", runtime.NumCPU()))
			fmt.Fprintf(out, "lab\n")
			for _, f := range cluster.Preflight(cmd.Context(), "") {
				line(f.Remedy == "", f.Name, strings.TrimSuffix(f.State+"; "+f.Remedy, "; "))
			}
			for _, f := range vms.Preflight(cmd.Context(), lab.DefaultAssets()) {
				line(f.OK || !f.Needed, f.Subject, f.Detail)
			}
			if err := lab.Check(cmd.Context(), lab.Options{}); err != nil {
				fmt.Fprintln(out, "\nThe simulator can run here; the lab cannot. Run: make lab")
				return &exit{code: exitEnvironment}
			}
			fmt.Fprintln(out, "\nEvery world can run here.")
			return nil
		},
	}
}

func controllersCommand() *cobra.Command {
	var options controllers.Options
	var kubeconfig string
	var printManifests bool
	cmd := &cobra.Command{
		Use:   "controllers",
		Short: "Run fencelab's controllers against a cluster",
		Long: `Controllers runs fencelab's own fencing controllers against the cluster of a
kubeconfig, with leader election, health probes and metrics, as one would run any
other controller. Install the CRDs, roles and policies first:

  fencelab controllers --print-manifests | kubectl create -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if printManifests {
				return writeManifests(cmd.OutOrStdout())
			}
			for _, name := range options.Controllers {
				if _, err := controllers.Lookup(name); err != nil {
					return invalid(err)
				}
			}
			rules := clientcmd.NewDefaultClientConfigLoadingRules()
			rules.ExplicitPath = kubeconfig
			config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
			if err != nil {
				return invalid(fmt.Errorf("read the kubeconfig: %w; name one with --kubeconfig", err))
			}
			options.Config, options.Logger = config, zap.New(zap.WriteTo(cmd.ErrOrStderr()))
			if err := controllers.Run(cmd.Context(), options); err != nil {
				return &exit{exitInternal, err}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", "", "the cluster (default: KUBECONFIG, ~/.kube/config, or the cluster that this runs in)")
	flags.StringSliceVar(&options.Controllers, "controllers", nil, "which controllers to run (default: all but the stand-ins)")
	flags.StringVar(&options.LeaderElectionNamespace, "leader-election-namespace", "fencelab-system", "where the Lease is; the manifests let the controllers write it there")
	flags.StringVar(&options.LeaderElectionID, "leader-election-id", controllers.DefaultLeaderElectionID, "name of the Lease")
	flags.StringVar(&options.HealthAddress, "health-probe-bind-address", controllers.DefaultHealthAddress, "address of /healthz and /readyz, 0 for none")
	flags.StringVar(&options.MetricsAddress, "metrics-bind-address", controllers.DefaultMetricsAddress, "address of /metrics, 0 for none")
	flags.BoolVar(&printManifests, "print-manifests", false, "print what the controllers need in a cluster, and exit")
	return cmd
}

// writeManifests writes every manifest as one stream of documents, the CRDs
// first.
func writeManifests(w io.Writer) error {
	return fs.WalkDir(manifests.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := manifests.FS.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "---\n%s", bytes.TrimPrefix(data, []byte("---\n")))
		return err
	})
}
