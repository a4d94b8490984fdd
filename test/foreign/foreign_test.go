package foreign_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/controllers/api"
	"github.com/fencelab/fencelab/fencetest"
	"github.com/fencelab/fencelab/sim"
	"github.com/fencelab/fencelab/sim/kube"
	"github.com/fencelab/fencelab/test/foreign"
)

const story = "../../scenarios/catalog/machine-remediation/cut-off-host.yaml"

// TestSweep: a health check with types of its own marks the Machines, and fencelab's controllers,
// with theirs, do the rest, whatever is late, fails or crashes.
func TestSweep(t *testing.T) {
	fencetest.Sweep(t, story, fencetest.With(foreign.Module()), fencetest.Instead("healthcheck", "medic"), fencetest.Strategy("sweep", 200))
}

// TestSchemes: each controller works with the types of its own module.
func TestSchemes(t *testing.T) {
	set, err := controllers.NewSet(foreign.Module())
	if err != nil {
		t.Fatal(err)
	}
	gvk := schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHost"}
	for controller, want := range map[string]string{"medic": "foreign.BareMetalHost", "reboot": "api.BareMetalHost"} {
		obj, err := set.SchemeOf(controller).New(gvk)
		if got := strings.TrimPrefix(fmt.Sprintf("%T", obj), "*"); err != nil || got != want {
			t.Errorf("%s works with %s, %v; want %s", controller, got, err, want)
		}
	}
}

// wordy is a host whose online is a word.
type wordy struct {
	foreign.BareMetalHost
	Spec struct {
		Online string `json:"online"`
	} `json:"spec"`
}

type wordyList struct {
	foreign.BareMetalHostList
	Items []wordy `json:"items"`
}

// TestKeepsWhatItLacks: a patch by such a type leaves alone what it has no field for; an update
// replaces the object, and removes that, but not from a status that it doesn't address. What
// the definition lacks is pruned.
func TestKeepsWhatItLacks(t *testing.T) {
	set, err := controllers.NewSet(foreign.Module())
	if err != nil {
		t.Fatal(err)
	}
	var custom []kube.CustomResource
	for _, d := range set.Definitions() {
		custom = append(custom, kube.Defined(d))
	}
	server, err := kube.NewServer(set.Scheme(), nil, custom, set.Schemes()...)
	if err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKey{Namespace: "default", Name: "h"}
	for verb, kept := range map[string]bool{"patch": true, "update": false} {
		store := kube.NewStore(server, func() time.Time { return time.Unix(1e9, 0) }, nil)
		full := &api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "h"}}
		full.Spec.BMC.Address = "redfish://here"
		kind, _ := server.KindOf(full)
		if _, err = store.Create("test", full); err == nil {
			_, err = store.Patch("test", kind, key, true, types.MergePatchType, []byte(`{"status":{"poweredOn":true,"provisioning":{"lastPoweredOn":"2026-01-01T00:00:00.000001Z"}}}`))
		}
		if err != nil {
			t.Fatal(err)
		}
		theirs, _ := server.KindOf(&foreign.BareMetalHost{})
		view := kube.NewView(store, theirs)
		view.Relist(theirs)
		c := kube.NewClient(view, gate{}, "x")
		host := &foreign.BareMetalHost{}
		if err := c.Get(t.Context(), key, host); err != nil || !host.Status.PoweredOn || host.Kind != "BareMetalHost" {
			t.Fatalf("the cache has %+v, %v", host, err)
		}
		before := host.DeepCopyObject().(*foreign.BareMetalHost)
		host.Spec.Online, host.Spec.AutomatedCleaningMode = true, "disabled"
		if kept {
			err = c.Patch(t.Context(), host, client.MergeFrom(before))
		} else {
			err = c.Update(t.Context(), host)
		}
		if err != nil || host.Spec.AutomatedCleaningMode != "" {
			t.Fatalf("%s: %v, and the answer has %+v", verb, err, host.Spec)
		}
		obj, _ := store.Get(kind, key)
		got := obj.(*api.BareMetalHost)
		if !got.Spec.Online || (got.Spec.BMC.Address != "") != kept || got.Status.Provisioning.LastPoweredOn == nil {
			t.Errorf("after a %s the server has %+v %+v", verb, got.Spec, got.Status)
		}
		if change := view.Deliver(theirs); change.New.(*foreign.BareMetalHost).Spec.Online != true || change.Old == nil {
			t.Errorf("a handler is told %+v", change)
		}
	}
}

type gate struct{}

func (gate) Call(_ context.Context, c *kube.Call) error { return c.Execute() }

// TestRefused lists modules whose types don't fit.
func TestRefused(t *testing.T) {
	gv := schema.GroupVersion{Group: "metal3.io", Version: "v1alpha1"}
	for want, add := range map[string]func(*runtime.Scheme){
		"Double registration of different types": func(s *runtime.Scheme) {
			s.AddKnownTypes(gv, &foreign.BareMetalHost{})
			s.AddKnownTypeWithName(gv.WithKind("BareMetalHost"), &foreign.Machine{})
		},
		"register the list type": func(s *runtime.Scheme) { s.AddKnownTypes(gv, &foreign.BareMetalHost{}) },
		".spec.online can't be read into": func(s *runtime.Scheme) {
			s.AddKnownTypeWithName(gv.WithKind("BareMetalHost"), &wordy{})
			s.AddKnownTypeWithName(gv.WithKind("BareMetalHostList"), &wordyList{})
		},
	} {
		set, err := controllers.NewSet(controllers.Module{AddToScheme: func(s *runtime.Scheme) error { add(s); return nil }})
		if err == nil {
			_, err = sim.With(set)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
