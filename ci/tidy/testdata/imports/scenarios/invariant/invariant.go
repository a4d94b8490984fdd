package invariant

import (
	_ "github.com/fencelab/fencelab/scenarios"
	_ "github.com/fencelab/fencelab/scenarios/history"
)
