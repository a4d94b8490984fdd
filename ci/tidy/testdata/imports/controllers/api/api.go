package api

import (
	_ "github.com/fencelab/fencelab/controllers/reboot"
	_ "k8s.io/api/core/v1"
)
