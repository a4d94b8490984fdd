package gate

import (
	"encoding/json"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
)

// verbs and kinds name effects as the simulator does.
var (
	verbs = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}
	kinds = map[string]string{
		"nodes": "Node", "pods": "Pod", "leases": "Lease", "secrets": "Secret",
		"baremetalhosts": "BareMetalHost", "machines": "Machine", "machinehealthchecks": "MachineHealthCheck",
	}
)

// API understands a request to the API server.
func API(request *http.Request, body []byte) Request {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	if request.Method == http.MethodPost && parts[len(parts)-1] == "events" {
		return Request{Warning: warning(body)}
	}
	for i, part := range parts {
		kind := kinds[part]
		if kind == "" {
			continue
		}
		r := Request{Verb: verbs[request.Method], Kind: kind}
		if i+1 < len(parts) {
			r.Name = parts[i+1]
		}
		switch {
		case r.Verb == "create":
			r.Name, _ = named(body)
		case request.Method == http.MethodGet && r.Name != "":
			r.Verb = "get"
		case request.Method == http.MethodGet && request.URL.Query().Get("watch") == "":
			r.Verb = "list"
		}
		// A Lease that is renewed is a heartbeat, and as an effect it would be counted among those of the design.
		if verbs[request.Method] != "" && kind != "Lease" {
			r.Effect = r.Verb + " " + kind + "/" + r.Name
		}
		return r
	}
	return Request{}
}

// named returns name and resourceVersion of an object. Built-in kinds may travel as protobuf.
func named(body []byte) (name, version string) {
	if object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
		if accessor, err := meta.Accessor(object); err == nil {
			return accessor.GetName(), accessor.GetResourceVersion()
		}
		return "", ""
	}
	var object struct {
		Metadata struct{ Name, ResourceVersion string }
	}
	_ = json.Unmarshal(body, &object) // what is no JSON has neither
	return object.Metadata.Name, object.Metadata.ResourceVersion
}

func versionIn(body []byte) string {
	_, version := named(body)
	return version
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
