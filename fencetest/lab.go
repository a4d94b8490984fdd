//go:build libvirt_dlopen

package fencetest

import (
	"os"

	"github.com/fencelab/fencelab/ci/lab"
	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios"
)

func init() {
	newLab = func(set *controllers.Set) scenarios.Backend {
		return lab.New(lab.Options{Controllers: set, Log: os.Stderr})
	}
}
