package scenarios

import (
	_ "github.com/fencelab/fencelab/scenarios/history"
	_ "k8s.io/api/core/v1"
	_ "sigs.k8s.io/yaml"
)
