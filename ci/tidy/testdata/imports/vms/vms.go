package vms

import (
	_ "github.com/fencelab/fencelab/lab/cluster"
	_ "github.com/fencelab/fencelab/vms/keeper"
)
