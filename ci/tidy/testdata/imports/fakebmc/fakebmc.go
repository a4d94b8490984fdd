package fakebmc

import (
	_ "github.com/stmcginnis/gofish"
	_ "net/http"
)
