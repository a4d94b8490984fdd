// Package tidy holds tests only: the rules that keep the tree what docs and design say it is. Each
// rule prints its reason, and each is shown to bite: testdata/<rule> is a small tree that breaks
// it, problems.txt there what the rule says to it.
package tidy

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/fencelab/fencelab"

var update = flag.Bool("update", false, "rewrite the golden files")

var rules = []struct {
	name  string
	check func(*tree) ([]string, error)
}{
	{"imports", imports},
	{"links", links},
	{"determinism", determinism},
	{"packagecomments", packageComments},
	{"style", style},
	{"prose", habitual},
	{"registryhosts", registryHosts},
	{"recipes", recipes},
	{"scenarios", scenarios},
}

func TestTree(t *testing.T) {
	root, err := readTree("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(root.sources) < 20 {
		t.Fatalf("only %d Go files: this isn't the root of the project", len(root.sources))
	}
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			problems, err := rule.check(root)
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range problems {
				t.Error(problem)
			}
		})
	}
}

func TestRulesBite(t *testing.T) {
	t.Setenv("GOPROXY", "https://packages.example.org") // the registry that registryhosts finds configured
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			dir := filepath.Join("testdata", rule.name)
			broken, err := readTree(dir)
			if err != nil {
				t.Fatal(err)
			}
			problems, err := rule.check(broken)
			if err != nil {
				t.Fatal(err)
			}
			if len(problems) == 0 {
				t.Fatalf("the rule finds nothing in %s", dir)
			}
			got, golden := strings.Join(problems, "\n")+"\n", filepath.Join(dir, "problems.txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the rule says\n%s\nbut %s (rewritten by -update) has\n%s", got, golden, want)
			}
		})
	}
}

// tree is the project, or a fixture that is laid out like it. Paths are slash-separated and
// relative to its root.
type tree struct {
	root    string
	files   []string // all but git's own, caches and outputs, sorted
	sources []source // the Go files of the main module among them, but for fixtures of tests
	fset    *token.FileSet
}

type source struct {
	path string
	file *ast.File
}

func (s source) dir() string  { return path.Dir(s.path) }
func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

func readTree(root string) (*tree, error) {
	t := &tree{root: root, fset: token.NewFileSet()}
	var otherModules []string
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		switch {
		case entry.IsDir() && (relative == "bin" || slices.Contains([]string{".git", ".cache", "out"}, path.Base(relative))):
			return filepath.SkipDir
		case entry.Type().IsRegular():
			t.files = append(t.files, relative)
			if path.Base(relative) == "go.mod" && path.Dir(relative) != "." {
				otherModules = append(otherModules, path.Dir(relative)+"/")
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, name := range t.files {
		other := slices.ContainsFunc(otherModules, func(dir string) bool { return strings.HasPrefix(name, dir) })
		if other || path.Ext(name) != ".go" || slices.Contains(strings.Split(name, "/"), "testdata") {
			continue
		}
		file, err := parser.ParseFile(t.fset, filepath.Join(root, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		t.sources = append(t.sources, source{name, file})
	}
	return t, nil
}

// packages groups the sources by directory.
func (t *tree) packages() map[string][]source {
	packages := map[string][]source{}
	for _, s := range t.sources {
		packages[s.dir()] = append(packages[s.dir()], s)
	}
	return packages
}

// under reports whether dir is parent or lies in it.
func under(dir, parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }
