package vms

import (
	_ "github.com/fencelab/fencelab/ci/cluster"
	_ "github.com/fencelab/fencelab/vms/keeper"
)
