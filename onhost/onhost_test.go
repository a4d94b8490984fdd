package onhost

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/fencelab/fencelab/controllers"
)

// authority makes certificates for the hosts of a test.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.key, a.cert = a.make(t, "ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	return a
}

// host returns who a host is, with a certificate for some names.
func (a *authority) host(t *testing.T, names ...string) identity {
	t.Helper()
	file := strings.Join(names, "-")
	a.make(t, file, &x509.Certificate{DNSNames: names, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}, a.cert)
	return identity{filepath.Join(a.dir, file+".crt"), filepath.Join(a.dir, file+".key"), filepath.Join(a.dir, "ca.crt")}
}

func (a *authority) make(t *testing.T, file string, template, parent *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	template.SerialNumber, template.Subject = big.NewInt(1), pkix.Name{CommonName: file}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	signer := a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	check(err)
	private, err := x509.MarshalECPrivateKey(key)
	check(err)
	check(os.WriteFile(filepath.Join(a.dir, file+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	check(os.WriteFile(filepath.Join(a.dir, file+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600))
	cert, err := x509.ParseCertificate(der)
	check(err)
	return key, cert
}

// echo answers with who asks, and counts.
type echo struct{ asked atomic.Int32 }

func (e *echo) Answer(_ context.Context, from string, request []byte) ([]byte, error) {
	e.asked.Add(1)
	if string(request) == "refuse" {
		return nil, errors.New("refused")
	}
	return []byte(from + " " + string(request)), nil
}

// listen serves a host's answers on loopback.
func listen(t *testing.T, id identity, answerer controllers.Answerer) (port string) {
	t.Helper()
	at, stop, err := serve("127.0.0.1:0", id, answerer, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	_, port, _ = net.SplitHostPort(at.String())
	return port
}

var loopback = []string{"127.0.0.1"}

const patience = 5 * time.Second

// TestPeers: peers know each other by their certificates, in both directions.
func TestPeers(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	e := new(echo)
	port := listen(t, ours.host(t, "worker-2"), e)
	ask := func(id identity, node, request string) string {
		return string((&peers{id, port}).Ask(t.Context(), map[string][]string{node: loopback}, []byte(request), patience)[node])
	}
	me := ours.host(t, "worker-1")
	if got := ask(me, "worker-2", "hello"); got != "worker-1 hello" {
		t.Errorf("a peer answers %q", got)
	}
	if got := ask(me, "worker-2", "refuse"); got != "" {
		t.Errorf("a peer that can't tell says %q", got)
	}
	before := e.asked.Load()
	if got := ask(me, "worker-3", "hello"); got != "" {
		t.Errorf("worker-2 answers %q in the name of worker-3", got)
	}
	stranger := theirs.host(t, "worker-1")
	stranger.authority = me.authority // it believes ours
	if got := ask(stranger, "worker-2", "hello"); got != "" {
		t.Errorf("a stranger with a certificate of its own is told %q", got)
	}
	if got := ask(ours.host(t, "worker-1"), "worker-2", strings.Repeat("x", maxMessage+1)); got != "" {
		t.Errorf("a question that is too long is answered: %.20q", got)
	}
	if e.asked.Load() != before {
		t.Error("the agent was bothered with questions of strangers")
	}
	many := map[string][]string{"worker-2": loopback, "worker-9": {"127.0.0.1", "127.0.0.2"}}
	if got := (&peers{me, port}).Ask(t.Context(), many, []byte("hello"), patience); len(got) != 1 {
		t.Errorf("of two, one of which isn't there, %d answer", len(got))
	}
}

// TestNobodyWithoutACertificate gets any further than the handshake.
func TestNobodyWithoutACertificate(t *testing.T) {
	a, e := newAuthority(t), new(echo)
	port := listen(t, a.host(t, "worker-2"), e)
	client := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := client.Post("https://127.0.0.1:"+port+path, "application/json", strings.NewReader("hello"))
	if err == nil {
		_ = response.Body.Close()
		t.Errorf("who has no certificate is answered %s", response.Status)
	}
	plain, err := http.Post("http://127.0.0.1:"+port+path, "application/json", strings.NewReader("hello"))
	if err == nil {
		_ = plain.Body.Close()
		if plain.StatusCode == http.StatusOK {
			t.Error("who speaks no TLS is answered")
		}
	}
	if e.asked.Load() != 0 {
		t.Error("the agent was asked")
	}
}

// TestHostileClients: garbage, silence, slow headers and bodies without end keep no peer
// from its answer.
func TestHostileClients(t *testing.T) {
	a, e := newAuthority(t), new(echo)
	port := listen(t, a.host(t, "worker-2"), e)
	me := a.host(t, "worker-1")
	for i := range 200 {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		switch i % 3 {
		case 0: // says nothing
		case 1:
			_, _ = conn.Write(bytes.Repeat([]byte{0xff, 0x16, 0x03}, 1000))
		case 2: // half a handshake
			_, _ = conn.Write([]byte{0x16, 0x03, 0x01, 0x02, 0x00, 0x01})
		}
	}
	pair, pool, err := me.load()
	if err != nil {
		t.Fatal(err)
	}
	insider := &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: "worker-2"}
	for _, head := range []string{
		"POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Le",
		"POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n" + strings.Repeat("x", 1<<20),
		"POST " + path + " HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<20),
		"POST " + path + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		conn, err := tls.Dial("tcp", "127.0.0.1:"+port, insider)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		go func() { _, _ = io.WriteString(conn, head) }()
	}
	for range 3 {
		if got := (&peers{me, port}).Ask(t.Context(), map[string][]string{"worker-2": loopback}, []byte("hello"), patience)["worker-2"]; string(got) != "worker-1 hello" {
			t.Errorf("meanwhile a peer is answered %q", got)
		}
	}
}

// TestBoot: what is kept is kept for this boot, whatever the directory outlasts.
func TestBoot(t *testing.T) {
	dir := t.TempDir()
	b, err := openBoot(filepath.Join(dir, "run"), "test")
	if err != nil {
		t.Fatal(err)
	}
	if data, err := b.Load(); data != nil || err != nil {
		t.Errorf("before anything was saved: %q, %v", data, err)
	}
	if err := b.Save([]byte("{\n}")); err != nil {
		t.Fatal(err)
	}
	if data, err := b.Load(); string(data) != "{\n}" || err != nil {
		t.Errorf("loaded %q, %v", data, err)
	}
	other := &boot{"another", b.file}
	if data, err := other.Load(); data != nil || err != nil {
		t.Errorf("the next boot finds %q, %v", data, err)
	}
	if b.ID() == "" || b.Uptime() <= 0 {
		t.Errorf("boot %q has lasted %s", b.ID(), b.Uptime())
	}
}

// tin is a watchdog that only remembers what was done to it.
type tin struct {
	fed            atomic.Int32
	disarmed, left bool
}

func (d *tin) feed() error            { d.fed.Add(1); return nil }
func (d *tin) timeout() time.Duration { return time.Minute }
func (d *tin) disarm() error          { d.disarmed = true; return nil }
func (d *tin) leave() error           { d.left = true; return nil }

// stepper is an agent that feeds the watchdog.
type stepper struct {
	echo
	d      controllers.Deps
	stop   func()
	retire error
}

func (s *stepper) Step(ctx context.Context) (time.Duration, error) {
	err := s.d.Watchdog.Feed(ctx)
	if s.d.Watchdog.(*watchdog).device.(*tin).fed.Load() == 3 {
		s.stop()
	}
	return 0, err
}

func (s *stepper) Retire(context.Context) error { return s.retire }

// TestStop: an agent disarms its watchdog only when no other host relies on it any more.
func TestStop(t *testing.T) {
	id := newAuthority(t).host(t, "worker-1")
	for _, retire := range []error{nil, errors.New("the host has to be reset")} {
		t.Run(fmt.Sprint(retire), func(t *testing.T) {
			dog := new(tin)
			ctx, stop := context.WithCancel(t.Context())
			err := Run(ctx, Options{
				Agent: controllers.Selection{Registration: controllers.Registration{Name: "stepper", AsksPeers: true, NewAgent: func(d controllers.Deps) (controllers.Agent, error) {
					return &stepper{d: d, stop: stop, retire: retire}, nil
				}}},
				Host: controllers.Host{Name: "worker-1", Node: "worker-1"}, Config: &rest.Config{Host: "http://127.0.0.1:1"}, Listen: "127.0.0.1:0", State: t.TempDir(), Logger: logr.Discard(),
				Certificate: id.certificate, Key: id.key, Authority: id.authority, dog: dog,
			})
			if (err == nil) != (retire == nil) || dog.disarmed != (retire == nil) || dog.left == (retire == nil) || dog.fed.Load() != 3 {
				t.Errorf("disarmed %t, left %t, fed %d times: %v", dog.disarmed, dog.left, dog.fed.Load(), err)
			}
		})
	}
}

// TestMissingFiles: what can't work is said before anything starts.
func TestMissingFiles(t *testing.T) {
	id := newAuthority(t).host(t, "worker-1")
	for what, o := range map[string]Options{
		"certificate": {Certificate: "nowhere", Key: id.key, Authority: id.authority},
		"authority":   {Certificate: id.certificate, Key: id.key, Authority: id.key},
		"watchdog":    {Certificate: id.certificate, Key: id.key, Authority: id.authority, Watchdog: "/nowhere/watchdog"},
	} {
		o.Agent.AsksPeers = true
		o.State, o.Config, o.Logger = t.TempDir(), &rest.Config{Host: "http://127.0.0.1:1"}, logr.Discard()
		if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("without a %s: %v", what, err)
		}
	}
}
