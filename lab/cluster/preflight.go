package cluster

import (
	"cmp"
	"context"
	"os"
	"path/filepath"

	"github.com/fencelab/fencelab/lab/child"
)

const (
	binVariable = "FENCELAB_BIN"
	remedy      = "run lab/cluster/build.sh, which builds etcd and kube-apiserver into .cache/bin (5 minutes from nothing), or name a directory that has both in " + binVariable
)

// DefaultBin is the directory that [Options.Bin] defaults to: FENCELAB_BIN or else the .cache/bin
// of the working directory or of its nearest parent that has one.
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

// Preflight looks for what [Launch] needs.
func Preflight(ctx context.Context, o Options) []child.Finding {
	return child.Preflight(ctx, cmp.Or(o.Bin, DefaultBin()), o.needed(), o.remedy())
}

func (o *Options) remedy() string {
	if o.Standard == nil {
		return remedy
	}
	return "run make nodes, which builds it into .cache/bin (10 minutes from nothing), or name a directory that has it in " + binVariable
}
