//go:build !linux

package kind

import (
	"errors"
	"syscall"
)

// Where nothing is started there is no daemon of our own: package child says so.
func namespaces() *syscall.SysProcAttr { return nil }

func (d *daemon) socket() (int, error) { return 0, errors.ErrUnsupported }

func lacking() string { return "" }
