// Package release stands in for those who release a Pod and its volume when a Node is lost, where
// none of them runs: kube-controller-manager's attach-detach controller, pod garbage collector and
// taint eviction, and the external-attacher of a CSI driver. Each does what Kubernetes 1.36 does,
// also where that is surprising; docs/release.md lists it.
package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers/api"
)

// MaxWaitForUnmount is how long a volume that no Pod wants waits for its kubelet to unmount it. It
// is a constant of Kubernetes.
const MaxWaitForUnmount = 6 * time.Minute

// verifyEvery is how often the attach-detach controller looks whether what it has attached still
// is, and ListEvery how often it looks for Pods that it passed over. Both are Kubernetes' defaults.
const (
	verifyEvery = time.Minute
	ListEvery   = 3 * time.Minute
)

// DetachSettings are the options of the attach-detach controller.
type DetachSettings struct {
	// DisableForceDetachOnTimeout is kube-controller-manager's flag of that name.
	DisableForceDetachOnTimeout bool `json:"disableForceDetachOnTimeout"`
	// DetachFromDeletedNodes detaches at once from a Node that is gone, as kubernetes#136029 wants.
	DetachFromDeletedNodes bool `json:"detachFromDeletedNodes"`
	// LooksLive reads the Node from the API server before it trusts its taint, as kubernetes#141888
	// wants.
	LooksLive bool `json:"looksLive"`
}

// DefaultDetachSettings are Kubernetes' own.
func DefaultDetachSettings() DetachSettings { return DetachSettings{} }

// Attachment is all that is known of a volume and a Node. What it knows of Nodes is from a cache.
type Attachment struct {
	// Wanted: a Pod on the Node wants the volume. Attached: it is attached there, or may be.
	// Elsewhere: that is true of another Node.
	Wanted, Attached, Elsewhere bool
	// Detaching: that is under way.
	Detaching bool
	// InUse: the kubelet said last that it has it mounted, or nothing yet.
	InUse bool
	// NodeGone: there is no such Node. Ready and OutOfService are false then.
	NodeGone, Ready, OutOfService bool
	// Overdue: no Pod has wanted it for six minutes of this process's life.
	Overdue bool
}

// Action is the next step of an attachment.
type Action string

// The actions. DetachUnseen skips the live look at volumesInUse.
const (
	Nothing      Action = "Nothing"
	Wait         Action = "Wait"
	Attach       Action = "Attach"
	Detach       Action = "Detach"
	DetachUnseen Action = "DetachUnseen"
)

// Decide is Kubernetes' decision. Only the way by time asks whether the Node is Ready: the taint's
// doesn't, nor does the way of a volume that is no longer in use. And once the time is over, the
// live look is skipped for Nodes that are Ready as well.
func (s DetachSettings) Decide(a Attachment) Action {
	late := a.Overdue && !s.DisableForceDetachOnTimeout
	gone := a.NodeGone && s.DetachFromDeletedNodes
	switch {
	case a.Detaching:
		return Wait
	case a.Wanted && a.Attached:
		return Nothing
	case a.Wanted && a.Elsewhere:
		return Wait // one Node at a time may have it (ReadWriteOnce)
	case a.Wanted:
		return Attach
	case !a.Attached:
		return Nothing
	case a.InUse && !(late && !a.Ready) && !a.OutOfService && !gone:
		return Wait
	case late || a.OutOfService || gone:
		return DetachUnseen
	}
	return Detach
}

// AttachDetach is the attach-detach controller. All fields but the settings must be set.
type AttachDetach struct {
	Client   client.Client
	Live     client.Reader
	Clock    clock.PassiveClock
	Settings DetachSettings

	mutex sync.Mutex
	// known are the attachments that this process knows of; nil before it has looked for those of
	// its predecessor.
	known map[Place]*memory
	// verified is when it last looked whether they still are, and listed when at all Pods.
	verified, listed time.Time
	// managed has the Nodes whose Pods count, and whether each was there at the last look; pods has
	// the Pods that it has looked at.
	managed map[string]bool
	pods    map[types.UID]sight
}

// sight is how a Pod looked, and whether its Node was managed then.
type sight struct {
	version string
	counts  bool
}

// Place is a volume on a Node.
type Place struct{ Volume, Node string }

// memory is a process's knowledge of an attachment, which its successor lacks.
type memory struct {
	// attaching and detaching are operations under way. attached says that the first has ended, or
	// that a predecessor left it so.
	attaching, attached, detaching bool
	inUse                          bool
	// uncertain: a VolumeAttachment says so, and no Node. The volume is free for another Node.
	uncertain bool
	// inherited: a predecessor attached it, and no Pod has said yet which volume it is.
	inherited bool
	// unwanted is since when no Pod wants it.
	unwanted time.Time
}

// Reconcile looks at all attachments, whatever the request is about.
func (r *AttachDetach) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	s, err := survey(ctx, r.Client)
	if err != nil {
		return reconcile.Result{}, err
	}
	if r.known == nil {
		r.inherit(s)
		r.verified, r.listed = r.Clock.Now(), r.Clock.Now()
	}
	passed := r.admit(s)
	var again time.Duration
	sooner := func(left time.Duration) {
		if left > 0 && (again == 0 || left < again) {
			again = left
		}
	}
	var failed []error
	if r.Clock.Since(r.verified) >= verifyEvery {
		r.verified = r.Clock.Now()
		failed = append(failed, r.verify(ctx, s))
	}
	for _, at := range r.places(s) {
		if err := r.progress(ctx, s, at); err != nil {
			failed = append(failed, err)
		}
	}
	for _, at := range r.places(s) {
		left, err := r.look(ctx, s, at)
		sooner(left)
		if err != nil {
			failed = append(failed, fmt.Errorf("volume %s on Node %s: %w", at.Volume, at.Node, err))
		}
	}
	if len(r.known) > 0 {
		sooner(verifyEvery - r.Clock.Since(r.verified))
	}
	if passed {
		sooner(ListEvery - r.Clock.Since(r.listed))
	}
	return reconcile.Result{RequeueAfter: again}, errors.Join(failed...)
}

// admit decides whose Pods count. A Node is managed from when it is there until it is deleted while
// no Pod on it wants a volume: one that is deleted while a Pod does stays for as long as the
// process lives. A Pod whose Node isn't managed is passed over until it changes, or all Pods are
// looked at. It reports whether one is.
func (r *AttachDetach) admit(s *situation) (passed bool) {
	all := r.Clock.Since(r.listed) >= ListEvery
	if all {
		r.listed = r.Clock.Now()
	}
	seen := map[types.UID]sight{}
	wanted := map[Place]bool{}
	managed := map[string]bool{}
	for name := range s.nodes { // order does not matter: each fills its own entry
		managed[name] = true
	}
	for name, there := range r.managed { // order does not matter: each fills its own entry
		if s.nodes[name] == nil && !there {
			managed[name] = false // its deletion found a Pod that wanted a volume
		}
	}
	for _, pod := range s.pods {
		at := Place{api.VolumeOf(pod), pod.Spec.NodeName}
		before, known := r.pods[pod.UID]
		_, was := r.managed[at.Node]
		now := sight{pod.ResourceVersion, before.counts}
		if !known || all || before.version != now.version {
			now.counts = before.counts || was || s.nodes[at.Node] != nil
		}
		seen[pod.UID] = now
		if m := r.known[at]; m != nil {
			m.inherited = false
		}
		switch {
		case !wants(pod):
		case !now.counts:
			passed = true
		default:
			wanted[at] = true
			if was && s.nodes[at.Node] == nil {
				managed[at.Node] = false
			}
		}
	}
	r.managed, r.pods, s.wanted = managed, seen, wanted
	return passed
}

// verify forgets each attachment that somebody else has ended, so that it is made anew if a Pod
// still wants it.
func (r *AttachDetach) verify(ctx context.Context, s *situation) error {
	for _, at := range r.places(s) {
		m := r.known[at]
		if m == nil || !m.attached || m.uncertain || m.inherited || m.detaching {
			continue
		}
		var a storagev1.VolumeAttachment
		switch err := r.Live.Get(ctx, types.NamespacedName{Name: api.AttachmentName(at.Volume, at.Node)}, &a); {
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("look whether volume %s is attached to Node %s: %w", at.Volume, at.Node, err)
		case err == nil && a.Status.Attached:
			continue
		}
		delete(r.known, at)
		if err := r.report(ctx, at, false); err != nil {
			return err
		}
	}
	return nil
}

// situation has the contents of the cache.
type situation struct {
	nodes       map[string]*corev1.Node
	pods        []*corev1.Pod
	wanted      map[Place]bool
	attachments map[Place]*storagev1.VolumeAttachment
}

func survey(ctx context.Context, from client.Reader) (*situation, error) {
	s := &situation{nodes: map[string]*corev1.Node{}, attachments: map[Place]*storagev1.VolumeAttachment{}}
	var nodes corev1.NodeList
	var pods corev1.PodList
	var attachments storagev1.VolumeAttachmentList
	for _, list := range []client.ObjectList{&nodes, &pods, &attachments} {
		if err := from.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	for i := range nodes.Items {
		s.nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; api.VolumeOf(pod) != "" && pod.Spec.NodeName != "" {
			s.pods = append(s.pods, pod)
		}
	}
	for i := range attachments.Items {
		if a := &attachments.Items[i]; a.Spec.Attacher == api.Attacher && a.Spec.Source.PersistentVolumeName != nil {
			s.attachments[Place{*a.Spec.Source.PersistentVolumeName, a.Spec.NodeName}] = a
		}
	}
	return s, nil
}

// wants reports whether a Pod still wants its volumes: by its status alone, which stays as it is
// once its kubelet is cut off.
func wants(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodFailed, corev1.PodSucceeded:
		return false
	case corev1.PodRunning:
		return true
	}
	return pod.DeletionTimestamp == nil
}

// inherit takes over what the process before left: what Nodes say is attached, and
// VolumeAttachments whose state is not certain, which count as attached.
func (r *AttachDetach) inherit(s *situation) {
	r.known = map[Place]*memory{}
	for name, node := range s.nodes { // order does not matter: each fills its own entries
		for _, attached := range node.Status.VolumesAttached {
			if volume, ok := strings.CutPrefix(string(attached.Name), string(api.UniqueVolume(""))); ok {
				r.known[Place{volume, name}] = &memory{attached: true, inUse: true, inherited: true}
			}
		}
	}
	for at := range s.attachments { // order does not matter: each fills its own entry
		if r.known[at] == nil {
			r.known[at] = &memory{attached: true, inUse: true, uncertain: true}
		}
	}
}

// places are all that there is something to know of, in order.
func (r *AttachDetach) places(s *situation) []Place {
	var all []Place
	for at := range r.known { // order does not matter: sorted below
		all = append(all, at)
	}
	for at := range s.wanted { // order does not matter: sorted below
		if r.known[at] == nil {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, func(a, b Place) int { return cmp.Or(cmp.Compare(a.Volume, b.Volume), cmp.Compare(a.Node, b.Node)) })
	return all
}

// look does one step about an attachment, and says when to look again.
func (r *AttachDetach) look(ctx context.Context, s *situation, at Place) (time.Duration, error) {
	m, node := r.known[at], s.nodes[at.Node]
	a := Attachment{Wanted: s.wanted[at], NodeGone: node == nil, Elsewhere: r.elsewhere(at)}
	if node != nil {
		a.Ready, a.OutOfService = api.Ready(node), api.OutOfService(node)
	}
	if m != nil {
		// The last status of a Node that is gone counts on. One that is made anew has a status of
		// its own. Events that come together are looked at once.
		if node != nil {
			m.inUse = slices.Contains(node.Status.VolumesInUse, api.UniqueVolume(at.Volume))
		}
		a.Attached, a.Detaching, a.InUse = m.attached && !(m.uncertain && a.Wanted) || m.attaching, m.detaching, m.inUse
		a.Overdue = r.overdue(m, a.Wanted)
		if m.attaching {
			return 0, nil // one operation at a time
		}
	}
	switch action := r.Settings.Decide(a); action {
	case Nothing:
		if m != nil && node != nil && !slices.ContainsFunc(node.Status.VolumesAttached, func(v corev1.AttachedVolume) bool { return v.Name == api.UniqueVolume(at.Volume) }) {
			return 0, r.report(ctx, at, true) // the Node is another one
		}
	case Attach:
		return 0, r.attach(ctx, s, at)
	case Detach, DetachUnseen:
		return 0, r.detach(ctx, s, at, action == Detach)
	case Wait:
		if m != nil && !a.Wanted && !a.Detaching && !a.Overdue {
			return MaxWaitForUnmount + time.Millisecond - r.Clock.Since(m.unwanted), nil
		}
	}
	return 0, nil
}

func (r *AttachDetach) elsewhere(at Place) bool {
	for other := range r.known { // order does not matter: asking for any
		if other.Volume == at.Volume && other.Node != at.Node && !r.known[other].uncertain {
			return true
		}
	}
	return false
}

// overdue reports whether no Pod has wanted it for too long. The time begins when this process
// first sees that, so it begins anew with each process.
func (r *AttachDetach) overdue(m *memory, wanted bool) bool {
	if wanted {
		m.unwanted = time.Time{}
		return false
	}
	if m.unwanted.IsZero() {
		m.unwanted = r.Clock.Now()
	}
	return r.Clock.Since(m.unwanted) > MaxWaitForUnmount
}

// progress notes what has become of an operation.
func (r *AttachDetach) progress(ctx context.Context, s *situation, at Place) error {
	m, attachment := r.known[at], s.attachments[at]
	switch {
	case m == nil:
	case m.attaching && attachment != nil && attachment.DeletionTimestamp != nil:
		delete(r.known, at) // somebody detaches it
	case m.attaching && attachment != nil && attachment.Status.Attached:
		if err := r.report(ctx, at, true); err != nil {
			return err
		}
		m.attaching, m.attached = false, true
	case m.detaching && attachment == nil:
		delete(r.known, at)
	}
	return nil
}

func (r *AttachDetach) attach(ctx context.Context, s *situation, at Place) error {
	switch attachment := s.attachments[at]; {
	case attachment != nil && attachment.DeletionTimestamp != nil:
		return nil // its end is an event
	case attachment == nil:
		a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: api.AttachmentName(at.Volume, at.Node)}}
		a.Spec = storagev1.VolumeAttachmentSpec{Attacher: api.Attacher, NodeName: at.Node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &at.Volume}}
		if err := r.Client.Create(ctx, a); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create its VolumeAttachment: %w", err)
		}
	}
	r.known[at] = &memory{attaching: true, inUse: true} // until its Node says otherwise
	return nil
}

// errInUse is why a volume is not detached that no Pod wants.
var errInUse = errors.New("detach it: its Node says that it is in use")

// detach says first on the Node that the volume is no longer attached, so that its kubelet mounts
// it no more, and then deletes the VolumeAttachment.
func (r *AttachDetach) detach(ctx context.Context, s *situation, at Place, seen bool) error {
	if !seen && r.Settings.LooksLive {
		if err := r.revalidate(ctx, s, at); err != nil {
			return err
		}
	}
	if err := r.report(ctx, at, false); err != nil {
		return err
	}
	if seen {
		var node corev1.Node
		err := r.Live.Get(ctx, types.NamespacedName{Name: at.Node}, &node)
		switch {
		case apierrors.IsNotFound(err): // which counts as safe
		case err != nil:
			return fmt.Errorf("read its Node: %w", err)
		case slices.Contains(node.Status.VolumesInUse, api.UniqueVolume(at.Volume)):
			return errors.Join(errInUse, r.report(ctx, at, true))
		}
	}
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: api.AttachmentName(at.Volume, at.Node)}}
	if err := client.IgnoreNotFound(r.Client.Delete(ctx, a)); err != nil {
		return fmt.Errorf("delete its VolumeAttachment: %w", err)
	}
	r.known[at].detaching = true
	if s.attachments[at] == nil {
		delete(r.known, at)
	}
	return nil
}

// revalidate reads from the API server whether the Node still allows what the cache says of it.
func (r *AttachDetach) revalidate(ctx context.Context, s *situation, at Place) error {
	var node corev1.Node
	err := r.Live.Get(ctx, types.NamespacedName{Name: at.Node}, &node)
	switch cached := s.nodes[at.Node]; {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read its Node: %w", err)
	case cached == nil, api.OutOfService(cached) && !api.OutOfService(&node), !api.Ready(cached) && api.Ready(&node) && !api.OutOfService(&node):
		return errors.New("detach it by force: its Node is another than the cache has")
	}
	return nil
}

// report says on the Node whether the volume is attached to it, unless the Node is gone.
func (r *AttachDetach) report(ctx context.Context, at Place, attached bool) error {
	var node corev1.Node
	if err := r.Live.Get(ctx, types.NamespacedName{Name: at.Node}, &node); err != nil {
		return client.IgnoreNotFound(err)
	}
	name := api.UniqueVolume(at.Volume)
	list := slices.DeleteFunc(slices.Clone(node.Status.VolumesAttached), func(v corev1.AttachedVolume) bool { return v.Name == name })
	if attached {
		list = append(list, corev1.AttachedVolume{Name: name})
	}
	if len(list) == len(node.Status.VolumesAttached) {
		return nil
	}
	names := make([]string, len(list))
	for i := range list {
		names[i] = `{"name":` + api.Quote(string(list[i].Name)) + `,"devicePath":""}`
	}
	err := r.Client.Status().Patch(ctx, &node, api.SetStatus(&node, `"volumesAttached":[`+strings.Join(names, ",")+"]"))
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("say on its Node whether it is attached: %w", err)
	}
	return nil
}

// Everything is the request to look at all there is.
var Everything = reconcile.Request{}

// All maps every object to that request.
func All(context.Context, client.Reader, client.Object) []reconcile.Request {
	return []reconcile.Request{Everything}
}
