package fakebmc

import (
	_ "net/http"
)
