package gate

import (
	"crypto/subtle"
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

// Proxy serves a server's address of its own, from which all requests go to the server through a
// transport, which is a [Gate]. What the transport can't deliver ends the caller's connection (with
// HTTP/2: its stream) without an answer, as if the network did.
type Proxy struct {
	url      *url.URL
	server   *http.Server
	serve    func(net.Listener) error
	handlers sync.WaitGroup

	mu sync.Mutex
	// listener is nil while the proxy refuses connections.
	listener    net.Listener
	connections map[net.Conn]bool
	closed      bool
}

// Client restricts who may use a proxy: clients with a certificate with the common name User, or
// with the Token, unless that is empty. The zero value admits all.
type Client struct{ User, Token string }

// is reports whether a request is the client's, and takes the token out of it, which is the proxy's
// alone.
func (c *Client) is(r *http.Request) bool {
	const bearer = "Bearer "
	if c.Token != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte(bearer+c.Token)) == 1 {
		r.Header.Del("Authorization")
		return true
	}
	return c.User == "" || r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && r.TLS.PeerCertificates[0].Subject.CommonName == c.User
}

// Serve starts a proxy on a loopback port of the kernel's choice. Without TLS it serves plain
// HTTP/1; with it HTTP/2 as well.
func Serve(target *url.URL, through http.RoundTripper, config *tls.Config, only Client) (*Proxy, error) {
	scheme := "http"
	if config != nil {
		scheme = "https"
	}
	return serve(target, through, only, scheme, func(server *http.Server) func(net.Listener) error {
		if config == nil {
			return server.Serve
		}
		server.TLSConfig = config.Clone()
		if only.Token != "" {
			server.TLSConfig.ClientAuth = tls.VerifyClientCertIfGiven
		}
		return func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	})
}

// ServeEither starts a proxy to which clients may speak plain HTTP/1, or the same with TLS.
func ServeEither(target *url.URL, through http.RoundTripper, config *tls.Config) (*Proxy, error) {
	return serve(target, through, Client{}, "http", func(server *http.Server) func(net.Listener) error {
		return func(l net.Listener) error { return server.Serve(either{l, config}) }
	})
}

func serve(target *url.URL, through http.RoundTripper, only Client, scheme string, how func(*http.Server) func(net.Listener) error) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve a proxy of %s: %w", target, err)
	}
	p := &Proxy{url: &url.URL{Scheme: scheme, Host: listener.Addr().String()}, connections: make(map[net.Conn]bool)}
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
		if !only.is(r) {
			http.Error(w, "this is the way of "+only.User+" only", http.StatusUnauthorized)
			return
		}
		reverse.ServeHTTP(w, r)
	})}
	p.server.ConnState = func(c net.Conn, state http.ConnState) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch state {
		case http.StateNew:
			p.connections[c] = true
		case http.StateClosed, http.StateHijacked:
			delete(p.connections, c)
		}
	}
	p.serve = how(p.server)
	p.listen(listener)
	return p, nil
}

// listen serves what comes to a listener. It is called before the proxy is known, or with mu held.
func (p *Proxy) listen(l net.Listener) {
	p.listener = l
	p.handlers.Add(1)
	go func() {
		defer p.handlers.Done()
		_ = p.serve(l) // it ends with the listener
	}()
}

// Refuse ends every connection and refuses new ones, as the address of a server that has stopped
// does.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		return
	}
	_ = p.listener.Close() // it has nothing to lose
	p.listener = nil
	for c := range p.connections {
		if secure, ok := c.(*tls.Conn); ok {
			c = secure.NetConn() // without a word to a client that may stand still
		}
		_ = c.Close()
	}
}

// Accept ends Refuse. It fails if another process has taken the address meanwhile.
func (p *Proxy) Accept() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.closed {
		return nil
	}
	listener, err := net.Listen("tcp", p.url.Host)
	if err != nil {
		return fmt.Errorf("serve the proxy at %s again: %w", p.url.Host, err)
	}
	p.listen(listener)
	return nil
}

// URL is where the proxy is.
func (p *Proxy) URL() string { return p.url.String() }

// Address is its host and port.
func (p *Proxy) Address() string { return p.url.Host }

// Close ends the listener and every connection, and returns when no request is under way any more.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.server.Close()
	p.handlers.Wait()
	return err
}
