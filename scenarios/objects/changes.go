// Package objects joins scenarios and the Kubernetes API, in both directions and
// for both worlds: Kinds says which objects there are, Topology makes those of a
// topology, and Names.Changes turns versions of them into the API events of a
// history. So an object means the same in the simulator's store and in a real API
// server.
package objects

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/api/fence"
	"github.com/fencelab/fencelab/scenarios/history"
)

// nodeFence is the life of a NodeFence, of which only the backup changes. It has its Node's name.
func nodeFence(before, after *fence.NodeFence, emit func(history.Event)) {
	switch {
	case before == nil:
		emit(history.Event{Kind: history.FenceRequested, Host: after.Name, Object: "NodeFence/" + after.Name, UID: string(after.UID), Value: after.Spec.Boot})
	case after == nil:
		emit(history.Event{Kind: history.FenceEnded, Host: before.Name, Object: "NodeFence/" + before.Name, UID: string(before.UID), Value: before.Spec.Boot})
	}
}

// storageFence emits the wishes of a StorageFence. Its end is none.
func storageFence(before, after *fence.StorageFence, emit func(history.Event)) {
	if after == nil || before != nil && before.Spec == after.Spec {
		return
	}
	kind := history.StorageFenceAsked
	if after.Spec.FenceState == fence.Unfenced {
		kind = history.StorageUnfenceAsked
	}
	emit(history.Event{Kind: kind, Host: after.Spec.Node, Object: "StorageFence/" + after.Name, UID: string(after.UID)})
}

// reservation emits the end of a module's objects' keeping their hosts for tenants.
func reservation(kind string, r controllers.Reservation) func(before, after client.Object, emit func(history.Event)) {
	keeps := func(obj client.Object) string {
		if obj == nil || !r.Keeps(obj) {
			return ""
		}
		return r.Host(obj)
	}
	return func(before, after client.Object, emit func(history.Event)) {
		if host := keeps(before); host != "" && keeps(after) != host {
			emit(history.Event{Kind: history.HostReleased, Host: host, Object: kind + "/" + before.GetName(), UID: string(before.GetUID())})
		}
	}
}

func node(before, after *corev1.Node, emit func(history.Event)) {
	if after == nil {
		finalizers(before, nil, history.Event{Host: before.Name, Object: "Node/" + before.Name, UID: string(before.UID)}, emit)
		emit(history.Event{Kind: history.NodeDeleted, Host: before.Name, Object: "Node/" + before.Name, UID: string(before.UID)})
		return
	}
	event := history.Event{Host: after.Name, Object: "Node/" + after.Name, UID: string(after.UID)}
	send := func(kind history.Kind, value string) {
		e := event
		e.Kind, e.Value = kind, value
		emit(e)
	}
	if before == nil {
		send(history.NodeCreated, "")
	} else if was := before.Status.NodeInfo.SystemUUID; was != after.Status.NodeInfo.SystemUUID {
		send(history.NodeTakenOver, was)
	}
	if before != nil && before.DeletionTimestamp == nil && after.DeletionTimestamp != nil {
		send(history.NodeDeleting, "")
	}
	finalizers(before, after, event, emit)
	if before == nil || !maps.Equal(before.Labels, after.Labels) {
		send(history.NodeLabels, labels(after.Labels))
	}
	if is := taints(after); is != taints(before) {
		send(history.NodeTaints, is)
	}
	if before == nil || !maps.Equal(before.Annotations, after.Annotations) {
		if is := notes(after); is != notes(before) {
			send(history.NodeAnnotations, is)
		}
	}
	if is := network(after); is != network(before) {
		send(history.NodeNetwork, is)
	}
	if is, was := status(after, corev1.NodeReady), status(before, corev1.NodeReady); is != was {
		kind := history.NodeNotReady
		if is == corev1.ConditionTrue {
			kind = history.NodeReady
		}
		e := event
		e.Kind, e.Note = kind, string(is)
		emit(e)
	}
	conditions(before, after, event, emit)
	if is := after.Annotations[fencedStamp]; before == nil && is != "" || before != nil && before.Annotations[fencedStamp] != is {
		e := event
		e.Kind, e.Key, e.Value = history.Stamped, fencedStamp, is
		emit(e)
	}
	if was := before != nil && api.OutOfService(before); was != api.OutOfService(after) {
		if was {
			send(history.NodeInService, "")
		} else {
			send(history.NodeOutOfService, "")
		}
	}
	if is := inUse(after); is != inUse(before) {
		send(history.VolumesInUse, is)
	}
	if was := before != nil && before.Spec.Unschedulable; was != after.Spec.Unschedulable {
		if after.Spec.Unschedulable {
			send(history.NodeCordoned, "")
		} else {
			send(history.NodeUncordoned, "")
		}
	}
}

// finalizers emits those that came and went, in domains that are a user's to write to; of a Pod
// all, since no controller under test has one there, and a Job's Pods have Kubernetes' own.
func finalizers[T interface {
	comparable
	metav1.Object
}](before, after T, event history.Event, emit func(history.Event)) {
	var none T
	of := func(obj T) (set []string) {
		if obj == none {
			return nil
		}
		for _, name := range obj.GetFinalizers() {
			if domain, _, prefixed := strings.Cut(name, "/"); prefixed && (strings.HasPrefix(event.Object, "Pod/") || !isReserved(domain)) {
				set = append(set, name)
			}
		}
		return set
	}
	was, is := of(before), of(after)
	for _, name := range is {
		if e := event; !slices.Contains(was, name) {
			e.Kind, e.Key = history.FinalizerAdded, name
			emit(e)
		}
	}
	for _, name := range was {
		if e := event; !slices.Contains(is, name) {
			e.Kind, e.Key = history.FinalizerRemoved, name
			emit(e)
		}
	}
}

// conditions emits the changes of a Node's conditions other than Ready.
func conditions(before, after *corev1.Node, event history.Event, emit func(history.Event)) {
	changed := func(kind corev1.NodeConditionType) {
		if is, e := status(after, kind), event; kind != corev1.NodeReady && is != status(before, kind) {
			e.Kind, e.Key, e.Value = history.NodeCondition, string(kind), string(is)
			emit(e)
		}
	}
	for i := range after.Status.Conditions {
		changed(after.Status.Conditions[i].Type)
	}
	if before == nil {
		return
	}
	for i := range before.Status.Conditions {
		if kind := before.Status.Conditions[i].Type; nodeCondition(after, kind) == nil {
			changed(kind)
		}
	}
}

// nodeCondition returns a Node's condition of a type, or nil.
func nodeCondition(n *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	if n == nil {
		return nil
	}
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

// status returns the status of a Node's condition, or "" without one.
func status(n *corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	if c := nodeCondition(n, kind); c != nil {
		return c.Status
	}
	return ""
}

// inUse lists the volumes of stories that a Node's kubelet says it has mounted.
func inUse(n *corev1.Node) string {
	if n == nil {
		return ""
	}
	var volumes []string
	for _, name := range n.Status.VolumesInUse {
		if volume, ok := strings.CutPrefix(string(name), string(api.UniqueVolume(""))); ok {
			volumes = append(volumes, volume)
		}
	}
	return strings.Join(volumes, ",")
}

// attachment emits the request to detach a story's own volume. Other drivers are not there.
func attachment(before, after *storagev1.VolumeAttachment, emit func(history.Event)) {
	if before == nil || before.Spec.Attacher != api.Attacher || before.DeletionTimestamp != nil || after != nil && after.DeletionTimestamp == nil {
		return
	}
	emit(history.Event{Kind: history.DetachAsked, Host: before.Spec.NodeName, Object: "VolumeAttachment/" + before.Name, UID: string(before.UID), Value: *before.Spec.Source.PersistentVolumeName})
}

// fencedStamp is the annotation that agents leave on a Node that they have cordoned.
const fencedStamp = "poison-pill.fencelab.dev/fenced"

// Date gives a NodeNotReady or a NodeCondition, which is seen now, the age of the Node's condition
// by its own word. An age of a second or less is left out, since Kubernetes' times have whole
// seconds.
func Date(e *history.Event, node metav1.Object, now time.Time) {
	if e.Kind == history.MachineCondition {
		since, _ := time.Parse(time.RFC3339, e.Note) // zero without one
		e.Note = age(since, now)
		return
	}
	n, ok := node.(*corev1.Node)
	if !ok || e.Kind != history.NodeNotReady && e.Kind != history.NodeCondition {
		return
	}
	kind, into := corev1.NodeReady, &e.Value
	if e.Kind == history.NodeCondition {
		kind, into = corev1.NodeConditionType(e.Key), &e.Note
	}
	if c := nodeCondition(n, kind); c != nil {
		*into = age(c.LastTransitionTime.Time, now)
	}
}

// age is how long something has been so since a time, in words, empty if that is not known.
func age(since, now time.Time) string {
	if since.IsZero() || now.Sub(since) <= time.Second {
		return ""
	}
	return now.Sub(since).Round(time.Millisecond).String()
}

func labels(set map[string]string) string {
	pairs := make([]string, 0, len(set))
	for key, value := range set { // order does not matter: sorted below
		pairs = append(pairs, key+"="+value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

// network lists the ranges of Pod addresses of a Node.
func network(n *corev1.Node) string {
	if n == nil || len(n.Spec.PodCIDRs) == 0 {
		return ""
	}
	ranges := make(map[string]string)
	for i, is := range n.Spec.PodCIDRs {
		ranges[strconv.Itoa(i)] = is
	}
	return labels(ranges)
}

// spec sends what has changed in the spec of a host, but for fields with events of their own. A
// field that had no value may be set by any part.
func spec(before, after api.BareMetalHostSpec, event history.Event, emit func(history.Event)) {
	others := func(spec api.BareMetalHostSpec) api.BareMetalHostSpec {
		spec.Online, spec.ConsumerRef = false, nil
		return spec
	}
	before, after = others(before), others(after)
	if before == after {
		return
	}
	fields := func(of api.BareMetalHostSpec) (fields map[string]json.RawMessage) {
		data, err := json.Marshal(of)
		if err == nil {
			err = json.Unmarshal(data, &fields)
		}
		if err != nil {
			panic(err) // both come from the API
		}
		return fields
	}
	was, is := fields(before), fields(after)
	for _, key := range slices.Sorted(maps.Keys(was)) {
		if !bytes.Equal(was[key], is[key]) && string(was[key]) != "{}" {
			e := event
			e.Kind, e.Key, e.Value = history.SpecChanged, "spec."+key, api.Shorten(string(is[key]))
			emit(e)
		}
	}
}

// taints lists those of a Node that stay until whoever has set them takes them away: Kubernetes'
// own come and go with the Node's conditions, and out-of-service has its own events.
func taints(n *corev1.Node) string {
	if n == nil {
		return ""
	}
	var set map[string]string // made only for a Node that has one: this is asked of every version
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		if domain, _, _ := strings.Cut(t.Key, "/"); domain != "node.kubernetes.io" && domain != "node.cloudprovider.kubernetes.io" {
			if set == nil {
				set = make(map[string]string)
			}
			set[t.Key+":"+string(t.Effect)] = t.Value
		}
	}
	return labels(set)
}

// notes lists the annotations of a Node in domains that are a user's to write to.
func notes(n *corev1.Node) string {
	if n == nil {
		return ""
	}
	set := make(map[string]string, len(n.Annotations))
	for key, value := range n.Annotations { // order does not matter: labels sorts
		domain, _, prefixed := strings.Cut(key, "/")
		if prefixed && isReserved(domain) {
			continue
		}
		if len(value) > 63 || strings.Contains(value, ",") {
			sum := sha256.Sum256([]byte(value))
			value = "sha256:" + hex.EncodeToString(sum[:8])
		}
		set[key] = value
	}
	return labels(set)
}

// isReserved reports whether Kubernetes' own components, or fencelab's, write to a domain.
func isReserved(domain string) bool {
	return slices.ContainsFunc(reserved, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) })
}

var reserved = []string{"kubernetes.io", "k8s.io", "x-k8s.io", "metal3.io", "fencelab.dev"}

func pod(before, after *corev1.Pod, emit func(history.Event)) {
	boundTo := func(p *corev1.Pod) string {
		if p == nil {
			return ""
		}
		return p.Spec.NodeName
	}
	event := func(kind history.Kind, p *corev1.Pod) history.Event {
		return history.Event{Kind: kind, Host: p.Spec.NodeName, Object: "Pod/" + p.Name, UID: string(p.UID), Value: p.Annotations[api.NodeUIDAnnotation]}
	}
	one := after
	if one == nil {
		one = before
	}
	finalizers(before, after, event("", one), emit)
	switch {
	case after == nil:
		emit(event(history.PodDeleted, before))
	case boundTo(before) == "" && boundTo(after) != "":
		e := event(history.PodBound, after)
		e.Key = stays(after)
		emit(e)
	case before != nil && before.DeletionTimestamp == nil && after.DeletionTimestamp != nil && (graceful(after) || len(after.Finalizers) > 0):
		emit(event(history.PodTerminating, after))
	}
}

// stays says why a drain leaves a Pod alone, empty if it doesn't: a DaemonSet would make it
// again at once, and one that a kubelet runs from a file is only shown by the API server.
func stays(p *corev1.Pod) string {
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return "static"
	}
	if owner := metav1.GetControllerOf(p); owner != nil && owner.Kind == "DaemonSet" && strings.HasPrefix(owner.APIVersion, "apps/") {
		return "daemon"
	}
	return ""
}

// graceful reports whether a Pod that is marked for deletion has time left: another is gone
// at once.
func graceful(p *corev1.Pod) bool {
	return p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds > 0
}

func host(before, after *api.BareMetalHost, emit func(history.Event)) {
	deleted := after == nil
	if deleted { // what it has said ends with it; a new one says anew whether it is on, and is to be
		after = &api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: before.Name, UID: before.UID}}
		after.Spec.Online, after.Status.PoweredOn = before.Spec.Online, before.Status.PoweredOn
		after.Status.Provisioning.State = before.ProvisioningState()
	}
	event := history.Event{Host: after.Name, Object: "BareMetalHost/" + after.Name, UID: string(after.UID)}
	if before != nil && !deleted {
		spec(before.Spec, after.Spec, event, emit)
		entries("labels", before.Labels, after.Labels, byKubectl, event, emit)
		entries("annotations", before.Annotations, after.Annotations, mattersOnHost, event, emit)
		if !powerError(after) { // which has the only place that there is for errors
			entries("status", foreignError(before), foreignError(after), nil, event, emit)
		}
	}
	send := func(kind history.Kind, value string) {
		e := event
		e.Kind, e.Value = kind, value
		emit(e)
	}
	if before == nil {
		before = new(api.BareMetalHost)
		before.Spec.Online = !after.Spec.Online
		before.Status.PoweredOn = !after.Status.PoweredOn
		send(history.BareMetalHostCreated, "")
	}
	annotations(before.Annotations, after.Annotations, mattersOnHost, event, emit)
	if before.Spec.Online != after.Spec.Online {
		send(history.OnlineWanted, strconv.FormatBool(after.Spec.Online))
	}
	if is := consumer(after); is != consumer(before) {
		send(history.HostConsumer, is)
	}
	if before.Status.PoweredOn != after.Status.PoweredOn {
		send(history.PowerReported, strconv.FormatBool(after.Status.PoweredOn))
	}
	was, is := &before.Status.Provisioning, &after.Status.Provisioning
	if state := after.ProvisioningState(); state != before.ProvisioningState() {
		send(history.ProvisioningState, string(state))
	}
	if pending := microTime(is.PendingRebootSince); pending != microTime(was.PendingRebootSince) {
		send(history.PendingRebootSince, pending)
	}
	if booted := microTime(is.LastPoweredOn); booted != microTime(was.LastPoweredOn) {
		send(history.LastPoweredOn, booted)
	}
	if !maps.Equal(was.HeldOffFor, is.HeldOffFor) {
		send(history.HeldOffFor, labels(is.HeldOffFor))
	}
	if failing := powerError(after); failing != powerError(before) {
		send(history.PowerError, strconv.FormatBool(failing))
	}
	if deleted {
		send(history.BareMetalHostDeleted, "")
	}
}

func consumer(h *api.BareMetalHost) string {
	switch ref := h.Spec.ConsumerRef; {
	case ref == nil:
		return ""
	case ref.Namespace != "" && ref.Namespace != h.Namespace: // another owner, which may have the same name
		return ref.Kind + "/" + ref.Namespace + "/" + ref.Name
	default:
		return ref.Kind + "/" + ref.Name
	}
}

func microTime(t *metav1.MicroTime) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.UTC().Format(metav1.RFC3339Micro)
}

// entries sends what has become of entries that have no kind of event of their own.
func entries(of string, was, is map[string]string, own func(string) bool, event history.Event, emit func(history.Event)) {
	others := func(key string) bool { return own == nil || !own(key) }
	annotations(was, is, others, event, func(e history.Event) {
		if before, had := was[e.Key]; had {
			e.Note = strconv.Quote(api.Shorten(before))
		}
		e.Kind, e.Key = history.SpecChanged, of+"["+e.Key+"]"
		emit(e)
	})
}

// byKubectl reports whether an annotation is a note of kubectl.
func byKubectl(key string) bool { return key == corev1.LastAppliedConfigAnnotation }

// foreignError is the error of a host that is none of power.
func foreignError(h *api.BareMetalHost) map[string]string {
	if h.Status.ErrorType == "" || powerError(h) {
		return nil
	}
	return map[string]string{"errorType": string(h.Status.ErrorType)}
}

// powerError reports whether the status has an error of the BMC, or has the message of one whose
// type is gone.
func powerError(h *api.BareMetalHost) bool {
	return h.Status.ErrorType == api.PowerManagementError || h.Status.ErrorType == "" && h.Status.ErrorMessage != ""
}

func mattersOnHost(key string) bool {
	return api.IsRebootAnnotation(key) || key == clusterv1.PausedAnnotation
}

func mattersOnMachine(key string) bool {
	switch key {
	case api.ExternalRemediationAnnotation, api.PoweredOffForRemediationAnnotation, api.NodeBackupAnnotation, clusterv1.PausedAnnotation, clusterv1.MachineSkipRemediationAnnotation,
		clusterv1.RemediateMachineAnnotation, clusterv1.ExcludeNodeDrainingAnnotation, clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation:
		return true
	}
	return api.IsDeletionHook(key)
}

// notedOnMachine reports whether an annotation has events of its own, or is kept by kubectl.
func notedOnMachine(key string) bool {
	return mattersOnMachine(key) || key == api.MarkedBootAnnotation || key == api.HostAnnotation || byKubectl(key)
}

// foreignConditions has the conditions of a Machine that Cluster API doesn't write.
func foreignConditions(m *clusterv1.Machine) map[string]string {
	var all map[string]string
	for i := range m.Status.Conditions {
		if c := &m.Status.Conditions[i]; !ownConditions[c.Type] {
			if all == nil {
				all = make(map[string]string)
			}
			all[c.Type] = "there"
		}
	}
	return all
}

// ownConditions has the others. Cluster API says who writes them, and how they come and go.
var ownConditions = map[string]bool{
	clusterv1.MachineHealthCheckSucceededCondition: true, clusterv1.MachineOwnerRemediatedCondition: true, clusterv1.MachineDeletingCondition: true,
	clusterv1.MachineNodeHealthyCondition: true, clusterv1.MachineNodeReadyCondition: true, clusterv1.ReadyCondition: true, clusterv1.AvailableCondition: true,
	clusterv1.PausedCondition: true, clusterv1.InfrastructureReadyCondition: true, clusterv1.BootstrapConfigReadyCondition: true,
}

func machine(before, after *clusterv1.Machine, emit func(history.Event)) {
	event := func(m *clusterv1.Machine) history.Event {
		return history.Event{Host: cmp.Or(hostOf(m), hostOf(before), hostOf(after)), Object: "Machine/" + m.Name, UID: string(m.UID)}
	}
	send := func(kind history.Kind, m *clusterv1.Machine, value string) {
		e := event(m)
		e.Kind, e.Value = kind, value
		emit(e)
	}
	marks := func(was, is map[string]string, e history.Event) {
		annotations(was, is, mattersOnMachine, e, emit)
	}
	one := after
	if one == nil {
		one = before
	}
	finalizers(before, after, event(one), emit)
	if before != nil && after != nil && before.DeletionTimestamp == nil {
		entries("labels", before.Labels, after.Labels, byKubectl, event(after), emit)
		entries("annotations", before.Annotations, after.Annotations, notedOnMachine, event(after), emit)
		entries("conditions", foreignConditions(before), foreignConditions(after), nil, event(after), emit)
	}
	switch {
	case before == nil:
		send(history.MachineCreated, after, "")
		marks(nil, after.Annotations, event(after))
	case after == nil:
		marks(before.Annotations, nil, event(before))
		send(history.MachineDeleted, before, "")
	case event(before).Host != event(after).Host: // what was asked of one host is asked of the other
		marks(before.Annotations, nil, event(before))
		marks(nil, after.Annotations, event(after))
	default:
		marks(before.Annotations, after.Annotations, event(after))
	}
	nodeRef := func(m *clusterv1.Machine) string {
		if m == nil {
			return ""
		}
		return m.Status.NodeRef.Name
	}
	if after != nil && nodeRef(after) != nodeRef(before) {
		send(history.MachineNode, after, nodeRef(after))
	}
	stamp := func(m *clusterv1.Machine) string {
		if m == nil {
			return ""
		}
		return m.Annotations[api.MarkedBootAnnotation]
	}
	if is := stamp(after); after != nil && is != stamp(before) {
		e := event(after)
		e.Kind, e.Key, e.Value = history.Stamped, api.MarkedBootAnnotation, is
		emit(e)
	}
	drain, detach := deletionLimits(after)
	drained, detached := deletionLimits(before)
	if after != nil && drain != drained {
		send(history.DrainTimeout, after, drain)
	}
	if after != nil && detach != detached {
		send(history.DetachTimeout, after, detach)
	}
	if before != nil && after != nil && before.DeletionTimestamp == nil && after.DeletionTimestamp != nil {
		send(history.MachineDeleting, after, "")
	}
	if after != nil && deletionPhase(after) != deletionPhase(before) {
		send(history.DeletionPhase, after, deletionPhase(after))
	}
}

// deletionLimits returns how long the drain of a Machine's Node may take, and how long its volumes
// are waited for, each empty without a limit.
func deletionLimits(m *clusterv1.Machine) (drain, detach string) {
	limit := func(seconds *int32) string {
		if seconds == nil || *seconds == 0 {
			return ""
		}
		return (time.Duration(*seconds) * time.Second).String()
	}
	if m == nil {
		return "", ""
	}
	return limit(m.Spec.Deletion.NodeDrainTimeoutSeconds), limit(m.Spec.Deletion.NodeVolumeDetachTimeoutSeconds)
}

// deletionPhase returns the phase of deletion that a Machine's condition reports.
func deletionPhase(m *clusterv1.Machine) string {
	if m == nil {
		return ""
	}
	for i := range m.Status.Conditions {
		if c := &m.Status.Conditions[i]; c.Type == clusterv1.MachineDeletingCondition && c.Status == metav1.ConditionTrue {
			return c.Reason
		}
	}
	return ""
}

// hostOf is the BareMetalHost that a Machine consumes, by its annotation; empty without one, or
// without a Machine.
func hostOf(m *clusterv1.Machine) string {
	if m == nil {
		return ""
	}
	if namespace, host, ok := strings.Cut(m.Annotations[api.HostAnnotation], "/"); ok && namespace != "" && host != "" {
		return host
	}
	return ""
}

// annotations emits the changes among the annotations that matter, by key.
func annotations(was, is map[string]string, matters func(string) bool, event history.Event, emit func(history.Event)) {
	if maps.Equal(was, is) {
		return
	}
	var keys []string
	for key := range was { // order does not matter: sorted below
		if matters(key) {
			keys = append(keys, key)
		}
	}
	for key := range is { // order does not matter: sorted below
		if _, both := was[key]; matters(key) && !both {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		e := event
		e.Key = key
		before, had := was[key]
		after, has := is[key]
		switch {
		case !has:
			e.Kind = history.AnnotationRemoved
		case !had || before != after:
			e.Kind, e.Value = history.AnnotationSet, after
		default:
			continue
		}
		emit(e)
	}
}

// Delivery names what it is to learn of a change, by the first of the events that stand for it:
// "deliver node-deleted Node/worker-1". It is empty if no event does. Values are not in it, for no
// two runs have the same UIDs and times.
func Delivery(kind *Kind, before, after metav1.Object) (name string) {
	if kind.Changes == nil {
		return ""
	}
	kind.Changes(before, after, func(e history.Event) {
		if name != "" {
			return
		}
		object := after
		if object == nil {
			object = before
		}
		name = "deliver " + string(e.Kind) + " " + kind.Name + "/" + object.GetName()
		if e.Key != "" {
			name += " " + e.Key
		}
	})
	return name
}
