//go:build !linux

package container

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"syscall"
)

// errSystem is why no program of an image runs on this system.
var errSystem = errors.New("a program of an image, or in a network of its own, runs on Linux only")

func namespaces(bool) (*syscall.SysProcAttr, error) { return nil, errSystem }

func (*prepared) enter() error   { return errSystem }
func (*prepared) execute() error { return errSystem }

func (*secluded) settle() error { return errSystem }

// Network gives a program with hard-coded ports a loopback interface of its own.
type Network struct{}

// NewNetwork fails.
func NewNetwork(...string) (*Network, error) { return nil, errSystem }

// Enter, Serve, DialContext and Close are never called.
func (*Network) Enter(*exec.Cmd) error                                         { return errSystem }
func (*Network) Serve()                                                        {}
func (*Network) DialContext(context.Context, string, string) (net.Conn, error) { return nil, errSystem }
func (*Network) Close()                                                        {}
