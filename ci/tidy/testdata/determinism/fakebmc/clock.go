package fakebmc

import "time"

var start = time.Now()
