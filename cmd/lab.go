package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelab/fencelab/lab"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/lab/cluster/kind"
	"github.com/fencelab/fencelab/lab/kept"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/phrase"
	"github.com/fencelab/fencelab/vms"
	"github.com/fencelab/fencelab/vms/keeper"
)

// labCommand is fencelab lab. program is the name by which the user called fencelab.
func labCommand(program string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Keep a lab to work in",
		Long: `Lab creates the topology of a scenario without its story, and keeps it for work by
hand: hosts, BMCs, an API server and, unless left out, controllers. It lives in its
own process until lab down removes it. Several labs, of one user or of several, do
not interfere.`,
		Args: verbOnly,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(upCommand(program), statusCommand(program), downCommand(program), keepCommand())
	return cmd
}

func upCommand(program string) *cobra.Command {
	job, parts := kept.Job{Parts: make(map[string]string)}, make(map[string]*string)
	var set map[string]string
	var seed uint64
	var ironicImage string
	cmd := &cobra.Command{
		Use:   "up SCENARIO",
		Short: "Create the lab of a scenario, and keep it",
		Long: `Up creates the hosts, the API objects and the controllers of a scenario, without its
story, and returns when they are up: the Nodes are Ready, and the workload runs.
It prints how to reach them with kubectl, virsh and curl. If interrupted, it removes
what it has created. With --controllers none only the stand-ins for Kubernetes' own
controllers act, and you run yours beside them.`,
		Example: `  fencelab lab up scenarios/catalog/reboot-annotation/plain-power-cycle.yaml
  fencelab lab up --hosts model --controllers none scenarios/catalog/machine-remediation/cut-off-host.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			plan, err := chosen(args[0], Vocabulary(), set, seed)
			if err != nil {
				return exit.BadInput(err)
			}
			job.Plan = plan.Text()
			for flag, value := range parts {
				job.Parts[flag] = *value
			}
			if job.IronicImage, err = file.ImageHere(ironicImage); err != nil {
				return exit.BadInput(err)
			}
			status, err := kept.Up(cmd.Context(), job, saying(cmd.ErrOrStderr()), "lab", "keep")
			var failure *kept.Failure
			switch {
			case errors.As(err, &failure):
				return exit.Coded(failure.Code, err)
			case cmd.Context().Err() != nil:
				return exit.Coded(exit.Unknown, errors.New("interrupted: the lab has been removed"))
			case err != nil:
				return exit.Coded(exit.Internal, err)
			}
			describeLab(cmd.OutOrStdout(), status, program)
			return nil
		},
	}
	flags := cmd.Flags()
	for _, part := range lab.Parts {
		of := part.Of
		if part.Flag == kept.RunsControllers {
			of = append(slices.Clone(of), kept.Bare)
		}
		parts[part.Flag] = new(string)
		choose(cmd, parts[part.Flag], part.Flag, "", fmt.Sprintf(part.Help, phrase.OneOf(of)), choice{of: of})
	}
	flags.StringVar(&job.Kubeconfig, "kubeconfig", "", lab.KubeconfigUsage)
	flags.StringVar(&job.IronicEndpoint, "ironic-endpoint", "", lab.IronicUsage)
	flags.StringVar(&ironicImage, "ironic-image", "", lab.IronicImageUsage)
	flags.StringToStringVar(&set, "set", nil, "parameter of the scenario, as NAME=VALUE; may be repeated")
	flags.Uint64Var(&seed, "seed", 1, "seed for the scenario's choices")
	return cmd
}

// chosen is the plan of the one scenario of a file.
func chosen(path string, vocabulary file.Vocabulary, set map[string]string, seed uint64) (*scenarios.Plan, error) {
	loaded, err := file.LoadFiles([]string{path}, vocabulary, set)
	if err != nil {
		return nil, err
	}
	if len(loaded) != 1 {
		return nil, fmt.Errorf("%s has %d scenarios, but a lab is made from one: name one file, and choose a cell of its matrix with --set", path, len(loaded))
	}
	return scenarios.Compile(loaded[0], seed)
}

// saying prints what a lab does.
func saying(w io.Writer) func(string) {
	return func(text string) { fmt.Fprintf(w, "lab: %s\n", text) }
}

func statusCommand(program string) *cobra.Command {
	return &cobra.Command{
		Use:   "status [NAME...]",
		Short: "Show the labs and their state",
		Long: `Status shows the state of each lab, what is in it, and how to reach it. It exits with
4 if a lab is not as it should be; what happens to the hosts is not the lab's fault.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			labs, err := named(args)
			if err != nil {
				return exit.BadInput(err)
			}
			if len(labs) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "no lab is up")
			}
			if left, err := keeper.Left(); err == nil && len(left) > 0 && len(args) == 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "killed runs have left something behind (%s): fencelab lab down removes it\n", strings.Join(left, ", "))
			}
			good := true
			for _, l := range labs {
				good = tell(cmd.Context(), cmd.OutOrStdout(), l, program) && good
			}
			if !good {
				return exit.Ended(exit.Environment)
			}
			return nil
		},
	}
}

// tell prints the state of the lab, and reports whether the lab is well.
func tell(ctx context.Context, w io.Writer, l kept.Lab, program string) bool {
	status, err := l.Status(ctx)
	switch {
	case errors.Is(err, kept.ErrEnded):
		fmt.Fprintf(w, "lab %s is dead: %v; run: %s lab down %s\n", l.Name, err, program, l.Name)
		return false
	case err != nil:
		fmt.Fprintf(w, "lab %s is stuck: %v; run: %s lab down %s\n", l.Name, err, program, l.Name)
		return false
	}
	return describeLab(w, status, program)
}

// sweepKilled removes what runs have left whose keepers were killed, too.
func sweepKilled(cmd *cobra.Command) error {
	left, err := keeper.Left()
	errs := []error{err}
	for _, name := range left {
		if err := errors.Join(keeper.Sweep(name, vms.Marks), kind.Sweep(cmd.Context(), name)); err != nil {
			errs = append(errs, fmt.Errorf("remove what the killed run %s has left: %w", name, err))
			continue
		}
		fmt.Fprintf(cmd.OutOrStdout(), "what the killed run %s has left is gone\n", name)
	}
	return errors.Join(errs...)
}

func downCommand(program string) *cobra.Command {
	all, kubeconfig := false, ""
	cmd := &cobra.Command{
		Use:   "down [NAME...]",
		Short: "Remove a lab",
		Long: `Down removes the lab, if there is only one, or those that are named, and everything
created for them, even if the process that kept them was killed. Without a name it also
removes what runs have left that were killed together with their keepers, as by pkill -9
fencelab. It touches nothing else. With --kubeconfig it removes what a lab whose process was killed has left in
your own cluster.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if kubeconfig != "" {
				return leaveCluster(cmd, kubeconfig, args)
			}
			labs, err := named(args)
			if err != nil {
				return exit.BadInput(err)
			}
			if len(labs) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "no lab is up")
			}
			if len(labs) > 1 && len(args) == 0 && !all {
				return exit.BadInput(fmt.Errorf("there are %d labs: name those to remove (%s), or use --all", len(labs), phrase.OneOf(names(labs))))
			}
			var errs []error
			for _, l := range labs {
				if err := l.Down(cmd.Context(), saying(cmd.ErrOrStderr())); err != nil {
					errs = append(errs, err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "lab %s is gone\n", l.Name)
			}
			if len(args) == 0 {
				errs = append(errs, sweepKilled(cmd))
			}
			return exit.Coded(exit.Internal, errors.Join(errs...))
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "remove what the labs of these names have left in the cluster of this file")
	cmd.Flags().BoolVar(&all, "all", false, "remove all labs of this user")
	return cmd
}

// leaveCluster removes the leftovers of killed labs from a foreign cluster.
func leaveCluster(cmd *cobra.Command, kubeconfig string, names []string) error {
	labs, err := kept.Find()
	if err != nil {
		return exit.Coded(exit.Internal, err)
	}
	if len(names) == 0 {
		return exit.BadInput(fmt.Errorf("name the labs whose leftovers are in the cluster of %s: they have the label %s=NAME", kubeconfig, cluster.Label))
	}
	for _, name := range names {
		if !keeper.IsName(name) || slices.ContainsFunc(labs, func(l kept.Lab) bool { return l.Name == name }) {
			return exit.BadInput(fmt.Errorf("%q is up, or not the name of a lab: run lab down %[1]s without --kubeconfig first", name))
		}
		if err := cluster.Release(cmd.Context(), kubeconfig, name); err != nil {
			return exit.Coded(exit.Environment, err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "nothing of lab %s is left in the cluster\n", name)
	}
	return nil
}

func keepCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "keep",
		Short:  "Be the process of a lab",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exit.Coded(exit.Internal, kept.Keep(cmd.Context(), os.Stdin, os.Stdout, Vocabulary()))
		},
	}
}

// named are the labs of these names, or all.
func named(args []string) ([]kept.Lab, error) {
	labs, err := kept.Find()
	if err != nil || len(args) == 0 {
		return labs, err
	}
	var found []kept.Lab
	for _, name := range args {
		i := slices.IndexFunc(labs, func(l kept.Lab) bool { return l.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no lab %q: lab status lists those that are up", name)
		}
		found = append(found, labs[i])
	}
	return found, nil
}

func names(labs []kept.Lab) (names []string) {
	for _, l := range labs {
		names = append(names, l.Name)
	}
	return names
}

// describeLab prints how a lab is, and reports whether it is as it should be.
func describeLab(w io.Writer, s *kept.Status, program string) bool {
	age := time.Since(s.Since).Round(time.Second)
	if s.State == nil {
		fmt.Fprintf(w, "lab %s of %s, %s old, is not up: %s\n", s.Name, s.Scenario, age, s.Doing)
		return false
	}
	problems := s.Problems()
	how := "is up"
	switch {
	case len(problems) > 0:
		how = "has problems"
	case s.Doing != "":
		how = "is not up yet: " + s.Doing
	}
	fmt.Fprintf(w, "lab %s of %s, %s old, %s\n", s.Name, s.Scenario, age, how)
	for _, problem := range problems {
		fmt.Fprintf(w, "  PROBLEM  %s\n", strings.ReplaceAll(problem, "\n", "\n           "))
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(subject, format string, args ...any) {
		fmt.Fprintf(table, "  %s\t%s\n", subject, fmt.Sprintf(format, args...))
	}
	row("made of", "%s", s.Made)
	row("API server", "export KUBECONFIG=%s", s.Kubeconfig())
	if s.Hypervisor != "" {
		row("hypervisor", "virsh -c '%s'", s.Hypervisor)
	}
	for _, h := range s.Hosts {
		row(h.Name, "power %s, Node %s", h.Power, h.Node)
		row("  BMC", "curl -u %s:$(cat %s) %s", s.BMCUser, s.Password(), h.BMC)
		if s.Hypervisor != "" {
			row("  domain", "%s", h.Domain)
		}
	}
	for _, c := range s.Controllers {
		row("controller", "%s: %s", c.Name, c.State)
	}
	row("events", "tail -f %s", s.Events())
	row("logs", "%s", s.Logs)
	row("to remove it", "%s lab down %s", program, s.Name)
	_ = table.Flush() // it fails only if w does, as all of the above
	return len(problems) == 0 && s.Doing == ""
}
