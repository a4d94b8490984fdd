package admin

import (
	"sync"

	"github.com/fencelab/fencelab/fakebmc"
)

// maxRecords is how many requests are remembered of each host, the newest ones.
const maxRecords = 100

// Log remembers the last requests of each host. The zero Log remembers none yet; nil is
// one that never does.
type Log struct {
	mu      sync.Mutex
	records map[string][]fakebmc.Record // by host, oldest first
}

// Add takes the record of a request.
func (l *Log) Add(r fakebmc.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.records == nil {
		l.records = map[string][]fakebmc.Record{}
	}
	of := append(l.records[r.Host], r)
	l.records[r.Host] = of[max(0, len(of)-maxRecords):]
}

func (l *Log) of(host string) []fakebmc.Record {
	if l == nil {
		return []fakebmc.Record{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]fakebmc.Record{}, l.records[host]...)
}
