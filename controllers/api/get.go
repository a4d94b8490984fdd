package api

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Get reads an object for a caller that does not change it, and returns nil if there is none. To
// write an object, read it from a live reader, so that the copy is the caller's own.
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
