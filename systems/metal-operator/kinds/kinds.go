// Package kinds has what stories say of metal-operator's objects: a ServerClaim is made, and deleted, a
// Server is maintained, and its BMC moves; and how a Server keeps its host for a tenant.
package kinds

import (
	"embed"

	metalv1alpha1 "github.com/ironcore-dev/metal-operator/api/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers"
)

// manifests say of the definitions just what scenarios need. Those of a release take their place.
//
//go:embed definitions.yaml
var manifests embed.FS

// Module describes the kinds to fencelab. It has no controllers: metal-operator runs as a program.
func Module() controllers.Module {
	return controllers.Module{
		AddToScheme:  metalv1alpha1.AddToScheme,
		Manifests:    manifests,
		Reservations: []controllers.Reservation{{For: &metalv1alpha1.Server{}, Host: client.Object.GetName, Keeps: keeps}},
	}
}

// keeps reports whether a Server is a tenant's. One that was Released has been given back, although it
// still names its last ServerClaim.
func keeps(obj client.Object) bool {
	server := obj.(*metalv1alpha1.Server)
	return server.Spec.ServerClaimRef != nil && server.Status.State != metalv1alpha1.ServerStateReleased
}
