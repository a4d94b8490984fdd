package cmd

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	ci "github.com/fencelab/fencelab/docs/ci"
	"github.com/fencelab/fencelab/scenarios/exit"
	"github.com/fencelab/fencelab/scenarios/file"
	"github.com/fencelab/fencelab/scenarios/version"
)

//go:embed scaffold
var scaffold embed.FS

// initCommand makes what a repository needs to test its controllers.
func initCommand() *cobra.Command {
	var source string
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Make a Go module with a controller, a story, a test and a CI file",
		Long: `Init makes a directory, fencelab by default, with a Go module of its own, so that
the requirements of fencelab don't come into the go.mod of the product. It has a small
fencer, a story that it passes, a test that plays every schedule which differs from the
story in one place, and a script and a workflow for CI. Nothing is overwritten.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "fencelab"
			if len(args) > 0 {
				dir = filepath.Clean(args[0])
			}
			made, err := initialise(dir, source)
			if err != nil {
				return exit.BadInput(fmt.Errorf("make %s: %w", dir, err))
			}
			out := cmd.OutOrStdout()
			for _, name := range made {
				fmt.Fprintln(out, name)
			}
			fmt.Fprintf(out, "now: (cd %s && go mod tidy && go test -short .), then fencelab run %s\n", dir, filepath.Join(dir, "stories"))
			return nil
		},
	}
	cmd.Flags().StringVar(&source, "source", "", "clone of fencelab that the module uses (default: its released version, or its latest commit)")
	return cmd
}

// notInPackages matches characters that are not allowed in the name of a package.
var notInPackages = regexp.MustCompile(`[^a-z0-9]+`)

// initialise writes the files into a directory below the working directory, and returns their
// names.
func initialise(dir, source string) (made []string, err error) {
	if !filepath.IsLocal(dir) || dir == "." {
		return nil, errors.New("name a directory below this one, which is the root of the repository")
	}
	name := strings.TrimLeft(notInPackages.ReplaceAllString(strings.ToLower(filepath.Base(dir)), ""), "0123456789")
	if name == "" {
		return nil, errors.New("no Go package can be called after it")
	}
	files := map[string]string{
		filepath.Join(dir, "go.mod"):              goMod(name, source),
		filepath.Join(dir, file.ProjectFile):      "module: .\n",
		filepath.Join(dir, "stories.sh"):          ci.Script,
		".github/workflows/fencelab-stories.yaml": workflow(filepath.ToSlash(dir)),
	}
	for to, from := range map[string]string{"fencer.go": "fencer.go.txt", "stories_test.go": "stories_test.go.txt", "stories/cut-off.yaml": "story.yaml.txt"} {
		text, err := scaffold.ReadFile("scaffold/" + from)
		if err != nil {
			return nil, err
		}
		files[filepath.Join(dir, to)] = strings.ReplaceAll(string(text), "PACKAGE", name)
	}
	made = slices.Sorted(maps.Keys(files))
	for _, path := range made {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is there already: name another directory, or remove it", path)
		}
	}
	for _, path := range made {
		mode := fs.FileMode(0o644)
		if strings.HasSuffix(path, ".sh") {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(files[path]), mode); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// released is a version that go can require.
var released = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+[^+]*$`)

// goMod is the module's file. A fencelab that was built in a clone names that version which go mod
// tidy finds; one with a clone is replaced by it.
func goMod(name, source string) string {
	text := fmt.Sprintf("module %s.example/stories\n\ngo 1.26.0\n", name)
	switch built := version.Built(); {
	case source != "":
		text += fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => %s\n", ours, ours, source)
	case released.MatchString(built):
		text += fmt.Sprintf("\nrequire %s %s\n", ours, built)
	}
	return text
}

// workflow is that of docs/ci.md for the stories in a directory, without its other job, which needs
// an image.
func workflow(dir string) string {
	text, _, _ := strings.Cut(ci.Workflow, "\n  # The controller's image")
	_, text, _ = strings.Cut(text, "\nname: ")
	return strings.NewReplacer(
		"hack/stories.sh stories", dir+"/stories.sh "+dir+"/stories",
		"go-version-file: go.mod", "go-version-file: "+dir+"/go.mod",
	).Replace("# Stories against the fencing controllers of this repository, in the simulator.\nname: " + text + "\n")
}
