package objects

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/invariant"
)

// Faults are the faults that a scenario has added to its BMCs, in either world.
type Faults struct {
	bmcs map[string]*fakebmc.BMC
	// hosts maps the names of faults to their hosts.
	hosts map[string]string
}

// NewFaults returns the faults of BMCs that have none yet, by their hosts.
func NewFaults(bmcs map[string]*fakebmc.BMC) *Faults {
	return &Faults{bmcs: bmcs, hosts: make(map[string]string)}
}

// Add makes a BMC misbehave.
func (f *Faults) Add(op *scenarios.FaultOp) error {
	bmc := f.bmcs[op.Host]
	if bmc == nil {
		return fmt.Errorf("the topology has no host %q", op.Host)
	}
	var rule fakebmc.Rule
	if err := json.Unmarshal(op.Rule, &rule); err != nil {
		return fmt.Errorf("read fault %s: %w", op.Name, err)
	}
	rule.Name = op.Name
	if err := bmc.AddRule(rule); err != nil {
		return err
	}
	f.hosts[op.Name] = op.Host
	return nil
}

// Remove ends a fault.
func (f *Faults) Remove(name string) error {
	host, ok := f.hosts[name]
	if !ok {
		return fmt.Errorf("there is no fault %q", name)
	}
	delete(f.hosts, name)
	f.bmcs[host].RemoveRule(name)
	return nil
}

// Bends maps the names of a scenario's faults to what each holds up when it bends a request. A
// fault without an entry holds up nothing.
type Bends map[string]bend

type bend struct {
	hinders history.Hindrance
	fault   invariant.Fault
}

// BendsOf returns what the faults hold up that steps of a scenario add.
func BendsOf(spec *scenarios.Spec) Bends {
	bends := make(Bends)
	for i := range spec.Steps {
		do := spec.Steps[i].Do
		if do == nil || do.AddFault == nil {
			continue
		}
		var rule fakebmc.Rule
		if json.Unmarshal(do.AddFault.Rule, &rule) != nil {
			continue // a plan has no such rule
		}
		if long, ok := rule.Holds(); ok {
			bend := bend{hinders: history.Hindrance{Party: history.BMCEnd(do.AddFault.Host), For: long, Fails: true}}
			bend.fault.For, bend.fault.HoldsBack = rule.HoldsBack()
			bend.fault.Hangs = rule.Hangs()
			bends[do.AddFault.Name] = bend
		}
	}
	return bends
}

// Events returns an event for each fault that bent a client's request to the BMC of a host. A
// preset may consist of several rules, which carry its name and a number (name/1).
func (b Bends) Events(host, client string, r fakebmc.Record) []history.Event {
	var events []history.Event
	for _, rule := range r.Rules {
		name, _, _ := strings.Cut(rule, "/")
		if slices.ContainsFunc(events, func(e history.Event) bool { return e.Value == name }) {
			continue
		}
		e := history.Event{Kind: history.BMCFault, Host: host, Actor: client, Value: name, Note: string(r.Request.ResetType)}
		if bends, ok := b[name]; ok {
			e.Hinders = &bends.hinders
		}
		events = append(events, e)
	}
	return events
}
