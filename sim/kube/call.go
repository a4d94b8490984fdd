package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Verb is the verb of a Call.
type Verb string

// The verbs. Get and List are live reads; cached reads are not Calls.
const (
	Get    Verb = "get"
	List   Verb = "list"
	Create Verb = "create"
	Update Verb = "update"
	Patch  Verb = "patch"
	Delete Verb = "delete"
)

// A Call is one request to the API server, made by an actor and not yet
// performed. It holds copies: the caller may change its objects while a delayed
// Call still waits.
type Call struct {
	Actor string
	Verb  Verb
	Kind  *Kind
	// Key has no name in a List, and for a Create with generateName.
	Key client.ObjectKey
	// Subresource is empty, "status", or the "eviction" or "binding" of a pod,
	// which a Create makes.
	Subresource string
	// Object is the object sent by a Create or Update; don't modify it.
	Object client.Object
	// PatchType and Patch are the patch sent by a Patch. Force takes fields from other managers.
	PatchType types.PatchType
	Patch     []byte
	Force     bool
	// DeleteOptions are the options of a Delete, in which they are never nil.
	DeleteOptions *metav1.DeleteOptions

	store *Store
	by    author
	// listing belongs to a List; nil for any other verb.
	listing *listing
	sent    *record // the Object of a Create or Update
	// eviction is the body of an eviction, and binding that of a binding.
	eviction *policyv1.Eviction
	binding  *corev1.Binding
	result   *record
	done     bool
	// shown is how many changes of the kind a read was executed after.
	shown int
	// share hands the result out without a copy.
	share bool
}

// listing holds the options of a List and the page that answers it.
type listing struct {
	options client.ListOptions
	page    page
}

func (c *Call) String() string {
	sub := ""
	if c.Subresource != "" {
		sub = "/" + c.Subresource
	}
	return fmt.Sprintf("%s %s%s %s", c.Verb, c.Kind.Kind, sub, c.Key)
}

// Action is the Call's verb, or evict or bind.
func (c *Call) Action() string {
	switch {
	case c.eviction != nil:
		return "evict"
	case c.binding != nil:
		return "bind"
	}
	return string(c.Verb)
}

// Writes reports whether performing the Call may change the Store.
func (c *Call) Writes() bool { return c.Verb != Get && c.Verb != List }

// Refuse returns the error of an API server that refuses the Call, with an HTTP status of 403,
// 404, 409, 429 or 500. A 404 means that the whole resource isn't served, as while its
// CustomResourceDefinition is being replaced.
func (c *Call) Refuse(code int) error {
	gr := c.Kind.groupResource()
	switch code {
	case http.StatusForbidden:
		return apierrors.NewForbidden(gr, c.Key.Name, errors.New("the simulated role was taken away"))
	case http.StatusNotFound:
		return apierrors.NewGenericServerResponse(code, string(c.Verb), gr, c.Key.Name, "the server could not find the requested resource", 0, true)
	case http.StatusConflict:
		return apierrors.NewConflict(gr, c.Key.Name, errors.New("the simulated storage was changed meanwhile"))
	case http.StatusTooManyRequests:
		return apierrors.NewTooManyRequests("the simulated API server has too many requests, please try again later", 1)
	default:
		return apierrors.NewInternalError(errors.New("the simulated storage failed"))
	}
}

// Execute performs the Call on the Store as it is now and returns the API
// server's error. It panics when it is called twice.
func (c *Call) Execute() error {
	if c.done {
		panic(fmt.Sprintf("kube: %s by %s was executed twice", c, c.Actor))
	}
	c.done, c.shown = true, len(c.store.logs[c.Kind.index])
	// a Gate may have changed the actor and the subresource
	c.by.actor, c.by.status = c.Actor, c.Subresource != ""
	var err error
	switch c.Verb {
	case Get:
		c.result, err = c.store.get(c.Kind, c.Key)
	case List:
		c.listing.page, err = c.store.list(c.Kind, &c.listing.options)
	case Create:
		switch {
		case c.eviction != nil:
			err = c.store.evict(c.by, c.Kind, c.Key, c.eviction)
		case c.binding != nil:
			err = c.store.bind(c.by, c.Kind, c.Key, c.binding)
		default:
			c.result, err = c.store.create(c.by, c.Kind, c.sent)
		}
	case Update:
		c.result, err = c.store.replace(c.by, c.Kind, c.sent)
	case Patch:
		if c.PatchType == types.ApplyYAMLPatchType {
			c.result, err = c.store.apply(c.by, c.Kind, c.Key, c.Patch, c.Force)
			break
		}
		c.result, err = c.store.patch(c.by, c.Kind, c.Key, c.PatchType, c.Patch)
	case Delete:
		err = c.store.Delete(c.Actor, c.Kind, c.Key, c.DeleteOptions)
	}
	return err
}

// A Gate decides when and whether a Call happens. Call usually returns the result of c.Execute. It
// may wait before or after, return an error of its own whether or not it executes the Call, or
// never return (by panicking) because the process crashed. It may also keep a Call and execute it
// later, like a request that was still under way when its client gave up.
type Gate interface {
	Call(ctx context.Context, c *Call) error
}
