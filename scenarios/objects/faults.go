package objects

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fencelab/fencelab/fakebmc"
	"github.com/fencelab/fencelab/scenarios"
)

// Faults are the faults that a scenario has added to its BMCs, in either world.
type Faults struct {
	bmcs map[string]*fakebmc.BMC
	// hosts are those of the faults, by their names.
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

// Bent are the faults, by name, whose rules fired on a request. A preset may consist
// of several rules, which carry its name and a number (name/1).
func Bent(rules []string) (faults []string) {
	for _, rule := range rules {
		name, _, _ := strings.Cut(rule, "/")
		if !slices.Contains(faults, name) {
			faults = append(faults, name)
		}
	}
	return faults
}
