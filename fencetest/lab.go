//go:build libvirt_dlopen

package fencetest

import (
	"os"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/lab"
	"github.com/fencelab/fencelab/scenarios/play"
)

func init() {
	newLab = func(set *controllers.Set) play.Backend {
		return lab.New(lab.Options{Controllers: set, Log: os.Stderr})
	}
}
