package cmd

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencelab/fencelab/scenarios/file"
)

// project is that of what a verb is called with, or of the working directory: the first argument
// that is there decides.
func project(args []string) (*file.Project, error) {
	beside := "."
	for _, arg := range args {
		if _, err := os.Stat(arg); err == nil {
			beside = arg
			break
		}
	}
	return file.FindProject(beside)
}

// settle sets the flags of a verb that the command line leaves out to what the project says, and
// returns its module, unless the command line has one.
func settle(cmd *cobra.Command, args []string, module string, talk io.Writer) (string, error) {
	if cmd.Hidden || cmd == cmd.Root() {
		return module, nil
	}
	p, err := project(args)
	if p == nil || err != nil {
		return module, err
	}
	var said []string
	if module == "" && p.Module != "" {
		module = p.ModuleFrom()
		said = append(said, "--"+moduleFlag+" "+module)
	}
	for _, verb := range slices.Sorted(maps.Keys(p.Defaults)) {
		target, rest, err := cmd.Root().Find(strings.Fields(verb))
		if err != nil || len(rest) > 0 || target == cmd.Root() {
			return "", p.UnknownVerb(verb, Verbs())
		}
		for _, name := range slices.Sorted(maps.Keys(p.Defaults[verb])) {
			flag := target.Flags().Lookup(name)
			if flag == nil {
				return "", p.UnknownFlag(verb, name, flagsOf(target))
			}
			if target != cmd || flag.Changed {
				continue
			}
			values, list := p.Defaults[verb][name].([]any)
			if !list {
				values = []any{p.Defaults[verb][name]}
			}
			for _, value := range values {
				text := p.From(value)
				if err := flag.Value.Set(text); err != nil {
					return "", p.Bad(verb, name, wrongValue(flag, text, err))
				}
				flag.Changed = true
				_ = target.Flags().SetAnnotation(name, byProject, []string{p.File}) // the flag is there
				said = append(said, fmt.Sprintf("--%s %s", name, text))
			}
		}
	}
	if len(said) > 0 && os.Getenv(moduleVariable) == "" {
		fmt.Fprintf(talk, "with %s: %s\n", p.File, strings.Join(said, " "))
	}
	return module, nil
}

func flagsOf(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}
