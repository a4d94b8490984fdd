package cluster

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
	binVariable = "FENCELAB_BIN"
	remedy      = "run ci/cluster/build.sh, which builds etcd and kube-apiserver into .cache/bin (5 minutes from nothing), or name a directory that has both in " + binVariable
)

// DefaultBin is the directory that [Options.Bin] defaults to: FENCELAB_BIN or else the .cache/bin of the working
// directory or of its nearest parent that has one.
func DefaultBin() string {
	if bin := os.Getenv(binVariable); bin != "" {
		return bin
	}
	const bin = ".cache/bin"
	dir, err := os.Getwd()
	if err != nil {
		return bin
	}
	for {
		if info, err := os.Stat(filepath.Join(dir, bin)); err == nil && info.IsDir() {
			return filepath.Join(dir, bin)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return bin
		}
		dir = parent
	}
}

// Finding is the state of one thing that a control plane needs.
type Finding struct {
	Name   string // "etcd"
	State  string // its version and place
	Remedy string // what to do; empty if all is well
}

// Preflight looks for what [Launch] needs in a directory of binaries; empty means [DefaultBin].
func Preflight(ctx context.Context, bin string) []Finding {
	if bin == "" {
		bin = DefaultBin()
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

// versionOf returns the first line that a command prints for --version.
func versionOf(ctx context.Context, path string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	output, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w: %s", path, err, output)
	}
	line, _, _ := bytes.Cut(output, []byte("\n"))
	return string(bytes.TrimSpace(line)), nil
}
