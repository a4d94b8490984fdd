package tidy

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// foreign matches commands of a recipe for another project's source: fetching it, changing it, or
// building it in a given place.
var foreign = regexp.MustCompile(`\bgit (clone|fetch|checkout|apply|-C) |\bgo build\b.*(-overlay|-C "?\$[A-Za-z0-9{]*(source|checkout))|\bpatch -p[0-9]`)

// foreignInGo matches the same in a command that Go code runs.
var foreignInGo = regexp.MustCompile(`"git", (.*, )?"(clone|fetch|apply)"`)

// recipes lists lines of scripts, documents and Go that fetch, patch or build the source of others.
// fencelab tests the releases of others, which come to it as executables and images.
func recipes(t *tree) (problems []string, err error) {
	for _, name := range t.files {
		script := path.Ext(name) == ".sh" || path.Ext(name) == ".py" || path.Ext(name) == ".md" || path.Base(name) == "Makefile" || path.Base(name) == "system.yaml"
		matches := foreign
		if path.Ext(name) == ".go" {
			matches = foreignInGo
		}
		if !script && path.Ext(name) != ".go" || strings.Contains(name, "testdata/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(t.root, name))
		if err != nil {
			return nil, err
		}
		number := 0
		for line := range bytes.Lines(text) {
			number++
			if found := matches.Find(line); found != nil && !bytes.Contains(line, []byte("`go build -overlay`")) { // which is of our own mutants
				problems = append(problems, fmt.Sprintf("%s:%d: %s: others' source has no recipe here; say what executable or image it takes", name, number, found))
			}
		}
	}
	return problems, nil
}
