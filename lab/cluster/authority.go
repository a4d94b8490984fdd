package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// validity of every certificate, in both directions from now: scenarios skew the clocks of hosts.
const validity = 30 * 24 * time.Hour

// authority signs the server's certificate and those of its clients. It exists in memory only.
type authority struct {
	key         *ecdsa.PrivateKey
	parsed      *x509.Certificate
	certificate []byte // PEM
}

func newAuthority() (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	a := &authority{key: key}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "fencelab"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := sign(template, template, a.key, a.key)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	if a.parsed, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	a.certificate = pemBlock("CERTIFICATE", der)
	return a, nil
}

// issueServing returns the API server's certificate and key in PEM.
func (a *authority) issueServing() (certificate, key []byte, err error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", ServerName, "kubernetes.default.svc"},
		IPAddresses: []net.IP{loopback.AsSlice(), Service.Addr().AsSlice()},
	})
}

// issueClient returns a certificate and key in PEM that authenticate a user: Kubernetes reads the
// user's name from the common name and its groups from the organizations.
func (a *authority) issueClient(user string, groups []string) (certificate, key []byte, err error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// Peers is an authority of its own, by which programs on Nodes know each other and which
// the API server does not believe.
type Peers struct{ authority *authority }

// NewPeers makes one, which exists in memory only.
func NewPeers() (*Peers, error) {
	a, err := newAuthority()
	return &Peers{a}, err
}

// CA is its certificate, in PEM.
func (p *Peers) CA() []byte { return p.authority.certificate }

// Issue returns a certificate and key in PEM for the programs on a Node, as clients and as
// servers.
func (p *Peers) Issue(node string) (certificate, key []byte, err error) {
	return p.authority.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: node},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{node},
	})
}

func (a *authority) issue(template *x509.Certificate) (certificate, key []byte, err error) {
	template.KeyUsage = x509.KeyUsageDigitalSignature
	own, err := newKey()
	if err != nil {
		return nil, nil, fmt.Errorf("make key for %q: %w", template.Subject.CommonName, err)
	}
	der, err := sign(template, a.parsed, own, a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("issue certificate for %q: %w", template.Subject.CommonName, err)
	}
	key, err = keyPEM(own)
	return pemBlock("CERTIFICATE", der), key, err
}

func sign(template, parent *x509.Certificate, subject, issuer *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = time.Now().Add(-validity), time.Now().Add(validity)
	return x509.CreateCertificate(rand.Reader, template, parent, subject.Public(), issuer)
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pemBlock("EC PRIVATE KEY", der), nil
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
