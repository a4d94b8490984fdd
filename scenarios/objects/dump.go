package objects

import (
	"encoding/json"
	"fmt"

	"github.com/fencelab/fencelab/scenarios/play"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Dump returns a report's view of the API: the last state of the objects of the dumped kinds.
func (kinds Kinds) Dump(list func(*Kind) ([]client.Object, error)) (play.Artifact, error) {
	dumped := []client.Object{}
	for _, kind := range kinds {
		if !kind.Dumped {
			continue
		}
		objs, err := list(kind)
		if err != nil {
			return play.Artifact{}, fmt.Errorf("dump every %s: %w", kind.Name, err)
		}
		for _, obj := range objs {
			obj = obj.DeepCopyObject().(client.Object)
			obj.GetObjectKind().SetGroupVersionKind(kind.GVK) // those of typed lists don't know it
			obj.SetManagedFields(nil)
			dumped = append(dumped, obj)
		}
	}
	data, err := json.MarshalIndent(dumped, "", "  ")
	if err != nil {
		return play.Artifact{}, fmt.Errorf("dump the API: %w", err)
	}
	return play.Artifact{Name: "api.json", Data: append(data, '\n')}, nil
}
