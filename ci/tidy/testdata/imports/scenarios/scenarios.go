package scenarios

import (
	_ "github.com/fencelab/fencelab/scenarios/history"
	_ "go.yaml.in/yaml/v3"
	_ "k8s.io/api/core/v1"
)
