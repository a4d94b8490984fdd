package report

import "time"

var began = time.Now() // which those who tell people how long it took may
