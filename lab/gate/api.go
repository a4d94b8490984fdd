package gate

import (
	"encoding/json"
	"net/http"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fencelab/fencelab/scenarios/objects"
)

// verbs name effects as the simulator does.
var verbs = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}

// API understands requests to the API server about objects of some kinds.
func API(kinds objects.Kinds) func(request *http.Request, body []byte) Request {
	return func(request *http.Request, body []byte) Request {
		group, resource, name := parse(request.URL.Path)
		if request.Method == http.MethodPost && resource == "events" {
			return Request{Warning: warning(body)}
		}
		kind := kinds.Resource(group, resource)
		if kind == nil {
			return Request{}
		}
		r := Request{Verb: verbs[request.Method], Kind: kind.Name, Name: name}
		switch {
		case r.Verb == "create":
			r.Name, _, _ = named(body)
		case request.Method == http.MethodGet && r.Name != "":
			r.Verb = "get"
		case request.Method == http.MethodGet && request.URL.Query().Get("watch") == "":
			r.Verb = "list"
		}
		if verbs[request.Method] != "" && !kind.Heartbeat {
			does := r.Verb
			switch path.Base(request.URL.Path) {
			case "eviction":
				does = "evict"
			case "binding":
				does = "bind"
			}
			r.Effect = does + " " + r.Kind + "/" + r.Name
			r.Deed = r.Effect
		}
		if request.Method == http.MethodGet {
			// Objects in another form than their own lack what changes are known by.
			if !strings.Contains(request.Header.Get("Accept"), ";as=") && kind.Changes != nil {
				query := request.URL.Query()
				r.Watches, r.Fills = kind, r.Name == "" && (query.Get("resourceVersion") == "0" || query.Get("sendInitialEvents") == "true")
			}
			if r.Verb != "" && !kind.Heartbeat {
				r.Deed = r.Verb + " " + r.Kind + "/" + r.Name
			}
		}
		return r
	}
}

// parse takes a path apart: /api/VERSION/... or /apis/GROUP/VERSION/..., in a namespace or
// not, then resource and name, and perhaps a subresource.
func parse(of string) (group, resource, name string) {
	parts := strings.Split(strings.Trim(of, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		group, parts = parts[1], parts[3:]
	default:
		return "", "", ""
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	if len(parts) > 1 {
		name = parts[1]
	}
	return group, parts[0], name
}

// named returns name and resourceVersion of an object, and whether it is being deleted and has no
// finalizers left. Built-in kinds may travel as protobuf.
func named(body []byte) (name, version string, released bool) {
	if object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
		if accessor, err := meta.Accessor(object); err == nil {
			return accessor.GetName(), accessor.GetResourceVersion(), accessor.GetDeletionTimestamp() != nil && len(accessor.GetFinalizers()) == 0
		}
		return "", "", false
	}
	var object struct {
		Metadata struct {
			Name, ResourceVersion, DeletionTimestamp string
			Finalizers                               []string
		}
	}
	_ = json.Unmarshal(body, &object) // what is no JSON has none of it
	m := object.Metadata
	return m.Name, m.ResourceVersion, m.DeletionTimestamp != "" && len(m.Finalizers) == 0
}

// warning is the Warning in the body of a request that makes an Event, or nil.
func warning(body []byte) *Warning {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil
	}
	switch event := object.(type) {
	case *eventsv1.Event:
		if event.Type == corev1.EventTypeWarning {
			return &Warning{event.Regarding.Name, event.Reason, event.Note}
		}
	case *corev1.Event:
		if event.Type == corev1.EventTypeWarning {
			return &Warning{event.InvolvedObject.Name, event.Reason, event.Message}
		}
	}
	return nil
}
