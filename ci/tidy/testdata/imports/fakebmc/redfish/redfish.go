package redfish

import (
	_ "github.com/fencelab/fencelab/fakebmc"
	_ "github.com/fencelab/fencelab/fakebmc/ipmi"
	_ "github.com/fencelab/fencelab/front"
)
