package ironic

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencelab/fencelab/lab/child"
)

const (
	// defaultBin is where Debian has Ironic. PATH isn't asked: the executables name their Python
	// themselves.
	defaultBin = "/usr/bin"
	remedy     = "run lab/ironic/install.sh as root, which installs Debian's Ironic (about a minute)"
)

// commands are the executables that a launch needs: the schema's, and the one that is API and
// conductor.
var commands = []string{"ironic-dbsync", "ironic"}

// Preflight looks for what [Launch] needs in a directory of executables; empty means /usr/bin.
func Preflight(ctx context.Context, bin string) []child.Finding {
	return child.Preflight(ctx, cmp.Or(bin, defaultBin), commands, remedy)
}

// Installed returns why [Launch] can't even be tried: it looks, and runs nothing, which takes
// Python seconds.
func Installed(bin string) error {
	for _, name := range commands {
		if _, err := os.Stat(filepath.Join(cmp.Or(bin, defaultBin), name)); err != nil {
			return fmt.Errorf("%w: %s", err, remedy)
		}
	}
	return nil
}
