package sim

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/controllers/release"
	"github.com/fencelab/fencelab/lab/cluster"
	"github.com/fencelab/fencelab/lab/csi"
	"github.com/fencelab/fencelab/scenarios/history"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/sim/kube"
	"github.com/fencelab/fencelab/vms/keeper"
)

var (
	recordReleases = flag.Bool("releases", false, "play all scripts with the real kube-controller-manager and external-attacher, which takes half an hour, and record what they do")
	releaseScripts = flag.Int("release-scripts", 40, "`number` of recorded scripts that the stand-ins play")
)

func TestMain(m *testing.M) {
	keeper.Main()
	os.Exit(m.Run())
}

// The scripts: half of them with a kube-controller-manager that is killed at minute five.
const (
	scriptCount  = 400
	scriptLength = 5
	killedAt     = 5 * time.Minute
	scriptFor    = 14 * time.Minute // at most, from its first operation to its end
	startsWithin = 2 * time.Minute
)

const releasesFile = "testdata/releases.txt"

// TestReleases compares the stand-ins with the recorded deeds of the real controllers: after each
// operation of a script, what became of its Pods, VolumeAttachments and Nodes before the next. The
// record doesn't say where in a round of kube-controller-manager an operation came, so any place
// will do: the pod garbage collector has one of 20 s, and the attach-detach controller one of 60 s.
// Which of two Pods gets a volume that both want is a matter of chance there.
func TestReleases(t *testing.T) {
	if *recordReleases {
		writeReleases(t)
	}
	recorded := recordedReleases(t)
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range rng.Perm(len(recorded))[:min(*releaseScripts, len(recorded))] {
		s := newScript(n)
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if s.blurred() {
				t.Skip("when exactly kube-controller-manager had started again is not on record, and an operation came just then")
			}
			want, best := recorded[s.name], ""
			for variant := range 120 * len(paces) {
				s.swapped = variant%120 >= 60
				got := playReleases(t, s, time.Duration(variant%60)*time.Second, paces[variant/120])
				if got == want {
					return
				}
				if d := gocmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); best == "" || len(d) < len(best) {
					best = d
				}
			}
			t.Errorf("the real controllers (-) and the stand-ins (+) differ, wherever their rounds begin:\n%s", best)
		})
	}
}

// TestPassedOver: a Pod that came before its Node gets its volume within the three minutes in which
// all Pods are looked at, though nothing else happens and nothing is attached.
func TestPassedOver(t *testing.T) {
	s := &script{steps: []scriptStep{{createPod, "a", "", 4 * time.Second}, {createNode, "a", "", release.ListEvery}}}
	if did := playReleases(t, s, 0, paces[0]); !strings.Contains(did, "VolumeAttachment a: there; attached\n") {
		t.Errorf("the Pod waits for its volume:\n%s", did)
	}
}

// recordedReleases returns the deeds of the real controllers, by script.
func recordedReleases(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(releasesFile)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]string{}
	for _, part := range strings.Split(string(data), "\n== ")[1:] {
		name, did, _ := strings.Cut(part, " ==\n")
		byName[name] = strings.TrimRight(did, "\n") + "\n"
	}
	return byName
}

// script has users' operations on two Nodes, a Pod on each, and the volume that both want.
type script struct {
	number int
	name   string
	// starts is its place in a cluster that plays many at once.
	starts time.Duration
	killed bool
	steps  []scriptStep
	// swapped has the names of the Nodes sort the other way round.
	swapped bool
}

// scriptStep is an operation, and the time until the next.
type scriptStep struct {
	verb, on string // on is a or b
	value    string
	then     time.Duration
}

func (s scriptStep) String() string { return strings.TrimSpace(s.verb + " " + s.on + " " + s.value) }

// The verbs.
const (
	createNode, deleteNode, setReady, setInUse, setTaint = "create Node", "delete Node", "ready", "in use", "taint"
	createPod, deletePod, forcePod, setPhase, detach     = "create Pod", "delete Pod", "force Pod", "phase", "delete VolumeAttachment"
)

// newScript is the script of a number, always the same. It begins with both Nodes, the first of
// which runs a Pod with the volume.
func newScript(number int) *script {
	rng := rand.New(rand.NewPCG(58, uint64(number)))
	s := &script{number: number, name: fmt.Sprintf("script %d", number), starts: time.Duration(rng.Int64N(int64(startsWithin))).Round(time.Second), killed: number%2 == 1}
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	const settle = 30 * time.Second
	s.steps = []scriptStep{{createNode, "a", "", time.Second}, {createNode, "b", "", time.Second}, {createPod, "a", "", settle}, {setInUse, "a", "true", 4 * time.Second}}
	if rng.IntN(2) == 0 {
		s.steps = append(s.steps, scriptStep{createPod, "b", pick("", "tolerates"), settle})
	}
	total := time.Duration(0)
	for range scriptLength {
		step := scriptStep{on: pick("a", "a", "b")}
		switch step.verb = pick(deleteNode, deleteNode, createNode, setReady, setReady, setInUse, setTaint, setTaint, createPod, deletePod, deletePod, forcePod, setPhase, detach); step.verb {
		case setReady, setInUse:
			step.value = pick("true", "false")
		case setTaint:
			step.value = pick("out-of-service:NoExecute", "out-of-service:NoSchedule", "evict:NoExecute", "none")
		case createPod:
			step.value = pick("", "tolerates", "tolerates 10 s")
		case setPhase:
			step.value = pick("Running", "Failed", "Succeeded")
		}
		step.then = []time.Duration{4 * time.Second, 4 * time.Second, 100 * time.Second, 400 * time.Second}[rng.IntN(4)]
		if total+step.then > scriptFor-100*time.Second {
			step.then = 4 * time.Second
		}
		total += step.then
		s.steps = append(s.steps, step)
	}
	s.steps[len(s.steps)-1].then += 100 * time.Second
	return s
}

// blurred reports whether an operation comes within the few seconds in which a
// kube-controller-manager that was killed starts again, or when its six minutes are over.
func (s *script) blurred() bool {
	at := time.Duration(0)
	for _, step := range s.steps {
		for _, moment := range []time.Duration{killedAt, killedAt + release.MaxWaitForUnmount} {
			if d := at - (moment - s.starts); s.killed && -2*time.Second < d && d < 15*time.Second {
				return true
			}
		}
		at += step.then
	}
	return false
}

// nodeName, podName and volume are unique in a cluster.
func (s *script) nodeName(on string) string {
	if s.swapped {
		on = map[string]string{"a": "b", "b": "a"}[on]
	}
	return fmt.Sprintf("s%d-%s", s.number, on)
}
func (s *script) podName(on string) string { return s.nodeName(on) }
func (s *script) volume() string           { return fmt.Sprintf("s%d", s.number) }

// owns reports whether an object is the script's.
func (s *script) owns(obj client.Object) bool {
	name := obj.GetName()
	if a, ok := obj.(*storagev1.VolumeAttachment); ok {
		name = a.Spec.NodeName
	}
	return strings.HasPrefix(name, s.volume()+"-")
}

// released is an API server, which users write to.
type released interface {
	create(obj client.Object) error
	get(obj client.Object) error
	// update writes all of an object that was read, or its status.
	update(obj client.Object, status bool) error
	remove(obj client.Object, grace *int64) error
}

// do does an operation. What isn't there, or is there already, is left alone.
func (s *script) do(to released, step scriptStep) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.nodeName(step.on)}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: objects.Namespace, Name: s.podName(step.on)}}
	change := func(obj client.Object, status bool, edit func()) error {
		for {
			if err := to.get(obj); err != nil {
				return err
			}
			edit()
			if err := to.update(obj, status); !apierrors.IsConflict(err) {
				return err
			}
		}
	}
	var err error
	switch step.verb {
	case createNode:
		node.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		err = to.create(node)
	case deleteNode:
		err = to.remove(node, nil)
	case setReady:
		err = change(node, true, func() {
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: map[string]corev1.ConditionStatus{"true": corev1.ConditionTrue, "false": corev1.ConditionUnknown}[step.value]}}
		})
	case setInUse:
		err = change(node, true, func() {
			if node.Status.VolumesInUse = nil; step.value == "true" {
				node.Status.VolumesInUse = []corev1.UniqueVolumeName{api.UniqueVolume(s.volume())}
			}
		})
	case setTaint:
		err = change(node, false, func() {
			key, effect, _ := strings.Cut(step.value, ":")
			switch node.Spec.Taints = nil; key {
			case "out-of-service":
				node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffect(effect)}}
			case "evict":
				node.Spec.Taints = []corev1.Taint{{Key: "fencelab.dev/evict", Effect: corev1.TaintEffect(effect)}}
			}
		})
	case createPod:
		pod.Annotations = map[string]string{api.VolumeAnnotation: s.volume()}
		pod.Spec.NodeName = node.Name
		pod.Spec.Containers = []corev1.Container{{Name: "workload", Image: "workload"}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: s.volume()}}}}
		if tolerates, within, _ := strings.Cut(step.value, " "); tolerates != "" {
			toleration := corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
			if within != "" {
				toleration.TolerationSeconds = new(int64(10))
			}
			pod.Spec.Tolerations = []corev1.Toleration{toleration}
		}
		err = to.create(pod)
	case deletePod:
		err = to.remove(pod, nil)
	case forcePod:
		err = to.remove(pod, new(int64))
	case setPhase:
		err = change(pod, true, func() { pod.Status.Phase = corev1.PodPhase(step.value) })
	case detach:
		err = to.remove(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: api.AttachmentName(s.volume(), node.Name)}}, nil)
	}
	if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// transcript has a script's operations, and what each led to.
type transcript struct {
	s *script
	// states are of objects, by their names in the script; did are the changes since the last
	// operation.
	states map[string]string
	did    map[string][]string
	text   strings.Builder
}

func newTranscript(s *script) *transcript {
	return &transcript{s: s, states: map[string]string{}, did: map[string][]string{}}
}

// saw notes an object's next state; gone says that it was deleted.
func (n *transcript) saw(obj client.Object, gone bool) {
	name, state := obj.GetName(), ""
	if a, ok := obj.(*storagev1.VolumeAttachment); ok {
		name = a.Spec.NodeName
	}
	if name == n.s.nodeName("a") {
		name = "a"
	} else {
		name = "b"
	}
	switch obj := obj.(type) {
	case *corev1.Pod:
		name = "Pod " + name
		state = "there"
		if obj.Status.Phase == corev1.PodFailed || obj.Status.Phase == corev1.PodSucceeded {
			state = string(obj.Status.Phase)
		}
	case *storagev1.VolumeAttachment:
		name = "VolumeAttachment " + name
		if state = "there"; obj.Status.Attached {
			state = "attached"
		}
	case *corev1.Node:
		name = "Node " + name
		if state = "there"; len(obj.Status.VolumesAttached) > 0 {
			state = "says attached"
		}
	}
	if obj.GetDeletionTimestamp() != nil {
		state += ", to be deleted"
	}
	if gone {
		state = "gone"
	}
	if n.states[name] != state {
		n.states[name] = state
		n.did[name] = append(n.did[name], state)
	}
}

// next begins with the next operation.
func (n *transcript) next(operation string) {
	for _, name := range slices.Sorted(maps.Keys(n.did)) {
		fmt.Fprintf(&n.text, "    %s: %s\n", name, strings.Join(n.did[name], "; "))
	}
	clear(n.did)
	if operation != "" {
		n.text.WriteString(operation + "\n")
	}
}

// steadyStorage is storage that does what it is asked.
type steadyStorage struct{}

func (steadyStorage) Attach(context.Context, string, string) error { return nil }
func (steadyStorage) Detach(context.Context, string, string) error { return nil }
func (steadyStorage) Fence(context.Context, string) error          { return nil }
func (steadyStorage) Unfence(context.Context, string) error        { return nil }

// pace is how long an operation takes, and how long a kube-controller-manager that was killed is
// away. Where the scripts were recorded it was one of these, or between them.
type pace struct{ operation, away time.Duration }

var paces = []pace{{0, 2 * time.Second}, {500 * time.Millisecond, 2 * time.Second}}

// playReleases plays a script with the stand-ins. Their rounds begin some time before.
func playReleases(t *testing.T, s *script, before time.Duration, p pace) string {
	w := simulated{open(t, nil, nil)}
	w.st.b.process("nodelifecycle").end() // a script says itself whether its Nodes are Ready
	var manager []*process
	for _, name := range []string{"attacher", "attachdetach", "podgc", "tainteviction"} {
		registration, err := controllers.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if build := registration.New; registration.ReachesStorage {
			registration.New = func(d controllers.Deps) (reconcile.Reconciler, error) {
				d.Storage = func(time.Duration) release.Storage { return steadyStorage{} }
				return build(d)
			}
		}
		started := w.Start(t, registration, 1)[0].(simulatedProcess).process
		if name != "attacher" {
			manager = append(manager, started)
		}
	}
	w.st.pass(startLatency + before)
	killAt := w.st.now + killedAt - s.starts
	pass := func(d time.Duration) {
		if until := w.st.now + d; s.killed && w.st.now < killAt && killAt <= until {
			w.st.pass(killAt - w.st.now)
			for _, controller := range manager {
				controller.stop(death{})
				controller.restart(p.away)
			}
			d = until - w.st.now
		}
		w.st.pass(d)
	}
	kinds := []*kube.Kind{w.kind(t, &corev1.Pod{}), w.kind(t, &corev1.Node{}), w.kind(t, &storagev1.VolumeAttachment{})}
	seen := make([]int, len(kinds))
	n := newTranscript(s)
	look := func() {
		for i, k := range kinds {
			log := w.st.b.store.Log(k)
			for _, c := range log[seen[i]:] {
				if obj := cmp.Or(c.New, c.Old); s.owns(obj) {
					n.saw(obj, c.New == nil)
				}
			}
			seen[i] = len(log)
		}
	}
	for _, step := range s.steps {
		look()
		n.next(step.String())
		if err := s.do(inStore{w}, step); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		pass(p.operation + step.then)
	}
	look()
	n.next("")
	return n.text.String()
}

// inStore is a released API server.
type inStore struct{ simulated }

// create leaves out a Pod's claim, for which its annotation stands.
func (w inStore) create(obj client.Object) error {
	if pod, ok := obj.(*corev1.Pod); ok {
		pod.Spec.Volumes = nil
	}
	_, err := w.st.b.store.Create(history.User, obj)
	return err
}

func (w inStore) get(obj client.Object) error {
	kind, err := w.st.b.store.Server().KindOf(obj)
	if err != nil {
		return err
	}
	stored, err := w.st.b.store.Get(kind, client.ObjectKeyFromObject(obj))
	if err == nil {
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(stored.DeepCopyObject()).Elem())
	}
	return err
}

func (w inStore) update(obj client.Object, status bool) (err error) {
	if status {
		_, err = w.st.b.store.UpdateStatus(history.User, obj)
	} else {
		_, err = w.st.b.store.Update(history.User, obj)
	}
	return err
}

func (w inStore) remove(obj client.Object, grace *int64) error {
	kind, err := w.st.b.store.Server().KindOf(obj)
	if err != nil {
		return err
	}
	return w.st.b.store.Delete(history.User, kind, client.ObjectKeyFromObject(obj), &metav1.DeleteOptions{GracePeriodSeconds: grace})
}

// writeReleases plays every script with the real controllers and writes the file.
func writeReleases(t *testing.T) {
	did := make([]string, scriptCount)
	var both sync.WaitGroup
	for _, killed := range []bool{false, true} {
		both.Go(func() { inCluster(t, killed, did) })
	}
	both.Wait()
	if t.Failed() {
		t.FailNow()
	}
	var b strings.Builder
	b.WriteString("What kube-controller-manager and an external-attacher do after what users do. Recorded by go test -releases.\n")
	for i, text := range did {
		fmt.Fprintf(&b, "\n== %s ==\n%s", newScript(i).name, text)
	}
	if err := os.WriteFile(releasesFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// inCluster plays half of the scripts, side by side.
func inCluster(t *testing.T, killed bool, did []string) {
	driver := func(socket string) error {
		listener, err := net.Listen("unix", socket)
		if err == nil {
			server := csi.NewServer(api.Attacher, steadyStorage{})
			go func() { _ = server.Serve(listener) }()
			t.Cleanup(server.Stop)
		}
		return err
	}
	c, err := cluster.Launch(t.Context(), cluster.Options{Standard: &cluster.Standard{Driver: driver, Without: []string{cluster.NodeLifecycle}}})
	if err != nil {
		t.Error(err)
		return
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()
	config := rest.CopyConfig(c.Config())
	config.QPS = -1
	users, err := client.NewWithWatch(config, client.Options{Scheme: api.NewScheme()})
	if err != nil {
		t.Error(err)
		return
	}
	var scripts []*script
	byNumber := map[string]*transcript{}
	for i := range did {
		if s := newScript(i); s.killed == killed {
			scripts = append(scripts, s)
			byNumber[s.volume()] = newTranscript(s)
		}
	}
	real := &realReleases{WithWatch: users, ctx: t.Context(), transcripts: byNumber}
	for _, s := range scripts {
		if err := real.prepare(s); err != nil {
			t.Error(err)
			return
		}
	}
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.NodeList{}, &storagev1.VolumeAttachmentList{}} {
		w, err := users.Watch(t.Context(), list)
		if err != nil {
			t.Error(err)
			return
		}
		defer w.Stop()
		go func() {
			for e := range w.ResultChan() {
				if obj, ok := e.Object.(client.Object); ok {
					real.saw(obj, e.Type == watch.Deleted)
				}
			}
		}()
	}
	time.Sleep(20 * time.Second) // until every claim is bound
	var playing sync.WaitGroup
	for _, s := range scripts {
		playing.Go(func() {
			time.Sleep(s.starts)
			for _, step := range s.steps {
				real.next(s, step.String())
				if err := s.do(real, step); err != nil {
					t.Errorf("%s: %s: %v", s.name, step, err)
				}
				time.Sleep(step.then)
			}
			real.next(s, "")
		})
	}
	if killed {
		time.Sleep(killedAt)
		if err := errors.Join(c.Managing.Kill(), c.Managing.Start()); err != nil {
			t.Error(err)
		}
	}
	playing.Wait()
	for _, s := range scripts {
		did[s.number] = byNumber[s.volume()].text.String()
	}
}

// realReleases is a released API server.
type realReleases struct {
	client.WithWatch
	ctx context.Context

	mu          sync.Mutex
	transcripts map[string]*transcript // by the script's volume
}

// prepare makes the objects that a script's Pods need. The simulator's have an annotation.
func (r *realReleases) prepare(s *script) error {
	none, size := "", corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	wanted := []client.Object{
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: s.volume()}, Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:               &corev1.ObjectReference{Namespace: objects.Namespace, Name: s.volume()},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: api.Attacher, VolumeHandle: s.volume()}},
		}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: objects.Namespace, Name: s.volume()}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, StorageClassName: &none, VolumeName: s.volume(), Resources: corev1.VolumeResourceRequirements{Requests: size},
		}},
	}
	for _, on := range []string{"a", "b"} {
		wanted = append(wanted, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: s.nodeName(on)}, Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: api.Attacher, NodeID: s.nodeName(on)}},
		}})
	}
	for _, obj := range wanted {
		if err := r.create(obj); err != nil {
			return fmt.Errorf("prepare %s: create %T: %w", s.name, obj, err)
		}
	}
	return nil
}

func (r *realReleases) create(obj client.Object) error { return r.Create(r.ctx, obj) }
func (r *realReleases) get(obj client.Object) error {
	return r.Get(r.ctx, client.ObjectKeyFromObject(obj), obj)
}

// update reports a running container with a Pod that runs: without one the Pod counts as stopped.
func (r *realReleases) update(obj client.Object, status bool) error {
	if pod, ok := obj.(*corev1.Pod); ok && pod.Status.Phase == corev1.PodRunning {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}
	} else if ok {
		pod.Status.ContainerStatuses = nil
	}
	if status {
		return r.Status().Update(r.ctx, obj)
	}
	return r.Update(r.ctx, obj)
}

func (r *realReleases) remove(obj client.Object, grace *int64) error {
	return r.Delete(r.ctx, obj, &client.DeleteOptions{GracePeriodSeconds: grace})
}

func (r *realReleases) saw(obj client.Object, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.transcripts { // order does not matter: one owns it
		if n.s.owns(obj) {
			n.saw(obj, gone)
		}
	}
}

func (r *realReleases) next(s *script, operation string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.transcripts[s.volume()].next(operation)
}
