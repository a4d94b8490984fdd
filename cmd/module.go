package cmd

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/fencelab/fencelab/scenarios/exit"
)

const (
	moduleFlag  = "module"
	moduleUsage = "run this command with the controllers of the Go package in `DIR`, or DIR:NAME: its Module, or what NAME is there"
	// moduleName is the default name by which a package exports its controllers.
	moduleName = "Module"
	// commandDir is the directory of the program in the module of the controllers.
	commandDir = "fencelab_command"
	// moduleVariable passes the value of --module to the program that was built for it.
	moduleVariable = "FENCELAB_MODULE"
	ours           = "github.com/fencelab/fencelab"
)

// withModule becomes this command with the controllers of a Go package: it builds that program,
// which Go's own cache makes cheap when nothing has changed, and goes on as it. It returns only if
// it can't. The error has an exit code.
func withModule(ctx context.Context, module string, args []string, talk io.Writer) error {
	dir, name, _ := strings.Cut(module, ":")
	program, err := buildModule(ctx, dir, name, talk)
	if err != nil {
		return exit.BadInput(err)
	}
	env := append(os.Environ(), moduleVariable+"="+module)
	return exit.Coded(exit.Internal, fmt.Errorf("start %s: %w", program, syscall.Exec(program, slices.Concat([]string{os.Args[0]}, args), env)))
}

// called is this program as the user called it, with its module.
func called() []string {
	if module := os.Getenv(moduleVariable); module != "" {
		return []string{os.Args[0], "--" + moduleFlag, module}
	}
	return os.Args[:1]
}

// moduleExpression returns the Go expression for the module in its own package, or nothing if
// there is none.
func moduleExpression() string {
	module := os.Getenv(moduleVariable)
	if module == "" {
		return ""
	}
	_, name, _ := strings.Cut(module, ":")
	return cmp.Or(name, moduleName)
}

// relative is a directory as go test wants it named.
func relative(dir string) string {
	if filepath.IsAbs(dir) || dir == "." || strings.HasPrefix(dir, "..") {
		return dir
	}
	return "./" + dir
}

// userPackage holds go list's description of a package and its module.
type userPackage struct {
	Dir, ImportPath, Name string
	Module                struct{ Path, Dir, GoMod string }
}

// buildModule builds the command with the controllers of a package, without touching a file of its
// module, and returns the program.
func buildModule(ctx context.Context, dir, name string, talk io.Writer) (program string, err error) {
	if name == "" {
		name = moduleName
	}
	pkg, err := listPackage(ctx, dir)
	if err != nil {
		return "", err
	}
	place, err := moduleCache(pkg.Dir, name)
	if err != nil {
		return "", err
	}
	unlock, err := lock(place) // a module may be built for several terminals at a time
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := copyModule(pkg.Module.GoMod, place); err != nil {
		return "", err
	}
	mod := filepath.Join(place, "go.mod")
	if err := compatible(ctx, pkg.Module.Dir, mod, talk); err != nil {
		return "", err
	}
	source, overlay := filepath.Join(place, "main.go"), filepath.Join(place, "overlay.json")
	text := fmt.Sprintf("package main\n\nimport (\n\t%q\n\n\tmodule %q\n)\n\nfunc main() { program.Main(module.%s) }\n", ours+"/program", pkg.ImportPath, name)
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(pkg.Module.Dir, commandDir, "main.go"): source}})
	if err == nil {
		err = errors.Join(os.WriteFile(source, []byte(text), 0o644), os.WriteFile(overlay, replaced, 0o644))
	}
	if err != nil {
		return "", fmt.Errorf("write the program of %s: %w", dir, err)
	}
	program = filepath.Join(place, "fencelab")
	if _, err := goTool(ctx, pkg.Module.Dir, "build", "-mod=mod", "-modfile="+mod, "-overlay="+overlay, "-tags=libvirt_dlopen", quickly, "-o", program, "./"+commandDir); err != nil {
		if err = fmt.Errorf("build fencelab with the controllers of %s: %w", dir, err); strings.Contains(err.Error(), "undefined: module."+name) {
			err = fmt.Errorf("%w\n%s exports no %s: name the package that has it, or what it is called there, as DIR:NAME", err, dir, name)
		}
		return "", err
	}
	return program, nil
}

// quickly leaves out what debuggers read, as go run and go test do, and halves the time of a link.
const quickly = "-ldflags=-w"

// listPackage finds the package in a directory and its module.
func listPackage(ctx context.Context, dir string) (*userPackage, error) {
	at, err := filepath.Abs(dir)
	if err == nil {
		at, err = filepath.EvalSymlinks(at) // a go.mod may lead to a clone that it is in
	}
	if err != nil {
		return nil, fmt.Errorf("find the Go package: %w", err)
	}
	out, err := goTool(ctx, at, "list", "-json=Dir,ImportPath,Name,Module", ".")
	if err != nil {
		return nil, fmt.Errorf("find the Go package in %s: %w", dir, err)
	}
	pkg := new(userPackage)
	if err := json.Unmarshal(out, pkg); err != nil {
		return nil, fmt.Errorf("find the Go package in %s: %w", dir, err)
	}
	switch {
	case pkg.Name == "main":
		return nil, fmt.Errorf("%s: its package is main, which nobody can import; put the %s into a package of its own", dir, moduleName)
	case pkg.Module.Path == ours:
		return nil, fmt.Errorf("%s: it is in fencelab's own module; give it a go.mod that requires %s", dir, ours)
	}
	return pkg, nil
}

// moduleCache returns the directory that keeps the program with the controllers of a package.
func moduleCache(dir, name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for the program: %w", err)
	}
	sum := sha256.Sum256([]byte(dir + ":" + name))
	place := filepath.Join(cache, "fencelab", "modules", hex.EncodeToString(sum[:8]))
	return place, os.MkdirAll(place, 0o755)
}

// lock waits until no other process builds in a place.
func lock(place string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(place, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", place, err)
	}
	return func() { _ = f.Close() }, nil
}

// copyModule copies a go.mod and its go.sum, which may change as the program needs more packages
// than the module does.
func copyModule(goMod, place string) error {
	for _, name := range []string{goMod, strings.TrimSuffix(goMod, ".mod") + ".sum"} {
		data, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) && filepath.Ext(name) == ".sum" {
			data, err = nil, nil
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(place, filepath.Base(name)), data, 0o644)
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	return nil
}

// tested are the modules whose versions matter to what the simulator models.
var tested = []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"}

// compatible says beforehand what would take long, or go wrong in the end: that the module doesn't
// require fencelab, and that it selects other versions of Kubernetes' libraries than fencelab is
// tested with.
func compatible(ctx context.Context, dir, mod string, talk io.Writer) error {
	if _, err := goTool(ctx, dir, "list", "-mod=mod", "-modfile="+mod, "-m", ours); err != nil {
		return fmt.Errorf("%s doesn't require %s: go mod edit -require %s@VERSION, and -replace it by a clone if there is one: %w", dir, ours, ours, err)
	}
	built, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	versions, err := goTool(ctx, dir, slices.Concat([]string{"list", "-mod=mod", "-modfile=" + mod, "-m", "-f={{.Path}} {{.Version}}"}, tested)...)
	if err != nil {
		return fmt.Errorf("find out which versions %s selects: %w", dir, err)
	}
	for line := range strings.Lines(string(versions)) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		i := slices.IndexFunc(built.Deps, func(m *debug.Module) bool { return m.Path == path })
		if i >= 0 && version != built.Deps[i].Version {
			fmt.Fprintf(talk, "warning: %s selects %s %s, and fencelab is tested with %s: what its simulator models may differ\n", dir, path, version, built.Deps[i].Version)
		}
	}
	return nil
}

// goTool runs the go command in a directory. The error has what it said.
func goTool(ctx context.Context, dir string, args ...string) ([]byte, error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, bytes.TrimSpace(said.Bytes()))
	}
	return out.Bytes(), nil
}

// withoutModule are the arguments of a command line without the module.
func withoutModule(args []string) []string {
	var rest []string
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--"+moduleFlag:
			i++
		case strings.HasPrefix(args[i], "--"+moduleFlag+"="):
		default:
			rest = append(rest, args[i])
		}
	}
	return rest
}
