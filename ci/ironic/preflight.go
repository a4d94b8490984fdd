package ironic

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	// defaultBin is where Debian has Ironic. PATH isn't asked: the executables name their Python themselves.
	defaultBin = "/usr/bin"
	remedy     = "run ci/ironic/install.sh as root, which installs Debian's Ironic (about a minute)"
)

// commands are the executables that a launch needs: the schema's, and the one that is API and conductor.
var commands = []string{"ironic-dbsync", "ironic"}

// Finding is the state of one thing that an Ironic needs.
type Finding struct {
	Name   string // "ironic"
	State  string // its version and place
	Remedy string // what to do; empty if all is well
}

// Preflight looks for what [Launch] needs in a directory of executables; empty means /usr/bin.
func Preflight(ctx context.Context, bin string) []Finding {
	if bin == "" {
		bin = defaultBin
	}
	var findings []Finding
	for _, name := range commands {
		path := filepath.Join(bin, name)
		version, err := versionOf(ctx, path)
		if err != nil {
			findings = append(findings, Finding{name, err.Error(), remedy})
			continue
		}
		findings = append(findings, Finding{name, fmt.Sprintf("%s in %s", version, path), ""})
	}
	return findings
}

func versionOf(ctx context.Context, path string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	// Loading all of its Python takes a second or two on an idle machine.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	version := exec.CommandContext(ctx, path, "--version")
	version.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	output, err := version.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w: %s", path, err, output)
	}
	return string(bytes.TrimSpace(output)), nil
}
