package record

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	thismachine "github.com/fencelab/fencelab/lab/machine"
)

// groundwork names the steps that controllers must take before anything fails, for which the story
// waits. A controller without a finalizer on a Machine has no say in its deletion, and a host
// whose agent has announced nothing can't be relied on.
const groundwork = "the finalizers of Machines and the announcements of agents"

// deletesMachines reports whether a chosen controller deletes Machines.
func deletesMachines(chosen []controllers.Selection) bool {
	return slices.ContainsFunc(chosen, func(c controllers.Selection) bool {
		return cmp.Or(c.Plays, controllers.Part(c.Name)) == controllers.Deletion
	})
}

// forGroundwork is how long the story waits for groundwork when it waits for nothing else: a wrong
// controller lays none, nor does an agent that has no watchdog. A machine that is slow gets longer
// for it.
const forGroundwork = 10 * time.Second

// glanceAtGroundwork is how often it is looked for.
const glanceAtGroundwork = 100 * time.Millisecond

// AwaitGroundwork waits until the controllers have laid their groundwork.
func (s *Stream) AwaitGroundwork(ctx context.Context, from client.Reader, chosen []controllers.Selection) {
	var last time.Time // since when it is waited for alone
	for {
		laid, err := isLaid(ctx, from, chosen)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.Fail(fmt.Errorf("look for %s: %w", groundwork, err))
			return
		case laid, !last.IsZero() && time.Since(last) > thismachine.Budget(forGroundwork):
			s.laid()
			return
		case last.IsZero() && s.lacksOnly(groundwork):
			last = time.Now()
		}
		if !thismachine.Sleep(ctx, glanceAtGroundwork) {
			return
		}
	}
}

// isLaid reports whether each Machine has a finalizer, where somebody deletes Machines, and each
// Node its agents' announcements.
func isLaid(ctx context.Context, from client.Reader, chosen []controllers.Selection) (bool, error) {
	if deletesMachines(chosen) {
		var machines clusterv1.MachineList
		if err := from.List(ctx, &machines); err != nil {
			return false, err
		}
		if slices.ContainsFunc(machines.Items, func(m clusterv1.Machine) bool { return len(m.Finalizers) == 0 }) {
			return false, nil
		}
	}
	for _, c := range chosen {
		if c.Announces == "" {
			continue
		}
		var nodes corev1.NodeList
		if err := from.List(ctx, &nodes); err != nil {
			return false, err
		}
		if slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Annotations[c.Announces] == "" }) {
			return false, nil
		}
	}
	return true, nil
}
