package redfish

import (
	_ "net/http"
)
