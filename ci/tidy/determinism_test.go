package tidy

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// deterministic names the directories whose code gives the same history for the same seed. A
// controller belongs to them as a whole, since the simulator runs its Reconcile, too. Only the root
// of controllers talks to a real manager. In the bubble, other people's code has goroutines and a
// clock, which take turns with the world. The processes of a search are not deterministic, but the
// schedules that they play are. Further exceptions: the watch on whether a reconcile returns, the
// permissions of agents on a real host, and reports to people on how long a run took. The core of
// fakebmc runs in the simulator; its faces, which lie below it, don't.
func deterministic(dir string) bool {
	if under(dir, "sim/search/workers") || under(dir, "sim/bubble") || under(dir, "sim/stall") || under(dir, "scenarios/report") || under(dir, "scenarios/campaign/pool") || under(dir, "sim/corpus") {
		return false
	}
	return under(dir, "sim") || under(dir, "scenarios") || strings.HasPrefix(dir, "controllers/") || dir == "fakebmc" || dir == "fakebmc/memory"
}

const (
	whyTime = "time comes from the world: take a clock or an event's time"
	whyRand = "chance comes from a named random stream of the plan's seed"
	whyGo   = "the scheduler's choices can't be replayed: make it a step of the world, or iter.Pull"
	whyMap  = "the order of a map differs from run to run: range over slices.Sorted(maps.Keys(m)), or say why it is harmless" +
		" beside or above it: // " + harmless + " reason"
)

const harmless = "order does not matter:"

// banned functions, by package and name. "*" stands for every function that the list doesn't
// exclude with "-".
var banned = map[string]struct {
	names []string
	why   string
}{
	"time":                                 {[]string{"Now", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Since", "Until"}, whyTime},
	"k8s.io/apimachinery/pkg/apis/meta/v1": {[]string{"Now", "NowMicro"}, whyTime},
	"math/rand":                            {[]string{"*", "-New", "-NewSource", "-NewZipf"}, whyRand},
	"math/rand/v2":                         {[]string{"*", "-New", "-NewPCG", "-NewChaCha8", "-NewZipf"}, whyRand},
	"crypto/rand":                          {[]string{"*"}, whyRand},
	"k8s.io/apimachinery/pkg/util/uuid":    {[]string{"*"}, whyRand},
	"k8s.io/apimachinery/pkg/util/rand":    {[]string{"*"}, whyRand},
	"github.com/google/uuid":               {[]string{"*"}, whyRand},
}

// started are methods that begin a goroutine.
var started = []string{"(*sync.WaitGroup).Go", "(*golang.org/x/sync/errgroup.Group).Go", "(*golang.org/x/sync/errgroup.Group).TryGo"}

// inMapOrder give what is in a map in its order.
var inMapOrder = []string{"maps.Keys", "maps.Values", "maps.All", "(reflect.Value).MapRange", "(reflect.Value).MapKeys"}

// sorters make an ordered sequence of one in map order.
var sorters = []string{"slices.Sorted", "slices.SortedFunc", "slices.SortedStableFunc"}

// determinism lists banned calls, goroutines and loops in map order.
func determinism(t *tree) ([]string, error) {
	checked, problems, err := typeCheck(t, deterministic)
	if err != nil {
		return nil, err
	}
	for _, s := range checked {
		if ast.IsGenerated(s.file) {
			continue // deep copies range over maps into maps
		}
		report := func(pos token.Pos, format string, args ...any) {
			problems = append(problems, fmt.Sprintf("%s:%d: %s", s.path, t.fset.Position(pos).Line, fmt.Sprintf(format, args...)))
		}
		excused := excusedLines(t.fset, s.file)
		sorted := map[*ast.CallExpr]bool{}
		ast.Inspect(s.file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.GoStmt:
				report(n.Pos(), "go statement: %s", whyGo)
			case *ast.RangeStmt:
				if isMap(s.info.TypeOf(n.X)) && !excused[t.fset.Position(n.Pos()).Line] {
					report(n.Pos(), "range over a map: %s", whyMap)
				}
			case *ast.CallExpr:
				function := calledName(s.info, n)
				if slices.Contains(sorters, function) {
					if inner, ok := ast.Unparen(n.Args[0]).(*ast.CallExpr); ok {
						sorted[inner] = true
					}
				}
				if slices.Contains(inMapOrder, function) && !sorted[n] && !excused[t.fset.Position(n.Pos()).Line] {
					report(n.Pos(), "%s unsorted: %s", function, whyMap)
				}
			case *ast.Ident:
				if name, why := bannedUse(s.info.Uses[n]); name != "" {
					report(n.Pos(), "%s: %s", name, why)
				}
			}
			return true
		})
	}
	return problems, nil
}

// bannedUse judges functions, and of methods those that begin a goroutine: methods of a random
// stream or of a clock are fine.
func bannedUse(object types.Object) (name, why string) {
	function, ok := object.(*types.Func)
	switch {
	case !ok || function.Pkg() == nil:
		return "", ""
	case slices.Contains(started, function.FullName()):
		return function.FullName(), whyGo
	case function.Signature().Recv() != nil:
		return "", ""
	}
	ban, ok := banned[function.Pkg().Path()]
	if !ok || slices.Contains(ban.names, "-"+function.Name()) || !slices.Contains(ban.names, function.Name()) && !slices.Contains(ban.names, "*") {
		return "", ""
	}
	return function.FullName(), ban.why
}

func isMap(t types.Type) bool {
	if t == nil { // in a package that doesn't compile
		return false
	}
	_, ok := t.Underlying().(*types.Map)
	return ok
}

func calledName(info *types.Info, call *ast.CallExpr) string {
	callee := ast.Unparen(call.Fun)
	if index, ok := callee.(*ast.IndexExpr); ok {
		callee = index.X
	}
	selector, ok := callee.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if function, ok := info.Uses[selector.Sel].(*types.Func); ok {
		return function.FullName()
	}
	return ""
}

// excusedLines returns the lines with, or right below, a comment that gives the reason why a map's
// order is harmless.
func excusedLines(fset *token.FileSet, file *ast.File) map[int]bool {
	lines := map[int]bool{}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if reason, ok := strings.CutPrefix(comment.Text, "// "+harmless); ok && strings.TrimSpace(reason) != "" {
				lines[fset.Position(comment.Pos()).Line] = true
				lines[fset.Position(group.End()).Line+1] = true // the reason may go on for some lines
			}
		}
	}
	return lines
}

// typed is a source file with the types of its expressions.
type typed struct {
	source
	info *types.Info
}

// typeCheck checks the packages in the chosen directories, without their tests. What they import is
// read as the compiler's export data, from the build cache. A package that doesn't compile is a
// problem, and checked as far as it goes.
func typeCheck(t *tree, chosen func(dir string) bool) (checked []typed, problems []string, err error) {
	packages, dependencies := map[string][]source{}, map[string]bool{}
	for dir, sources := range t.packages() {
		if !chosen(dir) {
			continue
		}
		for _, s := range sources {
			match, err := build.Default.MatchFile(filepath.Join(t.root, dir), filepath.Base(s.path))
			if err != nil {
				return nil, nil, err
			}
			if !match || s.isTest() {
				continue
			}
			packages[dir] = append(packages[dir], s)
			for _, spec := range s.file.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return nil, nil, err
				}
				dependencies[imported] = true
			}
		}
	}
	exports, err := exportData(slices.Sorted(maps.Keys(dependencies)))
	if err != nil {
		return nil, nil, err
	}
	imported := importer.ForCompiler(t.fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(exports[path])
	})
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
		var files []*ast.File
		for _, s := range packages[dir] {
			files = append(files, s.file)
			checked = append(checked, typed{s, info})
		}
		goesOn := func(error) {}
		if _, err := (&types.Config{Importer: imported, Error: goesOn}).Check(module+"/"+dir, t.fset, files, info); err != nil {
			problems = append(problems, fmt.Sprintf("%s doesn't compile, so not all of it was checked: %v", dir, err))
		}
	}
	return checked, problems, nil
}

// exportData returns the files with the export data of packages and of all that they import.
func exportData(packages []string) (map[string]string, error) {
	if len(packages) == 0 {
		return nil, errors.New("no package is deterministic")
	}
	list := exec.Command("go", append([]string{"list", "-e", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}"}, packages...)...)
	var stderr bytes.Buffer
	list.Stderr = &stderr
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w: %s", list, err, stderr.Bytes())
	}
	files := map[string]string{}
	for line := range strings.Lines(string(output)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		files[name] = file
	}
	return files, nil
}
