package kube

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// attachmentStrategy is the strategy of a VolumeAttachment. Only its status can change, and a
// status write leaves the metadata alone.
var attachmentStrategy = strategy{
	create: func(s *Store, k *Kind, rec *record) error {
		if rec.obj.(*storagev1.VolumeAttachment).Spec.Source.InlineVolumeSpec != nil {
			return s.refuse("create", k, rec.key, "a volume within its attachment")
		}
		k.dropStatus(rec.obj)
		return nil
	},
	update: keepStatus[*storagev1.VolumeAttachment],
	updateStatus: func(_ *Store, k *Kind, rec, old *record) error {
		obj := k.shallow(old.obj)
		k.setStatus(obj, rec.obj)
		rec.obj = obj
		return nil
	},
	validate: validateAttachment,
}

func validateAttachment(obj, old client.Object) field.ErrorList {
	spec := &obj.(*storagev1.VolumeAttachment).Spec
	var errs field.ErrorList
	if old != nil && !equality.Semantic.DeepEqual(spec, &old.(*storagev1.VolumeAttachment).Spec) {
		errs = append(errs, immutable(specPath, spec))
	}
	if spec.Attacher == "" {
		errs = append(errs, field.Required(specPath.Child("attacher"), ""))
	}
	for _, name := range []struct{ path, value string }{{"attacher", spec.Attacher}, {"nodeName", spec.NodeName}} {
		for _, msg := range validation.IsDNS1123Subdomain(name.value) {
			errs = append(errs, field.Invalid(specPath.Child(name.path), name.value, msg))
		}
	}
	source := specPath.Child("source", "persistentVolumeName")
	switch volume := spec.Source.PersistentVolumeName; {
	case volume == nil || *volume == "":
		errs = append(errs, field.Required(source, ""))
	default:
		for _, msg := range validation.IsDNS1123Subdomain(*volume) {
			errs = append(errs, field.Invalid(source, *volume, msg))
		}
	}
	return errs
}
