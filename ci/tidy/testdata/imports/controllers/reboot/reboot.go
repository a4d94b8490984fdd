package reboot

import (
	_ "github.com/fencelab/fencelab/controllers/api"
	_ "github.com/fencelab/fencelab/fakebmc"
	_ "github.com/fencelab/fencelab/sim"
	_ "k8s.io/client-go/rest"
	_ "k8s.io/utils/clock"
	_ "time"
)
