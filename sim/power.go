package sim

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"strconv"
	"time"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/reboot"
	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/sim/steps"
)

// bmcTimeout is how long a controller waits for a BMC's answer unless it sets its own timeout.
const bmcTimeout = 10 * time.Second

// power gives one incarnation of a controller access to the BMCs. It implements reboot.Power.
type power struct {
	p        *process
	life     int
	patience time.Duration
}

// State reads the reported power state.
func (pw power) State(_ context.Context, host *api.BareMetalHost) (reboot.PowerState, error) {
	var answer fakebmc.Answer
	bmc, err := pw.bmc(host)
	if err != nil {
		return "", err
	}
	err = pw.request(bmc.Host(), bmc.PowerRequest(pw.p.actor.name), &answer)
	return reboot.ParsePowerState(string(answer.PowerState)), err
}

// On commands the host on. Like ShutDown and Off, it returns when the BMC accepts the command.
func (pw power) On(_ context.Context, host *api.BareMetalHost) error {
	return pw.command(host, fakebmc.ResetOn)
}

// ShutDown asks for a graceful shutdown.
func (pw power) ShutDown(_ context.Context, host *api.BareMetalHost) error {
	return pw.command(host, fakebmc.ResetGracefulShutdown)
}

// Off takes the power away.
func (pw power) Off(_ context.Context, host *api.BareMetalHost) error {
	return pw.command(host, fakebmc.ResetForceOff)
}

// bmc is the one that answers at the address in a BareMetalHost, whosever it is.
func (pw power) bmc(host *api.BareMetalHost) (*fakebmc.BMC, error) {
	at := pw.p.uplink.addresses.of(host)
	if bmc := pw.p.uplink.bmcs[pw.p.uplink.addresses.hosts[at]]; bmc != nil {
		return bmc, nil
	}
	return nil, errors.New("reach the BMC of " + host.Name + ": nobody answers at " + strconv.Quote(at))
}

// addresses are where BMCs answer.
type addresses struct {
	// hosts are the hosts whose BMCs answer, by the host names of the addresses.
	hosts map[string]string
	// names are the host names of addresses that were looked up: these are parsed once.
	names map[string]string
}

// place has the BMC of a host answer at one address, and nowhere else.
func (a *addresses) place(host, at string) {
	maps.DeleteFunc(a.hosts, func(_, other string) bool { return other == host })
	a.hosts[at] = host
}

// of is the host name in the address of a host's BMC, "" in one that is none.
func (a *addresses) of(host *api.BareMetalHost) string {
	address := host.Spec.BMC.Address
	name, known := a.names[address]
	if !known {
		if u, err := url.Parse(address); err == nil {
			name = u.Hostname()
		}
		a.names[address] = name
	}
	return name
}

func (pw power) command(host *api.BareMetalHost, reset fakebmc.ResetType) error {
	bmc, err := pw.bmc(host)
	if err != nil {
		return err
	}
	var answer fakebmc.Answer
	return pw.request(bmc.Host(), bmc.ResetRequest(pw.p.actor.name, reset), &answer)
}

// request sends one request to a BMC, as a step.
func (pw power) request(host string, request fakebmc.Request, answer *fakebmc.Answer) error {
	request.Via = pw.p.uplink.via
	c := pw.p.toBMC(host, "read", request.ResetType, pw.patience, func(reply func(error)) {
		pw.p.uplink.bmcs[host].Do(request, func(a fakebmc.Answer) {
			*answer = a
			err := a.Err()
			if err != nil && request.Via != fakebmc.ViaIPMI { // whose completion codes are no such status
				err = reboot.StatusError(a.Status, err)
			}
			reply(err)
		})
	})
	return pw.p.flights.perform(pw.life, c)
}

// toBMC is a request to the BMC of a host, which may be a reset. send gives it to the BMC, which
// replies with the error of what it didn't accept. A request that hangs ends with the client's own
// timeout.
func (p *process) toBMC(host, verb string, reset fakebmc.ResetType, patience time.Duration, send func(reply func(error))) *call {
	c := &call{
		class: steps.ClassBMC, deed: steps.Deed{Verb: verb, On: steps.Object{Kind: "BMC", Name: host}}, lost: func() error { return fakebmc.ErrUnreachable },
		patience: patience,
	}
	if reset != "" {
		c.effect = "bmc " + string(reset) + " " + host
		c.deed.Verb, c.deed.Effect = string(reset), true
	}
	c.run = func(ignored bool, done func(error)) {
		if ignored {
			p.w.emit(history.Event{Kind: history.BMCCommand, Host: host, Actor: p.actor.name, Value: string(reset)})
			done(nil)
			return
		}
		if !p.w.network.carries(p.uplink.at, scenarios.BMCEnd(host)) {
			return
		}
		p.w.overdue = c.overdue
		send(func(err error) {
			if !p.w.network.carries(scenarios.BMCEnd(host), p.uplink.at) {
				if c.effect != "" && err == nil {
					p.w.emit(history.Event{Kind: history.ControllerEffect, Actor: p.actor.name, Value: c.effect, Note: answerLost})
				}
				return
			}
			done(err)
		})
		p.w.overdue = false
	}
	return c
}
