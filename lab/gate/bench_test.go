package gate

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// content is an object of the size of a BareMetalHost.
var content = `{"metadata":{"name":"worker-1","resourceVersion":"7"},"spec":{"padding":"` + strings.Repeat("x", 3000) + `"}}`

// nobody is a Judge and a Listener that lets everything pass.
type nobody struct{}

func (nobody) Asked(context.Context, Request) error        { return nil }
func (nobody) Answered(Request, Answer) error              { return nil }
func (nobody) Told(context.Context, Request, Change) error { return nil }
func (nobody) AsOf(Request) string                         { return "" }

// throughWays runs a benchmark on each way of a client to a server over HTTP/2: without a gate,
// with one in the client, and with a proxy between.
func throughWays(b *testing.B, handler http.HandlerFunc, bench func(b *testing.B, client *http.Client, address string)) {
	for _, way := range []string{"no gate", "round tripper", "proxy", "proxy that listens"} {
		b.Run(way, func(b *testing.B) {
			server := httptest.NewUnstartedServer(handler)
			server.EnableHTTP2 = true
			server.StartTLS()
			defer server.Close()
			target, err := url.Parse(server.URL)
			if err != nil {
				b.Fatal(err)
			}
			g := &Gate{Judge: nobody{}, Read: API(known), Next: server.Client().Transport, UserAgent: "reboot",
				Addresses: NewAddresses(map[string]string{"127.0.0.1:40001": "127.0.0.1:50001"})}
			client, address := server.Client(), server.URL
			switch way {
			case "round tripper":
				client = &http.Client{Transport: g}
			case "proxy that listens":
				g.Listener = nobody{}
				fallthrough
			case "proxy":
				roots := x509.NewCertPool()
				roots.AddCert(server.Certificate())
				client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"}, ForceAttemptHTTP2: true}}
				proxy, err := Serve(target, g, &tls.Config{Certificates: server.TLS.Certificates}, Client{})
				if err != nil {
					b.Fatal(err)
				}
				defer proxy.Close()
				address = proxy.URL()
			}
			bench(b, client, address)
			client.CloseIdleConnections()
		})
	}
}

// BenchmarkRequest is a patch of an object, and its answer.
func BenchmarkRequest(b *testing.B) {
	throughWays(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, content)
	}, func(b *testing.B, client *http.Client, address string) {
		for b.Loop() {
			request, err := http.NewRequestWithContext(b.Context(), http.MethodPatch,
				address+"/apis/metal3.io/v1alpha1/namespaces/default/baremetalhosts/worker-1", strings.NewReader(`{"metadata":{"annotations":{"a":"b"}}}`))
			if err != nil {
				b.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/merge-patch+json")
			response, err := client.Do(request)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
	})
}

// BenchmarkWatch is an event of a watch, from when the server writes it until its client has read
// it.
func BenchmarkWatch(b *testing.B) {
	next := make(chan bool)
	throughWays(b, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		for {
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
			fmt.Fprintf(w, "{\"type\":\"MODIFIED\",\"object\":%s}\n", content)
			w.(http.Flusher).Flush()
		}
	}, func(b *testing.B, client *http.Client, address string) {
		response, err := client.Get(address + "/apis/metal3.io/v1alpha1/baremetalhosts?watch=true")
		if err != nil {
			b.Fatal(err)
		}
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		for b.Loop() {
			next <- true
			if !lines.Scan() {
				b.Fatal(lines.Err())
			}
		}
	})
}
