package fakebmc

import (
	_ "github.com/fencelab/fencelab/fakebmc/redfish"
	_ "github.com/stmcginnis/gofish"
	_ "net/http"
)
