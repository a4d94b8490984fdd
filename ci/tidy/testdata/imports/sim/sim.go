package sim

import (
	_ "github.com/fencelab/fencelab/lab/cluster"
	_ "github.com/fencelab/fencelab/scenarios"
	_ "github.com/fencelab/fencelab/vms"
)
