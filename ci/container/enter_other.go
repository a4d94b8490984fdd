//go:build !linux

package container

import (
	"errors"
	"syscall"
)

// errSystem is why no program of an image runs on this system.
var errSystem = errors.New("a program of an image runs on Linux only")

func namespaces(bool) (*syscall.SysProcAttr, error) { return nil, errSystem }

func (*prepared) enter() error   { return errSystem }
func (*prepared) execute() error { return errSystem }
