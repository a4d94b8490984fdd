package remediation

import "time"

func decide(since time.Time) bool { return time.Since(since) > time.Minute }
