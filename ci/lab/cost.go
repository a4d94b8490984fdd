package lab

import (
	"cmp"

	"github.com/fencelab/fencelab/ci/lab/record"
	thismachine "github.com/fencelab/fencelab/ci/machine"
	"github.com/fencelab/fencelab/ci/slots"
	"github.com/fencelab/fencelab/scenarios"
)

// costs are how many slots of the machine the parts of a lab take, hosts by the piece: see package slots. What a part costs while
// the story is told is in docs/performance.md.
var costs = map[string]int{
	Embedded: 2, Standard: 3, Kind: 4, Kubeconfig: 1,
	Guest: 1, Node: 2, Model: 0,
	Redfish: 0, Ironic: 1,
	InProcess: 0, AsProcess: 0,
}

// cost is what the lab of a plan costs.
func (o Options) cost(plan *scenarios.Plan) int {
	if o.Alone {
		return slots.All
	}
	cost := costs[o.ControlPlane()] + costs[cmp.Or(o.Hosts, Guest)]*len(plan.Spec.Topology.Hosts) + costs[cmp.Or(o.Power, Redfish)]
	for _, c := range plan.Spec.Controllers {
		if c.Program != nil || c.Pods != nil {
			cost++ // somebody else's, which may be anything
		}
	}
	return cost
}

// enter waits until the machine has room for the lab.
func (b *Backend) enter() (err error) {
	thismachine.Slowness() // it is measured from now on
	b.turn, err = slots.Machine().Take(b.ctx, "a lab of "+b.plan.Metadata.Name, b.options.cost(b.plan), b.logf)
	return err
}

// up notes that the lab is: then the next can begin. One that is kept waits for people, and would keep all others waiting.
func (b *Backend) up() {
	b.account.Enter(record.Telling)
	if b.options.Kept {
		b.turn.Release()
		return
	}
	b.turn.Begun()
}
