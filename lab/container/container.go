// Package container runs the program of a container image as a child process, without a container
// engine: in mount and process namespaces of its own, on the files of the image, and on the
// network of the host, where the lab's gates are, or in a [Network] of its own. Its namespaces end
// with the program.
//
// The program runs as our own user, whatever the image says, since the files that it is given are
// ours. Only root may make namespaces; any other user first becomes root in a user namespace.
//
// The program that uses this package is executed anew to prepare the namespaces: it has to call
// [Main] first thing.
package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// roleVariable has the executed copy know that it is to become a container, and which.
const roleVariable = "FENCELAB_CONTAINER"

var mainCalled bool

// Life is one run of an image's program.
type Life struct {
	// Command replaces the image's entrypoint, and Args replaces the arguments.
	Command, Args []string
	// Env is the environment, in addition to the image's.
	Env []string
	// Own is an empty directory, where it has its files.
	Own string
	// Shared are directories of the host that it sees at the same path, ReadOnly those
	// that it can't write to.
	Shared, ReadOnly []string
	// Files maps paths in the container to the files of the host that it finds there.
	Files map[string]string
}

// prepared is the input of the executed copy.
type prepared struct {
	Root     string            `json:"root"`
	Own      string            `json:"own"`
	Shared   []string          `json:"shared"`
	ReadOnly []string          `json:"readOnly"`
	Files    map[string]string `json:"files,omitempty"`
	Dir      string            `json:"dir"`
	Command  []string          `json:"command"`
	// Rootless says that it is root in a namespace of users only.
	Rootless bool `json:"rootless"`
}

// Path is where the image looks for executables.
func (i *Image) Path() string {
	for _, entry := range i.config.Env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			return value
		}
	}
	return defaultPath
}

// Run is the command that begins a life.
func (i *Image) Run(l Life) (*exec.Cmd, error) {
	if !mainCalled {
		return nil, errors.New("run a container: call container.Main first in main or TestMain")
	}
	p := prepared{Root: i.root, Own: l.Own, Shared: l.Shared, ReadOnly: l.ReadOnly, Files: l.Files, Dir: i.config.WorkingDir, Command: l.Command}
	switch {
	case len(p.Command) > 0:
	case len(l.Args) > 0 && len(i.config.Entrypoint) == 0:
		return nil, errors.New("the image has no entrypoint for arguments: say what it runs as its command")
	case len(l.Args) > 0:
		p.Command = slices.Concat(i.config.Entrypoint, l.Args)
	default:
		p.Command = slices.Concat(i.config.Entrypoint, i.config.Cmd)
	}
	if len(p.Command) == 0 {
		return nil, errors.New("the image has neither an entrypoint nor a command: say what it runs")
	}
	p.Rootless = os.Geteuid() != 0
	role, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append([]string{roleVariable + "=" + string(role), "PATH=" + i.Path()}, i.config.Env...)
	cmd.Env = append(cmd.Env, l.Env...)
	if cmd.SysProcAttr, err = namespaces(p.Rootless); err != nil {
		return nil, err
	}
	return cmd, nil
}

// settle does what comes first in a network of one's own. It doesn't return if that is all.
func settle(network string) {
	var s secluded
	err := json.Unmarshal([]byte(network), &s)
	if err == nil {
		os.Unsetenv(networkVariable)
		err = s.settle()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "fencelab: begin in a network of its own: %v\n", err)
		os.Exit(127)
	}
}

// Main becomes the program of a container and doesn't return if the process was started as
// one; otherwise it returns at once.
func Main() {
	if network := os.Getenv(networkVariable); network != "" {
		settle(network)
	}
	role := os.Getenv(roleVariable)
	if role == "" {
		mainCalled = true
		return
	}
	var p prepared
	err := json.Unmarshal([]byte(role), &p)
	if err == nil {
		err = p.enter()
	}
	if err == nil {
		os.Unsetenv(roleVariable)
		err = p.execute()
	}
	fmt.Fprintf(os.Stderr, "fencelab: run %s of the image: %v\n", strings.Join(p.Command, " "), err)
	os.Exit(127)
}
