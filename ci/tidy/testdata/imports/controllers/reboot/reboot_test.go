package reboot

import (
	_ "github.com/fencelab/fencelab/controllers/remediation"
	_ "github.com/fencelab/fencelab/sim/kube"
	_ "github.com/google/go-cmp/cmp"
)
