package main

import (
	_ "github.com/fencelab/fencelab/vms"
	_ "github.com/fencelab/fencelab/vms/guest/evidence"
	_ "libvirt.org/go/libvirt"
)
