package kube

import (
	_ "github.com/fencelab/fencelab/scenarios"
	_ "k8s.io/api/core/v1"
)
