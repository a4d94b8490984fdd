package controllers_test

import (
	"strings"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/manifests"
)

// TestSetRefuses lists modules that can't be added.
func TestSetRefuses(t *testing.T) {
	construct := func(controllers.Deps) (reconcile.Reconciler, error) { return nil, nil }
	definition := func(kind string) fstest.MapFS {
		return fstest.MapFS{"crd.yaml": {Data: []byte(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
spec: {group: example.com, scope: Namespaced, names: {kind: ` + kind + `, plural: things}, versions: [{name: v1, schema: {openAPIV3Schema: {type: object}}}]}}`)}}
	}
	for want, module := range map[string]controllers.Module{
		"needs Name, For, and either New, Loops or Setup": {Controllers: []controllers.Registration{{Name: "x"}}},
		"one of that name exists already; choose another": {Controllers: []controllers.Registration{
			{Name: "reboot", For: &corev1.Node{}, New: construct},
		}},
		`nobody plays "judge"`: {Controllers: []controllers.Registration{
			{Name: "x", For: &corev1.Node{}, New: construct, Plays: "judge"},
		}},
		"needs For, Host and Keeps": {Reservations: []controllers.Reservation{{For: &corev1.Node{}, Host: client.Object.GetName}}},
		"its module doesn't define that kind": {Reservations: []controllers.Reservation{
			{For: &corev1.Node{}, Host: client.Object.GetName, Keeps: func(client.Object) bool { return true }},
		}},
		"no Go type is registered for it": {Manifests: definition("Thing")},
		"scenarios could not tell them":   {Manifests: definition("Machine")},
	} {
		if _, err := controllers.NewSet(module); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := controllers.NewSet(controllers.Module{Manifests: manifests.FS}); err == nil {
		t.Error("fencelab's own kinds are added twice")
	}
	set, err := controllers.NewSet(controllers.Module{Controllers: []controllers.Registration{{Name: "x", For: &corev1.Node{}, New: construct}}})
	if err != nil {
		t.Fatal(err)
	}
	if x, err := set.Select("x", nil, nil); err != nil || x.Workers != 1 || x.Settings == nil {
		t.Errorf("a registration without settings is chosen as %+v, %v", x, err)
	}
	if _, err := controllers.Lookup("x"); err == nil {
		t.Error("a module's controller is in the default set")
	}
}
