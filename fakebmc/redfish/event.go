package redfish

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/front"
)

// powerMessages are the events of edges. Others than these aren't sent.
var powerMessages = map[fakebmc.PowerState]string{
	fakebmc.On: "ResourcePoweredOn", fakebmc.Off: "ResourcePoweredOff", fakebmc.PoweringOn: "ResourcePoweringOn",
	fakebmc.PoweringOff: "ResourcePoweringOff", fakebmc.Paused: "ResourcePaused",
}

// powerEventType is the type of events that edges have where events have types.
const powerEventType = "StatusChange"

// maxUnsent is how many events a slow reader of a stream may be behind.
const maxUnsent = 256

// maxStreams is how many event streams a service serves at a time.
const maxStreams = 16

type powerEvent struct {
	bmc   *fakebmc.BMC
	state fakebmc.PowerState
}

// watch has the hosts that report their power edges do so, each in a goroutine of its own choice,
// until stop. Once changed is closed hosts have come or gone, and it is to be watched anew.
func (s *service) watch(tell func(powerEvent)) (changed <-chan struct{}, stop func()) {
	members := s.group.members.Load()
	var stops []func()
	for _, id := range members.ids {
		b := members.byID[id]
		if watcher, ok := b.System().(fakebmc.Watcher); ok {
			stops = append(stops, watcher.Watch(func(p fakebmc.PowerState) { tell(powerEvent{b, p}) }))
		}
	}
	return members.changed, func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// stream sends the power edges of all hosts that report them, as Server-Sent Events
// with one Redfish Event each. It ends with its reader, when the service closes,
// when a BMC that serves it goes down, when hosts come or go, and when the reader
// is too far behind: a gap must not look like silence.
func (s *service) stream(w http.ResponseWriter, r *http.Request) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{})
	events := make(chan powerEvent, maxUnsent)
	var behind atomic.Bool
	overrun := make(chan struct{})
	changed, stop := s.watch(func(e powerEvent) {
		select {
		case events <- e:
		default:
			if behind.CompareAndSwap(false, true) {
				close(overrun)
			}
		}
	})
	defer stop()
	lost := s.common.Lost()
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("OData-Version", "4.0")
	_, _ = w.Write([]byte(": power events\n\n"))
	for n := 1; ; n++ {
		if err := c.Flush(); err != nil {
			return
		}
		select {
		case e := <-events:
			_ = c.SetWriteDeadline(time.Now().Add(front.Timeout))
			data, err := json.Marshal(e.resource(n))
			if err != nil {
				return
			}
			if _, err := fmt.Fprintf(w, "id: %d\ndata: %s\n\n", n, data); err != nil {
				return
			}
		case <-overrun:
			return
		case <-changed:
			return
		case <-lost:
			abortRequest(w)
			return
		case <-r.Context().Done():
			return
		case <-s.closing:
			return
		}
	}
}

func (e powerEvent) resource(n int) object {
	id := strconv.Itoa(n)
	key := powerMessages[e.state]
	m, origin := messages[key], escaped(e.bmc.SystemPath())
	return object{
		"@odata.type": eventType, "Id": id, "Name": "Power event",
		"Events": []object{{
			"EventId": id, "MemberId": "0", "EventType": powerEventType, "MessageId": eventRegistry + key,
			"Message": fill(m.text, origin), "MessageArgs": []string{origin},
			"MessageSeverity": m.severity, "OriginOfCondition": link(origin),
		}},
	}
}
