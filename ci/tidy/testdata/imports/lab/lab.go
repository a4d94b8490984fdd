package lab

import (
	_ "github.com/fencelab/fencelab/fakebmc"
	_ "github.com/fencelab/fencelab/sim"
	_ "github.com/fencelab/fencelab/vms"
)
