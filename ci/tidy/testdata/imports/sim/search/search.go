package search

import (
	_ "github.com/fencelab/fencelab/lab"
	_ "github.com/fencelab/fencelab/sim"
)
