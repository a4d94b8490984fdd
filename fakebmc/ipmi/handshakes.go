package ipmi

import (
	"container/list"
	"net"
	"time"
)

const (
	// maxHandshakes and maxFromAddress are how many sessions may be about to be opened, in
	// all and by one address. A stranger can begin them without a password as fast as
	// packets come, so what is dropped for a new one is an old one of the same address,
	// and there are so many that a client beside him is done before its own is the oldest.
	maxHandshakes  = 16384
	maxFromAddress = 4096
	// handshakeTimeout is how long a console may take between two of its messages.
	handshakeTimeout = 30 * time.Second
)

// handshakes are the sessions that are about to be opened.
type handshakes struct {
	order *list.List // of *session, oldest first
	byID  map[uint32]*list.Element
	from  map[string]int // how many an address has
}

func newHandshakes() handshakes {
	return handshakes{list.New(), map[uint32]*list.Element{}, map[string]int{}}
}

func (h handshakes) add(x *session) {
	h.expire(x.begun)
	switch {
	case h.from[x.address] >= maxFromAddress:
		for e := h.order.Front(); e != nil; e = e.Next() {
			if e.Value.(*session).address == x.address {
				h.remove(e)
				break
			}
		}
	case h.order.Len() >= maxHandshakes:
		h.remove(h.order.Front())
	}
	h.byID[x.id] = h.order.PushBack(x)
	h.from[x.address]++
}

func (h handshakes) expire(now time.Duration) {
	for e := h.order.Front(); e != nil && now-e.Value.(*session).begun >= handshakeTimeout; e = h.order.Front() {
		h.remove(e)
	}
}

// find returns the one with an id, or nil.
func (h handshakes) find(id uint32) *session {
	if e := h.byID[id]; e != nil {
		return e.Value.(*session)
	}
	return nil
}

// end takes one out.
func (h handshakes) end(x *session) {
	if e := h.byID[x.id]; e != nil {
		h.remove(e)
	}
}

func (h handshakes) remove(e *list.Element) {
	x := h.order.Remove(e).(*session)
	delete(h.byID, x.id)
	if h.from[x.address]--; h.from[x.address] == 0 {
		delete(h.from, x.address)
	}
}

// addressOf leaves the port out, of which a client has as many as it likes.
func addressOf(client string) string {
	if host, _, err := net.SplitHostPort(client); err == nil {
		return host
	}
	return client
}
