package search

import (
	_ "github.com/fencelab/fencelab/ci/lab"
	_ "github.com/fencelab/fencelab/sim"
)
