package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencelab/fencelab/scenarios/catalog"
	"github.com/fencelab/fencelab/scenarios/phrase"
)

// unknownCommand is the error of a command that isn't there. It names the nearest one.
func unknownCommand(root *cobra.Command, name string) error {
	var names []string
	for _, cmd := range root.Commands() {
		if !cmd.Hidden {
			names = append(names, cmd.Name())
		}
	}
	if meant := phrase.Nearest(name, names); meant != "" {
		return fmt.Errorf("unknown command %q: did you mean %q?", name, meant)
	}
	return fmt.Errorf("unknown command %q; see %s --help", name, root.CommandPath())
}

// verbOnly are the arguments of a command that only has others below it.
func verbOnly(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	return nil
}

// What the values of a flag are, by pflag's name of their type.
var flagValues = map[string]string{
	"bool":     "true or false",
	"duration": "a duration, such as 90s or 5m",
	"int":      "a whole number",
	"uint64":   "a whole number from 0 to 18446744073709551615",
}

// wrongFlag is the error of a command's flags. It names the nearest flag of one that isn't there,
// and says what a value should be.
func wrongFlag(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		f := invalid.GetFlag()
		if _, some := f.Value.(choice); some {
			return fmt.Errorf("--%s %s: %w", f.Name, invalid.GetValue(), errors.Unwrap(invalid))
		}
		if values, ok := flagValues[f.Value.Type()]; ok {
			return fmt.Errorf("--%s %q is not %s", f.Name, invalid.GetValue(), values)
		}
		return fmt.Errorf("--%s: %w", f.Name, errors.Unwrap(invalid))
	}
	var absent *pflag.NotExistError
	if !errors.As(err, &absent) {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if meant := phrase.Nearest(absent.GetSpecifiedName(), names); len(meant) > 1 {
		return fmt.Errorf("%w: did you mean --%s?", err, meant)
	}
	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}

// completeScenarios completes files, directories, and the stories of the catalogue.
func completeScenarios(_ *cobra.Command, _ []string, begun string) (found []string, how cobra.ShellCompDirective) {
	_ = fs.WalkDir(catalog.Stories, ".", func(path string, entry fs.DirEntry, err error) error { // it is in the binary
		if name := catalog.Prefix + path; err == nil && path != "." && strings.HasPrefix(name, begun) {
			found = append(found, name)
		}
		return err
	})
	return found, cobra.ShellCompDirectiveDefault
}

// completePlans completes saved plans.
func completePlans(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"txt"}, cobra.ShellCompDirectiveFilterFileExt
}

// helpCommand is the usual one, but that a topic which isn't there is an error.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(cmd.Root(), args[0])
			}
			return topic.Help()
		},
	}
}

// Catalog is the directory of the stories that come with fencelab, in its source.
const Catalog = "scenarios/catalog"

// catalogue returns where the stories are here: in the source, or else in this binary.
func catalogue() string {
	if info, err := os.Stat(Catalog); err == nil && info.IsDir() {
		return Catalog
	}
	return catalog.Prefix
}

// scenarioArgs wants at least one scenario file or directory.
func scenarioArgs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("name the scenario files or directories; %s are the stories that come with fencelab", catalogue())
	}
	return nil
}
