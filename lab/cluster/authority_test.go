package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/csv"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fencelab/fencelab/lab/child"
)

func testAuthority(t *testing.T) (*authority, *x509.CertPool) {
	t.Helper()
	a, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.certificate) {
		t.Fatal("the authority's certificate is unreadable")
	}
	return a, roots
}

func parsePair(t *testing.T, certificate, key []byte) *x509.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(certificate, key) // checks that they belong together
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

func TestServingCertificate(t *testing.T) {
	a, roots := testAuthority(t)
	_, strangers := testAuthority(t)
	certificate, key, err := a.issueServing()
	if err != nil {
		t.Fatal(err)
	}
	leaf := parsePair(t, certificate, key)
	tests := []struct {
		host  string
		roots *x509.CertPool
		use   x509.ExtKeyUsage
		after time.Duration
		valid bool
	}{
		{"127.0.0.1", roots, x509.ExtKeyUsageServerAuth, 0, true},
		{"localhost", roots, x509.ExtKeyUsageServerAuth, 0, true},
		{ServerName, roots, x509.ExtKeyUsageServerAuth, 0, true},
		{"127.0.0.1", roots, x509.ExtKeyUsageServerAuth, -24 * time.Hour, true}, // a host whose clock is behind
		{"127.0.0.1", roots, x509.ExtKeyUsageServerAuth, 24 * time.Hour, true},
		{"127.0.0.1", roots, x509.ExtKeyUsageServerAuth, 365 * 24 * time.Hour, false},
		{"10.0.2.2", roots, x509.ExtKeyUsageServerAuth, 0, false},
		{"example.com", roots, x509.ExtKeyUsageServerAuth, 0, false},
		{"127.0.0.1", strangers, x509.ExtKeyUsageServerAuth, 0, false},
		{"127.0.0.1", roots, x509.ExtKeyUsageClientAuth, 0, false},
	}
	for _, test := range tests {
		_, err := leaf.Verify(x509.VerifyOptions{
			DNSName: test.host, Roots: test.roots, KeyUsages: []x509.ExtKeyUsage{test.use}, CurrentTime: time.Now().Add(test.after),
		})
		if (err == nil) != test.valid {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

func TestClientCertificate(t *testing.T) {
	a, roots := testAuthority(t)
	certificate, key, err := a.issueClient("system:node:worker-1", []string{"system:nodes", "others"})
	if err != nil {
		t.Fatal(err)
	}
	leaf := parsePair(t, certificate, key)
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	slices.Sort(leaf.Subject.Organization)
	if leaf.Subject.CommonName != "system:node:worker-1" || !slices.Equal(leaf.Subject.Organization, []string{"others", "system:nodes"}) {
		t.Errorf("subject is %v", leaf.Subject)
	}
	if leaf.IsCA {
		t.Error("a client could sign certificates")
	}
	if _, _, err := a.issueClient("\xff", nil); err == nil {
		t.Error("issued a certificate for a name that isn't UTF-8")
	}
}

func TestKubeconfig(t *testing.T) {
	a, _ := testAuthority(t)
	port, err := child.HoldPort()
	if err != nil {
		t.Fatal(err)
	}
	defer port.Release()
	c := &Cluster{identities: identities{authority: a, address: port.Address()}}
	want := c.ConfigFor("alice", "editors")
	text, err := Kubeconfig(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	if got.Host != "https://"+c.Address() || string(got.CAData) != string(c.CA()) ||
		string(got.CertData) != string(want.CertData) || string(got.KeyData) != string(want.KeyData) {
		t.Errorf("%s\nreads as %v, want %v", text, got, want)
	}
}

func TestTokens(t *testing.T) {
	tokens := newNodeTokens([]string{"worker-2", "worker-1"})
	records, err := csv.NewReader(strings.NewReader(string(tokenLines(tokens)))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{tokens["worker-1"], "system:node:worker-1", "worker-1", "system:nodes"},
		{tokens["worker-2"], "system:node:worker-2", "worker-2", "system:nodes"},
	}
	if !slices.EqualFunc(records, want, slices.Equal) {
		t.Errorf("token file says %q, want %q", records, want)
	}
	if len(tokens["worker-1"]) < 20 || tokens["worker-1"] == tokens["worker-2"] {
		t.Errorf("guessable tokens: %v", tokens)
	}
}

// TestPeers: a Node's certificate is for that Node alone, as a client and as a server, and
// the API server's authority does not vouch for it.
func TestPeers(t *testing.T) {
	p, err := NewPeers()
	if err != nil {
		t.Fatal(err)
	}
	_, theirs := testAuthority(t)
	ours := x509.NewCertPool()
	if !ours.AppendCertsFromPEM(p.CA()) {
		t.Fatal("the authority's certificate is unreadable")
	}
	certificate, key, err := p.Issue("node-1")
	if err != nil {
		t.Fatal(err)
	}
	leaf := parsePair(t, certificate, key)
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		for _, c := range []struct {
			node  string
			roots *x509.CertPool
			valid bool
		}{{"node-1", ours, true}, {"node-2", ours, false}, {"node-1", theirs, false}} {
			_, err := leaf.Verify(x509.VerifyOptions{DNSName: c.node, Roots: c.roots, KeyUsages: []x509.ExtKeyUsage{use}})
			if (err == nil) != c.valid {
				t.Errorf("as %s, for use %d: %v", c.node, use, err)
			}
		}
	}
}
