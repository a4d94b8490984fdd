// Package hold is the client's side of seed 000: it asks for a host to be held off, and decides
// whether an answer may be acted upon. docs/seeds.md has the states and the argument.
package hold

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fencelab/fencelab/controllers/api"
)

// Key is the name after the slash in a client's own form of the reboot annotation, which holds a
// host off until that client removes it.
type Key struct{ name, annotation string }

// NewKey returns the key of that name.
func NewKey(name string) Key {
	return Key{name: name, annotation: api.RebootAnnotation + "/" + name}
}

// Annotation is the whole name of the annotation.
func (k Key) Annotation() string { return k.annotation }

// Request is the content of the annotation. No two requests are alike, so that the answer to one
// is never taken for that to another.
type Request struct {
	// Mode is hard where a hang must not wait for a soft shutdown (seed 000).
	Mode api.RebootMode `json:"mode"`
	// Machine is the UID of the Machine that the host is held off for (seed 000).
	Machine types.UID `json:"machine"`
	// Request is the resourceVersion of the host that the request is based on.
	Request string `json:"request"`
	// Boot is the boot that the Node reported when the request was made.
	Boot string `json:"boot,omitempty"`
	// At is when the request was made, by the clock of the process that made it. It is all that a
	// later process knows of that.
	At metav1.MicroTime `json:"at,omitzero"`
}

// Ask returns the patch of a host that makes a request or renews it. It completes the request with
// the version of the host and the boot of its Node, which may be nil.
func (k Key) Ask(host *api.BareMetalHost, node *corev1.Node, q Request) (client.Patch, error) {
	q.Request = host.ResourceVersion
	if node != nil {
		q.Boot = node.Status.NodeInfo.BootID
	}
	content, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	return api.SetAnnotation(host, k.annotation, string(content)), nil
}

// Parse reads a request that another program may have written, and keeps what it understands of
// it.
func Parse(content string) Request {
	var q Request
	_ = json.Unmarshal([]byte(content), &q) // on an error the request has no Machine and no boot
	return q
}

// Content returns the annotation's value, empty without an annotation or without a host.
func (k Key) Content(host *api.BareMetalHost) string {
	if host == nil {
		return ""
	}
	return host.Annotations[k.annotation]
}

// Asked reports whether the annotation is there, whatever it says.
func (k Key) Asked(host *api.BareMetalHost) bool {
	_, asked := host.Annotations[k.annotation]
	return asked
}

// Answered reports whether the host was found off by a reading that began after the
// request was there, and has been kept off since (seeds 000 and 002).
func (k Key) Answered(host *api.BareMetalHost) bool {
	return k.Asked(host) && host.Status.Provisioning.HeldOffFor[k.name] == api.RequestID(k.Content(host))
}

// Age is the least age of the request on a host, by this process's own clock. It may be lost at
// any time: the request itself remains.
type Age struct {
	// content is the request's content, request its parsed form, and since a time at which it was
	// not there yet. For a request that a process finds at its start, since is that start.
	content string
	request Request
	since   time.Time
	// looked is when the last live reading began.
	looked time.Time
}

// Look notes the result of a live reading. A new request was not there when the previous reading
// began.
func (a *Age) Look(content string, began time.Time) {
	if content != a.content {
		a.content, a.request, a.since = content, Parse(content), a.looked
		if a.looked.IsZero() {
			a.since = began
		}
	}
	a.looked = began
}

// Outdated reports whether the host may have booted since it was off in answer to the request:
// power may come back by itself right after the reading. If that boot reached the API server, its
// Node shows it; otherwise only the clock does.
func (a *Age) Outdated(content string, node *corev1.Node, now time.Time, within time.Duration) bool {
	if content == "" {
		return false
	}
	q := a.request
	if content != a.content {
		q = Parse(content)
	}
	return node != nil && q.Boot != node.Status.NodeInfo.BootID ||
		content == a.content && now.Sub(a.since) >= within ||
		!q.At.IsZero() && now.Sub(q.At.Time) >= within
}
