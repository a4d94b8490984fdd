package fakebmc

import (
	_ "encoding/json"
	_ "github.com/fencelab/fencelab/fakebmc/redfish"
	_ "net/http/httptest"
)
