package kinds

import (
	"testing"

	metalv1alpha1 "github.com/ironcore-dev/metal-operator/api/v1alpha1"

	"github.com/fencelab/fencelab/controllers"
)

func TestModule(t *testing.T) {
	if _, err := controllers.NewSet(Module()); err != nil {
		t.Fatal(err)
	}
}

// TestKeeps: a Server is a tenant's as long as it names a claim, unless it was released with that name.
func TestKeeps(t *testing.T) {
	claim := &metalv1alpha1.ImmutableObjectReference{Namespace: "default", Name: "tenant"}
	for _, tc := range []struct {
		claim *metalv1alpha1.ImmutableObjectReference
		state metalv1alpha1.ServerState
		keeps bool
	}{
		{claim, metalv1alpha1.ServerStateReserved, true},
		{claim, metalv1alpha1.ServerStateMaintenance, true},
		{claim, metalv1alpha1.ServerStateReleased, false},
		{nil, metalv1alpha1.ServerStateReserved, false},
		{nil, metalv1alpha1.ServerStateAvailable, false},
	} {
		server := &metalv1alpha1.Server{Spec: metalv1alpha1.ServerSpec{ServerClaimRef: tc.claim}, Status: metalv1alpha1.ServerStatus{State: tc.state}}
		if got := keeps(server); got != tc.keeps {
			t.Errorf("one that is %s, with the claim %v, is a tenant's: %t", tc.state, tc.claim, got)
		}
	}
}
