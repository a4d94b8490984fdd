// Package front is what the network services of BMCs share: how they meet clients that may
// be slow, broken or hostile.
package front

import (
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// Limits on what a client may send, and for how long.
const (
	MaxBody   = 64 << 10
	MaxHeader = 16 << 10
	Timeout   = 10 * time.Second
)

// ReadBody reads to the end, without which net/http doesn't notice that a client
// leaves while its request hangs.
func ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	c := http.NewResponseController(w)
	if err := c.SetReadDeadline(time.Now().Add(Timeout)); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	return body, errors.Join(err, c.SetReadDeadline(time.Time{}))
}

// IsJSON is strict also because a web page can't send this type to a loopback
// address without being asked first.
func IsJSON(r *http.Request) bool {
	t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && t == "application/json"
}

// IsLocal tells whether a Host header names a loopback address.
func IsLocal(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
