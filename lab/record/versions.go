package record

import (
	"slices"
	"strconv"
	"sync"
	"time"
)

// versions are the resourceVersions that the API server was seen to have, with their times.
type versions struct {
	mu   sync.Mutex
	seen []revision
}

type revision struct {
	at     time.Duration
	number uint64
}

// note notes that there is a version.
func (v *versions) note(at time.Duration, text string) {
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return // the server's own affair: nothing will be as old as this
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.seen); n == 0 || v.seen[n-1].number < number {
		v.seen = append(v.seen, revision{at, number})
	}
}

// AsOf is the last version that there was by then, or the first that is known; empty if none is.
func (v *versions) AsOf(at time.Duration) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.seen) == 0 {
		return ""
	}
	i, _ := slices.BinarySearchFunc(v.seen, at, func(seen revision, at time.Duration) int {
		if seen.at <= at {
			return -1
		}
		return 1
	})
	return strconv.FormatUint(v.seen[max(0, i-1)].number, 10)
}
