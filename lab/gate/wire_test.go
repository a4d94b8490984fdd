package gate

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestWire: a server behind a wire receives exactly the data of its clients, under their own
// certificates, and none of the data that they sent while the wire hung.
func TestWire(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.Path)
		if len(r.TLS.PeerCertificates) == 0 {
			t.Error("the server sees no certificate")
		}
		_, _ = io.WriteString(w, "answer") // who asked may have gone
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	wire, err := Connect(strings.TrimPrefix(server.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	client := server.Client()
	client.Transport.(*http.Transport).TLSClientConfig.Certificates = server.TLS.Certificates
	ask := func(path string, patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+wire.Address()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
	const patience = 10 * time.Second
	if err := ask("/before", patience); err != nil {
		t.Errorf("before: %v", err)
	}

	wire.Refuse()
	wire.Refuse()
	if err := ask("/refused", patience); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("while it refuses: %v", err)
	}
	for range 2 {
		if err := wire.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask("/between", patience); err != nil {
		t.Errorf("after it has refused: %v", err)
	}

	wire.Hang()
	if err := ask("/old-connection", 200*time.Millisecond); err == nil {
		t.Error("it answers while it hangs")
	}
	client.CloseIdleConnections()
	hangs := make(chan error, 1)
	go func() { hangs <- ask("/new-connection", patience) }()
	select {
	case err := <-hangs:
		t.Errorf("a new connection, while it hangs: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := wire.Accept(); err != nil {
		t.Fatal(err)
	}
	if err := <-hangs; err == nil {
		t.Error("what hung was answered")
	}
	if err := ask("/after", patience); err != nil {
		t.Errorf("after it has hung: %v", err)
	}

	wire.Hang()
	go func() { hangs <- ask("/at-the-end", patience) }()
	if err := wire.Close(); err != nil {
		t.Error(err)
	}
	if err := <-hangs; err == nil {
		t.Error("it answers when it is closed")
	}
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(asked, " "); got != "/before /between /after" {
		t.Errorf("the server was asked %s", got)
	}
}
