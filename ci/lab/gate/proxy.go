package gate

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
)

// Proxy serves a server's address of its own, from which all requests go to the server through a transport, which is a
// [Gate]. What the transport can't deliver ends the caller's connection (with HTTP/2: its stream) without an answer, as if
// the network did.
type Proxy struct {
	url      *url.URL
	server   *http.Server
	handlers sync.WaitGroup
}

// Serve starts a proxy on a loopback port of the kernel's choice. Without TLS it serves plain HTTP/1; with it HTTP/2 as
// well. user, if not empty, is the one common name that clients' certificates may have.
func Serve(target *url.URL, through http.RoundTripper, config *tls.Config, user string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve a proxy of %s: %w", target, err)
	}
	p := &Proxy{url: &url.URL{Scheme: "http", Host: listener.Addr().String()}}
	reverse := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = target.Host
		},
		Transport:     through,
		FlushInterval: -1, // a watch's event is for now
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.server = &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.handlers.Add(1)
		defer p.handlers.Done()
		if user != "" && (r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != user) {
			http.Error(w, "this is the way of "+user+" only", http.StatusUnauthorized)
			return
		}
		reverse.ServeHTTP(w, r)
	})}
	serve := p.server.Serve
	if config != nil {
		p.url.Scheme, p.server.TLSConfig = "https", config.Clone()
		serve = func(l net.Listener) error { return p.server.ServeTLS(l, "", "") }
	}
	p.handlers.Add(1)
	go func() {
		defer p.handlers.Done()
		_ = serve(listener) // it ends with Close
	}()
	return p, nil
}

// URL is where the proxy is.
func (p *Proxy) URL() string { return p.url.String() }

// Address is its host and port.
func (p *Proxy) Address() string { return p.url.Host }

// Close ends the listener and every connection, and returns when no request is under way any more.
func (p *Proxy) Close() error {
	err := p.server.Close()
	p.handlers.Wait()
	return err
}
