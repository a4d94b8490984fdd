package objects

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios"
	"github.com/fencelab/fencelab/scenarios/play"
)

// diary is an API server that has two Machines, and notes what it is asked.
type diary struct {
	away  bool
	notes []string
}

func (d *diary) note(err error, format string, args ...any) error {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
	return err
}

func (d *diary) Takes() bool { return !d.away }

func (d *diary) Names(kind *Kind, labels map[string]string) ([]string, error) {
	if kind.GVK.Kind == "Machine" && labels["rack"] == "a" {
		return []string{"m1", "m2"}, nil
	}
	return nil, nil
}

func (d *diary) Merge(by, name string, obj client.Object, patch []byte, status, strict bool) error {
	var err error
	if obj.GetName() == "gone" {
		err = apierrors.NewNotFound(schema.GroupResource{Resource: "machines"}, "gone")
	}
	return d.note(err, "%s merges %s: %s (status %v, strict %v)", by, name, patch, status, strict)
}

func (d *diary) Delete(by, name string, obj client.Object) error {
	return d.note(apierrors.NewNotFound(schema.GroupResource{}, obj.GetName()), "%s deletes %s", by, name)
}

func (d *diary) Create(by string, kind *Kind, obj client.Object, status bool) error {
	return d.note(nil, "%s creates %s/%s (status %v)", by, kind.GVK.Kind, obj.GetName(), status)
}

// TestUsers: what users do comes to the same requests in every world, and what a schedule keeps
// them from is no mistake of the story.
func TestUsers(t *testing.T) {
	rack := map[string]string{"rack": "a"}
	for name, tc := range map[string]struct {
		do          func(Users) error
		away        bool
		want        string
		ineffective bool
	}{
		"annotate": {do: func(u Users) error {
			return u.Annotate(&scenarios.AnnotateOp{Object: "Machine/m1", Key: "k", Value: "v", As: "backup"})
		}, want: `user/backup merges Machine/m1: {"metadata":{"annotations":{"k":"v"}}} (status false, strict false)`},
		"remove from some": {do: func(u Users) error {
			return u.RemoveAnnotation(&scenarios.AnnotateOp{Kind: "Machine", Labels: rack, Key: "k"})
		}, want: `user merges Machine/m1: {"metadata":{"annotations":{"k":null}}} (status false, strict false)
user merges Machine/m2: {"metadata":{"annotations":{"k":null}}} (status false, strict false)`},
		"there is none": {do: func(u Users) error {
			return u.RemoveAnnotation(&scenarios.AnnotateOp{Kind: "Machine", Labels: map[string]string{"rack": "b"}, Key: "k"})
		}, ineffective: true},
		"online": {do: func(u Users) error { return u.SetOnline(&scenarios.OnlineOp{Host: "worker-1"}) },
			want: `user merges BareMetalHost/worker-1: {"spec":{"online":false}} (status false, strict false)`},
		"patch": {do: func(u Users) error {
			return u.Patch(&scenarios.PatchOp{Object: "Node/n1", Merge: []byte(`{"spec":{"unschedulable":true},"status":{"phase":"x"}}`), Foreign: true})
		}, want: `user merges Node/n1: {"spec":{"unschedulable":true}} (status false, strict true)
user merges Node/n1: {"status":{"phase":"x"}} (status true, strict true)`},
		"patch what is gone": {do: func(u Users) error {
			return u.Patch(&scenarios.PatchOp{Object: "Machine/gone", Merge: []byte(`{"spec":{"a":1}}`)})
		}, want: `user merges Machine/gone: {"spec":{"a":1}} (status false, strict false)`, ineffective: true},
		"delete what is gone": {do: func(u Users) error { return u.Delete(&scenarios.ObjectOp{Object: "Machine/m1"}) }, want: "user deletes Machine/m1"},
		"nobody writes":       {do: func(u Users) error { return u.SetOnline(&scenarios.OnlineOp{Host: "worker-1"}) }, away: true, ineffective: true},
		"nobody creates": {do: func(u Users) error {
			return u.Create(&scenarios.CreateOp{Object: "PodDisruptionBudget/all", With: []byte(`{"spec":{}}`)})
		}, away: true, ineffective: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := &diary{away: tc.away}
			err := tc.do(UsersOf(d, KindsOf(controllers.Default()), func() []client.Object { return nil }))
			var ineffective *play.Ineffective
			if errors.As(err, &ineffective) != tc.ineffective || err != nil && !tc.ineffective {
				t.Errorf("it came to %v, and a schedule can be to blame: %v", err, tc.ineffective)
			}
			if got := d.notes; !slices.Equal(got, strings.FieldsFunc(tc.want, func(r rune) bool { return r == '\n' })) {
				t.Errorf("requests:\n%s\nwant\n%s", strings.Join(got, "\n"), tc.want)
			}
		})
	}
}
