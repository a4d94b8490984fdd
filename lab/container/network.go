package container

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// networkVariable has the executed copy know that it has a network to itself, and what to do in
// there first.
const networkVariable = "FENCELAB_NETWORK"

// calls are how many connections can be made into a network. A caller asks for one at a time, and
// keeps it.
const calls = 32

// secluded is the work of the executed copy in a network of its own before it becomes a program.
type secluded struct {
	// Reach are the addresses that it listens at, and passes on to the host through the file To.
	Reach []string `json:"reach"`
	To    uintptr  `json:"to"`
	// Command is the executable that it becomes, with its arguments; empty for a container.
	Command []string `json:"command,omitempty"`
}

// enter has a command begin in the network that to belongs to.
func (s secluded) enter(cmd *exec.Cmd, to *os.File) error {
	s.To = uintptr(3 + len(cmd.ExtraFiles))
	cmd.ExtraFiles = append(cmd.ExtraFiles, to)
	isContainer := slices.ContainsFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, roleVariable+"=") })
	if !isContainer {
		s.Command = append([]string{cmd.Path}, cmd.Args[1:]...)
		cmd.Path, cmd.Args = "/proc/self/exe", []string{"/proc/self/exe"}
	}
	role, err := json.Marshal(s)
	if err != nil {
		return err
	}
	cmd.Env = append(cmd.Env, networkVariable+"="+string(role))
	return nil
}
