package cluster

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// identities holds the credentials that identify our users at an API server or in front of one.
type identities struct {
	authority  *authority
	address    string // host:port, where they are known
	nodeTokens map[string]string
}

// Config returns the configuration of a client that may do everything.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// Address is the API's host:port on the loopback interface. Its certificate is also valid for
// localhost, and for ServerName, which clients expect that reach it by way of another address.
func (c *identities) Address() string { return c.address }

// CA is the certificate, in PEM, that vouches for the API server.
func (c *identities) CA() []byte { return c.authority.certificate }

// ConfigFor returns the configuration of a client that authenticates, with a new certificate, as a
// user in groups; what the user may do is a matter of RBAC. Clients made from it don't throttle
// themselves. It panics if a name isn't UTF-8 or if the user's is empty.
func (c *identities) ConfigFor(user string, groups ...string) *rest.Config {
	if user == "" {
		panic("cluster: credentials for a user without a name")
	}
	certificate, key, err := c.authority.issueClient(user, groups)
	if err != nil {
		panic("cluster: " + err.Error())
	}
	return &rest.Config{
		Host:            "https://" + c.Address(),
		TLSClientConfig: rest.TLSClientConfig{CAData: c.CA(), CertData: certificate, KeyData: key},
		QPS:             -1,
	}
}

// ProxyConfig is for a server in front of the API server: clients that [Cluster.ConfigFor] was made
// for believe it, and have to show their certificates.
func (c *identities) ProxyConfig() (*tls.Config, error) {
	certificate, key, err := c.authority.issueServing()
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("serve in front of the API server: %w", err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(c.authority.parsed)
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}, nil
}

// NodeToken returns the bearer token by which the kubelet of one of [Options.Nodes] authenticates,
// as real kubelets do, as the user system:node:<name> in the group system:nodes. It is empty for a
// name that isn't listed there.
func (c *identities) NodeToken(name string) string { return c.nodeTokens[name] }

// Kubeconfig renders a configuration, such as one of [Cluster.ConfigFor], as a kubeconfig file
// without references to other files.
func Kubeconfig(config *rest.Config) ([]byte, error) {
	const name = "fencelab"
	file := clientcmdapi.NewConfig()
	file.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, TLSServerName: config.ServerName, CertificateAuthorityData: config.CAData}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
	}
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	file.CurrentContext = name
	text, err := clientcmd.Write(*file)
	if err != nil {
		return nil, fmt.Errorf("render kubeconfig for %s: %w", config.Host, err)
	}
	return text, nil
}

func newNodeTokens(names []string) map[string]string {
	tokens := make(map[string]string, len(names))
	for _, name := range names {
		tokens[name] = rand.Text()
	}
	return tokens
}

// tokenLines renders kube-apiserver's static token file: token, user, uid, groups.
func tokenLines(tokens map[string]string) []byte {
	var lines bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(tokens)) {
		fmt.Fprintf(&lines, "%s,system:node:%s,%s,system:nodes\n", tokens[name], name, name)
	}
	return lines.Bytes()
}
