package wall

import "time"

var start = time.Now()
