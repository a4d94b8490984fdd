package remediation

import (
	"context"
	"fmt"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
)

// complain reports, once, what a user has to put right before anything is done.
func (r *Reconciler) complain(ctx context.Context, m *memory, f facts) {
	if node := f.foreign; f.machine != nil && marked(f.machine) && node != nil {
		r.warn(m, f.machine, "NodeOfAnotherMachine", fmt.Sprintf("the Node %s, which status.nodeRef names, %s: it is left alone", node.Name, f.whose.Why))
	}
	if f.machine != nil && f.check() != nil {
		reason := "NodeOfAnotherMachine"
		if f.whose.Owner == api.Unproven {
			reason = api.NodeUnproven
		}
		r.warn(m, f.machine, reason, f.anothersNode())
	}
	if f.sharer != "" {
		r.warn(m, f.machine, api.NodeUnproven, fmt.Sprintf("the Node %s, which status.nodeRef of Machine %s names, %s: to switch one host off proves nothing about the other, so neither is touched before the other one's Node has a name of its own",
			f.node.Name, client.ObjectKeyFromObject(f.machine), f.sharer))
	}
	if f.machine != nil || f.host == nil {
		return
	}
	name := client.ObjectKeyFromObject(f.host).String()
	if f.astray != nil && marked(f.astray) {
		r.warn(m, f.astray, "HostOfAnotherMachine", fmt.Sprintf(
			"the Machine is to be remediated, and BareMetalHost %s says that it is used by it, but its annotation %s is %q: nothing is done before the two agree",
			name, api.HostAnnotation, api.Shorten(f.astray.Annotations[api.HostAnnotation])))
	}
	if r.Warn == nil || !f.host.ProvisioningState().Provisioned() {
		return
	}
	var machines clusterv1.MachineList
	if err := r.Client.List(ctx, &machines, client.UnsafeDisableDeepCopy); err != nil {
		return // it is looked for again
	}
	for i := range machines.Items {
		if machine := &machines.Items[i]; marked(machine) && machine.Annotations[api.HostAnnotation] == name {
			r.warn(m, machine, "HostOfAnotherMachine", fmt.Sprintf(
				"the Machine is to be remediated, and its annotation %s names BareMetalHost %s, but the consumerRef of that names another or nobody: nothing is done before the two agree",
				api.HostAnnotation, name))
		}
	}
}

// anothersNode explains a nodeRef that leads to another's Node, or may.
func (f *facts) anothersNode() string {
	remedy := "correct the reference"
	if f.whose.Owner == api.Unproven {
		remedy = "set spec.providerID of both, or correct the reference"
	}
	return fmt.Sprintf("the Node %s, which status.nodeRef of Machine %s names, %s: %s",
		f.node.Name, client.ObjectKeyFromObject(f.machine), f.whose.Why, remedy)
}

// lateAnswers is how many late answers in a row are worth a warning.
const lateAnswers = 3

// count counts answers in a row that come too late: if a BMC is that slow, the host is asked for
// ever.
func (r *Reconciler) count(m *memory, f facts, action Action) {
	if action != AskAgain {
		m.lateAnswers = 0
		return
	}
	if m.lateAnswers++; m.lateAnswers == lateAnswers {
		within := r.Settings.AnswerWithin.Duration
		r.warn(m, f.host, "AnswersTooLate", fmt.Sprintf(
			"each of the last %d requests to hold the host off was answered when it was %s old or older, which is too old to delete its Node by: "+
				"set answerWithin of the remediation controller to more than what the BMC and the reboot controller take for an answer, and to less than the host takes to boot",
			lateAnswers, within.Round(time.Millisecond)))
	}
}

func (r *Reconciler) warn(m *memory, about client.Object, reason, message string) {
	said := warning{about.GetUID(), message}
	if r.Warn == nil || m.warned[said] {
		return
	}
	if m.warned == nil {
		m.warned = map[warning]bool{}
	}
	m.warned[said] = true
	r.Warn(about, reason, message)
}

// marked reports whether a Machine is to be remediated.
func marked(machine client.Object) bool {
	_, marked := machine.GetAnnotations()[api.ExternalRemediationAnnotation]
	return marked
}
