package history

import (
	_ "encoding/json"
	_ "github.com/fencelab/fencelab/scenarios/invariant"
)
