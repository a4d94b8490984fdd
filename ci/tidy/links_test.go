package tidy

import (
	"bytes"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// without says which packages of the standard library a directory's own packages may not even be
// linked with, through whatever they import.
var without = []struct {
	dir, why string
	packages []string
}{
	{"fakebmc", "the core of a BMC is pure: the simulator runs it on virtual time, without a network",
		[]string{"crypto/rand", "crypto/tls", "math/rand", "math/rand/v2", "net", "net/http", "os/exec", "os/signal"}},
}

// links lists imports that bring a package along that the directory must do without.
func links(t *tree) (problems []string, err error) {
	packages := t.packages()
	for _, rule := range without {
		imported := map[string]string{} // import path to where it stands
		for _, s := range packages[rule.dir] {
			if s.isTest() {
				continue
			}
			for _, spec := range s.file.Imports {
				name, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return nil, err
				}
				imported[name] = fmt.Sprintf("%s:%d", s.path, t.fset.Position(spec.Pos()).Line)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(imported)) {
			brought, err := dependencies(name)
			if err != nil {
				return nil, err
			}
			brought = slices.DeleteFunc(brought, func(p string) bool { return !slices.Contains(rule.packages, p) })
			if len(brought) > 0 {
				slices.Sort(brought)
				problems = append(problems, fmt.Sprintf("%s: imports %s, which brings along %s: %s", imported[name], name, strings.Join(brought, ", "), rule.why))
			}
		}
	}
	return problems, nil
}

// dependencies are a package and all that it imports, directly or not.
func dependencies(name string) ([]string, error) {
	list := exec.Command("go", "list", "-deps", name)
	var stderr bytes.Buffer
	list.Stderr = &stderr
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w: %s", list, err, stderr.Bytes())
	}
	return strings.Fields(string(output)), nil
}
