package main

import (
	_ "github.com/fencelab/fencelab/lab"
	_ "github.com/fencelab/fencelab/sim"
)
