package lab

import (
	"fmt"
	"path"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/lab/cluster"
	thismachine "github.com/fencelab/fencelab/lab/machine"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/objects"
	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// runs reports whether the control plane runs a standard controller.
func (b *Backend) runs(name string) bool { return slices.Contains(b.plane.Runs(), name) }

// controllers returns the controllers of the plan, and the stand-ins for those that the control
// plane lacks.
func (b *Backend) controllers() ([]controllers.Selection, error) {
	chosen, err := objects.Controllers(b.set, &b.plan.Spec)
	return slices.DeleteFunc(chosen, func(c controllers.Selection) bool { return b.replaces(c.Registration) }), err
}

// replaces reports whether the control plane runs all that a stand-in stands in for.
func (b *Backend) replaces(r controllers.Registration) bool {
	return r.StandIn() && !slices.ContainsFunc(r.StandsInFor, func(name string) bool { return !b.runs(name) })
}

// replaced are the reasons why stand-ins that a story lists can't be run.
func (o Options) replaced(set *controllers.Set, spec *scenarios.Spec) (reasons []string) {
	plane := o.ControlPlane()
	if plane != Standard && plane != Kind {
		return nil
	}
	is := func(controller string) bool {
		r, err := set.Lookup(controller)
		return err == nil && r.StandIn()
	}
	for _, c := range spec.Controllers {
		if is(c.Name) && !(plane == Standard && isFlag(&c)) {
			reasons = append(reasons, fmt.Sprintf("the controller %s: the control plane runs what it stands in for", c.Name))
		}
	}
	for i := range spec.Steps {
		do := spec.Steps[i].Do
		if do == nil {
			continue
		}
		switch {
		case do.Crash != nil && is(do.Crash.Controller) && (!do.Crash.AtOnce() || do.Crash.StaleBy > 0):
			reasons = append(reasons, "crash "+do.Crash.Controller+": kube-controller-manager, which runs what it stands in for, can be killed, but nobody knows its effects")
		case do.StartSecond != nil && is(do.StartSecond.Controller):
			reasons = append(reasons, "startSecond "+do.StartSecond.Controller+": kube-controller-manager, which runs what it stands in for, runs once")
		case do.FreezeCache != nil && is(do.FreezeCache.Controller), do.ThawCache != nil && is(do.ThawCache.Controller), do.ExpireWatch != nil && is(do.ExpireWatch.Controller):
			reasons = append(reasons, do.String()+": the caches of kube-controller-manager, which runs what it stands in for, are its own; run with --cluster embedded")
		case plane == Standard:
		case do.Crash != nil && is(do.Crash.Controller), do.PauseController != nil && is(do.PauseController.Controller):
			reasons = append(reasons, do.String()+": what it stands in for runs in the cluster itself; run with --cluster embedded or standard")
		}
	}
	return reasons
}

// manager returns the program of our control plane that plays the part of a stand-in, or nil.
func (b *Backend) manager(controller string) *standardManager {
	for _, m := range b.managers {
		if m.plays(controller) {
			return m
		}
	}
	return nil
}

// manage takes over the programs of our control plane that play the parts of stand-ins.
func (b *Backend) manage(c *cluster.Cluster) {
	b.plane.standard = c
	for _, program := range []*cluster.Component{c.Managing, c.Attaching} {
		if program == nil {
			continue
		}
		b.managers = append(b.managers, &standardManager{program: program, record: b.record, ctx: b.ctx, tasks: &b.tasks, plays: func(controller string) bool {
			r, err := b.set.Lookup(controller)
			return err == nil && b.replaces(r) && r.ReachesStorage == (program == c.Attaching)
		}})
	}
}

// createWorkload makes the exclusive workload of a cluster that has the standard controllers.
func (b *Backend) createWorkload() {
	if !b.nodesUp() {
		return
	}
	topology := &b.plan.Spec.Topology
	for _, obj := range exclusive(topology.NodeOf(topology.Workload.Host), topology.Workload.Volume) {
		if err := b.plane.admin.Create(b.ctx, obj, client.FieldOwner("scenario")); err != nil && b.ctx.Err() == nil {
			b.record.Fail(fmt.Errorf("create the exclusive workload: %T %s: %w", obj, obj.GetName(), err))
		}
	}
}

// nodesUp waits until all Nodes are Ready, and until the one where the story wants its
// workload takes Pods: before that the workload would start on another. It returns false if
// the run ends meanwhile.
func (b *Backend) nodesUp() bool {
	select {
	case <-b.record.NodesReady:
	case <-b.ctx.Done():
		return false
	}
	topology := &b.plan.Spec.Topology
	for host := topology.Workload.Host; host != "" && !b.takesPods(topology.NodeOf(host)); {
		if !thismachine.Sleep(b.ctx, taintPoll) {
			return false
		}
	}
	return true
}

// taintPoll is how often it is looked whether a new Node has lost its taint.
const taintPoll = 100 * time.Millisecond

// takesPods reports whether a Node has no taint, as every new one has until
// kube-controller-manager, or its stand-in, knows that it is Ready.
func (b *Backend) takesPods(name string) bool {
	var node corev1.Node
	err := b.plane.admin.Get(b.ctx, client.ObjectKey{Name: name}, &node)
	return err == nil && len(node.Spec.Taints) == 0
}

// workloadImage is on the disks of real nodes, which vms/node/build.sh makes.
const workloadImage = "localhost/exclusive:1"

// volume is the name of the exclusive workload's volume, and of its claim, if the topology names
// none.
const volume = "data"

// exclusive is a StatefulSet of one Pod with a volume that one Node at a time may use, and
// that is bound to none. Where the topology has none it is a directory of the host, which nothing
// attaches: the Pod's successor waits because the StatefulSet has one Pod of each name.
func exclusive(preferred string, attached *scenarios.Volume) []client.Object {
	volume := volume
	meta := metav1.ObjectMeta{Namespace: objects.Namespace, Name: objects.WorkloadName, Labels: map[string]string{"app": objects.WorkloadName}}
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	modes, none, one, no := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, "", int32(1), false
	directory := corev1.HostPathDirectoryOrCreate
	grace := int64(podGrace / time.Second)
	source := corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/" + objects.WorkloadName, Type: &directory}}
	pod := metav1.ObjectMeta{Labels: meta.Labels}
	if attached != nil {
		volume = attached.Name
		source = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: api.Attacher, VolumeHandle: volume}}
		pod.Annotations = map[string]string{api.VolumeAnnotation: volume} // for kubelets that read no claims
	}
	return []client.Object{
		&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: volume},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				ClaimRef:               &corev1.ObjectReference{Namespace: objects.Namespace, Name: volume},
				PersistentVolumeSource: source,
			},
		},
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: objects.Namespace, Name: volume},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: modes, StorageClassName: &none, VolumeName: volume, Resources: corev1.VolumeResourceRequirements{Requests: size},
			},
		},
		&appsv1.StatefulSet{
			ObjectMeta: meta,
			Spec: appsv1.StatefulSetSpec{
				Replicas: &one,
				Selector: &metav1.LabelSelector{MatchLabels: meta.Labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: pod,
					Spec: corev1.PodSpec{
						TerminationGracePeriodSeconds: &grace,
						AutomountServiceAccountToken:  &no,
						Containers:                    []corev1.Container{workloadContainer(volume, attached != nil)},
						Volumes: []corev1.Volume{
							{Name: volume, VolumeSource: corev1.VolumeSource{
								PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume},
							}},
							{Name: evidenceVolume, VolumeSource: corev1.VolumeSource{
								HostPath: &corev1.HostPathVolumeSource{Path: path.Dir(evidence.SocketPath)},
							}},
						},
						Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
							PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: corev1.NodeSelectorTerm{
								MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{preferred}}},
							}}},
						}},
					},
				},
			},
		},
	}
}

// evidenceVolume is how the Pod reaches the evidence port of its host.
const evidenceVolume = "evidence"

func workloadContainer(volume string, writes bool) corev1.Container {
	const data = "/data"
	c := corev1.Container{
		Name: "workload", Image: workloadImage, ImagePullPolicy: corev1.PullNever,
		Env: []corev1.EnvVar{{
			Name: evidence.PodVariable, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}},
		}},
		VolumeMounts: []corev1.VolumeMount{{Name: volume, MountPath: data}, {Name: evidenceVolume, MountPath: path.Dir(evidence.SocketPath)}},
	}
	if writes {
		c.Env = append(c.Env, corev1.EnvVar{Name: evidence.VolumeVariable, Value: path.Join(data, evidence.VolumeFile)})
	}
	return c
}
