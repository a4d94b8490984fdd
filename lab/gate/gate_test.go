package gate

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/scenarios/objects"
)

// patience only ends what hangs.
const patience = time.Minute

// script is a Judge that notes what it is asked, and answers as the test says.
type script struct {
	asked    func(context.Context, Request) error
	answered func(Request, Answer) error

	mu    sync.Mutex
	notes []string
}

func (s *script) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

func (s *script) Asked(ctx context.Context, r Request) error {
	s.note("asked %s%s", r.Verb, r.Effect)
	if s.asked == nil {
		return nil
	}
	return s.asked(ctx, r)
}

func (s *script) Answered(r Request, a Answer) error {
	s.note("answered %d %s", a.Status, a.Version)
	if s.answered == nil {
		return nil
	}
	return s.answered(r, a)
}

func (s *script) wantNotes(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.notes, want) {
		t.Errorf("the judge was told %q, want %q", s.notes, want)
	}
}

// known are fencelab's own kinds.
var known = objects.KindsOf(controllers.Default())

// ways lists the ways by which a client's requests can pass a gate; each test takes all.
func ways(t *testing.T, judge *script, addresses Addresses, handler http.HandlerFunc, test func(t *testing.T, client *http.Client, address string), with ...func(*Gate)) {
	for _, way := range []string{"round tripper", "proxy", "proxy with HTTP/2", "proxy of either", "proxy of either with TLS"} {
		t.Run(way, func(t *testing.T) {
			judge.notes = nil
			server := httptest.NewTLSServer(handler)
			defer server.Close()
			target, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			g := &Gate{Judge: judge, Read: API(known), Next: server.Client().Transport, UserAgent: "reboot", Addresses: addresses}
			for _, set := range with {
				set(g)
			}
			client := &http.Client{Transport: g, Timeout: patience}
			address := server.URL
			if way != "round tripper" {
				var config *tls.Config
				client.Transport = &http.Transport{}
				if way != "proxy" {
					config = &tls.Config{Certificates: server.TLS.Certificates}
				}
				secure := strings.Contains(way, "with")
				if secure {
					roots := x509.NewCertPool()
					roots.AddCert(server.Certificate())
					client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"}, ForceAttemptHTTP2: !strings.Contains(way, "either")}
				}
				var proxy *Proxy
				if strings.Contains(way, "either") {
					proxy, err = ServeEither(target, g, config)
				} else {
					proxy, err = Serve(target, g, config, Client{})
				}
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := proxy.Close(); err != nil {
						t.Error(err)
					}
				}()
				address = proxy.URL()
				if secure {
					address = strings.Replace(address, "http:", "https:", 1)
				}
			}
			test(t, client, address)
			client.CloseIdleConnections()
		})
	}
}

func do(t *testing.T, client *http.Client, method, url, body string) (*http.Response, string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response, string(text), err
}

const node = "/api/v1/nodes/worker-1"

func TestWhatTheJudgeDecidesHappens(t *testing.T) {
	errCut := errors.New("cut")
	for _, c := range []struct {
		name     string
		asked    error
		answered error
		server   int // requests that reach it
		status   int // that the client gets; 0 is no answer
		notes    []string
	}{
		{"pass", nil, nil, 1, 200, []string{"asked deletedelete Node/worker-1", "answered 200 7"}},
		{"refuse", &Refusal{Code: 409, Message: "no"}, nil, 0, 409, []string{"asked deletedelete Node/worker-1"}},
		{"cut before", errCut, nil, 0, 0, []string{"asked deletedelete Node/worker-1"}},
		{"cut after", nil, errCut, 1, 0, []string{"asked deletedelete Node/worker-1", "answered 200 7"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			served := make(chan string, 10)
			judge := &script{asked: func(context.Context, Request) error { return c.asked }, answered: func(Request, Answer) error { return c.answered }}
			ways(t, judge, Addresses{}, func(w http.ResponseWriter, r *http.Request) {
				served <- r.UserAgent()
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"metadata":{"name":"worker-1","resourceVersion":"7"}}`)
			}, func(t *testing.T, client *http.Client, address string) {
				response, _, err := do(t, client, http.MethodDelete, address+node, "")
				switch {
				case c.status == 0 && err == nil:
					t.Errorf("the client got %s, want no answer", response.Status)
				case c.status != 0 && (err != nil || response.StatusCode != c.status):
					t.Errorf("the client got %v, %v; want %d", response, err, c.status)
				}
				for range c.server {
					select {
					case agent := <-served:
						if agent != "reboot" {
							t.Errorf("the server heard of it from %q", agent)
						}
					default:
						t.Error("the server did not hear of it")
					}
				}
				if len(served) > 0 {
					t.Errorf("the server heard of it %d times too often", len(served))
				}
				judge.wantNotes(t, c.notes...)
			})
		})
	}
}

// A request that is held hasn't reached the server; let go, it does.
func TestTheJudgeCanHold(t *testing.T) {
	held, release := make(chan bool, 1), make(chan bool)
	judge := &script{asked: func(ctx context.Context, _ Request) error {
		held <- true
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	served := make(chan bool, 1)
	ways(t, judge, Addresses{}, func(http.ResponseWriter, *http.Request) { served <- true }, func(t *testing.T, client *http.Client, address string) {
		answered := make(chan error, 1)
		go func() {
			_, _, err := do(t, client, http.MethodGet, address+node, "")
			answered <- err
		}()
		<-held
		select {
		case <-served:
			t.Error("a held request reached the server")
		case <-answered:
			t.Error("a held request was answered")
		default:
		}
		release <- true
		if err := <-answered; err != nil {
			t.Error(err)
		}
		<-served
	})
}

// A watch's event reaches the client before the next one is there, also where addresses are
// replaced in it.
func TestWatchesStream(t *testing.T) {
	const real, shown = "127.0.0.1:40001", "127.0.0.1:50001"
	next := make(chan bool)
	ways(t, new(script), NewAddresses(map[string]string{real: shown}), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := range 3 {
			fmt.Fprintf(w, "{\"type\":\"ADDED\",\"object\":{\"spec\":{\"bmc\":{\"address\":\"redfish+http://%s/%d\"}}}}\n", real, i)
			w.(http.Flusher).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	}, func(t *testing.T, client *http.Client, address string) {
		response, err := client.Get(address + "/apis/metal3.io/v1alpha1/baremetalhosts?watch=true")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if wire, ok := client.Transport.(*http.Transport); ok && wire.ForceAttemptHTTP2 && response.ProtoMajor != 2 {
			t.Errorf("served by %s, want HTTP/2", response.Proto)
		}
		lines := bufio.NewScanner(response.Body)
		for i := range 3 {
			if !lines.Scan() {
				t.Fatalf("the watch ended after %d events: %v", i, lines.Err())
			}
			if want := fmt.Sprintf("redfish+http://%s/%d", shown, i); !strings.Contains(lines.Text(), want) {
				t.Errorf("event %d is %s, want %s in it", i, lines.Text(), want)
			}
			next <- true
		}
	})
}

// What the controller writes has the real address again, and so has a name that it made of what it
// read.
func TestAddressesComeBack(t *testing.T) {
	const real, shown = "127.0.0.1:40001", "127.0.0.1:50001"
	judge := new(script)
	ways(t, judge, NewAddresses(map[string]string{real: shown}), func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if int64(len(body)) != r.ContentLength || strings.Contains(string(body), shown) || !strings.Contains(string(body), real) {
			t.Errorf("the server got %d bytes, announced as %d: %s", len(body), r.ContentLength, body)
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("Location", "http://"+real+"/here")
		_, _ = w.Write(body)
	}, func(t *testing.T, client *http.Client, address string) {
		response, text, err := do(t, client, http.MethodPut, address+"/apis/metal3.io/v1alpha1/namespaces/default/baremetalhosts/worker-1",
			`{"spec":{"bmc":{"address":"redfish+http://`+shown+`/x"}}}`)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text, shown) || response.Header.Get("Location") != "http://"+shown+"/here" {
			t.Errorf("the client got %v with %s", response.Header, text)
		}
		judge.wantNotes(t, "asked updateupdate BareMetalHost/worker-1", "answered 200 ")
	})
}

func TestReplaceAtEveryBoundary(t *testing.T) {
	pairs := NewAddresses(map[string]string{"127.0.0.1:34127": "127.0.0.1:55555", "127.0.0.1:34128": "127.0.0.1:6"}).shown
	const text = `127.0.0.1:34127127.0.0.1:34128 127.0.0.1:3412 "127.0.0.1:34127" 127.0.0.1:3412`
	const want = `127.0.0.1:55555127.0.0.1:6 127.0.0.1:3412 "127.0.0.1:55555" 127.0.0.1:3412`
	for name, source := range map[string]io.Reader{
		"at once": strings.NewReader(text), "byte for byte": iotest.OneByteReader(strings.NewReader(text)), "halves": iotest.HalfReader(strings.NewReader(text)),
		"with its end": iotest.DataErrReader(strings.NewReader(text)),
	} {
		got, err := io.ReadAll(&replacer{pairs: pairs, source: io.NopCloser(source)})
		if string(got) != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", name, got, err, want)
		}
	}
	broken := iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(text)))
	if got, err := io.ReadAll(&replacer{pairs: pairs, source: io.NopCloser(broken)}); string(got) != "1" || !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("a stream that broke after a byte gives %q, %v", got, err)
	}
}

func TestAProxyKnowsItsCaller(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Is") != "known" || r.Header.Get("Authorization") != "" {
			t.Errorf("a stranger reached the server, or the token did: %v", r.Header)
		}
	}))
	defer server.Close()
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	g := &Gate{Judge: new(script), Read: API(known), Next: server.Client().Transport}
	proxy, err := Serve(target, g, &tls.Config{Certificates: server.TLS.Certificates, ClientAuth: tls.RequireAndVerifyClientCert}, Client{User: "fencelab:reboot", Token: "s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	client := server.Client()
	for token, status := range map[string]int{"": http.StatusUnauthorized, "Bearer ": http.StatusUnauthorized, "Bearer s3cre": http.StatusUnauthorized, "Bearer s3cret": http.StatusOK} {
		request, err := http.NewRequest(http.MethodGet, proxy.URL()+node, nil)
		if err != nil {
			t.Fatal(err)
		}
		if status == http.StatusOK {
			request.Header.Set("X-Is", "known")
		}
		request.Header.Set("Authorization", token)
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != status {
			t.Errorf("somebody with the token %q got %s, want %d", token, response.Status, status)
		}
	}
	// Without a token a certificate is needed, and has to be the one user's.
	only, err := Serve(target, g, &tls.Config{Certificates: server.TLS.Certificates, ClientAuth: tls.RequestClientCert}, Client{User: "fencelab:reboot"})
	if err != nil {
		t.Fatal(err)
	}
	defer only.Close()
	for _, certificates := range [][]tls.Certificate{nil, server.TLS.Certificates} {
		client.Transport.(*http.Transport).TLSClientConfig.Certificates = certificates
		response, err := client.Get(only.URL() + node)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized {
			t.Errorf("somebody with %d certificates got %s", len(certificates), response.Status)
		}
		client.CloseIdleConnections()
	}
}

// A server that can't be reached, or that goes away, looks so through the proxy, too.
func TestAProxyInventsNoAnswers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "half")
	}))
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := Serve(target, &Gate{Judge: new(script), Read: BMC("worker-1", "/redfish/v1/Systems/worker-1"), Next: &http.Transport{DisableKeepAlives: true}}, nil, Client{})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	if _, text, err := do(t, http.DefaultClient, http.MethodGet, proxy.URL(), ""); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half an answer became %q, %v", text, err)
	}
	server.Close()
	if response, _, err := do(t, http.DefaultClient, http.MethodGet, proxy.URL(), ""); err == nil {
		t.Errorf("a server that is away answered %s", response.Status)
	}
}

func TestRead(t *testing.T) {
	const machines = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines"
	encode := func(obj runtime.Object) string {
		info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
		data, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), obj)
		if _, event := obj.(*eventsv1.Event); event {
			data, err = runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, eventsv1.SchemeGroupVersion), obj)
		}
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	pod := encode(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "exclusive", ResourceVersion: "9"}})
	event := &eventsv1.Event{Type: "Warning", Reason: "Odd", Note: "look", Regarding: corev1.ObjectReference{Name: "worker-1"}}
	normal := event.DeepCopy()
	normal.Type = "Normal"
	owner := Ironic(func(node string) string { return map[string]string{"default~worker-1": "worker-1"}[node] })
	bmc := BMC("worker-1", "/redfish/v1/Systems/worker-1")
	for _, c := range []struct {
		read               func(*http.Request, []byte) Request
		method, path, body string
		want               Request
	}{
		{API(known), "GET", node, "", Request{Verb: "get", Kind: "Node", Name: "worker-1", Deed: "get Node/worker-1"}},
		{API(known), "GET", machines, "", Request{Verb: "list", Kind: "Machine", Deed: "list Machine/"}},
		{API(known), "GET", machines + "?resourceVersion=0", "", Request{Verb: "list", Kind: "Machine", Deed: "list Machine/", Fills: true}},
		{API(known), "GET", machines + "?watch=true&sendInitialEvents=true", "", Request{Kind: "Machine", Fills: true}},
		{API(known), "GET", machines + "?watch=true&resourceVersion=5", "", Request{Kind: "Machine"}},
		{API(known), "PATCH", machines + "/worker-1/status", "{}", Request{Verb: "patch", Kind: "Machine", Name: "worker-1", Effect: "patch Machine/worker-1"}},
		{API(known), "PUT", machines + "/worker-1", "{}", Request{Verb: "update", Kind: "Machine", Name: "worker-1", Effect: "update Machine/worker-1"}},
		{API(known), "DELETE", node, "", Request{Verb: "delete", Kind: "Node", Name: "worker-1", Effect: "delete Node/worker-1"}},
		{API(known), "POST", "/api/v1/namespaces/default/pods", pod, Request{Verb: "create", Kind: "Pod", Name: "exclusive", Effect: "create Pod/exclusive"}},
		{API(known), "POST", "/api/v1/namespaces/default/pods/exclusive/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"exclusive"}}`, Request{Verb: "create", Kind: "Pod", Name: "exclusive", Effect: "bind Pod/exclusive"}},
		{API(known), "POST", machines, `{"kind":"Machine","metadata":{"name":"m"}}`, Request{Verb: "create", Kind: "Machine", Name: "m", Effect: "create Machine/m"}},
		{API(known), "PUT", "/apis/coordination.k8s.io/v1/namespaces/fencelab-system/leases/fencelab", "{}", Request{Verb: "update", Kind: "Lease", Name: "fencelab"}},
		{API(known), "POST", "/apis/events.k8s.io/v1/namespaces/default/events", encode(event), Request{Warning: &Warning{"worker-1", "Odd", "look"}}},
		{API(known), "POST", "/apis/events.k8s.io/v1/namespaces/default/events", encode(normal), Request{}},
		{API(known), "GET", "/version", "", Request{}},
		{API(known), "GET", "/api/v1/namespaces/nodes/pods/machines", "", Request{Verb: "get", Kind: "Pod", Name: "machines", Deed: "get Pod/machines"}},
		{API(known), "GET", "/api/v1/namespaces/default", "", Request{}},
		{API(known), "GET", "/apis/example.com/v1/nodes/worker-1", "", Request{}},
		{bmc, "GET", "/redfish/v1/Systems/worker-1", "", Request{Deed: "read BMC/worker-1"}},
		{bmc, "GET", "/redfish/v1/Systems/worker-2", "", Request{}},
		{bmc, "POST", "/redfish/v1/SessionService/Sessions", "{}", Request{}},
		{bmc, "POST", "/redfish/v1/Systems/worker-1/Actions/ComputerSystem.Reset", `{"ResetType":"ForceOff"}`, Request{Effect: "bmc ForceOff worker-1"}},
		{bmc, "POST", "/redfish/v1/Systems/worker-11/Actions/ComputerSystem.Reset", `{"ResetType":"ForceOff"}`, Request{}},
		{owner, "PUT", "/v1/nodes/default~worker-1/states/power", `{"target":"soft power off","timeout":3}`, Request{Effect: "bmc GracefulShutdown worker-1"}},
		{owner, "PUT", "/v1/nodes/default~worker-1/states/provision", `{"target":"manage"}`, Request{}},
		{owner, "GET", "/v1/nodes/default~worker-1", "", Request{}},
		{owner, "PUT", "/v1/nodes/stranger/states/power", `{"target":"power on"}`, Request{}},
	} {
		got := c.read(httptest.NewRequest(c.method, c.path, nil), []byte(c.body))
		if c.want.Deed == "" {
			c.want.Deed = c.want.Effect
		}
		if tells := c.method == http.MethodGet && c.want.Kind != ""; (got.Watches != nil) != tells || tells && got.Watches.Name != c.want.Kind {
			t.Errorf("%s %s tells of %v", c.method, c.path, got.Watches)
		}
		got.Watches = nil
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s %s is %+v %+v, want %+v %+v", c.method, c.path, got, got.Warning, c.want, c.want.Warning)
		}
	}
	if _, version, _ := named([]byte(pod)); version != "9" {
		t.Errorf("an answer in protobuf has the version %q, want 9", version)
	}
}

// TestRefusingProxy: while a proxy refuses, its address seems to have no listener, and requests
// that were under way fail.
func TestRefusingProxy(t *testing.T) {
	begun, release := make(chan struct{}, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			begun <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	}))
	defer server.Close()
	defer close(release)
	target, _ := url.Parse(server.URL)
	proxy, err := Serve(target, http.DefaultTransport, nil, Client{})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	client := http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ask := func(path string) error {
		response, err := client.Get(proxy.URL() + path)
		if err == nil {
			response.Body.Close()
		}
		return err
	}
	slow := make(chan error)
	go func() { slow <- ask("/slow") }()
	<-begun
	proxy.Refuse()
	if err := <-slow; err == nil {
		t.Error("a request that was under way is answered")
	}
	if err := ask("/"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("who asks hears %v", err)
	}
	proxy.Refuse()
	for range 2 {
		if err := proxy.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask("/"); err != nil {
		t.Errorf("when it accepts again who asks hears %v", err)
	}
}
