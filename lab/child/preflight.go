package child

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// versionTimeout bounds the run of an executable that is asked for its version. Python takes a
// second or two to load on an idle machine.
const versionTimeout = 30 * time.Second

// Finding is the state of one executable that a launch needs.
type Finding struct {
	Name   string // "etcd"
	State  string // its version and place
	Remedy string // what to do; empty if all is well
}

// Preflight runs each of the executables in a directory for its version. The remedy is for all of
// them.
func Preflight(ctx context.Context, bin string, names []string, remedy string) []Finding {
	var findings []Finding
	for _, name := range names {
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

// versionOf returns the first line that a command prints for --version.
func versionOf(ctx context.Context, path string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	version := exec.CommandContext(ctx, path, "--version")
	version.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1") // some are Python, and their place isn't ours
	output, err := version.CombinedOutput()
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s --version: no answer within %v, which a busy machine may take longer for", path, versionTimeout)
	}
	if err != nil {
		return "", fmt.Errorf("%s --version: %w: %s", path, err, output)
	}
	line, _, _ := bytes.Cut(bytes.TrimSpace(output), []byte("\n"))
	return string(line), nil
}
