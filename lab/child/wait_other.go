//go:build !linux

package child

import "errors"

// errSystem is why nothing can be started on this system.
var errSystem = errors.New("fencelab starts other programs on Linux only")

// Without a child there is nothing to wait for.
func awaitEnd(int)        {}
func awaitStop(int) error { return errSystem }
