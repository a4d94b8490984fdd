// Package source builds programs of this module with a mistake in their source. The source
// itself stays as it is: the compiler reads other files in the place of some.
package source

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fencelab/fencelab/vms/keeper"
)

// Change is other text in one place of one file.
type Change struct {
	// File is the path from the module's root.
	File string `json:"file"`
	// Find is the text in the file, which must be there once, and Replace what
	// stands there instead.
	Find    string `json:"find"`
	Replace string `json:"replace"`
}

// apply returns the file's content with the change.
func (c Change) apply(content []byte) ([]byte, error) {
	find, replace := strings.TrimSuffix(c.Find, "\n"), strings.TrimSuffix(c.Replace, "\n")
	if n := bytes.Count(content, []byte(find)); n != 1 || find == "" {
		return nil, fmt.Errorf("what is changed stands %d times in %s, not once: %q", n, c.File, find)
	}
	return bytes.Replace(content, []byte(find), []byte(replace), 1), nil
}

// Apply returns the files of the module at root that the changes concern, with the
// changes made one after the other, by path from the root.
func Apply(root string, changes ...Change) (map[string][]byte, error) {
	changed := make(map[string][]byte)
	for _, c := range changes {
		content, ok := changed[c.File]
		if !ok {
			var err error
			if content, err = os.ReadFile(filepath.Join(root, c.File)); err != nil {
				return nil, err
			}
		}
		content, err := c.apply(content)
		if err != nil {
			return nil, err
		}
		changed[c.File] = content
	}
	return changed, nil
}

// Workshop makes a directory to [Build] in, below [os.TempDir]. Done ends whatever was started with
// it or from it, such as compilers and what they built, and removes it; so does a keeper if this
// process is killed. The program has to call [keeper.Main].
func Workshop(prefix string) (dir string, done func(), err error) {
	k, err := keeper.Start()
	if err != nil {
		return "", nil, err
	}
	if dir, err = k.TempDir(prefix); err == nil {
		err = k.KillMarked(dir) // their arguments name it
	}
	if err != nil {
		k.Close()
		return "", nil, err
	}
	return dir, func() { k.Close() }, nil
}

// Build builds a package of the module at root with the changes as dir/name.
func Build(ctx context.Context, root, pkg, dir, name string, changes ...Change) (binary string, err error) {
	changed, err := Apply(root, changes...)
	if err != nil {
		return "", err
	}
	return compile(ctx, root, pkg, dir, name, changed)
}

// compile builds a package as dir/name with other files in the place of some, or beside them.
func compile(ctx context.Context, root, pkg, dir, name string, files map[string][]byte) (binary string, err error) {
	replace := make(map[string]string, len(files))
	for file, content := range files { // order does not matter: JSON is sorted
		original, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		replace[original] = filepath.Join(dir, name+"-"+strings.ReplaceAll(file, "/", "-")+".txt")
		if err := os.WriteFile(replace[original], content, 0o644); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, name+".json")
	if err := os.WriteFile(list, overlay, 0o644); err != nil {
		return "", err
	}
	binary = filepath.Join(dir, name)
	// Without what debuggers read, linking takes half the time.
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "libvirt_dlopen", "-ldflags=-w", "-overlay", list, "-o", binary, pkg)
	cmd.Dir = root
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s with %s: %w\n%s", pkg, name, err, output)
	}
	return binary, nil
}
