package kube

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Unmodelled reports that a request was refused because the real server's answer to it is not
// modelled. It is not an API error, and a run in which it happened proves nothing. Find it with
// errors.As, or with Store.Refusal if a controller may have swallowed it.
type Unmodelled struct {
	Verb string
	Kind string
	Key  client.ObjectKey
	// What names the missing behaviour.
	What string
}

func (e *Unmodelled) Error() string {
	return fmt.Sprintf("%s %s %s: %s is not modelled by the simulated API server", e.Verb, e.Kind, e.Key, e.What)
}
