package api

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Get reads an object that is not going to be changed, nil if there is none: what is
// written is always what a live reader had, and that is nobody else's.
func Get[T any, P interface {
	*T
	client.Object
}](ctx context.Context, reader client.Reader, key types.NamespacedName, into P) (P, error) {
	if err := reader.Get(ctx, key, into, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read %T %s: %w", into, key, err)
	}
	return into, nil
}
