package cmd

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencelab/fencelab/lab"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// choice is the value of a flag that takes one of a few names.
type choice struct {
	value *string
	of    []string
	where string // said of the names
}

// choose adds a flag of that kind, of which the first name is the default. Completion knows them.
func choose(cmd *cobra.Command, value *string, name, short, usage string, c choice) {
	*value, c.value = c.of[0], value
	cmd.Flags().VarP(c, name, short, usage)
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(c.of, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

func (c choice) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}

func (c choice) Type() string { return "string" }

func (c choice) Set(text string) error {
	if !slices.Contains(c.of, text) {
		meant := ""
		if nearest := phrase.Nearest(text, c.of); nearest != "" {
			meant = fmt.Sprintf("did you mean %s? ", nearest)
		}
		return errors.New(meant + "choose " + phrase.OneOf(c.of) + c.where)
	}
	*c.value = text
	return nil
}

// wrongValue says what is wrong with a flag's value.
func wrongValue(f *pflag.Flag, value string, err error) string {
	if values, ok := flagValues[f.Value.Type()]; ok {
		return fmt.Sprintf("%q is not %s", value, values)
	}
	return err.Error()
}

// byProject marks a flag that a project has set: unlike one on the command line it may have no use.
const byProject = "project"

// given reports whether the command line has the flag.
func given(cmd *cobra.Command, flag string) bool {
	f := cmd.Flags().Lookup(flag)
	return f.Changed && f.Annotations[byProject] == nil
}

// directory returns an error if a flag's value, which should be a directory or nothing yet, is a
// file.
func directory(flag, path string) error {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return fmt.Errorf("--%s %s: it is a file, and a directory is needed", flag, path)
	}
	return nil
}

// unused is an error about the first flag on the command line of a run that would change nothing.
func (r *runner) unused(cmd *cobra.Command, loaded []*scenarios.Scenario) error {
	strategy := r.search.Strategy
	searches := fmt.Sprintf("only a search has a use for it: add --strategy %s, or another", sweeping)
	for _, row := range []struct {
		flag string
		idle bool
		why  string
	}{
		{"schedules", strategy == benign, searches},
		{"workers", strategy == benign && r.World != "sim", searches},
		{"workers", strategy == benign && len(loaded) == 1, "it is one story, and they play several at a time: leave it out, or add --strategy " + sweeping},
		{"no-shrink", strategy == benign, searches},
		{"resume", strategy == benign, searches},
		{"resume", r.World != "sim", "a sweep of the lab goes on where it was by --out: leave it out"},
		{"workers", r.World == "lab" && r.Chosen("hosts") != lab.Model, "virtual machines want the machine for themselves: leave it out, or add --hosts " + lab.Model},
		{"no-shrink", r.World == "lab", "a sweep of the lab makes one deviation at a time: leave it out"},
		{"leads", r.World == "lab", "only the simulator plays the same schedule twice: leave out --backend"},
		{"fail-on-leads", r.leads == "", "there are none to fail on: add --leads"},
		{"system", r.World != "lab", "only the lab runs programs: add --backend lab"},
		{"seed", slices.Contains([]string{benign, sweeping, "orders"}, strategy) && !slices.ContainsFunc(loaded, (*scenarios.Scenario).HasRanges),
			"these stories leave nothing to chance, and neither does --strategy " + strategy + ": leave it out, or add --strategy random"},
	} {
		if row.idle && given(cmd, row.flag) {
			return fmt.Errorf("--%s: %s", row.flag, row.why)
		}
	}
	return r.unusedParts(cmd)
}

// unusedParts is an error about a flag of the lab's surroundings where there is no lab.
func (r *runner) unusedParts(cmd *cobra.Command) error {
	for _, flag := range []string{"kubeconfig", "ironic-endpoint", "ironic-image"} {
		if r.World != "lab" && given(cmd, flag) {
			return fmt.Errorf("--%s: only the lab has a use for it: add --backend lab", flag)
		}
	}
	return nil
}
