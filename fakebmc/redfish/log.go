package redfish

import (
	"strconv"
	"strings"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
)

const (
	logServiceType = "#LogService.v1_5_0.LogService"
	logEntryType   = "#LogEntry.v1_16_0.LogEntry"

	// The log of a system: a service with entries, and the action that clears it.
	logsPath    = "/LogServices"
	logPath     = logsPath + "/Log"
	entriesPath = logPath + "/Entries"
	clearAction = logPath + "/Actions/LogService.ClearLog"
)

// logEndpoint is that of a system's log, if there is one of this path below the system.
func logEndpoint(b *fakebmc.BMC, rest string, e *endpoint) bool {
	at := b.SystemPath() + rest
	switch rest {
	case logsPath:
		e.get = shows(func() object { return collection(at, "LogServiceCollection", "Log Services", "Log") })
	case logPath:
		e.get = shows(func() object {
			r := resource(at, logServiceType, "Log", "Log of "+b.Host())
			r["ServiceEnabled"], r["Status"], r["OverWritePolicy"], r["LogEntryType"] = true, healthy(), "WrapsWhenFull", "Event"
			r["Entries"] = link(b.SystemPath() + entriesPath)
			r["Actions"] = object{"#LogService.ClearLog": object{"target": b.SystemPath() + clearAction}}
			return r
		})
	case entriesPath:
		e.get = shows(func() object {
			list := collection(at, "LogEntryCollection", "Log Entries")
			members := []object{}
			for _, entry := range b.Entries() { // in full, as the schema has it
				members = append(members, logEntry(b, entry))
			}
			list["Members"], list["Members@odata.count"] = members, len(members)
			return list
		})
	case clearAction:
		e.post = func(_ fakebmc.Effects, body []byte) response {
			if a, ok := parse(body, new(struct{ LogEntriesETag *string })); !ok && len(body) > 0 {
				return a
			}
			b.ClearEntries()
			return done()
		}
	default:
		id, ok := strings.CutPrefix(rest, entriesPath+"/")
		if !ok {
			return false
		}
		for _, entry := range b.Entries() {
			if strconv.FormatUint(entry.ID, 10) == id {
				e.get = shows(func() object { return logEntry(b, entry) })
			}
		}
	}
	return true
}

func logEntry(b *fakebmc.BMC, entry fakebmc.Entry) object {
	id := strconv.FormatUint(entry.ID, 10)
	r := resource(b.SystemPath()+entriesPath+"/"+id, logEntryType, id, "Log Entry "+id)
	r["EntryType"], r["Severity"] = "Event", "OK"
	r["Created"] = time.Now().Add(-b.Age(entry)).Round(time.Second).UTC().Format(time.RFC3339)
	r["Message"] = "The host was reset: " + string(entry.Reset) + "."
	r["Links"] = object{"OriginOfCondition": link(escaped(b.SystemPath()))}
	return r
}
