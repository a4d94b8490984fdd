// Package oncluster plays the shards of a campaign as the indexes of a Job of Kubernetes, and
// follows it. All that it knows of a campaign stands in the cluster, so that another one can follow
// on.
package oncluster

import (
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options say how a campaign is played in a cluster.
type Options struct {
	// Namespace is where, and Name what its objects are called.
	Namespace, Name string
	// Image is fencelab's, or one of the same program with other controllers.
	Image string
	// Claim is the volume claim that takes the blobs; or Store is the place in a store, and Secret
	// has the variables that reach it, and maybe its certificate.
	Claim, Store, Secret string
	// Shards is how many there are, and Parallel how many are played at once.
	Shards, Parallel int32
	// Queue is a queue of Kueue's, which admits the Job; "" for none.
	Queue string
	// Files are the campaign and its stories, by their paths from a common directory, and File is
	// the campaign's.
	Files map[string][]byte
	File  string
}

// Key names the Job.
func (o Options) Key() client.ObjectKey {
	return client.ObjectKey{Namespace: o.Namespace, Name: o.Name}
}

const (
	// label marks the objects of a campaign.
	label = "fencelab.dev/campaign"
	queue = "kueue.x-k8s.io/queue-name"
	// workers is how many cores a Pod has.
	workers = 1
	// retries is how often an index is played again, which goes on from its blob. Disruptions don't
	// count, but Kubernetes counts a Pod that somebody deletes.
	retries = 5
	// certificate is the key of the store's authority in its Secret, if it has any.
	certificate = "ca.crt"
	// kept is how long the Job stays when it is done, in seconds: a day.
	kept = 24 * 60 * 60
	// most is how large a ConfigMap may be, with room for its keys.
	most = 1<<20 - 1<<14
	// invalid and little are the exit codes of shards that no further try mends: the input is
	// wrong, or the blob is whole and tests less than was promised. One that was stopped has
	// another code.
	invalid, little = 3, 2
)

// Objects returns a campaign for a cluster: an account that may do nothing, its files, and the Job.
func Objects(o Options) ([]client.Object, error) {
	meta := metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, Labels: map[string]string{label: o.Name}}
	files, items, size := make(map[string][]byte), []corev1.KeyToPath(nil), 0
	for i, path := range sorted(o.Files) {
		key := fmt.Sprintf("file-%d", i) // a key has no slashes
		files[key], items = o.Files[path], append(items, corev1.KeyToPath{Key: key, Path: path})
		size += len(o.Files[path])
	}
	if size > most {
		return nil, fmt.Errorf("the campaign's stories have %d bytes, and a ConfigMap takes %d: choose fewer, or such of the catalogue, which are in the image", size, most)
	}
	blobs := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: o.Claim}}
	if o.Store != "" {
		blobs = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	}
	job := &batchv1.Job{ObjectMeta: *meta.DeepCopy(), Spec: batchv1.JobSpec{
		CompletionMode: ptr.To(batchv1.IndexedCompletion), Completions: &o.Shards, Parallelism: ptr.To(min(o.Parallel, o.Shards)),
		BackoffLimitPerIndex: ptr.To(int32(retries)), MaxFailedIndexes: &o.Shards,
		PodReplacementPolicy: ptr.To(batchv1.Failed), TTLSecondsAfterFinished: ptr.To(int32(kept)),
		PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
			{
				Action:          batchv1.PodFailurePolicyActionIgnore, // it was evicted, preempted or drained, and goes on elsewhere
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
			},
			{
				Action:      batchv1.PodFailurePolicyActionFailIndex,
				OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{little, invalid}},
			},
		}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels}, Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: o.Name, AutomountServiceAccountToken: ptr.To(false),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(int64(65532)), RunAsGroup: ptr.To(int64(65532)), FSGroup: ptr.To(int64(65532)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "shard", Image: o.Image, ImagePullPolicy: corev1.PullIfNotPresent,
				Args: []string{
					"campaign", "run", "/campaign/" + o.File, "--shard", fmt.Sprintf("index/%d", o.Shards), "--workers", fmt.Sprint(workers),
					"--out", "/blobs/" + o.Name, "--summary", "/dev/termination-log",
				},
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError, // for the follower
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("512Mi")},
					Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "campaign", MountPath: "/campaign", ReadOnly: true}, {Name: "blobs", MountPath: "/blobs"}},
			}},
			Volumes: []corev1.Volume{
				{Name: "campaign", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: o.Name}, Items: items}}},
				{Name: "blobs", VolumeSource: blobs},
			},
		}},
	}}
	if o.Store != "" {
		pod := &job.Spec.Template.Spec
		shard := &pod.Containers[0]
		shard.Args = append(shard.Args, "--store", o.Store+"/"+o.Name)
		secret := corev1.LocalObjectReference{Name: o.Secret}
		shard.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: secret}}}
		shard.Env = []corev1.EnvVar{{Name: "SSL_CERT_FILE", Value: "/store/" + certificate}}
		shard.VolumeMounts = append(shard.VolumeMounts, corev1.VolumeMount{Name: "store", MountPath: "/store", ReadOnly: true})
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "store", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: o.Secret, Items: []corev1.KeyToPath{{Key: certificate, Path: certificate}}, Optional: ptr.To(true),
		}}})
	}
	if o.Queue != "" {
		job.Labels[queue], job.Spec.Suspend = o.Queue, ptr.To(true) // whose admission resumes it
	}
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta, AutomountServiceAccountToken: ptr.To(false)},
		&corev1.ConfigMap{ObjectMeta: meta, BinaryData: files, Immutable: ptr.To(true)},
		job,
	}, nil
}

// NameOf is the name of a campaign's objects: another campaign has another one.
func NameOf(campaign, digest string) string {
	const room = 63 - 1 - 8 - 6 // for the digest and for the number of a Pod
	return strings.TrimRight(campaign[:min(len(campaign), room)], "-.") + "-" + digest[:8]
}
