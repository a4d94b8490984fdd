package onhost

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/fencelab/fencelab/controllers"
	"github.com/fencelab/fencelab/front"
)

const (
	// path is the URL path of questions to a peer.
	path = "/question"
	// maxMessage is more than any question or answer has.
	maxMessage = 16 << 10
	// mostAnswers bounds the answers in work: each costs the API server some requests.
	mostAnswers = 32
	// answerWithin bounds one.
	answerWithin = 30 * time.Second
)

// identity is who this host is among its peers, in files that may be renewed.
type identity struct{ certificate, key, authority string }

func (i identity) load() (tls.Certificate, *x509.CertPool, error) {
	pair, err := tls.LoadX509KeyPair(i.certificate, i.key)
	if err != nil {
		return pair, nil, fmt.Errorf("load the certificate of this host: %w", err)
	}
	pem, err := os.ReadFile(i.authority)
	if err != nil {
		return pair, nil, fmt.Errorf("load the authority of the peers: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return pair, nil, fmt.Errorf("load the authority of the peers: %s has no certificate", i.authority)
	}
	return pair, pool, nil
}

// server rejects clients without a certificate of the authority.
func (i identity) server() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, pool, err := i.load()
		if err != nil {
			return nil, err
		}
		return &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		}, nil
	}}
}

// service answers what peers ask.
type service struct {
	answerer controllers.Answerer
	log      logr.Logger
	busy     chan struct{}
}

// ServeHTTP answers one question. The name of the Node that asks is in its certificate,
// and not in what it says.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := front.ReadBody(w, r)
	switch {
	case err != nil:
		return
	case r.URL.Path != path || r.Method != http.MethodPost:
		http.NotFound(w, r)
		return
	case len(body) > maxMessage:
		http.Error(w, "the question is too long", http.StatusRequestEntityTooLarge)
		return
	case r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.PeerCertificates[0].DNSNames) == 0:
		http.Error(w, "the certificate names no Node", http.StatusForbidden)
		return
	}
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	default:
		http.Error(w, "too many questions at once", http.StatusTooManyRequests)
		return
	}
	from := r.TLS.PeerCertificates[0].DNSNames[0]
	ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
	defer cancel()
	answer, err := s.answerer.Answer(ctx, from, body)
	if err != nil {
		s.log.Info("a peer gets no answer", "peer", from, "reason", err.Error())
		http.Error(w, "no answer", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

// peers are the agents on the other hosts. It implements controllers.Peers.
type peers struct {
	identity identity
	port     string
}

// Ask asks all of them at once, each by its name, over connections of their own: one that
// was left open may lead into a network that is cut by now.
func (p *peers) Ask(ctx context.Context, asked map[string][]string, request []byte, within time.Duration) map[string][]byte {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var mutex sync.Mutex
	var all sync.WaitGroup
	answers := map[string][]byte{}
	for node, addresses := range asked {
		for _, address := range addresses {
			all.Go(func() {
				said, err := p.ask(ctx, node, net.JoinHostPort(address, p.port), request)
				if err != nil {
					return // whoever says nothing is not among the answers
				}
				mutex.Lock()
				defer mutex.Unlock()
				answers[node] = said
			})
		}
	}
	all.Wait()
	return answers
}

// ask asks one peer, which has to prove that it is on the host of that Node.
func (p *peers) ask(ctx context.Context, node, address string, request []byte) ([]byte, error) {
	pair, pool, err := p.identity.load()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: node},
		DisableKeepAlives: true, MaxResponseHeaderBytes: maxMessage,
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+path, bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := (&http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask the peer on Node %s: it answers %s", node, response.Status)
	}
	said, err := io.ReadAll(io.LimitReader(response.Body, maxMessage+1))
	if err == nil && len(said) > maxMessage {
		err = errors.New("the answer is too long")
	}
	return said, err
}
