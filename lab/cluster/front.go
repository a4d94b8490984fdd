package cluster

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// administrator is who acts with the rights of the kubeconfig. All others are impersonated.
const administrator = "fencelab:admin"

// front stands before a foreign API server. It knows our users by the certificates and tokens that
// we gave them, asks in their names (impersonation), and sees to it that they find and touch
// nothing but what is ours: lists and watches select our label, what is made gets it, and what
// lacks it is not written to.
type front struct {
	name     string
	upstream *url.URL
	through  http.RoundTripper
	nodes    map[string]string // by token
	own      *x509.Certificate // who vouches for users of ours; for kubelets that have joined the cluster's own authority does
	joining  string            // the bootstrap token; if empty, no kubelet can join
	reverse  *httputil.ReverseProxy
	server   *http.Server
	running  sync.WaitGroup
}

func (a *Attached) openFront() (*front, error) {
	upstream, _, err := rest.DefaultServerUrlFor(a.config)
	if err != nil {
		return nil, err
	}
	f := &front{name: a.name, upstream: upstream, nodes: make(map[string]string), own: a.authority.parsed, joining: a.bootstrap}
	for node, token := range a.nodeTokens {
		f.nodes[token] = node
	}
	if f.through, err = rest.TransportFor(a.config); err != nil {
		return nil, err
	}
	f.reverse = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			r.Out.Host = upstream.Host
		},
		Transport: f.through, FlushInterval: -1, // a watch's event is for now
		ErrorLog: log.New(io.Discard, "", 0),
	}
	certificate, key, err := a.authority.issueServing()
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	clients := x509.NewCertPool()
	clients.AddCert(a.authority.parsed)
	if a.bootstrap != "" {
		if err := rest.LoadTLSFiles(a.config); err != nil {
			return nil, err
		}
		if !clients.AppendCertsFromPEM(a.config.CAData) {
			return nil, errors.New("the kubeconfig names no authority that could sign for kubelets")
		}
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback.String(), "0"))
	if err != nil {
		return nil, err
	}
	a.address = listener.Addr().String()
	f.server = &http.Server{Handler: f, ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12,
	}}
	f.running.Go(func() { _ = f.server.ServeTLS(listener, "", "") }) // it ends with close
	return f, nil
}

func (f *front) close() error {
	err := f.server.Close()
	f.running.Wait()
	return err
}

// bootstrappers are the groups of whoever shows a bootstrap token: all of them, and those of
// kubeadm, which may ask for a kubelet's certificate and get it.
var bootstrappers = []string{"system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token"}

const (
	nodeUser = "system:node:"
	nodes    = "system:nodes"
)

// caller is who asks.
type caller struct {
	user   string
	groups []string
	joined bool // a real kubelet, or one that is about to be
}

// caller is who asks, by what we gave him, or by what the cluster gave him with our help.
func (f *front) caller(r *http.Request) (c caller, known bool) {
	if certificates := r.TLS.PeerCertificates; len(certificates) > 0 {
		subject := certificates[0].Subject
		c = caller{user: subject.CommonName, groups: subject.Organization}
		if chain := r.TLS.VerifiedChains[0]; chain[len(chain)-1].Equal(f.own) {
			return c, true
		}
		c.joined = true
		return c, f.isNode(strings.CutPrefix(c.user, nodeUser)) && slices.Equal(c.groups, []string{nodes})
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if f.joining != "" && token == f.joining {
		return caller{user: "system:bootstrap:" + f.name, groups: bootstrappers, joined: true}, true
	}
	node, known := f.nodes[token]
	return caller{user: nodeUser + node, groups: []string{nodes}}, known
}

// isNode reports whether a name is that of one of our hosts' Nodes, where is says that it is a
// Node's at all.
func (f *front) isNode(name string, is bool) bool {
	return is && slices.Contains(slices.Collect(maps.Values(f.nodes)), name)
}

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, known := f.caller(r)
	if !known {
		refuse(w, http.StatusUnauthorized, "nobody that this lab knows")
		return
	}
	r.Header.Del("Authorization")
	for header := range r.Header {
		if strings.HasPrefix(header, "Impersonate-") {
			r.Header.Del(header)
		}
	}
	if c.user != administrator {
		r.Header.Set("Impersonate-User", c.user)
		r.Header["Impersonate-Group"] = c.groups
	}
	if object, is := parsePath(r.URL.Path); is {
		confine := f.confine
		if c.joined {
			confine = f.confineKubelet
		}
		if code, reason := confine(r, object); code != 0 {
			refuse(w, code, reason)
			return
		}
	}
	f.reverse.ServeHTTP(w, r)
}

// confine lets a request see and touch only what is ours, or says why it can't be.
func (f *front) confine(r *http.Request, o object) (code int, reason string) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if o.name == "" {
			f.selectOurs(r)
		}
		return 0, ""
	case http.MethodDelete:
		if o.name == "" {
			f.selectOurs(r)
			return 0, ""
		}
	case http.MethodPost:
		if o.name == "" {
			return f.label(r)
		}
	}
	there, ours, err := f.owns(r, o)
	switch {
	case err != nil:
		return http.StatusBadGateway, err.Error()
	case there && !ours:
		return http.StatusForbidden, fmt.Sprintf("%s was not made by this lab, which leaves it alone", o.path)
	}
	// A PUT would take the label off, and an apply makes what isn't there.
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // an unknown one is the server's to refuse
	if o.sub == "" && (r.Method == http.MethodPut || strings.HasPrefix(media, "application/apply-patch")) {
		return f.label(r)
	}
	return 0, ""
}

// confineKubelet is for a real kubelet. It finds what its Pods need, as far as the API server lets
// it, and is not to run Pods that aren't ours: a cluster may have such for every Node.
func (f *front) confineKubelet(r *http.Request, o object) (code int, reason string) {
	reads, token := r.Method == http.MethodGet || r.Method == http.MethodHead, r.Method == http.MethodPost && o.sub == "token"
	if token || reads && (o.resource != "pods" || o.name != "") {
		return 0, ""
	}
	return f.confine(r, o)
}

func (f *front) selectOurs(r *http.Request) {
	query := r.URL.Query()
	selector := Label + "=" + f.name
	if others := query.Get("labelSelector"); others != "" {
		selector += "," + others
	}
	query.Set("labelSelector", selector)
	r.URL.RawQuery = query.Encode()
}

// owns reports whether an object is there, and ours.
func (f *front) owns(r *http.Request, o object) (there, ours bool, err error) {
	ask, err := http.NewRequestWithContext(r.Context(), http.MethodGet, f.upstream.JoinPath(o.path).String(), nil)
	if err != nil {
		return false, false, err
	}
	ask.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
	answer, err := f.through.RoundTrip(ask)
	if err != nil {
		return false, false, err
	}
	defer answer.Body.Close()
	var found struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	switch answer.StatusCode {
	case http.StatusNotFound:
		return false, false, nil
	case http.StatusOK:
		err := json.NewDecoder(answer.Body).Decode(&found)
		return true, found.Metadata.Labels[Label] == f.name, err
	}
	return false, false, fmt.Errorf("ask whose %s is: %s", o.path, answer.Status)
}

// label puts our label on what a request makes, and on what is made of its template.
func (f *front) label(r *http.Request) (code int, reason string) {
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	body, err := io.ReadAll(r.Body)
	if err == nil && media == runtime.ContentTypeProtobuf {
		body, err = toJSON(body)
		r.Header.Set("Content-Type", runtime.ContentTypeJSON)
	}
	var made map[string]any
	if err == nil {
		err = json.Unmarshal(body, &made)
	}
	if err != nil {
		return http.StatusUnsupportedMediaType, "what this lab makes in somebody's cluster gets a label, and this is not understood: " + err.Error()
	}
	put := func(of map[string]any) {
		inner := func(parent map[string]any, key string) map[string]any {
			child, ok := parent[key].(map[string]any)
			if !ok {
				child = make(map[string]any)
				parent[key] = child
			}
			return child
		}
		inner(inner(of, "metadata"), "labels")[Label] = f.name
	}
	put(made)
	if spec, ok := made["spec"].(map[string]any); ok {
		if template, ok := spec["template"].(map[string]any); ok {
			put(template)
		}
	}
	if body, err = json.Marshal(made); err != nil {
		return http.StatusUnsupportedMediaType, err.Error()
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", fmt.Sprint(len(body)))
	return 0, ""
}

// toJSON translates an object that is built into Kubernetes: others are never sent in any other
// form.
func toJSON(protobuf []byte) ([]byte, error) {
	obj, kind, err := scheme.Codecs.UniversalDeserializer().Decode(protobuf, nil, nil)
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(*kind)
	return json.Marshal(obj)
}

// object holds the parts of a path of the API. It names a collection, without a name, or one
// object, perhaps a subresource of it.
type object struct{ path, resource, name, sub string }

// parsePath reads /api/v1/... and /apis/GROUP/VERSION/...; other paths are not about objects.
func parsePath(path string) (o object, is bool) {
	words := strings.Split(strings.Trim(path, "/"), "/")
	head := 0
	switch {
	case len(words) > 2 && words[0] == "api":
		head = 2
	case len(words) > 3 && words[0] == "apis":
		head = 3
	default:
		return object{}, false
	}
	if words[head] == "namespaces" && len(words) > head+2 {
		if sub := words[head+2]; sub != "status" && sub != "finalize" { // of the namespace itself
			head += 2
		}
	}
	o.resource = words[head]
	if len(words) > head+1 {
		o.name = words[head+1]
		o.sub = strings.Join(words[head+2:], "/")
		words = words[:head+2]
	}
	o.path = "/" + strings.Join(words, "/")
	return o, true
}

// refuse answers as an API server does.
func refuse(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	reasons := map[int]string{http.StatusForbidden: "Forbidden", http.StatusUnauthorized: "Unauthorized", http.StatusUnsupportedMediaType: "UnsupportedMediaType"}
	_ = json.NewEncoder(w).Encode(map[string]any{ // who asked may have gone
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reasons[code], "message": "fencelab: " + reason,
	})
}
