// Package kubetest is the conformance suite of the simulated API server: it
// performs sequences of requests on any client and writes down what a client
// can observe, with everything that may differ between two servers (UIDs,
// revisions, times, generated names) replaced by the order of its appearance.
// Two servers behave alike when their transcripts are equal.
//
// Sequences come from a table and from a seeded generator. Each entry of the table is a fact of
// the real server that matters or that was once modelled wrongly. A generated sequence on which
// two servers differ is shrunk before it is shown, so that it can go into the table.
//
// Requests are made one after another: each object is linearizable in etcd, so
// that concurrent requests add no outcome that some sequence doesn't have.
package kubetest

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
)

// An Op is one request. It is data, so that a failing sequence can be shrunk,
// printed and kept.
type Op struct {
	// Verb is get, list, create, update, patch, apply, delete, deleteall, evict, bind,
	// or managers, which reads the managers of fields.
	Verb string
	// Kind is Node, Pod, Lease, Secret, Event, PodDisruptionBudget, VolumeAttachment or
	// BareMetalHost.
	Kind string
	// Name is short; the run makes it unique. For a create, "x-*" asks the
	// server to generate a name.
	Name string
	// As is the form of the object: "" is typed, then unstructured and metadata.
	As string
	// Manager is the field manager, if not the client's own; Force takes fields from
	// others.
	Manager string
	Force   bool
	// DryRun says that the request stores nothing.
	DryRun bool
	// Status selects the status subresource.
	Status bool
	// Base is the version of the object that the request starts from: "" for
	// the current one, "previous" for the one before the newest that was seen,
	// "first" for the oldest seen (perhaps of an earlier object of that name),
	// "blank" for an object with only a name.
	Base string
	// Version and UID are "" to send what Base has, or "none" or "wrong".
	Version, UID string
	// Edit lists changes to Base, in order.
	Edit []string
	// Patch is merge, lock (merge with optimistic lock), strategic, or literal
	// JSON of a merge patch, with a leading "strategic:" or "json:" for those
	// types. In literal JSON, RV, OLDRV and UID stand for the values of the
	// current and the previous object. An apply has its configuration here, without
	// kind and name.
	Patch string
	// Grace is the grace period of a delete or evict in seconds, as text.
	Grace string
	// If holds the preconditions of a delete or evict: uid, wrong-uid, rv, old-rv. A bind has the
	// first two.
	If []string
}

func (o Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", o.Verb, o.Kind)
	if o.Status {
		b.WriteString("/status")
	}
	if o.Name != "" {
		b.WriteString(" " + o.Name)
	}
	flag := map[bool]string{true: "yes"}
	for _, part := range []struct{ name, value string }{
		{"as", o.As}, {"manager", o.Manager}, {"force", flag[o.Force]}, {"dryrun", flag[o.DryRun]},
		{"base", o.Base}, {"version", o.Version}, {"uid", o.UID}, {"edit", strings.Join(o.Edit, ",")},
		{"patch", o.Patch}, {"grace", o.Grace}, {"if", strings.Join(o.If, ",")},
	} {
		if part.value != "" {
			fmt.Fprintf(&b, " %s=%s", part.name, part.value)
		}
	}
	return b.String()
}

// A kind is a kind of object in sequences.
type kind struct {
	name       string
	namespaced bool
	object     func() client.Object
	list       func() client.ObjectList
	// valid fills in what the creation of a blank object needs.
	valid func(client.Object)
	// edits are the generator's further edits of this kind, beside the general ones.
	edits []string
	// status says that the kind has a status subresource.
	status bool
	// scripted says that only sequences of the table use the kind, and never the generator.
	scripted bool
}

var kinds = []kind{
	{
		name: "Node", status: true,
		object: func() client.Object { return &corev1.Node{} }, list: func() client.ObjectList { return &corev1.NodeList{} },
		edits: []string{"spec=0", "spec=1", "taint=1", "taint=2", "status=1", "status=2", "provider=1", "provider=2", "capacity=1", "capacity=2", "address"},
	},
	{
		name: "Pod", namespaced: true, status: true,
		object: func() client.Object { return &corev1.Pod{} }, list: func() client.ObjectList { return &corev1.PodList{} },
		valid: func(obj client.Object) {
			pod := obj.(*corev1.Pod)
			pod.Spec.NodeName = "n"
			pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "registry.invalid/c:1"}}
		},
		edits: []string{"status=1", "status=2", "nodename=", "nodename=m", "toleration"},
	},
	{
		name: "Lease", namespaced: true,
		object: func() client.Object { return &coordinationv1.Lease{} }, list: func() client.ObjectList { return &coordinationv1.LeaseList{} },
		edits: []string{"spec=1", "spec=2", "time=1", "time=2", "duration=0", "duration=5"},
	},
	{
		name: "Secret", namespaced: true,
		object: func() client.Object { return &corev1.Secret{} }, list: func() client.ObjectList { return &corev1.SecretList{} },
		edits: []string{"spec=1", "spec=2", "string=1", "nil", "type", "immutable"},
	},
	{
		name: "Event", namespaced: true,
		object: func() client.Object { return &corev1.Event{} }, list: func() client.ObjectList { return &corev1.EventList{} },
		valid: func(obj client.Object) { obj.(*corev1.Event).InvolvedObject.Namespace = namespace },
		edits: []string{"spec=1", "spec=2", "time=1"},
	},
	{
		name: "PodDisruptionBudget", namespaced: true, status: true, scripted: true,
		object: func() client.Object { return &policyv1.PodDisruptionBudget{} }, list: func() client.ObjectList { return &policyv1.PodDisruptionBudgetList{} },
		valid: func(obj client.Object) {
			obj.(*policyv1.PodDisruptionBudget).Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"l": "1"}}
		},
	},
	{
		name: "VolumeAttachment", status: true, scripted: true,
		object: func() client.Object { return &storagev1.VolumeAttachment{} }, list: func() client.ObjectList { return &storagev1.VolumeAttachmentList{} },
		valid: func(obj client.Object) {
			name := "v"
			obj.(*storagev1.VolumeAttachment).Spec = storagev1.VolumeAttachmentSpec{
				Attacher: "csi.fencelab.dev", NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name},
			}
		},
	},
	{
		name: "BareMetalHost", namespaced: true, status: true,
		object: func() client.Object { return &api.BareMetalHost{} }, list: func() client.ObjectList { return &api.BareMetalHostList{} },
		edits: []string{"spec=0", "spec=1", "bmc=1", "bmc=2", "consumer", "status=1", "status=2", "time=1", "time=2", "zerotime"},
	},
}

// Kinds returns the names of the kinds that generated sequences use.
func Kinds() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

func kindNamed(name string) kind {
	for _, k := range kinds {
		if k.name == name {
			return k
		}
	}
	panic(fmt.Sprintf("kubetest: unknown kind %q", name))
}

// namespace is where namespaced objects live; every API server has it.
const namespace = "default"

// metadataEdits apply to any kind.
var metadataEdits = []string{
	"label=1", "label=2", "mine", "unlabel", "annotate=1", "annotate=2", "unannotate", "empty",
	"finalizer+a", "finalizer+b", "finalizer-a", "finalizer-b", "owner", "generation", "created", "deleting", "badlabel", "badfinalizer",
}

// edit changes obj.
func edit(obj client.Object, e string) {
	name, value, _ := strings.Cut(e, "=")
	switch name {
	case "label":
		obj.SetLabels(map[string]string{"l": value})
	case "unlabel":
		obj.SetLabels(nil)
	case "badlabel":
		obj.SetLabels(map[string]string{"l": "not a label!"})
	case "annotate":
		obj.SetAnnotations(map[string]string{"a": value})
	case "unannotate":
		obj.SetAnnotations(nil)
	case "empty":
		obj.SetAnnotations(map[string]string{})
		obj.SetFinalizers([]string{})
	case "finalizer+a":
		obj.SetFinalizers(append(obj.GetFinalizers(), "fencelab.dev/a"))
	case "finalizer+b":
		obj.SetFinalizers(append(obj.GetFinalizers(), "fencelab.dev/b"))
	case "finalizer-a":
		obj.SetFinalizers(without(obj.GetFinalizers(), "fencelab.dev/a"))
	case "finalizer-b":
		obj.SetFinalizers(without(obj.GetFinalizers(), "fencelab.dev/b"))
	case "badfinalizer":
		obj.SetFinalizers([]string{"not a finalizer!"})
	case "owner":
		obj.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "o", UID: "00000000-0000-0000-0000-00000000000f"}})
	case "generation":
		obj.SetGeneration(77)
	case "created":
		obj.SetCreationTimestamp(metav1.Unix(1, 0))
	case "deleting":
		t := metav1.Unix(1, 0)
		obj.SetDeletionTimestamp(&t)
	case "drop", "blank", "wrong", "unknown": // of unstructured objects only
	default:
		editContent(obj, name, value)
	}
}

func without(list []string, drop string) []string {
	var kept []string
	for _, s := range list {
		if s != drop {
			kept = append(kept, s)
		}
	}
	return kept
}

// someTime has nanoseconds, which no encoding keeps.
func someTime(value string) time.Time {
	return time.Date(2024, 5, 6, 7, 8, 9, 123456789, time.UTC).Add(time.Duration(len(value)) * time.Nanosecond).
		Add(time.Duration(value[0]-'0') * time.Hour)
}

func editContent(obj client.Object, name, value string) {
	switch obj := obj.(type) {
	case *corev1.Node:
		switch name {
		case "spec":
			obj.Spec.Unschedulable = value == "1"
		case "taint":
			obj.Spec.Taints = []corev1.Taint{{Key: "fencelab.dev/t", Value: value, Effect: corev1.TaintEffectNoExecute}}
		case "twotaints":
			t := corev1.Taint{Key: "fencelab.dev/t", Effect: corev1.TaintEffectNoExecute}
			obj.Spec.Taints = []corev1.Taint{t, t}
		case "status":
			obj.Status.Conditions = []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: value,
				LastHeartbeatTime: metav1.NewTime(someTime(value)),
			}}
		case "provider":
			obj.Spec.ProviderID = "p" + value
		case "capacity":
			quantity := map[string]string{"1": "1000m", "2": "1"}[value]
			obj.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}
		case "address":
			obj.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
		}
	case *corev1.Pod:
		switch name {
		case "status":
			obj.Status.Phase = map[string]corev1.PodPhase{"1": corev1.PodRunning, "2": corev1.PodFailed}[value]
		case "ready":
			obj.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionStatus(value)}}
		case "nodename":
			obj.Spec.NodeName = value
		case "toleration":
			obj.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}
	case *coordinationv1.Lease:
		switch name {
		case "spec":
			obj.Spec.HolderIdentity = &value
		case "time":
			t := metav1.NewMicroTime(someTime(value))
			obj.Spec.RenewTime = &t
		case "duration":
			d := int32(value[0] - '0')
			obj.Spec.LeaseDurationSeconds = &d
		}
	case *corev1.Secret:
		switch name {
		case "spec":
			obj.Data = map[string][]byte{"k": []byte(value)}
		case "string":
			obj.StringData = map[string]string{"s": value}
		case "nil":
			obj.Data = map[string][]byte{"k": nil}
		case "type":
			obj.Type = "fencelab.dev/t"
		case "immutable":
			yes := true
			obj.Immutable = &yes
		}
	case *corev1.Event:
		switch name {
		case "spec":
			obj.Message = value
		case "time":
			obj.LastTimestamp = metav1.NewTime(someTime(value))
		}
	case *policyv1.PodDisruptionBudget:
		editBudget(obj, name, value)
	case *storagev1.VolumeAttachment:
		switch name {
		case "nodename":
			obj.Spec.NodeName = value
		case "attacher":
			obj.Spec.Attacher = value
		case "volume":
			obj.Spec.Source.PersistentVolumeName = &value
		case "attached":
			obj.Status.Attached = value == "1"
		}
	case *api.BareMetalHost:
		switch name {
		case "spec":
			obj.Spec.Online = value == "1"
		case "bmc":
			obj.Spec.BMC.Address = "redfish://" + value
		case "consumer":
			obj.Spec.ConsumerRef = &corev1.ObjectReference{Name: "m"}
		case "status":
			obj.Status.PoweredOn = value == "1"
			obj.Status.ErrorMessage = map[string]string{"1": "", "2": "broken"}[value]
		case "time":
			t := metav1.NewMicroTime(someTime(value))
			obj.Status.Provisioning.PendingRebootSince = &t
		case "zerotime":
			obj.Status.Provisioning.PendingRebootSince = &metav1.MicroTime{}
		}
	}
}

func editBudget(obj *policyv1.PodDisruptionBudget, name, value string) {
	number := func() int32 { return int32(value[0] - '0') }
	switch name {
	case "minimum":
		n := intstr.FromInt32(number())
		obj.Spec.MinAvailable = &n
	case "maximum":
		n := intstr.FromInt32(1)
		obj.Spec.MaxUnavailable = &n
	case "percent":
		n := intstr.FromString(value + "%")
		obj.Spec.MinAvailable = &n
	case "nothing":
		obj.Spec.Selector = nil
	case "always":
		always := policyv1.AlwaysAllow
		obj.Spec.UnhealthyPodEvictionPolicy = &always
	case "allowed":
		obj.Status.ObservedGeneration, obj.Status.DisruptionsAllowed = obj.Generation, number()
	case "healthy":
		obj.Status.CurrentHealthy, obj.Status.DesiredHealthy = number(), 1
	case "negative":
		obj.Status.DisruptionsAllowed = -1
	}
}

// editDynamic changes fields of an unstructured object. Unlike a typed one it can lack a field, or
// have one that is empty, of the wrong type or unknown.
func editDynamic(obj *unstructured.Unstructured, e string) {
	what, path, _ := strings.Cut(e, "=")
	at := strings.Split(path, ".")
	set := func(value any) {
		if err := unstructured.SetNestedField(obj.Object, value, at...); err != nil {
			panic(fmt.Sprintf("kubetest: edit %s: %v", e, err))
		}
	}
	switch what {
	case "drop":
		unstructured.RemoveNestedField(obj.Object, at...)
	case "blank":
		set("")
	case "wrong":
		set(map[string]any{"a": "b"})
	case "unknown":
		set("x")
	}
}
