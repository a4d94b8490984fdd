package poisonpill

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/api/fence"
)

// survey holds the findings of a look at the API server, by the names of Nodes.
type survey struct {
	fences   map[string]*fence.NodeFence
	nodes    map[string]*corev1.Node
	machines map[string]*clusterv1.Machine
	readings *readings
	// lost are the marked Machines that have no Node or name another's.
	lost []*clusterv1.Machine
}

// look reads the present state. NodeFences come first and Nodes last. So if a mark stands while
// there was no NodeFence before, it wasn't answered meanwhile; and a Machine written at the
// version read here was marked while its Node reported that boot.
func look(ctx context.Context, api client.Reader, r *readings) (*survey, error) {
	s := &survey{readings: r, fences: map[string]*fence.NodeFence{}, nodes: map[string]*corev1.Node{}, machines: map[string]*clusterv1.Machine{}}
	var fences fence.NodeFenceList
	if err := api.List(ctx, &fences, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the NodeFences: %w", err)
	}
	for i := range fences.Items {
		s.fences[fences.Items[i].Name] = &fences.Items[i]
	}
	var machines clusterv1.MachineList
	if err := api.List(ctx, &machines, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Machines: %w", err)
	}
	var nodes corev1.NodeList
	if err := api.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Nodes: %w", err)
	}
	for i := range nodes.Items {
		s.nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	r.forget(s.nodes)
	for i := range machines.Items {
		m := &machines.Items[i]
		if node := m.Status.NodeRef.Name; node != "" && s.owns(m, machines.Items) {
			s.machines[node] = m
		} else if isMarked(m) {
			s.lost = append(s.lost, m)
		}
	}
	return s, nil
}

// owns reports whether the Node that a Machine names, if it exists, is the Machine's (design,
// decisions 19 and 23). Where provider IDs don't decide, the host's report is the announcement by
// the agent of the Node's boot, or a fenced boot of this very Machine, whose agent is gone. A Node
// that reports no boot belongs to the Machine that alone refers to it.
func (s *survey) owns(m *clusterv1.Machine, machines []clusterv1.Machine) bool {
	name := m.Status.NodeRef.Name
	node := s.nodes[name]
	if node == nil {
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	if proof, told := api.ByProviderID(m, node); told {
		return proof.Owner == api.Own
	}
	reported := s.readings.of(node).Boot
	if f := s.fences[name]; f != nil && f.Spec.Machine.UID == m.UID {
		reported = bootOf(node)
	}
	if bootOf(node) == "" {
		return api.AnothersToo(m, node, machines).Owner == ""
	}
	return api.ByReport(m, node, reported, machines).Owner == api.Own
}

// machineOf returns the Machine that a NodeFence is for, or the one that has its Node now. One that
// names no Node for the moment has the boot in its stamp.
func (s *survey) machineOf(f *fence.NodeFence) *clusterv1.Machine {
	if m := s.machines[f.Name]; m != nil {
		return m
	}
	for _, m := range s.lost {
		if m.UID == f.Spec.Machine.UID && m.Status.NodeRef.Name == "" && m.Annotations[api.MarkedBootAnnotation] == f.Spec.Boot {
			return m
		}
	}
	return nil
}

// marked reports whether the Machine of a Node is to be remediated.
func (s *survey) marked(node string) bool {
	m := s.machines[node]
	return m != nil && isMarked(m)
}

// stamp returns the boot that the mark of a Node's Machine is, or was, known to be about.
func (s *survey) stamp(node string) string {
	if m := s.machines[node]; m != nil {
		return m.Annotations[api.MarkedBootAnnotation]
	}
	return ""
}

func isMarked(m *clusterv1.Machine) bool {
	_, marked := m.Annotations[api.ExternalRemediationAnnotation]
	return marked
}

// fenced reports whether a boot of a Node's host has to end.
func (s *survey) fenced(node, boot string) bool {
	f := s.fences[node]
	return f != nil && f.Spec.Boot == boot
}

// unanswered reports whether a Node's Machine is marked for a boot and has no NodeFence: even one
// of an earlier boot answers the mark. While the Node still reports an earlier boot, the mark is
// about that one, and a NodeFence of a later boot would be taken for one that is over. So is one
// that is stamped with an earlier boot: whoever has stamped it is about to make the NodeFence.
func (s *survey) unanswered(node, boot string) bool {
	told, stamp := bootOf(s.nodes[node]), s.stamp(node)
	return s.marked(node) && s.fences[node] == nil && (told == boot || s.nodes[node] == nil) && (stamp == "" || stamp == boot)
}

// knownTo reports whether the agent of a Node has announced that it knows a NodeFence.
func (s *survey) knownTo(node string, fence types.UID) bool {
	return slices.Contains(s.readings.of(s.nodes[node]).Knows, fence)
}

// knows returns the UIDs of all NodeFences, sorted.
func (s *survey) knows() []types.UID {
	var uids []types.UID
	for _, f := range s.fences { // order does not matter: sorted below
		uids = append(uids, f.UID)
	}
	slices.Sort(uids)
	return uids
}

func ready(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// addresses returns the addresses of the peer on a Node's host.
func addresses(node *corev1.Node) []string {
	var all []string
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			all = append(all, a.Address)
		}
	}
	return all
}
