package main

import (
	"math/rand/v2"
	"time"
)

// link describes the treatment of packets between a client and a BMC, in both directions.
type link struct {
	// Every packet is late by delay and up to spread, so that those that were sent within it come
	// out of order.
	delay, spread time.Duration
	// lost and doubled are how likely a packet is so, from 0 to 1.
	lost, doubled float64
}

// copies is how many of a packet arrive.
func (l *link) copies(draw *rand.Rand) int {
	switch {
	case draw.Float64() < l.lost:
		return 0
	case draw.Float64() < l.doubled:
		return 2
	}
	return 1
}

// condition describes an obstacle between a client and a BMC that behaves as it should.
type condition struct {
	name, what string
	link       link
	// rules describe the behaviour of the BMC's service, in JSON.
	rules string
}

// chances reports whether chance has a say in what becomes of a packet.
func (l *link) chances() bool { return l.lost > 0 || l.doubled > 0 || l.spread > 0 }

// conditions are the rows of the second table.
var conditions = []condition{
	{name: "loss", what: "one in five packets is lost", link: link{lost: 0.2}},
	{name: "delay", what: "every packet is 300 ms late", link: link{delay: 300 * time.Millisecond}},
	{name: "long-delay", what: "every packet is a second late", link: link{delay: time.Second}},
	{name: "reordering", what: "every packet is up to 200 ms late, so that they overtake one another, and one in five comes twice", link: link{spread: 200 * time.Millisecond, doubled: 0.2}},
	{name: "redirection", what: "logins, looks at the system and resets are sent on (307) to the same path with a slash", rules: `[
		{"name": "login", "when": {"via": "redfish", "method": "POST", "path": "/redfish/v1/SessionService/Sessions", "count": 1},
			"effect": {"refuse": {"status": 307, "body": "{}", "headers": {"Location": "/redfish/v1/SessionService/Sessions/"}}}},
		{"name": "look", "when": {"via": "redfish", "method": "GET", "path": "/redfish/v1/Systems/node-1", "count": 1},
			"effect": {"refuse": {"status": 307, "body": "{}", "headers": {"Location": "/redfish/v1/Systems/node-1/"}}}},
		{"name": "reset", "when": {"via": "redfish", "method": "POST", "path": "/redfish/v1/Systems/node-1/Actions/ComputerSystem.Reset", "count": 1},
			"effect": {"refuse": {"status": 307, "body": "{}", "headers": {"Location": "/redfish/v1/Systems/node-1/Actions/ComputerSystem.Reset/"}}}}
	]`},
}
